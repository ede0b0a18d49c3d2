"""`vtrans overlap`: the subwords that two texts have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import argument
from vtrans.commands.lines import print_json, result_console
from vtrans.commands.shared_options import BadUtf8, Json, Quiet
from vtrans.data.options import PrepareOptions
from vtrans.system.console import Console


def overlap(
    src: Annotated[Path, argument("Text in the source language.", "SRC")],
    tgt: Annotated[Path, argument("Text in the target language; it need not be parallel.", "TGT")],
    on_bad_utf8: BadUtf8 = PrepareOptions.on_bad_utf8,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count the subwords that two languages have in common.

    The figures show, for each script, how many subwords of a joint vocabulary both languages use. No model is needed.
    The vocabulary is learned from both texts with the defaults of prepare-bpe.
    """
    from vtrans.apps.analysis.text_overlap import overlap_of_files, show

    report = overlap_of_files(src, tgt, Console(quiet=quiet), on_bad_utf8)
    if as_json:
        print_json(report)
    else:
        show(report, result_console())
