"""`vtrans attend`: a picture, or its numbers as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vtrans.commands.lines import print_line, terminal_width
from vtrans.commands.options import Json, Quiet, check_output
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.text import write_atomically


def attend(
    model: Annotated[Path, typer.Argument(help="A run folder or a model file.", metavar="MODEL")],
    sentence: Annotated[str, typer.Argument(help="A sentence to translate.", metavar="SENTENCE")],
    target: Annotated[
        str | None,
        typer.Option(help="A translation to take, in place of the model's own.", metavar="TEXT"),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(help="A layer of the decoder, 0 the lowest.  [default: mean of the upper half]", metavar="N"),
    ] = None,
    head: Annotated[int | None, typer.Option(help="One of its heads.  [default: mean of all]", metavar="N")] = None,
    subwords: Annotated[bool, typer.Option("--subwords", help="Subwords on both axes, not words.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="SVG file to write.  [default: characters on stdout]", metavar="FILE")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show where a translation looks in its source.

    The cross-attention of one sentence, as a picture in SVG or as blocks of characters.
    """
    if out and out.suffix.lower() != ".svg":
        raise InputError(f"--out must be an SVG file, such as attend.svg, but is {out}.")
    check_output(out, [("MODEL", model)], "--out")
    from vtrans.analysis.attention_map import as_svg, as_text, attention
    from vtrans.checkpoint import choose_model, load_model
    from vtrans.decoding.translator import Translator

    console = Console(quiet=quiet)
    chosen = choose_model(model)
    console.info(chosen.words)
    found = attention(
        Translator([load_model(chosen.file)], console=console),
        sentence,
        target,
        layer=layer,
        head=head,
        subwords=subwords,
    )
    if out:
        write_atomically(out, as_svg(found).encode())
        console.info(f"{out}: {found.which}, {len(found.target)} rows and {len(found.source)} columns")
    if as_json:
        print_line(json.dumps(found.as_dict(), ensure_ascii=False, indent=2))
    elif not out:
        print_line(as_text(found, terminal_width()))
