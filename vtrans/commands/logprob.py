"""`vtrans logprob`: forced decoding of two files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from vtrans.commands.lines import lines_of, many, progress, writer
from vtrans.commands.options import (
    Alpha,
    BadUtf8,
    Device,
    LengthPenalty,
    Models,
    Output,
    Quiet,
    Weights,
    bad_utf8,
    check_line_counts,
    check_output,
    check_search,
    given,
)
from vtrans.config import DEFAULT_RUN, SearchConfig
from vtrans.console import Console
from vtrans.runtime.memory import manage_memory


def logprob(
    src: Annotated[Path, typer.Argument(help="Source text.", metavar="SRC")],
    tgt: Annotated[Path, typer.Argument(help="Its translations, line by line.", metavar="TGT")],
    model: Models = None,
    weight: Weights = None,
    output: Output = None,
    alpha: Alpha = None,
    length_penalty: LengthPenalty = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            help="Padded subwords of the larger side of a batch.  "
            f"[default: the model's, else {SearchConfig.batch_tokens}]",
            metavar="N",
        ),
    ] = None,
    on_bad_utf8: BadUtf8 = "error",
    device: Device = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object for each line, with the log-probability of each subword.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Score given translations with the model.

    Forced decoding: each pair of lines gives its log-probability (natural, EOS counted), a tab, and its score
    by the length penalty. A blank source has a blank translation for certain (0), and any other with -inf; a pair
    too long to be translated in one piece gives nan. The text is encoded as subwords anew, which a search may have
    put together otherwise.
    """
    search = given({"alpha": alpha, "length_penalty": length_penalty, "batch_tokens": batch_tokens})
    check_search(search)
    check_output(output, [("SRC", src), ("TGT", tgt), *(("--model", path) for path in model or [])])
    how, console = bad_utf8(on_bad_utf8), Console(quiet=quiet)
    check_line_counts(src, tgt, "translation")
    manage_memory()
    from vtrans.decoding.stream import logprob_stream
    from vtrans.decoding.translator import load

    with lines_of(src, how, console) as sources, lines_of(tgt, how, console) as targets:
        translator = load(list(model or [Path(DEFAULT_RUN)]), device=device, console=console, weights=weight, **search)
        with writer(output) as stream, progress(console, stream, what="scored") as counter:
            total = logprob_stream(translator, sources, targets, stream, as_json=as_json, done=counter.advance)
    counts = translator.counts
    if counts.tgt_tokens:
        mean = total / counts.tgt_tokens
        console.info(
            f"{many(counts.lines, 'pair', 'in')} {counts.seconds:.1f} s; {counts.tgt_tokens:,} target subwords with "
            f"EOS, of log-probability {mean:.4f} in the mean (perplexity {math.exp(min(-mean, 700)):.2f})"
        )
