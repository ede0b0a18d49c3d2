"""`vtrans translate`: its options, which of them exclude each other, and the report at the end."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtrans.commands.lines import many
from vtrans.commands.options import (
    GLOSSARY,
    Alpha,
    BadUtf8,
    Compile,
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
    flag,
    given,
)
from vtrans.commands.texts import Chunks, Text, Work, chunked, streamed
from vtrans.config import (
    DECODING_PRECISIONS,
    DEFAULT_RUN,
    KERNELS,
    KERNELS_VARIABLE,
    MBR_BEAM,
    MBR_METRICS,
    MBR_SAMPLES,
    SearchConfig,
)
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.keys import check_value
from vtrans.runtime.signals import ended_by_signals
from vtrans.search.options import Mbr, Sampling
from vtrans.translate.chunks import CHUNK_LINES, Shard
from vtrans.translate.retry import RETRY_NGRAM

if TYPE_CHECKING:
    from vtrans.runtime.ranks import Ranks
    from vtrans.translate.division import Division
    from vtrans.translate.translation import Counts, Form, TranslateOptions
    from vtrans.translate.translator import Translator


def _option(panel: str, help: str, metavar: str | None = None, *, flag: str | None = None, stored: str = "") -> Any:
    """Returns an option of this panel. `stored` is the search setting whose default the help states."""
    if stored:
        help += f"  [default: the model's setting, else {getattr(SearchConfig, stored)}]"
    return typer.Option(*([flag] if flag else []), help=help, metavar=metavar, rich_help_panel=panel)


_model, _search, _sampling, _mbr, _output, _text, _speed = (
    partial(_option, panel)
    for panel in ("Model", "Search", "Sampling", "Minimum Bayes risk", "Output", "Text", "Speed")
)

Engine = Annotated[str | None, _model("torch or ctranslate2.  [default: what the model was made for]", "NAME")]
Beam = Annotated[
    int | None, _search("The number of hypotheses kept per sentence; 1 is greedy search.", "N", stored="beam")
]
GROUPS = (
    "Search in N groups that share the hypotheses of --beam; each avoids the subwords that those before it choose "
    "(diverse beam search). N must divide --beam."
)
BeamGroups = Annotated[int | None, _search(GROUPS, "N", stored="beam_groups")]
DIVERSITY = "With --beam-groups, how strongly the groups avoid each other; 0.2 to 1 is usual."
Diversity = Annotated[float | None, _search(DIVERSITY, "X", stored="diversity")]
STOP = (
    "When to stop: count ends the search at --beam finished hypotheses, current when also no unfinished one scores "
    "better at its length so far, exhaustive when no unfinished hypothesis can still win; shrink makes the beam "
    "narrower by one per finished hypothesis, as Marian does."
)
Stop = Annotated[str | None, _search(STOP, "RULE", stored="stop")]
MAX_LENGTH = (
    "The most subwords of a translation, EOS included. Without --max-ratio, the limit is never more than 50 above the "
    "longest of its source, its prefix and --min-length.  [default: the model's setting, else no further limit]"
)
MaxLength = Annotated[int | None, _search(MAX_LENGTH, "N")]
MAX_RATIO = "The most subwords of a translation per subword of its source; 0 means 50 subwords more than the source."
MaxRatio = Annotated[float | None, _search(MAX_RATIO, "X", stored="max_ratio")]
MinLength = Annotated[
    int | None, _search("The fewest subwords of a translation, without EOS.", "N", stored="min_length")
]
NO_REPEAT = "Never repeat a sequence of N subwords in a translation; 0 means no such rule."
NoRepeatNgram = Annotated[int | None, _search(NO_REPEAT, "N", stored="no_repeat_ngram")]
PENALTY = (
    "Multiply the log-probability of subwords that the translation contains already. Scores and log-probabilities "
    "include the factor."
)
RepetitionPenalty = Annotated[float | None, _search(PENALTY, "X", stored="repetition_penalty")]
SUPPRESS = "A subword that no translation contains; give several."
Suppress = Annotated[list[str] | None, _search(f"{SUPPRESS}  [default: the model's setting, else none]", "PIECE")]
NO_RETRY = (
    "Keep translations that loop or reach their length limit. By default, their lines are searched again with "
    f"--no-repeat-ngram {RETRY_NGRAM}, unless that option is set or the engine does not support it."
)
NoRetry = Annotated[bool, _search(NO_RETRY, flag="--no-retry")]
PREFIX = (
    "Target prefixes, one per input line; a blank line means none. The last word may be continued unless a space "
    "follows it."
)
Prefixes = Annotated[Path | None, _search(PREFIX, "FILE", flag="--prefix")]
CONSTRAINTS = (
    "Phrases that translations must contain, and others that they must not: one JSON object per input line, such as "
    '{"constraints": ["red car"], "avoid": ["auto"]}; a blank line means none.'
)
ConstraintsFile = Annotated[Path | None, _search(CONSTRAINTS, "FILE", flag="--constraints")]
GlossaryFile = Annotated[Path | None, _search(GLOSSARY, "FILE", flag="--glossary")]
PROTECT = "Copy URLs, e-mail addresses, tags and placeholders such as {name} and %s to the translation unchanged."
Protect = Annotated[bool, _search(PROTECT, flag="--protect")]
PATTERN = "Also protect what matches this regular expression of Python. May be repeated."
ProtectPattern = Annotated[list[str] | None, _search(PATTERN, "REGEX", flag="--protect-pattern")]
Sample = Annotated[bool, _sampling("Draw translations at random instead of searching.", flag="--sample")]
TopK = Annotated[int | None, _sampling("Draw from the K most probable subwords only.  [default: all]", "K")]
TOP_P = f"Draw from the most probable subwords only, whose probabilities sum to P.  [default: {Sampling.top_p}]"
TopP = Annotated[float | None, _sampling(TOP_P, "P")]
EPSILON = "Draw subwords of at least probability X only; 0.02 is usual.  [default: all]"
Epsilon = Annotated[float | None, _sampling(EPSILON, "X")]
TEMPERATURE = f"Translations vary less below 1 and more above 1.  [default: {Sampling.temperature}]"
Temperature = Annotated[float | None, _sampling(TEMPERATURE, "X")]
Seed = Annotated[int | None, _sampling(f"The seed of the random numbers.  [default: {Sampling.seed}]", "N")]
MBR = (
    f"Choose the translation that is the most similar to all candidates by this metric, {' or '.join(MBR_METRICS)} "
    "(minimum Bayes risk). The candidates are the hypotheses of the search, whose --beam is then "
    f"{MBR_BEAM} by default, or with --sample they are samples. The score of a translation is the mean similarity, "
    "from 0 to 100."
)
MbrMetric = Annotated[str | None, _mbr(MBR, "METRIC", flag="--mbr")]
MbrSamples = Annotated[int | None, _mbr(f"The number of samples per line.  [default: {MBR_SAMPLES}]", "N")]
Nbest = Annotated[int, _output("The number of translations per line, best first.", "N")]
Scores = Annotated[bool, _output("Write the score before each translation.", flag="--scores")]
Tsv = Annotated[bool, _output("Write the log-probability and the score before each translation.", flag="--tsv")]
Alignments = Annotated[
    bool, _output("Write the word alignment before each translation, such as 0-0 1-2.", flag="--alignments")
]
AsJson = Annotated[bool, _output("Write a JSON object per line, with details of each subword.", flag="--json")]
Input = Annotated[Path | None, _text("The text to translate.  [default: stdin]", "FILE", flag="--input")]
LineBuffered = Annotated[bool, _text("Write each translation before reading the next line.", flag="--line-buffered")]
CHUNKS = (
    "Make --output a folder with one file per N lines, which `vtrans collect` joins. The same command resumes a job "
    "that was stopped, and several jobs may share the folder."
)
ChunkLines = Annotated[int | None, _text(CHUNKS, "N")]
SHARD = "With --chunk-lines, translate only every N-th chunk, beginning with chunk I, as job I of N.  [default: 1/1]"
ShardOf = Annotated[str | None, _text(SHARD, "I/N", flag="--shard")]
BATCH_TOKENS = "The most source subwords per batch, with padding; 1 translates single sentences."
BatchTokens = Annotated[int | None, _speed(BATCH_TOKENS, "N", stored="batch_tokens")]
DIVIDE = (
    "The number of processes that divide the input between them, on the CPU of a Linux system. Each has one thread, or "
    "--threads. The engine ctranslate2 uses that many workers in one process instead.  [default: one per core that may "
    "be used, if there are 2 GB of free memory for each; 1 with --threads or --line-buffered, for typed lines, and on "
    "other systems and devices]"
)
Processes = Annotated[int | None, _speed(DIVIDE, "N")]
SHORTLIST = "Restrict the output vocabulary to likely translations, as learned by `vtrans shortlist`."
Shortlist = Annotated[bool, _speed(SHORTLIST, flag="--shortlist")]
PRECISION = (
    "The precision of matrix products: float32, bfloat16, float16, or int8, which needs a CPU.  "
    f"[default: {DECODING_PRECISIONS[0]}]"
)
Precision = Annotated[str | None, _speed(PRECISION, "TYPE")]
KERNELS_HELP = (
    "The library of float32 products on a CPU: onednn, blas (MKL on x86), or auto, which chooses by the processor.  "
    f"[default: ${KERNELS_VARIABLE}, else {KERNELS[0]}]"
)
Kernels = Annotated[str | None, _speed(KERNELS_HELP, "LIBRARY", flag="--kernels")]


def translate(
    model: Models = None,
    weights: Weights = None,
    engine: Engine = None,
    device: Device = None,
    threads: Threads = None,
    beam: Beam = None,
    beam_groups: BeamGroups = None,
    diversity: Diversity = None,
    alpha: Alpha = None,
    length_penalty: LengthPenalty = None,
    stop: Stop = None,
    max_length: MaxLength = None,
    max_ratio: MaxRatio = None,
    min_length: MinLength = None,
    no_repeat_ngram: NoRepeatNgram = None,
    repetition_penalty: RepetitionPenalty = None,
    suppress: Suppress = None,
    no_retry: NoRetry = False,
    prefixes: Prefixes = None,
    constraints: ConstraintsFile = None,
    glossary: GlossaryFile = None,
    protect: Protect = False,
    protect_patterns: ProtectPattern = None,
    sampling: Sample = False,
    top_k: TopK = None,
    top_p: TopP = None,
    epsilon: Epsilon = None,
    temperature: Temperature = None,
    seed: Seed = None,
    mbr: MbrMetric = None,
    mbr_samples: MbrSamples = None,
    nbest: Nbest = 1,
    scores: Scores = False,
    tsv: Tsv = False,
    alignments: Alignments = False,
    as_json: AsJson = False,
    input_: Input = None,
    output: Output = None,
    to: To = None,
    on_bad_utf8: BadUtf8 = "error",
    line_buffered: LineBuffered = False,
    chunk_lines: ChunkLines = None,
    shard: ShardOf = None,
    batch_tokens: BatchTokens = None,
    processes: Processes = None,
    shortlist: Shortlist = False,
    precision: Precision = None,
    kernels: Kernels = None,
    compile_: Compile = False,
    quiet: Quiet = False,
) -> None:
    """Translate text: one line out for every line in.

    Reads stdin and writes stdout by default. Lines keep their order, and blank lines stay blank.
    """
    # Above 60 lines because of its options.
    groups = {"beam": beam, "beam_groups": beam_groups, "diversity": diversity}
    searching = {**groups, "alpha": alpha, "length_penalty": length_penalty, "stop": stop}
    lengths = {"max_length": max_length, "max_ratio": max_ratio, "min_length": min_length}
    rules = {**lengths, "batch_tokens": batch_tokens}
    repetition = {"no_repeat_ngram": no_repeat_ngram, "repetition_penalty": repetition_penalty, "suppress": suppress}
    filters = {"top_k": top_k, "top_p": top_p, "epsilon": epsilon}
    drawing = given({"seed": seed, **filters, "temperature": temperature})
    search = given({**searching, **rules, **repetition})
    if mbr and not sampling:
        search = {"beam": MBR_BEAM, **search}
    _check_sampling(sampling, {**drawing, **given({"mbr_samples": mbr_samples})}, given(searching), no_retry)
    if mbr_samples is not None and mbr is None:
        raise InputError("--mbr-samples only applies to minimum Bayes risk decoding; add --mbr, or leave it out.")
    form = _form(as_json=as_json, tsv=tsv, scores=scores)
    check_search(search)
    beside = [("--input", input_), ("--prefix", prefixes), ("--constraints", constraints), ("--glossary", glossary)]
    check_output(output, [*beside, *(("--model", file) for file in model or [])])
    text = Text(input_, output, prefixes, constraints, bad_utf8(on_bad_utf8), line_buffered)
    chunks = _chunks(chunk_lines, shard, text, kernels)
    for name, path in (("prefix", prefixes), ("constraints", constraints)):
        if input_ and path and not chunks:
            check_line_counts(input_, path, name)
    console = Console(quiet=quiet)
    from vtrans.runtime.ranks import Ranks
    from vtrans.translate.loading import load
    from vtrans.translate.translation import TranslateOptions
    from vtrans.wording.glossary import read_glossary
    from vtrans.wording.protect import Protection

    ranks = Ranks()
    division = _division(processes, threads, text, ranks)
    protection = Protection(tuple(protect_patterns or ())) if protect or protect_patterns else None
    terms = read_glossary(glossary) if glossary else None
    drawn = Sampling(**drawing) if sampling else None
    risk = None if mbr is None else Mbr(mbr, mbr_samples)
    options = TranslateOptions(nbest, drawn, risk, alignments, form, terms, protection, to)
    paths = list(model or [Path(DEFAULT_RUN)])
    settings: dict[str, Any] = {"weights": weights, "engine": engine, "shortlist": shortlist, "precision": precision}
    load_model = partial(
        load,
        paths,
        device=ranks.device_name(device),
        kernels=kernels,
        compile=compile_,
        retry=not no_retry,
        workers=division.total,
        **settings,
        **search,
    )
    if chunks:
        work = chunked(chunks, paths, {**settings, "no_retry": no_retry}, options, text, ranks, console)
    else:
        work = streamed(options, text, ranks, console)
    _run(lambda console: load_model(console=console), work, options, text, ranks, division, console)


def _check_sampling(sampling: bool, drawing: dict[str, Any], searching: dict[str, Any], no_retry: bool) -> None:
    """Raises InputError for options of sampling without --sample, and options of the search with it."""
    if not sampling and drawing:
        raise InputError(f"{flag(drawing)} only applies to sampling; add --sample, or leave it out.")
    if sampling and searching:
        raise InputError(f"{flag(searching)} only applies to a search; leave it or --sample out.")
    if sampling and no_retry:
        raise InputError("--no-retry only applies to a search; leave it or --sample out.")


def _form(*, as_json: bool, tsv: bool, scores: bool) -> Form:
    forms: dict[Form, bool] = {"json": as_json, "tsv": tsv, "scores": scores}
    chosen = [form for form, wanted in forms.items() if wanted]
    if len(chosen) > 1:
        raise InputError(f"--{chosen[0]} includes what --{chosen[1]} writes; leave --{chosen[1]} out.")
    return chosen[0] if chosen else "text"


def _chunks(chunk_lines: int | None, shard: str | None, text: Text, kernels: str | None) -> Chunks | None:
    """Returns how the text is divided into chunks, or None if it is not. Raises InputError for a wrong division."""
    if chunk_lines is None:
        if shard is not None:
            raise InputError("`shard` only applies to chunks; add `chunk_lines`, or leave it out.")
        return None
    check_value(CHUNK_LINES, "`chunk_lines`", chunk_lines)
    if text.input is None or text.output is None:
        raise InputError("`chunk_lines` needs `input`, a file, and `output`, a folder.")
    if text.line_buffered:
        raise InputError("`line_buffered` is for input that arrives line by line; leave it or `chunk_lines` out.")
    measure = bool(kernels or os.environ.get(KERNELS_VARIABLE))
    return Chunks(chunk_lines, Shard.parsed(shard or "1/1"), text.input, text.output, measure)


def _run(
    load: Callable[[Console], Translator],
    work: AbstractContextManager[Work],
    options: TranslateOptions,
    text: Text,
    ranks: Ranks,
    division: Division,
    console: Console,
) -> None:
    """Does the work on rank 0 with the help of other processes, and reports how it went."""
    from vtrans.runtime.ranks import CPU
    from vtrans.translate.stream import serve, workers_for

    with ended_by_signals(), ranks.joined(CPU):
        if ranks.rank > 0:
            serve(load, ranks, options)
            return
        with ranks.leading(), work as prepare:
            translator = load(console)
            translator.check(options, prefixes=text.prefixes is not None, constraints=text.constraints is not None)
            translate_with = prepare(translator)
            copies = division.copies(translator.engine)
            if text.typed:
                console.info("reading from the terminal, line by line; end with Ctrl-D")
            if ranks.world > 1 or copies:
                console.info(f"{max(ranks.world, copies)} processes share the input")
            with workers_for(translator, options, copies, division.threads) if copies else nullcontext() as workers:
                translate_with(workers)
    report(translator.counts, console, min_length=translator.search.min_length)


def _division(processes: int | None, threads: int | None, text: Text, ranks: Ranks) -> Division:
    """Returns the processes and threads that will translate. Raises InputError if the number that the user chose is not
    possible."""
    from vtrans.translate.division import divide

    reasons = {
        f"torchrun has started {ranks.world}": ranks.world > 1,
        "--line-buffered translates one line at a time": text.line_buffered,
    }
    reason = next((reason for reason, holds in reasons.items() if holds), "")
    return divide(processes, threads, reason, prefer_one=text.typed)


def report(counts: Counts, console: Console, *, min_length: int = 0) -> None:
    """Prints the speed, and warns of translations that a user may want to know about."""
    seconds = max(counts.seconds, 1e-9)
    console.info(
        f"{many(counts.lines, 'line', 'in')} {seconds:.1f} s of translating "
        f"({counts.lines / seconds:,.1f} lines/s, {counts.tgt_tokens / seconds:,.0f} target subwords/s)"
    )
    if counts.blank:
        console.info(many(counts.blank, "blank line", "with a blank translation"))
    if counts.retried:
        how = f"searched again without repeated {RETRY_NGRAM}-grams, because the translation looped or did not end"
        console.info(many(counts.retried, "line", how))
    if counts.looping:
        console.warn(many(counts.looping, "line", "with a translation that repeats the same words many times"))
    if counts.unfinished:
        console.warn(many(counts.unfinished, "line", "with a translation that did not end within its length limit"))
    if counts.empty:
        advice = "" if min_length else "; --min-length 1 asks for at least one subword"
        console.warn(many(counts.empty, "line", f"with text that has an empty translation, at least in part{advice}"))
    if counts.unmet:
        console.warn(many(counts.unmet, "line", "with a translation that does not obey its constraints"))
    if counts.missing:
        console.warn(many(counts.missing, "n-best place", "left empty, because the search found no more hypotheses"))
