"""`vtrans attend`: the attention of one translation, drawn or as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import Models, argument, generated, option
from vtrans.commands.lines import print_json, print_line, terminal_width
from vtrans.commands.shared_options import Code, Json, Quiet, To, check_output
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.files import destination, write_atomically

LAYER = "Decoder layer, counted from 1 at the bottom.  [default: the mean of the upper half]"
HEAD = "Attention head of that layer, counted from 1.  [default: the mean of all heads]"
SUBWORDS = "Show subwords instead of words on both axes."
OUT = "HTML file to write.  [default: print characters on stdout]"


@generated
def attend(
    model: Annotated[Path, Models()],
    sentence: Annotated[str, argument("Sentence to translate.", "SENTENCE")],
    target: Annotated[
        str | None, option("Use this translation instead of the model's own.", "TEXT", "Attention")
    ] = None,
    to: To = None,
    layer: Annotated[int | None, option(LAYER, "N", "Attention")] = None,
    head: Annotated[int | None, option(HEAD, "N", "Attention")] = None,
    subwords: Annotated[bool, option(SUBWORDS, panel="Attention", flag="--subwords")] = False,
    out: Annotated[Path | None, option(OUT, "FILE", "Output")] = None,
    code: Code = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show which source words each word of a translation attends to.

    The cross-attention of one sentence is drawn in the terminal, or on an HTML page with --out.
    """
    if out and out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out must be an HTML file, such as attend.html, got {out}.")
    check_output(out, [("--model", model)])
    if out:
        destination(out, "file")
    from vtrans.apps.analysis.attention_map import as_html, as_text, attention_map
    from vtrans.engines.torch_engine import TorchEngine
    from vtrans.model.checkpoint import load_model
    from vtrans.storage.run_folder import choose_model
    from vtrans.translate.translator import Translator

    console = Console(quiet=quiet)
    chosen = choose_model(model)
    loaded = load_model(chosen.file, code=code)
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
        write_atomically(out, as_html(attention).encode())
        console.info(f"{out}: {attention.which}, {len(attention.target)} rows and {len(attention.source)} columns")
    if as_json:
        print_json(attention.as_dict())
    elif not out:
        print_line(as_text(attention, terminal_width()))
