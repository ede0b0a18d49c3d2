"""`vtrans translate`: which options exclude which, and where the lines come from and go to."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtrans.commands.lines import lines_of, many, progress, source_of, stdin_is_terminal, writer
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
    flag,
    given,
)
from vtrans.config import DECODING_PRECISIONS, DEFAULT_RUN, Sampling, SearchConfig
from vtrans.console import Console
from vtrans.decoding.retry import RETRY_NGRAM
from vtrans.errors import InputError
from vtrans.runtime.memory import manage_memory
from vtrans.runtime.signals import ended_by_signals

if TYPE_CHECKING:
    from vtrans.decoding.translator import Counts, Translator


def translate(
    model: Models = None,
    weight: Weights = None,
    input_: Annotated[
        Path | None, typer.Option("--input", help="Text to translate.  [default: stdin]", metavar="FILE")
    ] = None,
    output: Output = None,
    beam: Annotated[
        int | None,
        typer.Option(
            help=f"Live hypotheses a sentence; 1 is greedy.  [default: the model's, else {SearchConfig.beam}]",
            metavar="N",
        ),
    ] = None,
    alpha: Alpha = None,
    length_penalty: LengthPenalty = None,
    stop: Annotated[
        str | None,
        typer.Option(
            help="count: when as many hypotheses have ended as the beam is wide; exhaustive: when no live one can "
            f"win.  [default: the model's, else {SearchConfig.stop}]",
            metavar="RULE",
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Most subwords of a translation, EOS counted. It never has over 50 more than the longest of its "
            "source, its prefix and --min-length.  [default: the model's, else no further limit]",
            metavar="N",
        ),
    ] = None,
    min_length: Annotated[
        int | None,
        typer.Option(
            help="Least subwords of a translation, EOS not counted.  "
            f"[default: the model's, else {SearchConfig.min_length}]",
            metavar="N",
        ),
    ] = None,
    no_repeat_ngram: Annotated[
        int | None,
        typer.Option(
            help="No N subwords twice in a translation; 0: no such rule.  "
            f"[default: the model's, else {SearchConfig.no_repeat_ngram}]",
            metavar="N",
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(
            help="Factor on the log-probability of a subword that was said before; scores have it in them, "
            "log-probabilities too.  "
            f"[default: the model's, else {SearchConfig.repetition_penalty}]",
            metavar="X",
        ),
    ] = None,
    no_retry: Annotated[
        bool,
        typer.Option(
            "--no-retry",
            help="Keep translations that loop or reach their limit. Without this option, their lines are searched "
            f"again with --no-repeat-ngram {RETRY_NGRAM}, unless that option is set already or the engine does not "
            "support it.",
        ),
    ] = False,
    prefix: Annotated[
        Path | None,
        typer.Option(
            help="How the translations begin, a line each, blank for any; the last word may go on if no space "
            "follows it.",
            metavar="FILE",
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            help="Padded source subwords of a batch; 1: one sentence at a time.  "
            f"[default: the model's, else {SearchConfig.batch_tokens}]",
            metavar="N",
        ),
    ] = None,
    nbest: Annotated[int, typer.Option(help="Translations of each line, best first.", metavar="N")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Put each one's score and a tab before it.")] = False,
    tsv: Annotated[
        bool, typer.Option("--tsv", help="Put each one's log-probability and its score before it, a tab behind each.")
    ] = False,
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="Put its links of source and target word before it, and a tab: 0-0 1-2, words counted from 0.",
        ),
    ] = False,
    sample: Annotated[
        bool,
        typer.Option(
            "--sample",
            help="Draw translations instead of searching; their score is the mean log-probability of a subword.",
        ),
    ] = False,
    top_k: Annotated[
        int | None,
        typer.Option(help="With --sample: from the K likeliest subwords only.  [default: all]", metavar="K"),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            help=f"With --sample: from the likeliest with this mass only.  [default: {Sampling.top_p}]", metavar="P"
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help=f"With --sample: below 1 is safer, above 1 more varied.  [default: {Sampling.temperature}]",
            metavar="X",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help=f"With --sample: of the draws.  [default: {Sampling.seed}]", metavar="N")
    ] = None,
    on_bad_utf8: BadUtf8 = "error",
    line_buffered: Annotated[
        bool, typer.Option("--line-buffered", help="Answer each line by itself, at once.")
    ] = False,
    shortlist: Annotated[
        bool,
        typer.Option(
            "--shortlist",
            help="Search among the subwords that the source's can become (see `vtrans shortlist`): faster, and scores "
            "are of these alone.",
        ),
    ] = False,
    precision: Annotated[
        str | None,
        typer.Option(
            help="float32, bfloat16, float16, or int8: on a CPU, the weights of the projection in 8 bits.  "
            f"[default: {DECODING_PRECISIONS[0]}]",
            metavar="TYPE",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="torch or ctranslate2.  [default: what the model is made for]", metavar="NAME"),
    ] = None,
    device: Device = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object for each line, with all there is, to each subword.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Translate text: a line out for every line in.

    Reads stdin and writes stdout unless told otherwise; order is kept, blank lines stay blank.
    """
    drawing = {"seed": seed, "top_k": top_k, "top_p": top_p, "temperature": temperature}
    searching = {"beam": beam, "alpha": alpha, "length_penalty": length_penalty, "stop": stop}
    bounds = {"max_length": max_length, "min_length": min_length, "batch_tokens": batch_tokens}
    repetition = {"no_repeat_ngram": no_repeat_ngram, "repetition_penalty": repetition_penalty}
    search = given({**searching, **bounds, **repetition})
    if not sample and given(drawing):
        raise InputError(f"{flag(given(drawing))} only matters with --sample; add --sample or leave it out.")
    if sample and given(searching):
        raise InputError(f"--sample draws instead of searching; leave out {flag(given(searching))}, or --sample.")
    if sample and no_retry:
        raise InputError("--sample draws once and never searches again; leave out --no-retry.")
    if (scores or tsv) and as_json:
        raise InputError(f"--json holds the scores already; leave out {'--scores' if scores else '--tsv'}.")
    if scores and tsv:
        raise InputError("--tsv holds the scores already; leave out --scores.")
    check_search(search)
    check_output(output, [("--input", input_), ("--prefix", prefix), *(("--model", file) for file in model or [])])
    if input_ and prefix:
        check_line_counts(input_, prefix, "prefix")
    sampling = Sampling(**given(drawing)) if sample else None
    how = bad_utf8(on_bad_utf8)
    manage_memory()
    from vtrans.decoding.stream import serve, translate_stream
    from vtrans.decoding.translator import load
    from vtrans.runtime.ranks import CPU, Ranks

    console, ranks = Console(quiet=quiet), Ranks()
    settings: dict[str, Any] = {
        "nbest": nbest,
        "sampling": sampling,
        "form": "json" if as_json else "tsv" if tsv else "scores" if scores else "text",
        "alignments": alignments,
    }

    def loaded(console: Console) -> Translator:
        where, paths = ranks.device_name(device), list(model or [Path(DEFAULT_RUN)])
        how_fast: dict[str, Any] = {"engine": engine, "shortlist": shortlist, "precision": precision}
        translator = load(
            paths, device=where, console=console, weights=weight, retry=not no_retry, **how_fast, **search
        )
        if translator.engine:
            translator.engine.token_logprobs = as_json
        return translator

    with ended_by_signals(), ranks.joined(CPU):
        if ranks.rank > 0:
            serve(loaded, ranks, **settings)
            return
        begun = lines_of(prefix, how, console) if prefix else nullcontext()
        with ranks.leading(), source_of(input_, how, console) as (lines, extent), begun as prefixes:
            translator = loaded(console)
            translator.check_nbest(nbest, sampling, alignments=alignments, prefixes=prefix is not None)
            typing = input_ is None and stdin_is_terminal()
            if typing:
                console.info("reading from the terminal, a line at a time; end with Ctrl-D")
            if ranks.world > 1:
                console.info(f"{ranks.world} processes share the input")
            with writer(output) as stream, progress(console, stream, shown=not typing, share=extent.known) as counter:
                translate_stream(
                    translator,
                    lines,
                    stream,
                    **settings,
                    prefixes=prefixes,
                    line_buffered=line_buffered,
                    progress=lambda lines, size: counter.update(lines, extent.share(size)),
                    ranks=ranks,
                )
    _say_how_it_went(translator.counts, console)


def _say_how_it_went(counts: Counts, console: Console) -> None:
    seconds = max(counts.seconds, 1e-9)
    console.info(
        f"{many(counts.lines, 'line', 'in')} {seconds:.1f} s of translating "
        f"({counts.lines / seconds:,.1f} lines/s, {counts.tgt_tokens / seconds:,.0f} target subwords/s)"
    )
    if counts.retried:
        how = f"searched again without repeated {RETRY_NGRAM}-grams, as the translation looped or reached its limit"
        console.info(many(counts.retried, "line", how))
    if counts.looping:
        console.warn(many(counts.looping, "line", "whose translation repeats the same words many times"))
    if counts.unfinished:
        console.warn(many(counts.unfinished, "line", "whose translation did not end within its limit"))
    if counts.missing:
        console.warn(many(counts.missing, "n-best place", "left empty: the search found no further hypothesis"))
