"""`vtrans export`: a folder for another engine, and how it compares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vtrans.commands.lines import print_line, read_all
from vtrans.commands.options import BadUtf8, Json, Quiet, bad_utf8
from vtrans.config import DEFAULT_RUN
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.runtime.memory import manage_memory


def export(
    model: Annotated[Path, typer.Argument(help="A run folder or a model file.", metavar="MODEL")] = Path(DEFAULT_RUN),
    to: Annotated[str, typer.Option(help="The engine: ctranslate2.", metavar="ENGINE")] = "ctranslate2",
    out: Annotated[
        Path | None, typer.Option(help="Folder to make.  [default: RUN/ctranslate2]", metavar="FOLDER")
    ] = None,
    quantization: Annotated[
        str, typer.Option(help="Of the weights: float32, float16 or int8.", metavar="TYPE")
    ] = "float32",
    sample_file: Annotated[
        Path | None,
        typer.Option(help="Sentences to compare the two on.  [default: made up of its words]", metavar="FILE"),
    ] = None,
    on_bad_utf8: BadUtf8 = "error",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a model for another engine, and compare the two.

    The folder runs by `vtrans translate --model FOLDER`, and in whatever else runs CTranslate2. It gets its
    name only if it translates and scores sample sentences as the original does.
    """
    console = Console(quiet=quiet)
    if to != "ctranslate2":
        raise InputError(f"--to must be ctranslate2, the one engine to export to, but is {to!r}.")
    how = bad_utf8(on_bad_utf8)
    samples = read_all(sample_file, how, console) if sample_file else None
    manage_memory()
    from vtrans.checkpoint import choose_model, load_model
    from vtrans.decoding.ctranslate2_engine import FOLDER
    from vtrans.interop.ctranslate2_export import export as run_export

    chosen = choose_model(model)
    if out is None:
        if not model.is_dir():
            raise InputError("exporting a named file needs --out FOLDER for the result.")
        out = model / FOLDER
    console.info(chosen.words)
    comparison = run_export(
        load_model(chosen.file), out, console, quantization=quantization, samples=samples, source=chosen.file
    )
    if as_json:
        print_line(json.dumps(comparison.as_dict(), ensure_ascii=False, indent=2))
