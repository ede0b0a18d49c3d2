"""BLEU, chrF and TER of a corpus, computed by sacrebleu (Post 2018), each with its signature.

Hypotheses are a list of lines; references are one list of lines per reference file. sacrebleu accepts data that makes
scores meaningless, or only logs a message. Here, subword marks and unequal line counts are errors, and `data_warnings`
reports other problems.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, TypeAlias

import numpy as np
import regex
from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.base import Score as SacrebleuScore
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from vtrans.system.errors import InputError
from vtrans.system.own_code import is_own, own_class, own_digest
from vtrans.text.languages import UNSPACED, base
from vtrans.text.values import compare as compare_numbers

Systems = Mapping[str, Mapping[str, Sequence[str]]]
"""Translations of one text by system name and file name; each file is from one seed."""
MetricOf: TypeAlias = "str | type[CorpusMetric]"
"""One of METRICS, a user-defined class, or the name of one, such as "mine.py:Accuracy"."""
METRICS = ("bleu", "chrf", "chrf++", "ter")
DEFAULT_METRICS = ("bleu", "chrf")

SAMPLES = 1000
"""The default of sacrebleu for the bootstrap."""
SIGNIFICANT = 0.05

# subword-nmt's continuation mark. The "@@" of a diff, as in "@@ -1,3 +1 @@", does not follow a word.
_BPE_MARK = re.compile(r"[^\s@]@@(?=\s|$)")
_SENTENCEPIECE_MARK = "\u2581"
_MOSES = re.compile(r"&(?:apos|quot|amp|#91|#93);| @-@ ")
# Letters of scripts in which the tokenizer 13a finds few or no words.
_NOT_13A = regex.compile(rf"[{UNSPACED}\p{{Tibetan}}\p{{Hangul}}]")
_NOT_HAN = regex.compile(rf"[[{UNSPACED}\p{{Tibetan}}\p{{Hangul}}]--\p{{Han}}]", regex.V1)
SAMPLED = 1000  # lines read to find the script of a text


class CorpusMetric(Metric):
    """The base class of user-defined metrics, which define `statistics` and `value`. The signature contains the digest
    of the metric's file. As `train.best_metric`, higher values must be better."""

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Sequence[float]:
        """Returns the numbers of a line to sum over the corpus; their count is the same for each line."""
        raise NotImplementedError("a CorpusMetric must define `statistics`")

    def value(self, sums: Sequence[float]) -> float:
        """Returns the score of a corpus, or of a resampled corpus, given the sums of `statistics`."""
        raise NotImplementedError("a CorpusMetric must define `value`")

    def get_signature(self) -> Signature:
        signature = super().get_signature()
        signature.update("code", own_digest(sys.modules[type(self).__module__].__file__ or ""))
        return signature

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
        return [*self.statistics(hypothesis, ref_kwargs["references"])]

    def _compute_score_from_stats(self, stats: Sequence[float]) -> SacrebleuScore:
        return SacrebleuScore(type(self).__name__, float(self.value(stats)))

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> SacrebleuScore:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])


@dataclass(frozen=True)
class Score:
    """The value of a metric for a corpus.

    `value` lies in [0, 100] for BLEU and chrF (higher is better) and is at least 0 for TER (lower is better). `text` is
    sacrebleu's line, which contains the signature. If lines were resampled, `mean` is the mean score of the samples,
    and `ci` half the width of the 95% confidence interval.
    """

    name: str
    value: float
    signature: str
    text: str
    mean: float | None = None
    ci: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The value of a metric for a system, and its paired bootstrap test (Koehn 2004) against a baseline.

    `value` is the mean over `seeds`, and `difference` is `value` minus the baseline's. `mean` and `ci` are as in
    `Score`; a sample contains the same lines of every seed. `p_value` is sacrebleu's: (c + 1) / (n + 1), where in c of
    n samples the absolute difference exceeds its mean by more than the observed difference. It is one-sided: about the
    share of samples in which the other system is better, or about 0.42 without a difference.
    """

    system: str
    name: str
    value: float
    mean: float
    ci: float
    seeds: Sequence[float]
    difference: float
    p_value: float
    signature: str


def fitting_tokenizer(references: Sequence[str], language: str = "") -> str:
    """Returns sacrebleu's tokenizer for the script of a text: `zh` for Chinese, `char` for Japanese, Korean, Thai and
    other scripts that 13a does not split, otherwise `13a`. Text in Han characters alone counts as Chinese unless
    `language` says otherwise."""
    text = "".join(references[:SAMPLED])
    others = len(_NOT_13A.findall(text))
    if 2 * others <= sum(map(str.isalpha, text)):
        return "13a"
    is_chinese = base(language) in ("", "zh") and len(_NOT_HAN.findall(text)) <= 0.01 * others
    return "zh" if is_chinese else "char"


def deciding_metric(tokenizer: str) -> Literal["bleu", "chrf"]:
    """Returns the metric for comparing models. Character BLEU says little about words."""
    return "chrf" if tokenizer == "char" else "bleu"


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[MetricOf] = DEFAULT_METRICS,
    *,
    tokenize: str | None = None,
    language: str = "",
    lowercase: bool = False,
    samples: int = 0,
    hyp_name: str = "the hypothesis",
    ref_names: Sequence[str] = (),
    done: Callable[[], None] = lambda: None,
) -> list[Score]:
    """Returns the scores of a corpus, in the order of `metrics`.

    Blank lines count, except that chrF and chrF++ ignore a line whose references are blank. TER always ignores case, as
    its signature says. `tokenize` affects BLEU only; it defaults to the `fitting_tokenizer` of the references and their
    `language`. Other defaults are sacrebleu's. With `samples`, lines are resampled that many times for a confidence
    interval, with the seed of `compare`. `done` is called after each metric. Raises InputError for unequal line counts,
    no lines, subword marks, and an unknown metric or tokenizer.
    """
    made = _metrics(metrics, references, tokenize, language, lowercase)
    _check(hypotheses, references, hyp_name, ref_names)
    scores = []
    for metric in made:
        result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references], n_bootstrap=samples)
        signature = metric.get_signature().format()
        interval = (float(result._mean), float(result._ci)) if samples else ()
        line = result.format(signature=signature)
        scores.append(Score(result.name, float(result.score), signature, line, *interval))
        done()
    return scores


def numbers_score(sources: Sequence[str], hypotheses: Sequence[str]) -> Score:
    """Returns the percentage of lines with digits whose translation keeps the source's numbers (text/values.py). The
    signature holds the number of lines with digits and of translations with an invented number. Raises InputError for
    unequal line counts."""
    check_counts(hypotheses, [sources], "the hypothesis", ["the source"])
    pairs = [pair for pair in zip(sources, hypotheses, strict=True) if any(map(str.isdecimal, "".join(pair)))]
    found = [compare_numbers(src, tgt) for src, tgt in pairs]
    value = 100 * sum(not difference for difference in found) / len(found) if found else 100.0
    invented = sum(bool(difference.invented) for difference in found)
    signature = f"lines:{len(found)}|invented:{invented}"
    return Score("numbers", value, signature, f"numbers|{signature} = {value:.1f}")


def compare(
    systems: Systems,
    references: Sequence[Sequence[str]],
    metrics: Sequence[MetricOf] = DEFAULT_METRICS,
    *,
    tokenize: str | None = None,
    language: str = "",
    lowercase: bool = False,
    samples: int = SAMPLES,
    ref_names: Sequence[str] = (),
    done: Callable[[], None] = lambda: None,
) -> list[list[Comparison]]:
    """Compares each system, including the first, with the first one by paired bootstrap resampling. Returns a list of
    comparisons per metric.

    sacrebleu draws the samples with a fixed seed, or with $SACREBLEU_SEED. `done` is called after each metric. Raises
    InputError like `score`.
    """
    made = _metrics(metrics, references, tokenize, language, lowercase)
    for files in systems.values():
        for name, lines in files.items():
            _check(lines, references, name, ref_names)
    texts: Any = [(system, list(zip(*files.values(), strict=True))) for system, files in systems.items()]
    tables = []
    for metric in made:
        values = _average_seeds(metric)
        test = PairedTest(texts, {"": metric}, [list(lines) for lines in references], "bs", n_samples=samples)
        signatures, results = test()
        for name, signature in signatures.items():
            tables.append(_comparisons(systems, name, results[name], values, signature.format()))
        done()
    return tables


def differing_lines(
    systems: Systems, references: Sequence[Sequence[str]], sources: Sequence[str] = (), lowercase: bool = False
) -> list[dict[str, Any]]:
    """Returns, for JSON, the lines with different sentence chrF: the line number, the chrF by system (mean over seeds),
    and the source, references and translations. Lines with the largest difference come first."""
    if sources:
        check_counts(references[0], [sources], "the reference", ["the source"])
    metric, found = CHRF(lowercase=lowercase), []
    for i, refs in enumerate(zip(*references, strict=True)):
        texts = {system: [lines[i] for lines in files.values()] for system, files in systems.items()}
        chrf = {name: fmean(metric.sentence_score(text, refs).score for text in texts[name]) for name in texts}
        if len(set(chrf.values())) > 1:
            shown = {"source": sources[i : i + 1], "reference": refs, **texts}
            found.append({"name": "example", "line": i + 1, "chrf": chrf, "texts": shown})
    return sorted(found, key=lambda line: min(line["chrf"].values()) - max(line["chrf"].values()))


def corpus_scores(hypotheses: Sequence[str], references: Sequence[str], tokenizer: str = "13a") -> dict[str, Any]:
    """Returns `bleu`, `chrf` and their `signature` for a validation during training.

    Subword marks are allowed, because an untrained model may produce them. Raises InputError for unequal line counts.
    """
    check_counts(hypotheses, [references], "the translations", ["the references"])
    made: list[Metric] = [BLEU(tokenize=tokenizer, force=True), CHRF()]
    bleu, chrf = (metric.corpus_score(list(hypotheses), [list(references)]) for metric in made)
    signature = " ".join(
        f"{result.name}|{metric.get_signature().format()}" for result, metric in zip((bleu, chrf), made, strict=True)
    )
    return {"bleu": float(bleu.score), "chrf": float(chrf.score), "signature": signature}


def data_warnings(
    hypotheses: Mapping[str, Sequence[str]],
    references: Mapping[str, Sequence[str]],
    *,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> list[str]:
    """Returns a warning for each property of the data that makes its scores doubtful. The texts are given by file name,
    with which a warning begins."""
    warnings, first = [], next(iter(references.values()))
    if tokenize == "13a" and (fitting := fitting_tokenizer(first)) != "13a":
        warnings.append(
            "the tokenizer 13a splits the script of the references into a few long words; score with the tokenizer "
            f"{fitting}."
        )
    if tokenize != "none":  # which is for tokenised text
        for name, lines in {**references, **hypotheses}.items():
            warnings += [f"{name}: {sentence}" for sentence in _marks_of_tokenizers(lines)]
    for name, lines in hypotheses.items():
        warnings += [f"{name}: {sentence}" for sentence in _differences(lines, first, lowercase)]
        if any(map(str.strip, lines)) and len(references) == 1 and list(lines) == list(first):
            warnings.append(f"{name}: the hypothesis equals the reference in every line.")
    return warnings


def _marks_of_tokenizers(lines: Sequence[str]) -> Iterator[str]:
    """Yields the warnings about text that was not detokenised."""
    lines = [line for line in lines if line.strip()]
    # sacrebleu warns from 100 such lines; most lines of a smaller file are as suspicious.
    dots = sum(line.endswith(" .") for line in lines)
    if dots >= 100 or (dots >= 3 and dots >= 0.8 * len(lines)):
        yield (
            f"{dots:,} of {len(lines):,} lines end in a tokenised full stop (' .'): detokenise before scoring, or the "
            "scores are not comparable with others."
        )
    if moses := sum(bool(_MOSES.search(line)) for line in lines):
        yield (
            f"{moses:,} of {len(lines):,} lines contain marks of the Moses tokenizer (such as &apos; or @-@): "
            "detokenise before scoring."
        )


def _differences(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool) -> Iterator[str]:
    """Yields the warnings about blank and lowercase lines that the references do not have."""
    blank, expected = (sum(not line.strip() for line in lines) for lines in (hypotheses, references))
    if blank > expected:
        yield f"{blank:,} of {len(hypotheses):,} hypothesis lines are blank; in the references, {expected:,} are."
    written, capitals = (sum(line != line.lower() for line in lines) for lines in (hypotheses, references))
    if not lowercase and not written and capitals > 0.5 * len(references) and blank < len(hypotheses):
        yield (
            f"no hypothesis line has a capital letter, but {capitals:,} of {len(references):,} reference lines have "
            "one; scores that ignore case say so in their signature."
        )


def _metrics(
    names: Sequence[MetricOf], references: Sequence[Sequence[str]], tokenize: str | None, language: str, lowercase: bool
) -> list[Metric]:
    """Returns the sacrebleu metrics with these names. BLEU uses `tokenize`, or else what fits the references."""
    if not names:
        raise InputError(f"`metrics` must name at least one of {', '.join(METRICS)}, got none.")
    if tokenize is not None and "bleu" not in names:
        raise InputError(f"`tokenize` = {tokenize!r} affects BLEU only; add bleu to `metrics`, or leave it out.")
    made: list[Metric] = []
    for name in dict.fromkeys(names):
        if name == "bleu":
            fitting = tokenize or fitting_tokenizer(references[0] if references else (), language)
            # `force` silences a log message, which data_warnings replaces.
            made.append(BLEU(lowercase=lowercase, tokenize=_checked_tokenizer(fitting), force=True))
        elif name == "chrf":
            made.append(CHRF(lowercase=lowercase))
        elif name == "chrf++":
            made.append(CHRF(word_order=2, lowercase=lowercase))
        elif name == "ter":
            made.append(TER())
        elif isinstance(name, type) or is_own(name):
            made.append(own_class(name, CorpusMetric, "metrics")())
        else:
            raise InputError(f"`metrics` must be among {', '.join(METRICS)}, got {name!r}.")
    return made


def _checked_tokenizer(name: str) -> str:
    """Returns the tokenizer's name. Raises InputError if sacrebleu lacks it or cannot use it here."""
    known = list(BLEU.TOKENIZERS)
    if name not in known:
        raise InputError(f"`tokenize` must be one of {', '.join(known)}, got {name!r}.")
    try:
        BLEU(tokenize=name)
    except (RuntimeError, ImportError, OSError) as error:  # without its package, or its model and a network
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"the tokenizer {name} cannot be used here: {reason}; use 13a, intl or char.") from None
    return name


def _check(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], hyp_name: str, ref_names: Sequence[str]
) -> None:
    names = ref_names or [f"reference {number}" for number in range(1, len(references) + 1)]
    check_counts(hypotheses, references, hyp_name, names)
    for number, line in enumerate(hypotheses, 1):
        if _SENTENCEPIECE_MARK in line:
            raise InputError(
                f"{hyp_name}, line {number} contains SentencePiece's word mark '▁' (U+2581): "
                "decode the subwords into text before scoring."
            )
        if mark := _BPE_MARK.search(line):
            word = line[: mark.end()].split()[-1]
            raise InputError(
                f"{hyp_name}, line {number} contains the subword mark '@@' ({word!r}): "
                "join the subwords (sed -E 's/@@( |$)//g') and detokenise before scoring."
            )


def check_counts(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], hyp_name: str, names: Sequence[str]
) -> None:
    """Raises InputError if the texts have different numbers of lines, or none."""
    if not references:
        raise InputError("`references` must hold at least one reference, got none.")
    for lines, name in zip(references, names, strict=True):
        if len(lines) != len(hypotheses):
            raise InputError(
                f"{hyp_name} has {len(hypotheses):,} lines, but {name} has {len(lines):,}; "
                "the two must have the same number of lines."
            )
    if not hypotheses:
        raise InputError(f"{hyp_name} has no lines to score.")


def _average_seeds(metric: Metric) -> list[list[float]]:
    """Makes a metric accept texts whose lines are tuples of translations, one per seed, and average the seeds' counts.
    Returns a list to which each text adds the values of its seeds."""
    counts_of, values = metric._extract_corpus_statistics, []

    def counted(lines: Sequence[tuple[str, ...]], references: Sequence[Sequence[str]]) -> Any:
        counts = [counts_of(seed, references) for seed in zip(*lines, strict=True)]
        values.append([float(metric._aggregate_and_compute(each).score) for each in counts])
        return np.mean(counts, axis=0).tolist()

    vars(metric)["_extract_corpus_statistics"] = counted
    return values


def _comparisons(
    systems: Systems, name: str, results: Sequence[Any], values: list[list[float]], signature: str
) -> list[Comparison]:
    compared = list[Comparison]()
    for system, result, seeds in zip(systems, results, values, strict=True):
        figures = (fmean(seeds), float(result.mean), float(result.ci), seeds)
        difference = figures[0] - fmean(values[0])
        # sacrebleu counts the samples whose difference exceeds the observed one. For two equal systems both are 0, so
        # it reports p = 1 / (samples + 1).
        p_value = 1.0 if seeds == values[0] else float(result.p_value)
        compared.append(Comparison(system, name, *figures, difference, p_value, signature))
    return compared
