"""`vtrans shortlist`: a table learnt from the training pairs, written into the model file."""

from __future__ import annotations

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
        Path | None, typer.Option(help="Model file to write.  [default: the same file]", metavar="FILE")
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
    as they are.
    """
    from vtrans.checkpoint import add_shortlist, choose_model, load_model
    from vtrans.shortlist import learn_shortlist
    from vtrans.store import DataFolder

    console = Console(quiet=quiet)
    if out:
        check_path(out)
    chosen = choose_model(model)
    file = chosen.file
    console.info(chosen.words)
    loaded, folder = load_model(file), DataFolder.open(data)
    if (folder.src_vocab.digest, folder.tgt_vocab.digest) != (loaded.src_vocab.digest, loaded.tgt_vocab.digest):
        raise InputError(f"{data} has another vocabulary than {file}; give the --data that the model was trained on.")
    found = learn_shortlist(folder.train, len(folder.src_vocab), len(folder.tgt_vocab), translations, frequent)
    add_shortlist(file, found, out or file)
    console.info(
        f"{out or file}: with a shortlist of {translations} translations of each source subword and the "
        f"{len(found.frequent):,} most frequent target subwords; `vtrans translate --shortlist` uses it"
    )
