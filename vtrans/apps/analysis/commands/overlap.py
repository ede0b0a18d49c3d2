"""`vtrans overlap`: the subwords that two texts, or the sides of a data folder, have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import argument, option
from vtrans.commands.lines import print_json, result_console, terminal_width
from vtrans.commands.shared_options import BadUtf8, Json, Quiet
from vtrans.data.options import DEFAULT_VOCAB_SIZE, PrepareOptions
from vtrans.system.console import Console
from vtrans.system.errors import InputError

DATA = (
    "Data folder whose vocabulary to use; without SRC and TGT, compare its training pairs.  [default without SRC and "
    f"TGT: {PrepareOptions.out}]"
)
VOCAB = "Joint SentencePiece model to use, as made by prepare-bpe."
VOCAB_SIZE = (
    f"Number of subwords to learn if no vocabulary is given.  [default: {DEFAULT_VOCAB_SIZE}, or what the text allows]"
)


def overlap(
    src: Annotated[Path | None, argument("Text in the source language.", "SRC")] = None,
    tgt: Annotated[Path | None, argument("Text in the target language; it need not be parallel.", "TGT")] = None,
    data: Annotated[Path | None, option(DATA, "FOLDER", "Vocabulary")] = None,
    vocab: Annotated[Path | None, option(VOCAB, "FILE", "Vocabulary")] = None,
    vocab_size: Annotated[int | None, option(VOCAB_SIZE, "N", "Vocabulary")] = PrepareOptions.vocab_size,
    on_bad_utf8: BadUtf8 = PrepareOptions.on_bad_utf8,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count the subwords that two languages have in common.

    The figures show, for each script, how many subwords of a joint vocabulary both languages use. No model is needed.
    Unless a vocabulary is given, a joint one is learned from both texts with the defaults of prepare-bpe.
    """
    if (src is None) != (tgt is None) or (src is None and (vocab or vocab_size is not None)):
        raise InputError("overlap compares two texts: give SRC and TGT, or --data FOLDER for its training pairs.")
    if src is None:
        data = data or Path(PrepareOptions.out)
    if data and vocab:
        raise InputError("--data and --vocab both name a vocabulary; give one of them.")
    if vocab_size is not None and (data or vocab):
        raise InputError(
            f"--vocab-size is for learning a vocabulary; leave it out with --{'data' if data else 'vocab'}."
        )
    console = Console(quiet=quiet)
    from vtrans.apps.analysis.overlap import Vocabularies, learn_joint, overlap_of_data, overlap_of_files
    from vtrans.data.store import DataFolder

    folder = DataFolder.open(data) if data else None
    if src and tgt:
        if folder:
            vocabularies = Vocabularies.of_data(folder)
        elif vocab:
            vocabularies = Vocabularies.of_file(vocab)
        else:
            vocabularies = learn_joint(src, tgt, console, vocab_size, on_bad_utf8)
        counted = overlap_of_files(src, tgt, vocabularies, console, on_bad_utf8)
    else:
        assert folder
        counted = overlap_of_data(folder)
    if as_json:
        print_json(counted.as_dict())
    else:
        counted.show(result_console(), terminal_width())
