"""`vtrans score`: hypotheses and references read, the results printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from vtrans.commands.lines import print_line, read_all, stdin_is_terminal
from vtrans.commands.options import BadUtf8, Json, Quiet, bad_utf8
from vtrans.console import Console
from vtrans.errors import InputError


def score(
    references: Annotated[
        list[Path],
        typer.Argument(help="Reference translations; several are several references.", metavar="REF"),
    ],
    hyp: Annotated[Path | None, typer.Option(help="Translations to score.  [default: stdin]", metavar="FILE")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="bleu, chrf, chrf++ or ter; repeat.  [default: bleu and chrf]", metavar="NAME"),
    ] = None,
    tokenize: Annotated[
        str | None, typer.Option(help="sacrebleu's tokenizer for BLEU.  [default: 13a]", metavar="NAME")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Another system's translations: paired bootstrap significance.", metavar="FILE"),
    ] = None,
    on_bad_utf8: BadUtf8 = "error",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score translations against references.

    Through sacrebleu; its signature travels with each number.
    """
    from vtrans.score import DEFAULT_METRICS, compare, data_warnings
    from vtrans.score import score as run_score

    console = Console(quiet=quiet)
    how = bad_utf8(on_bad_utf8)
    if hyp is None and stdin_is_terminal():
        raise InputError(
            "there is no hypothesis; give one with --hyp FILE or as `vtrans score REF < FILE`"
            + (" (the files named are all references)." if len(references) > 1 else ".")
        )
    refs = [read_all(path, how, console) for path in references]
    names = [str(path) for path in references]
    hypotheses = read_all(hyp, how, console)
    metrics = metric or DEFAULT_METRICS
    settings: dict[str, Any] = {"tokenize": tokenize, "lowercase": lowercase}
    labels: dict[str, Any] = {"hyp_name": str(hyp or "stdin"), "ref_names": names}
    results: list[Any]
    if baseline is None:
        results = list(run_score(hypotheses, refs, metrics, **settings, **labels))
    else:
        other = read_all(baseline, how, console)
        results = list(compare(other, hypotheses, refs, metrics, **settings, **labels, baseline_name=str(baseline)))
    for sentence in data_warnings(hypotheses, refs, **settings):
        console.warn(sentence)
    if as_json:
        print_line(json.dumps([result.as_dict() for result in results], ensure_ascii=False, indent=2))
    else:
        for result in results:
            print_line(result.text)
