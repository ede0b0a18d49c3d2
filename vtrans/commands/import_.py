"""`vtrans import`: a model of another program as a model file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vtrans.commands.lines import print_line, read_all
from vtrans.commands.options import BadUtf8, Json, Quiet, bad_utf8
from vtrans.console import Console

Model = Annotated[
    Path,
    typer.Argument(
        help="A Hugging Face Marian folder, such as OPUS-MT, a CTranslate2 folder, or a Marian model: the .npz file "
        "or its folder.",
        metavar="PATH",
    ),
]
Out = Annotated[Path, typer.Option(help="The model file to write.", metavar="FILE")]
SAMPLES = "A text in the source language to compare both programs on.  [default: generated sentences]"
SampleFile = Annotated[Path | None, typer.Option(help=SAMPLES, metavar="FILE")]
SrcSpm = Annotated[
    Path | None,
    typer.Option(help="The SentencePiece model of the source, for a CTranslate2 folder without one.", metavar="FILE"),
]
TgtSpm = Annotated[Path | None, typer.Option(help="The SentencePiece model of the target, likewise.", metavar="FILE")]


def import_(
    model: Model,
    out: Out = Path("model.safetensors"),
    sample_file: SampleFile = None,
    src_spm: SrcSpm = None,
    tgt_spm: TgtSpm = None,
    on_bad_utf8: BadUtf8 = "error",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Import a model of another program.

    The model file can be translated with, trained further, averaged and exported like one from `vtrans train`. If the
    other program is installed, both translate and score sample sentences, and the file is written only if they agree.
    """
    console = Console(quiet=quiet)
    how = bad_utf8(on_bad_utf8)
    samples = read_all(sample_file, how, console) if sample_file else None
    from vtrans.interop.formats import import_model

    verified = import_model(model, out, console, samples, src_spm, tgt_spm)
    if as_json:
        print_line(json.dumps(verified.as_dict() if verified else None, ensure_ascii=False, indent=2))
