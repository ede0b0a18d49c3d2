"""`vtrans score`: scores translations against references, and compares systems."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from statistics import stdev
from typing import Annotated, Any

from vtrans.commands.generated import argument, option
from vtrans.commands.lines import print_json, print_line, read_all, result_console, stdin_is_terminal
from vtrans.commands.shared_options import BadUtf8, Json, Quiet
from vtrans.system.console import Console
from vtrans.system.errors import InputError

STDIN = Path("stdin")
REFERENCES = "Reference translations. Give several files for several references per line."
METRICS = "bleu, chrf, chrf++, ter, or a class such as mine.py:Accuracy. May be repeated.  [default: bleu and chrf]"
CONFIDENCE = "Print the 95% confidence interval of BLEU, chrF and TER, from 1,000 resamples of the lines."
TOKENIZER = "sacrebleu's tokenizer for BLEU.  [default: 13a, or what fits the script of the references]"
HYP = "Translations to score. May be repeated; NAME=FILE,FILE are the seeds of one system.  [default: stdin]"
BASELINE = "The system that the others are compared with (paired bootstrap).  [default: the first of several --hyp]"
EXAMPLES = "Also print the N lines whose translations differ most in sentence chrF."
INTERVAL = "± is half the 95% confidence interval of a score, by resampling its lines"
P_VALUE = "p is about the share of resampled texts where the other system is better, 0.4 or more without a difference"
SOURCE = "Source text, for the share of lines with digits whose numbers are kept, and for --examples."


def score(
    references: Annotated[list[Path], argument(REFERENCES, "REF")],
    hyp: Annotated[list[Path] | None, option(HYP, "FILE")] = None,
    metrics: Annotated[list[str] | None, option(METRICS, "NAME", "Scoring", flag="--metric")] = None,
    tokenize: Annotated[str | None, option(TOKENIZER, "NAME", "Scoring")] = None,
    lowercase: Annotated[bool, option("Ignore case.", panel="Scoring", flag="--lowercase")] = False,
    confidence: Annotated[bool, option(CONFIDENCE, panel="Scoring", flag="--confidence")] = False,
    baseline: Annotated[Path | None, option(BASELINE, "FILE", "Scoring")] = None,
    examples: Annotated[int, option(EXAMPLES, "N", "Scoring", min=0)] = 0,
    src: Annotated[Path | None, option(SOURCE, "FILE", "Scoring")] = None,
    on_bad_utf8: BadUtf8 = "error",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score translations against references.

    sacrebleu computes BLEU, chrF and TER. Each score is printed with its signature.
    """
    from vtrans.score.metrics import DEFAULT_METRICS, SAMPLES, compare, data_warnings, differing_lines, numbers_score
    from vtrans.score.metrics import score as run_score
    from vtrans.text.languages import language_of_file

    named = _named(([baseline] if baseline else []) + (hyp or [STDIN]))
    _check(references, named, src, examples)
    console = Console(quiet=quiet)
    refs = [read_all(path, on_bad_utf8, console) for path in references]
    files = [path for paths in named.values() for path in paths]
    texts = {path: read_all(None if path is STDIN else path, on_bad_utf8, console) for path in files}
    systems = {name: {str(path): texts[path] for path in paths} for name, paths in named.items()}
    settings: dict[str, Any] = {"tokenize": tokenize, "lowercase": lowercase}
    language = language_of_file(str(references[0])) or ""
    labels: dict[str, Any] = {"language": language, "ref_names": [str(path) for path in references]}
    results: list[Any]
    tables, shown = [], []
    chosen = metrics or DEFAULT_METRICS
    sources = read_all(src, on_bad_utf8, console) if src else []
    with console.progress("scoring", len(chosen), "metrics") as counter:
        labels["done"] = counter.advance
        if len(files) > 1:
            tables = compare(systems, refs, chosen, **settings, **labels)
            results = [row for rows in tables for row in rows]
            if examples:
                shown = differing_lines(systems, refs, sources, lowercase)[:examples]
        else:
            lines, labels["hyp_name"] = texts[files[0]], str(files[0])
            results = list(run_score(lines, refs, chosen, samples=SAMPLES * confidence, **settings, **labels))
            if src:
                results.append(numbers_score(sources, lines))
    hypotheses = {str(path): lines for path, lines in texts.items()}
    for sentence in data_warnings(hypotheses, dict(zip(labels["ref_names"], refs, strict=True)), **settings):
        console.warn(sentence)
    if tables or confidence:
        console.info(f"{INTERVAL}{f'; {P_VALUE}' if tables else ''}")
    if as_json:
        print_json([asdict(result) for result in results] + shown)
    elif tables:
        _print_tables(tables, shown)
    else:
        for result in results:
            print_line(result.text)


def _named(values: list[Path]) -> dict[str, list[Path]]:
    """Returns the files of each system by its name, from values such as FILE or NAME=FILE,FILE."""
    named: dict[str, list[Path]] = {}
    for value in values:
        name, equals, files = str(value).partition("=")
        if equals and not value.exists():
            if not all((name, *files.split(","))):
                raise InputError(f"--hyp {value} must have the form FILE, NAME=FILE or NAME=FILE,FILE.")
            named.setdefault(name, []).extend(map(Path, files.split(",")))
        else:
            named.setdefault(str(value), []).append(value)
    return named


def _check(references: list[Path], named: dict[str, list[Path]], src: Path | None, examples: int) -> None:
    """Raises InputError if a file is missing or given twice, or if two options exclude each other."""
    files = [path for paths in named.values() for path in paths]
    if examples and len(named) == 1:
        raise InputError("--examples compares systems; add --baseline FILE or another --hyp FILE.")
    if len(files) > 1 and src and not examples:
        raise InputError("--src without --examples scores one text; leave it out to compare several.")
    for number, path in enumerate(files):
        if any(path.resolve() == other.resolve() for other in files[:number]):
            raise InputError(f"{path} is given twice; each system, and each of its seeds, needs a file of its own.")
    if files[-1] is STDIN and stdin_is_terminal():
        raise InputError(
            "there is no hypothesis: name it with --hyp FILE, or redirect it, as in `vtrans score REF < FILE`"
            + ("; all the files named are references." if len(references) > 1 else ".")
        )


def _print_tables(tables: list[Any], examples: list[dict[str, Any]]) -> None:
    console = result_console()
    for rows in tables:
        first, lines = rows[0], []
        for row in rows:
            spread = f"{stdev(row.seeds):.2f}" if len(row.seeds) > 1 else ""
            lines.append([row.system, f"{row.value:.2f}", f"{row.ci:.2f}", len(row.seeds), spread])
            if row is not first:
                lines[-1] += [f"{row.difference:+.2f}", f"{row.p_value:.4f}"]
        header = ("system", first.name, "±", "seeds", "sd", "difference", "p")
        console.table(f"{first.name}|{first.signature}", lines, header=header)
    for each in examples:
        chrf = ", ".join(f"{name} {value:.1f}" for name, value in each["chrf"].items())
        # The space keeps the texts at the left: a column of numbers is aligned right.
        texts = [(name, f" {text}") for name, lines in each["texts"].items() for text in lines]
        console.table(f"line {each['line']}: chrF {chrf}", texts)
