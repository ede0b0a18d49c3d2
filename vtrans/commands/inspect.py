"""`vtrans inspect`: a model's tree, or the neighbours of a word or of a translation's steps."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from vtrans.commands.lines import print_line, result_console
from vtrans.commands.options import Json
from vtrans.config import DEFAULT_RUN, NEAREST, NEAREST_OF_STEP
from vtrans.errors import InputError
from vtrans.text import one_line


def inspect(
    model: Annotated[Path, typer.Argument(help="A run folder or a model file.", metavar="MODEL")] = Path(DEFAULT_RUN),
    word: Annotated[
        str | None,
        typer.Option(help="Show instead which rows of the embeddings are nearest to its subwords.", metavar="WORD"),
    ] = None,
    sentence: Annotated[
        str | None,
        typer.Option(
            help="Show instead, for each step of its translation, which rows are most like the decoder's output.",
            metavar="TEXT",
        ),
    ] = None,
    nearest: Annotated[
        int | None,
        typer.Option(
            help=f"Rows shown.  [default: {NEAREST} for each subword of --word, {NEAREST_OF_STEP} for a step of "
            "--sentence]",
            min=1,
            metavar="N",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Data folder that it was trained on, for the overlap of its sides.", metavar="FOLDER"),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Each layer, and each head's matrices, by itself.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a model is made of.

    The tree of its parts with their shapes and parameters, what is shared between which of them and what that
    saves, its bytes, and what it knows of its training.
    """
    if nearest and word is None and sentence is None:
        raise InputError("--nearest is of --word and --sentence; give one of them, or leave it out.")
    if full and not (word is None and sentence is None):
        raise InputError("--full is of the tree, which --word and --sentence take the place of; leave it out.")
    from vtrans.analysis.inspection import Anatomy, overlap_of
    from vtrans.analysis.neighbours import neighbours, show_neighbours, show_steps, steps
    from vtrans.checkpoint import choose_model, load_model
    from vtrans.decoding.translator import Translator

    file, chosen = choose_model(model)
    loaded = load_model(file)
    anatomy = Anatomy(file, chosen, loaded, overlap_of(data, loaded) if data else None)
    near = neighbours(loaded, word, nearest or NEAREST) if word is not None else []
    walk = None
    if sentence is not None:
        walk = steps(Translator([loaded]), one_line(sentence), nearest or NEAREST_OF_STEP)
    if as_json:
        result = anatomy.as_dict()
        if word is not None:
            result["nearest"] = [dataclasses.asdict(each) for each in near]
        if walk:
            result["translation"], result["steps"] = walk[0], [dataclasses.asdict(step) for step in walk[1]]
        print_line(json.dumps(result, ensure_ascii=False, indent=2))
        return
    console = result_console()
    if word is None and sentence is None:
        anatomy.show(console, full=full)
    show_neighbours(near, console)
    if walk:
        show_steps(*walk, console)
