"""`vtrans logprob`: scores of given translations."""

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
    Threads,
    To,
    Weights,
    bad_utf8,
    check_line_counts,
    check_output,
    check_search,
    given,
)
from vtrans.config import DEFAULT_RUN, SearchConfig
from vtrans.console import Console
from vtrans.runtime.process import set_threads


def logprob(
    src: Annotated[Path, typer.Argument(help="The source text.", metavar="SRC")],
    tgt: Annotated[Path, typer.Argument(help="Its translations, one per line.", metavar="TGT")],
    model: Models = None,
    weights: Weights = None,
    device: Device = None,
    threads: Threads = None,
    alpha: Alpha = None,
    length_penalty: LengthPenalty = None,
    output: Output = None,
    to: To = None,
    on_bad_utf8: BadUtf8 = "error",
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Write a JSON object per line, with the log-probability of each subword.",
            rich_help_panel="Output",
        ),
    ] = False,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            help="The most subwords per batch, with padding, on its larger side.  "
            f"[default: the model's setting, else {SearchConfig.batch_tokens}]",
            metavar="N",
            rich_help_panel="Speed",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Score given translations with a model.

    For each pair of lines, write the natural log-probability of the translation (EOS included), a tab, and its score,
    which is the log-probability over the length penalty. A blank source has only a blank translation, which gets 0; any
    other gets -inf. A pair that is too long to be translated in one piece gets nan. The score of a translation may
    differ from that of its search, which may have found the same text as other subwords.
    """
    search = given({"alpha": alpha, "length_penalty": length_penalty, "batch_tokens": batch_tokens})
    check_search(search)
    check_output(output, [("SRC", src), ("TGT", tgt), *(("--model", path) for path in model or [])])
    how, console = bad_utf8(on_bad_utf8), Console(quiet=quiet)
    check_line_counts(src, tgt, "translation")
    set_threads(threads)
    from vtrans.translate.loading import load
    from vtrans.translate.stream import logprob_stream

    with lines_of(src, how, console) as sources, lines_of(tgt, how, console) as targets:
        translator = load(list(model or [Path(DEFAULT_RUN)]), device=device, console=console, weights=weights, **search)
        with writer(output) as stream, progress(console, stream, what="scored") as counter:
            total = logprob_stream(translator, sources, targets, stream, as_json=as_json, done=counter.advance, to=to)
    counts = translator.counts
    if counts.tgt_tokens:
        mean = total / counts.tgt_tokens
        console.info(
            f"{many(counts.lines, 'pair', 'in')} {counts.seconds:.1f} s; mean log-probability {mean:.4f} over "
            f"{counts.tgt_tokens:,} target subwords, EOS included (perplexity {math.exp(min(-mean, 700)):.2f})"
        )
