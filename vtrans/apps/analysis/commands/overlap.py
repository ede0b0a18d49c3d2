"""`vtrans overlap`: the subwords that two texts have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import argument, option
from vtrans.commands.lines import print_json, result_console
from vtrans.commands.shared_options import BadUtf8, Json, Quiet
from vtrans.data.options import DEFAULT_VOCAB_SIZE, PrepareOptions
from vtrans.system.console import Console
from vtrans.system.errors import InputError

VOCAB = "Joint SentencePiece model to use, as made by prepare-bpe."
VOCAB_SIZE = (
    f"Number of subwords to learn if no vocabulary is given.  [default: {DEFAULT_VOCAB_SIZE}, or what the text allows]"
)


def overlap(
    src: Annotated[Path, argument("Text in the source language.", "SRC")],
    tgt: Annotated[Path, argument("Text in the target language; it need not be parallel.", "TGT")],
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
    if vocab and vocab_size is not None:
        raise InputError("--vocab-size is for learning a vocabulary; leave it out with --vocab.")
    from vtrans.apps.analysis.text_overlap import overlap_of_files, show
    from vtrans.text.lines import open_bytes
    from vtrans.text.vocabulary import Vocabulary

    vocabulary = None
    if vocab:
        with open_bytes(vocab) as stream:
            vocabulary = Vocabulary(stream.read(), str(vocab))
    report = overlap_of_files(src, tgt, vocabulary, Console(quiet=quiet), on_bad_utf8, vocab_size)
    if as_json:
        print_json(report)
    else:
        show(report, result_console())
