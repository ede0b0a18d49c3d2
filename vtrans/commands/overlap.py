"""`vtrans overlap`: of two texts, or of the training pairs of a data folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, cast

import typer

from vtrans.commands.lines import print_line, result_console
from vtrans.commands.options import BadUtf8, Json, Quiet, bad_utf8
from vtrans.config import DEFAULT_VOCAB_SIZE, PrepareOptions
from vtrans.console import Console
from vtrans.errors import InputError


def overlap(
    src: Annotated[Path | None, typer.Argument(help="Text of the source language.", metavar="SRC")] = None,
    tgt: Annotated[
        Path | None, typer.Argument(help="Text of the target language; it need not be parallel.", metavar="TGT")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Data folder whose vocabulary is taken; without SRC and TGT, whose training pairs are compared.",
            metavar="FOLDER",
        ),
    ] = None,
    vocab: Annotated[
        Path | None, typer.Option(help="SentencePiece model that prepare-bpe has made, for both.", metavar="FILE")
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            help=f"Subwords of the one that is learnt.  [default: {DEFAULT_VOCAB_SIZE}, or what the text allows]",
            metavar="N",
        ),
    ] = PrepareOptions.vocab_size,
    on_bad_utf8: BadUtf8 = PrepareOptions.on_bad_utf8,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count the subwords that two languages have in common.

    Before any training, by script, with the definition of each figure: what a joint vocabulary and tied embeddings
    would share. A joint BPE vocabulary is learnt for it, as prepare-bpe would, unless one is given.
    """
    if (src is None) != (tgt is None) or (src is None and data is None):
        raise InputError("overlap compares two texts; give SRC and TGT, or --data FOLDER for its training pairs.")
    if data and vocab:
        raise InputError("--data brings its own vocabulary; leave out --vocab.")
    if vocab_size is not None and (data or vocab):
        raise InputError(
            f"--vocab-size is of a vocabulary to learn; leave it out with --{'data' if data else 'vocab'}."
        )
    how, console = bad_utf8(on_bad_utf8), Console(quiet=quiet)
    from vtrans.analysis.overlap import overlap_of_data, overlap_of_files, vocabularies_of
    from vtrans.data.store import DataFolder

    if src is None or tgt is None:
        found = overlap_of_data(DataFolder.open(cast(Path, data)))
    else:
        given = vocabularies_of(data, vocab) if data or vocab else None
        found = overlap_of_files(src, tgt, console, given=given, vocab_size=vocab_size, on_bad_utf8=how)
    if as_json:
        print_line(json.dumps(found.as_dict(), ensure_ascii=False, indent=2))
    else:
        found.show(result_console())
