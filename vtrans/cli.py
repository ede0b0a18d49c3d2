"""The command line: thin commands that read their options, build the objects and call one function.

Heavy imports stand inside the commands: `vtrans --help` needs no torch. Results go to stdout,
everything else to stderr. Exit codes: 0 done, 1 failed while running, 2 the user's input is at fault.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

import vtrans
from vtrans.console import Console
from vtrans.errors import InputError, VtransError

if TYPE_CHECKING:
    from vtrans.translate import Sampling, Translator

app = typer.Typer(
    name="vtrans",
    help="Train and run Transformer translation models. Start with prepare-bpe, then train, average, "
    "translate and score; the defaults chain into each other.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# The class of every complaint of Typer about the command line, whichever click it carries.
_UsageError: type[BaseException] = typer.BadParameter.__mro__[1]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and errors on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:N or mps; default: the best there is.", metavar="NAME")
]
BadUtf8 = Annotated[
    str | None,
    typer.Option(help="error, or replace: put U+FFFD for bad bytes, and count them.", metavar="HOW"),
]


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if version:
        _out(f"vtrans {vtrans.__version__}")
        raise typer.Exit
    del debug  # main() takes it out, wherever it stands, before anything is parsed


@app.command("prepare-bpe")
def prepare_bpe(
    src: Annotated[list[str], typer.Option(help="Source text, a sentence a line; repeat for several corpora.")],
    tgt: Annotated[list[str], typer.Option(help="Its translations, line by line; repeat pair by pair.")],
    valid_src: Annotated[
        list[str] | None, typer.Option(help="Validation source; without it random sentences are held out.")
    ] = None,
    valid_tgt: Annotated[list[str] | None, typer.Option(help="Validation target.")] = None,
    out: Annotated[str | None, typer.Option(help="Data folder to make.  [default: data]")] = None,
    vocab_size: Annotated[int | None, typer.Option(help="Subwords.  [default: 8000, or what the text allows]")] = None,
    separate: Annotated[bool, typer.Option("--separate", help="One vocabulary a side, not a joint one.")] = False,
    subword: Annotated[str | None, typer.Option(help="bpe or unigram.  [default: bpe]", metavar="KIND")] = None,
    normalization: Annotated[
        str | None,
        typer.Option(
            help="SentencePiece's rule: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf or identity (none).",
            metavar="RULE",
        ),
    ] = None,
    character_coverage: Annotated[
        float | None,
        typer.Option(help="Share of running characters with a subword; the rest is spelt in bytes."),
    ] = None,
    sample: Annotated[int | None, typer.Option(help="Pairs, at random, that the vocabulary is learnt from.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Pairs with a longer side are dropped.")] = None,
    max_ratio: Annotated[float | None, typer.Option(help="Long pairs of odder lengths are dropped.")] = None,
    on_bad_utf8: BadUtf8 = None,
    seed: Annotated[int | None, typer.Option(help="Of the pairs held out and sampled.")] = None,
    threads: Annotated[int | None, typer.Option(help="For encoding.  [default: all]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder made from other inputs.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn a joint BPE vocabulary from two files of parallel text and encode them."""
    from vtrans.corpus import PrepareOptions, prepare

    given = {
        "valid_src": tuple(valid_src or ()) or None,
        "valid_tgt": tuple(valid_tgt or ()) or None,
        "out": out,
        "vocab_size": vocab_size,
        "separate": separate,
        "subword": subword,
        "normalization": normalization,
        "character_coverage": character_coverage,
        "sample": sample,
        "max_tokens": max_tokens,
        "max_ratio": max_ratio,
        "on_bad_utf8": on_bad_utf8,
        "seed": seed,
        "threads": threads,
        "force": force,
    }
    options = PrepareOptions(tuple(src), tuple(tgt), **_given(given))
    report = prepare(options, Console(quiet=quiet))
    if as_json:
        _out(json.dumps(report, ensure_ascii=False, indent=2, sort_keys=True))


@app.command()
def train(
    data: Annotated[Path, typer.Option(help="Data folder of prepare-bpe.")] = Path("data"),
    out: Annotated[Path, typer.Option(help="Run folder; one that holds a run is resumed.")] = Path("run"),
    recipe: Annotated[
        str | None,
        typer.Option(help="A recipe's name or a TOML file.  [default: small]", metavar="NAME|FILE"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a value of the recipe; repeat.", metavar="section.key=value"),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw the run in the folder away and start over.")] = False,
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Train a model, or go on with the run in the folder exactly where it stopped."""
    _keep_freed_memory()
    from vtrans.checkpoint import RunFolder
    from vtrans.corpus import DataFolder
    from vtrans.train import train as run_training

    run_training(
        DataFolder.open(data),
        RunFolder(out),
        Console(quiet=quiet),
        recipe_name=recipe,
        overrides=set_ or [],
        fresh=fresh,
        device=device,
    )


@app.command()
def average(
    what: Annotated[list[Path] | None, typer.Argument(help="A run folder, or model files.  [default: run]")] = None,
    last: Annotated[int | None, typer.Option(help="The newest N checkpoints.  [default: 5]", min=1)] = None,
    best: Annotated[int | None, typer.Option(help="The best N instead.", min=1)] = None,
    out: Annotated[Path | None, typer.Option(help="File to write.  [default: RUN/averaged.safetensors]")] = None,
    quiet: Quiet = False,
) -> None:
    """Average the weights of several checkpoints into one model."""
    from vtrans.average import average as run_average
    from vtrans.average import checkpoints_of
    from vtrans.checkpoint import RunFolder

    if last is not None and best is not None:
        raise InputError("--last and --best exclude each other; give one of them.")
    paths = what or [Path("run")]
    if len(paths) == 1 and paths[0].is_dir():
        run = RunFolder(paths[0])
        files = checkpoints_of(run, best or last or 5, by="best" if best else "last")
        target = out or run.averaged
    else:
        if last is not None or best is not None:
            raise InputError("--last and --best choose in a run folder; named files are averaged as they are.")
        if out is None:
            raise InputError("averaging named files needs --out FILE for the result.")
        files, target = paths, out
    steps = run_average(files, target)
    Console(quiet=quiet).info(f"{target}: the average of {len(files)} checkpoints, steps {', '.join(map(str, steps))}")


@app.command()
def translate(
    model: Annotated[
        list[Path] | None,
        typer.Option(help="A run folder or a model file; several are an ensemble.  [default: run]"),
    ] = None,
    input_: Annotated[Path | None, typer.Option("--input", help="Text to translate.  [default: stdin]")] = None,
    output: Annotated[Path | None, typer.Option(help="Where to write it.  [default: stdout]")] = None,
    beam: Annotated[int | None, typer.Option(help="Live hypotheses a sentence; 1 is greedy.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Exponent of the length penalty ((5 + |Y|) / 6) ** alpha.")
    ] = None,
    length_penalty: Annotated[
        str | None,
        typer.Option(help="gnmt, or length: |Y| ** alpha, as fairseq, Marian and CTranslate2 divide.", metavar="KIND"),
    ] = None,
    stop: Annotated[
        str | None,
        typer.Option(help="count: when `beam` hypotheses have ended; exhaustive: when none can win.", metavar="RULE"),
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Cap on target subwords.  [default: source + 50]")] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Padded source subwords of a batch; 1: one sentence at a time.")
    ] = None,
    nbest: Annotated[int, typer.Option(help="Translations of each line, best first.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Put each one's score and a tab before it.")] = False,
    sample: Annotated[bool, typer.Option("--sample", help="Draw translations instead of searching.")] = False,
    top_k: Annotated[int | None, typer.Option(help="With --sample: the k likeliest subwords only.")] = None,
    top_p: Annotated[float | None, typer.Option(help="With --sample: the likeliest with this mass only.")] = None,
    temperature: Annotated[float | None, typer.Option(help="With --sample: below 1 is bolder.")] = None,
    seed: Annotated[int | None, typer.Option(help="With --sample: of the draws.")] = None,
    on_bad_utf8: BadUtf8 = None,
    line_buffered: Annotated[
        bool, typer.Option("--line-buffered", help="Answer each line before the next is read.")
    ] = False,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line, with everything in it.")] = False,
    quiet: Quiet = False,
) -> None:
    """Translate lines of text: one line out for every line in, in order."""
    drawing = {"top_k": top_k, "top_p": top_p, "temperature": temperature, "seed": seed}
    if not sample and _given(drawing):
        first = next(iter(_given(drawing))).replace("_", "-")
        raise InputError(f"--{first} only matters with --sample; add --sample or leave it out.")
    if sample and _given({"beam": beam, "stop": stop, "alpha": alpha, "length_penalty": length_penalty}):
        raise InputError("--sample draws instead of searching; leave out --beam, --alpha, --length-penalty and --stop.")
    if scores and as_json:
        raise InputError("--json holds the scores already; leave out --scores.")
    _keep_freed_memory()
    from vtrans.translate import Sampling, load

    console = Console(quiet=quiet)
    how = _checked_bad_utf8(on_bad_utf8)
    search = {
        "beam": beam,
        "alpha": alpha,
        "length_penalty": length_penalty,
        "stop": stop,
        "max_length": max_length,
        "batch_tokens": batch_tokens,
    }
    sampling = Sampling(**_given(drawing)) if sample else None
    translator = load(list(model or [Path("run")]), device=device, console=console, **_given(search))
    with _lines_of(input_, how, console) as lines, _writer(output) as stream:
        _translate_stream(translator, lines, stream, nbest, sampling, scores, as_json, line_buffered, console)


def _translate_stream(
    translator: Translator,
    lines: Iterator[str],
    stream: BinaryIO,
    nbest: int,
    sampling: Sampling | None,
    scores: bool,
    as_json: bool,
    line_buffered: bool,
    console: Console,
) -> None:
    from vtrans.text import write_line
    from vtrans.translate import WINDOW, windows

    began, written = time.monotonic(), 0
    counts = translator.counts
    for window in windows(lines, 1 if line_buffered else WINDOW):
        for translations in translator.translate_window(window, nbest, sampling):
            if as_json:
                fields = [
                    {
                        "text": t.text,
                        "score": _finite(t.score),
                        "logprob": _finite(t.logprob),
                        "finished": t.finished,
                    }
                    for t in translations
                ]
                write_line(stream, json.dumps({"translations": fields}, ensure_ascii=False))
                written += 1
                continue
            for t in translations:
                write_line(stream, f"{t.score:.6f}\t{t.text}" if scores else t.text)
                written += 1
        stream.flush()
    expected = counts.lines * (1 if as_json else nbest)
    if written != expected:
        raise VtransError(f"{counts.lines} lines came in, but {written} instead of {expected} went out.")
    seconds = time.monotonic() - began
    console.info(
        f"{counts.lines:,} lines in {seconds:.1f} s on {translator.models[0].model.device} "
        f"({counts.lines / seconds:.0f} lines/s, {counts.tgt_tokens / seconds:,.0f} target subwords/s)"
    )
    for number, what in (
        (counts.unfinished, "lines whose translation did not end within its limit"),
        (counts.missing, "n-best places for which the search found no hypothesis; they are empty"),
    ):
        if number:
            console.warn(f"{number:,} {what}")


@app.command()
def score(
    references: Annotated[list[Path], typer.Argument(help="Reference translations; several are several references.")],
    hyp: Annotated[Path | None, typer.Option(help="Translations to score.  [default: stdin]")] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="bleu, chrf, chrf++ or ter; repeat.  [default: bleu and chrf]")
    ] = None,
    tokenize: Annotated[str | None, typer.Option(help="sacrebleu's tokenizer for BLEU.  [default: 13a]")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    baseline: Annotated[
        Path | None, typer.Option(help="Another system's translations: paired bootstrap significance.")
    ] = None,
    on_bad_utf8: BadUtf8 = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score translations with sacrebleu; the signature travels with each number."""
    from vtrans.score import DEFAULT_METRICS, compare, data_warnings
    from vtrans.score import score as run_score

    console = Console(quiet=quiet)
    how = _checked_bad_utf8(on_bad_utf8)
    if hyp is None and sys.stdin.isatty():
        raise InputError(
            "there is no hypothesis; give one with --hyp FILE or as `vtrans score REF < FILE`"
            + (" (the files named are all references)." if len(references) > 1 else ".")
        )
    refs = [_read_all(path, how, console) for path in references]
    names = [str(path) for path in references]
    hypotheses = _read_all(hyp, how, console)
    metrics = metric or DEFAULT_METRICS
    settings: dict[str, Any] = {"tokenize": tokenize, "lowercase": lowercase}
    labels: dict[str, Any] = {"hyp_name": str(hyp or "stdin"), "ref_names": names}
    results: list[Any]
    if baseline is None:
        results = list(run_score(hypotheses, refs, metrics, **settings, **labels))
    else:
        other = _read_all(baseline, how, console)
        results = list(compare(other, hypotheses, refs, metrics, **settings, **labels, baseline_name=str(baseline)))
    for sentence in data_warnings(hypotheses, refs, **settings):
        console.warn(sentence)
    if as_json:
        _out(json.dumps([result.as_dict() for result in results], ensure_ascii=False, indent=2))
    else:
        for result in results:
            _out(result.text)


# What the commands share.


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the user set: the others have their defaults where they are defined."""
    return {key: value for key, value in options.items() if value is not None}


def _finite(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if abs(value) != float("inf") else None


def _checked_bad_utf8(how: str | None) -> Any:
    if how not in (None, "error", "replace"):
        raise InputError(f"--on-bad-utf8 must be error or replace, but is {how!r}.")
    return how or "error"


@contextmanager
def _lines_of(path: Path | None, on_bad_utf8: Any, console: Console) -> Iterator[Iterator[str]]:
    """The lines of a file or of stdin, and a warning about what reading them met."""
    from vtrans.text import LineReport, open_bytes, read_lines

    report = LineReport()
    if path is None:
        if sys.stdin.isatty():
            console.info("reading from the terminal; end with Ctrl-D")
        # Unbuffered: a reading thread that is still waiting at the end must not hold the buffer's lock.
        source, name = open(0, "rb", buffering=0, closefd=False), "stdin"  # noqa: SIM115 - a descriptor
    else:
        source, name = open_bytes(path), str(path)  # type: ignore[assignment]  # both read bytes
    with source:
        yield read_lines(source, name, on_bad_utf8=on_bad_utf8, report=report)
    if report.odd_line_ends:
        console.warn(f"{name}: {report.odd_line_ends:,} characters that other tools take for line ends became spaces")
    if report.replacements:
        console.warn(f"{name}: {report.replacements:,} bad UTF-8 sequences became U+FFFD")


def _read_all(path: Path | None, on_bad_utf8: Any, console: Console) -> list[str]:
    with _lines_of(path, on_bad_utf8, console) as lines:
        return list(lines)


@contextmanager
def _writer(path: Path | None) -> Iterator[BinaryIO]:
    """stdout, or a file that is replaced once it is whole."""
    from vtrans.text import replacing

    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with replacing(path) as stream:
            yield stream


def _out(text: str) -> None:
    """A line of the result."""
    sys.stdout.buffer.write(text.encode() + b"\n")
    sys.stdout.buffer.flush()


def _keep_freed_memory() -> None:
    """Tells glibc to keep large blocks it is given back, whose page faults cost a quarter of the time.

    A variable that the user set wins. Nothing happens where the C library is another one.
    """
    keep, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = 1 << 30, -1, -3
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    for variable, parameter in (
        ("MALLOC_MMAP_THRESHOLD_", M_MMAP_THRESHOLD),
        ("MALLOC_TRIM_THRESHOLD_", M_TRIM_THRESHOLD),
    ):
        if variable not in os.environ:
            libc.mallopt(parameter, keep)


def main() -> None:
    """Runs the command line and exits with its code; the one place where errors are printed."""
    debug = "--debug" in sys.argv
    try:
        code = app([word for word in sys.argv[1:] if word != "--debug"], standalone_mode=False) or 0
    except VtransError as error:
        code = _failed(str(error), error.exit_code, debug)
    except typer.Exit as error:
        code = error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        code = _failed("interrupted.", 1, False)
    except BrokenPipeError:
        # The reader of our output has gone: nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        if isinstance(error, _UsageError):
            code = _failed(_usage_message(error), 2, debug)
        else:
            what = re.sub(r"\s+", " ", str(error)) or "no message"
            code = _failed(f"{type(error).__name__}: {what} (--debug shows where)", 1, debug)
    sys.exit(code)


def _usage_message(error: Any) -> str:
    message = error.format_message()
    if not message:  # no command at all: the help has been printed
        return "a command is missing."
    command = error.ctx.command_path if getattr(error, "ctx", None) else "vtrans"
    return f"{message.rstrip('.')}; `{command} --help` lists what there is."


def _failed(message: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    Console().error(message)
    return code
