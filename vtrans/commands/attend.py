"""`vtrans attend`: the attention of one translation, drawn or as JSON."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vtrans.commands.lines import print_line, terminal_width
from vtrans.commands.options import Json, Quiet, To, check_output
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.files import write_atomically

_attention = partial(typer.Option, rich_help_panel="Attention")
Target = Annotated[str | None, _attention(help="Use this translation instead of the model's own.", metavar="TEXT")]
Layer = Annotated[
    int | None,
    _attention(help="Decoder layer, counted from 1 at the bottom.  [default: the mean of the upper half]", metavar="N"),
]
Head = Annotated[
    int | None,
    _attention(help="Attention head of that layer, counted from 1.  [default: the mean of all heads]", metavar="N"),
]
Subwords = Annotated[bool, _attention("--subwords", help="Show subwords instead of words on both axes.")]
Out = Annotated[
    Path | None,
    typer.Option(
        help="SVG file to write.  [default: print characters on stdout]", metavar="FILE", rich_help_panel="Output"
    ),
]


def attend(
    model: Annotated[Path, typer.Argument(help="Run folder or model file.", metavar="MODEL")],
    sentence: Annotated[str, typer.Argument(help="Sentence to translate.", metavar="SENTENCE")],
    target: Target = None,
    to: To = None,
    layer: Layer = None,
    head: Head = None,
    subwords: Subwords = False,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show which source words each word of a translation attends to.

    The cross-attention of one sentence is drawn in the terminal, or as an SVG picture with --out.
    """
    if out and out.suffix.lower() != ".svg":
        raise InputError(f"--out must be an SVG file, such as attend.svg, got {out}.")
    check_output(out, [("MODEL", model)], "--out")
    from vtrans.analysis.attention_map import as_svg, as_text, attention_map
    from vtrans.checkpoint import choose_model, load_model
    from vtrans.engines.torch_engine import TorchEngine
    from vtrans.translate.translator import Translator

    console = Console(quiet=quiet)
    chosen = choose_model(model)
    loaded = load_model(chosen.file)
    console.info(chosen.words)
    attention = attention_map(
        Translator(TorchEngine([loaded]), console=console),
        sentence,
        target,
        to=to,
        layer=layer,
        head=head,
        subwords=subwords,
    )
    if out:
        write_atomically(out, as_svg(attention).encode())
        console.info(f"{out}: {attention.which}, {len(attention.target)} rows and {len(attention.source)} columns")
    if as_json:
        print_line(json.dumps(attention.as_dict(), ensure_ascii=False, indent=2))
    elif not out:
        print_line(as_text(attention, terminal_width()))
