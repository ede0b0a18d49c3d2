"""`vtrans export`: a model as a folder for another engine."""

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


def export(
    model: Annotated[Path, typer.Argument(help="A run folder or a model file.", metavar="MODEL")] = Path(DEFAULT_RUN),
    to: Annotated[str, typer.Option(help="The format to write: ctranslate2.", metavar="FORMAT")] = "ctranslate2",
    out: Annotated[
        Path | None, typer.Option(help="The folder to write.  [default: RUN/ctranslate2]", metavar="FOLDER")
    ] = None,
    quantization: Annotated[
        str, typer.Option(help="The type of the weights: float32, float16 or int8.", metavar="TYPE")
    ] = "float32",
    sample_file: Annotated[
        Path | None,
        typer.Option(
            help="A text to compare the export with the model on.  [default: generated sentences]",
            metavar="FILE",
        ),
    ] = None,
    on_bad_utf8: BadUtf8 = "error",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Export a model to CTranslate2.

    `vtrans translate --model FOLDER` translates with the exported folder, and so does any other program that runs
    CTranslate2. The folder is written only if it translates and scores sample sentences as the model does.
    """
    console = Console(quiet=quiet)
    if to != "ctranslate2":
        raise InputError(f"--to must be ctranslate2, got {to!r}.")
    how = bad_utf8(on_bad_utf8)
    samples = read_all(sample_file, how, console) if sample_file else None
    from vtrans.checkpoint import choose_model, load_model
    from vtrans.decoding.ctranslate2_folder import FOLDER
    from vtrans.interop.ctranslate2_export import export as run_export

    chosen = choose_model(model)
    if out is None:
        if not model.is_dir():
            raise InputError(f"--out is needed to export the file {model}; name the folder to write.")
        out = model / FOLDER
    console.info(chosen.words)
    comparison = run_export(
        load_model(chosen.file), out, console, quantization=quantization, samples=samples, source=chosen.file
    )
    if as_json:
        print_line(json.dumps(comparison.as_dict(), ensure_ascii=False, indent=2))
