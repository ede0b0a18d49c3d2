"""`vtrans logprob`: scores of given translations."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import tee
from pathlib import Path
from typing import Annotated, Any

from vtrans.commands.generated import Given, Models, argument, generated, option
from vtrans.commands.lines import many, progress, source_of, writer
from vtrans.commands.shared_options import (
    STORED,
    BadUtf8,
    Code,
    Device,
    Ensemble,
    Output,
    Quiet,
    Threads,
    To,
    check_line_counts,
    check_output,
)
from vtrans.config import SearchConfig
from vtrans.config.threads import set_threads
from vtrans.system.console import Console
from vtrans.text.lines import write_line

SETTINGS = Given(SearchConfig, ("alpha", "length_penalty", "batch_tokens"), otherwise=STORED)
AS_JSON = "Write a JSON object per line, with the log-probability of each subword."


@generated
def logprob(
    *,
    named: Annotated[list[Path], Models(Ensemble.HELP, several=True)],
    src: Annotated[Path, argument("The source text.", "SRC")],
    tgt: Annotated[Path, argument("Its translations, one per line.", "TGT")],
    ensemble: Ensemble,
    device: Device = None,
    code: Code = None,
    threads: Threads = None,
    search: Annotated[dict[str, Any], SETTINGS],
    output: Output = None,
    to: To = None,
    on_bad_utf8: BadUtf8 = "error",
    as_json: Annotated[bool, option(AS_JSON, panel="Output", flag="--json")] = False,
    quiet: Quiet = False,
) -> None:
    """Score given translations with a model.

    For each pair of lines, write the natural log-probability of the translation (EOS included), a tab, and its score,
    which is the log-probability over the length penalty. A blank source has only a blank translation, which gets 0; any
    other gets -inf. A pair that is too long to be translated in one piece gets nan. The score of a translation may
    differ from that of its search, which may have found the same text as other subwords.
    """
    models = replace(ensemble, model=named)
    check_output(output, [("SRC", src), ("TGT", tgt), *(("--model", path) for path in models.model)])
    console = Console(quiet=quiet)
    check_line_counts(src, tgt, "translation")
    set_threads(threads)
    from vtrans.translate.loading import load
    from vtrans.translate.stream import rendered

    with source_of(src, on_bad_utf8, console) as (sources, _), source_of(tgt, on_bad_utf8, console) as (targets, _):
        settings = {"device": device, "code": code, "weights": list(models.weights) or None, **search}
        translator = load(models.paths, console=console, **settings)
        with writer(output) as stream, progress(console, stream, what="scored") as counter:
            total = 0.0
            asked, sources = tee(sources)  # one is at most a window behind
            scored = translator.logprob(asked, targets, counter.advance, to=to)
            for t, source in zip(scored, sources, strict=False):
                (text,) = rendered(source, [t], "json") if as_json else [f"{t.logprob:.6f}\t{t.score:.6f}"]
                write_line(stream, text)
                total += math.fsum(t.token_logprobs)
    counts = translator.counts
    if counts.tgt_tokens:
        mean = total / counts.tgt_tokens
        console.info(
            f"{many(counts.lines, 'pair', 'in')} {counts.seconds:.1f} s; mean log-probability {mean:.4f} over "
            f"{counts.tgt_tokens:,} target subwords, EOS included (perplexity {math.exp(min(-mean, 700)):.2f})"
        )
