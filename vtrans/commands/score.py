"""`vtrans score`: scores translations against references, and compares two systems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from vtrans.commands.generated import argument, option
from vtrans.commands.lines import print_json, print_line, read_all, stdin_is_terminal
from vtrans.commands.shared_options import BadUtf8, Json, Quiet
from vtrans.system.console import Console
from vtrans.system.errors import InputError

REFERENCES = "Reference translations. Give several files for several references per line."
METRICS = "bleu, chrf, chrf++, ter, or a class such as mine.py:Accuracy. May be repeated.  [default: bleu and chrf]"
CONFIDENCE = "Print the 95% confidence interval of BLEU, chrF and TER, from 1,000 resamples of the lines."
TOKENIZER = "sacrebleu's tokenizer for BLEU.  [default: 13a, or what fits the script of the references]"
BASELINE = "Translations of another system, to test whether the difference is significant (paired bootstrap)."
INTERVAL = "± is half the 95% confidence interval of a score, by resampling its lines"
P_VALUE = (
    "p is about the share of resampled texts in which the other system is better, 0.4 or more without a difference"
)
SOURCE = "Source text, for the share of lines with digits whose numbers are kept, and for COMET."
COMET = (
    "Also compute COMET with this model on disk: a folder with hparams.yaml and checkpoints/model.ckpt. It needs the "
    "extra comet and the tokenizer that the model names; nothing is downloaded. A checkpoint can run code, so use only "
    "models that you trust."
)


def score(
    references: Annotated[list[Path], argument(REFERENCES, "REF")],
    hyp: Annotated[Path | None, option("Translations to score.  [default: stdin]", "FILE")] = None,
    metrics: Annotated[list[str] | None, option(METRICS, "NAME", "Scoring", flag="--metric")] = None,
    tokenize: Annotated[str | None, option(TOKENIZER, "NAME", "Scoring")] = None,
    lowercase: Annotated[bool, option("Ignore case.", panel="Scoring", flag="--lowercase")] = False,
    confidence: Annotated[bool, option(CONFIDENCE, panel="Scoring", flag="--confidence")] = False,
    baseline: Annotated[Path | None, option(BASELINE, "FILE", "Scoring")] = None,
    src: Annotated[Path | None, option(SOURCE, "FILE", "Scoring")] = None,
    comet: Annotated[Path | None, option(COMET, "PATH", "Scoring")] = None,
    on_bad_utf8: BadUtf8 = "error",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score translations against references.

    sacrebleu computes BLEU, chrF and TER. Each score is printed with its signature.
    """
    from vtrans.score.comet import comet_score
    from vtrans.score.metrics import DEFAULT_METRICS, SAMPLES, compare, data_warnings, numbers_score
    from vtrans.score.metrics import score as run_score
    from vtrans.text.languages import language_of_file

    _check(references, hyp, baseline, src, comet)
    console = Console(quiet=quiet)
    refs = [read_all(path, on_bad_utf8, console) for path in references]
    hypotheses = read_all(hyp, on_bad_utf8, console)
    settings: dict[str, Any] = {"tokenize": tokenize, "lowercase": lowercase}
    labels: dict[str, Any] = {
        "language": language_of_file(str(references[0])) or "",
        "hyp_name": str(hyp or "stdin"),
        "ref_names": [str(path) for path in references],
    }
    results: list[Any]
    chosen = metrics or DEFAULT_METRICS
    other = read_all(baseline, on_bad_utf8, console) if baseline else []
    sources = read_all(src, on_bad_utf8, console) if src else []
    with console.progress("comparing" if baseline else "scoring", len(chosen) + bool(comet), "metrics") as counter:
        labels["done"] = counter.advance
        if baseline is None:
            results = list(run_score(hypotheses, refs, chosen, samples=SAMPLES * confidence, **settings, **labels))
            if src:
                results.append(numbers_score(sources, hypotheses))
            if comet:
                results.append(comet_score(comet, sources, hypotheses, refs))
        else:
            labels["baseline_name"] = str(baseline)
            results = list(compare(other, hypotheses, refs, chosen, **settings, **labels))
    for sentence in data_warnings(hypotheses, refs, **settings):
        console.warn(sentence)
    if baseline or confidence:
        console.info(f"{INTERVAL}{f'; {P_VALUE}' if baseline else ''}")
    if as_json:
        print_json([result.as_dict() for result in results])
    else:
        for result in results:
            print_line(result.text)


def _check(
    references: list[Path], hyp: Path | None, baseline: Path | None, src: Path | None, comet: Path | None
) -> None:
    """Raises InputError if a file is missing, or two exclude each other."""
    if comet and src is None:
        raise InputError("--comet needs the source text; add --src FILE.")
    if src and baseline:
        raise InputError("--baseline tests BLEU, chrF and TER only; leave it or --src and --comet out.")
    if hyp is None and stdin_is_terminal():
        raise InputError(
            "there is no hypothesis: name it with --hyp FILE, or redirect it, as in `vtrans score REF < FILE`"
            + ("; all the files named are references." if len(references) > 1 else ".")
        )
