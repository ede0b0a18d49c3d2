"""`vtrans shortlist`: a table learnt from the training pairs, written into the model file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from vtrans.commands.options import Quiet
from vtrans.config import DEFAULT_FREQUENT, DEFAULT_RUN, DEFAULT_TRANSLATIONS, PrepareOptions
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.text import check_path


def shortlist(
    model: Annotated[Path, typer.Argument(help="A run folder or a model file.", metavar="MODEL")] = Path(DEFAULT_RUN),
    data: Annotated[Path, typer.Option(help="Data folder that it was trained on.", metavar="FOLDER")] = Path(
        PrepareOptions.out
    ),
    out: Annotated[
        Path | None,
        typer.Option(help="Model file to write.  [default: the same file; of a run its average]", metavar="FILE"),
    ] = None,
    translations: Annotated[
        int, typer.Option(help="Target subwords for each source subword.", min=1, metavar="N")
    ] = DEFAULT_TRANSLATIONS,
    frequent: Annotated[
        int, typer.Option(help="Most frequent target subwords, for every sentence.", min=0, metavar="N")
    ] = DEFAULT_FREQUENT,
    quiet: Quiet = False,
) -> None:
    """Learn which subwords can follow from which of the source.

    From the training pairs, by IBM model 1; the table is written into the model file, whose weights stay
    as they are. Checkpoints are not written to, since training replaces them.
    """
    from vtrans.checkpoint import add_shortlist, choose_model, load_model, run_of
    from vtrans.data.store import DataFolder
    from vtrans.decoding.shortlist import learn_shortlist

    console = Console(quiet=quiet)
    if out:
        check_path(out)
    chosen = choose_model(model)
    file = chosen.file
    target = out or file
    run = run_of(target)
    if run and os.path.realpath(target) != str(run.averaged):
        raise InputError(
            f"{target} is a file of `vtrans train`, which replaces it when it goes on; run `vtrans average` first, "
            "whose result can hold a shortlist, or give another --out."
        )
    console.info(chosen.words)
    loaded, folder = load_model(file), DataFolder.open(data)
    if (folder.src_vocab.digest, folder.tgt_vocab.digest) != (loaded.src_vocab.digest, loaded.tgt_vocab.digest):
        raise InputError(f"{data} has another vocabulary than {file}; give the --data that the model was trained on.")
    found = learn_shortlist(folder.train, len(folder.src_vocab), len(folder.tgt_vocab), translations, frequent)
    add_shortlist(file, found, target)
    console.info(
        f"{target}: with a shortlist of {translations} translations of each source subword and the "
        f"{len(found.frequent):,} most frequent target subwords; `vtrans translate --shortlist` uses it"
    )
