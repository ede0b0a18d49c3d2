"""BLEU, chrF and TER of a corpus, through sacrebleu (Post 2018), never without their signatures.

Lines come in as lists of strings (`vtrans.text` reads them), references as one list a reference file.
What sacrebleu would log, or silently accept, is looked for here: subword marks and unequal line counts
are refused, the rest comes back as a list of warnings.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from vtrans.config import nearest
from vtrans.errors import InputError

MetricName = Literal["bleu", "chrf", "chrf++", "ter"]
METRICS: tuple[MetricName, ...] = ("bleu", "chrf", "chrf++", "ter")
DEFAULT_METRICS: tuple[MetricName, ...] = ("bleu", "chrf")

SAMPLES = 1000
SEED = 12345
"""sacrebleu's own defaults for the paired bootstrap."""

# A word that ends in "@@" goes on in the next one (subword-nmt). A diff's "@@ -1,3 +1 @@" is no such mark.
_BPE_MARK = re.compile(r"[^\s@]@@(?=\s|$)")
_SENTENCEPIECE_MARK = "\u2581"
_MOSES = re.compile(r"&(?:apos|quot|amp|#91|#93);| @-@ ")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


@dataclass(frozen=True)
class Score:
    """A metric of a corpus.

    `value` lies in [0, 100] for BLEU and chrF (more is better), and from 0 up for TER (less is better);
    `text` is sacrebleu's line, with the signature in it.
    """

    name: str
    value: float
    signature: str
    text: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """A metric of a system beside that of a baseline, from paired bootstrap resampling (Koehn 2004).

    `mean` and `ci` are the mean of the resampled scores and half the width of their 95% interval.
    `p_value`: how likely a difference as large as this is by chance.
    """

    name: str
    value: float
    mean: float
    ci: float
    baseline_value: float
    baseline_mean: float
    baseline_ci: float
    p_value: float
    signature: str

    @property
    def text(self) -> str:
        """One line, with the signature in it."""
        return (
            f"{self.name}|{self.signature} = {self.value:.2f} (μ = {self.mean:.2f} ± {self.ci:.2f}), "
            f"baseline {self.baseline_value:.2f} (μ = {self.baseline_mean:.2f} ± {self.baseline_ci:.2f}), "
            f"difference {self.value - self.baseline_value:+.2f}, p = {self.p_value:.4f}"
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "text": self.text}


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    tokenize: str | None = None,
    lowercase: bool = False,
    hyp_name: str = "the hypothesis",
    ref_names: Sequence[str] = (),
) -> list[Score]:
    """The scores of a corpus, in the order of `metrics`.

    Blank lines count, except that chrF and chrF++ ignore a line whose references are blank, whatever the hypothesis.
    Unset options are sacrebleu's: BLEU tokenises by 13a and chrF not at all; TER ignores case
    whatever `lowercase` says, and its signature tells. `tokenize` concerns BLEU alone.
    Raises InputError for unequal line counts, subword marks, an unknown metric or tokenizer, no lines.
    """
    made = _metrics(metrics, tokenize, lowercase)
    _check(hypotheses, references, hyp_name, ref_names)
    scores = []
    for metric in made:
        result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
        signature = metric.get_signature().format()
        scores.append(Score(result.name, float(result.score), signature, result.format(signature=signature)))
    return scores


def compare(
    baseline: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    tokenize: str | None = None,
    lowercase: bool = False,
    samples: int = SAMPLES,
    seed: int = SEED,
    baseline_name: str = "the baseline",
    hyp_name: str = "the hypothesis",
    ref_names: Sequence[str] = (),
) -> list[Comparison]:
    """Paired bootstrap resampling of two systems: is the difference more than chance?

    sacrebleu reads its seed from SACREBLEU_SEED; here the argument counts, whatever that says.
    Raises InputError as `score` does, and for `samples` or `seed` below 1 (sacrebleu takes seed 0 for none).
    """
    for name, number in (("samples", samples), ("seed", seed)):
        if number < 1:
            raise InputError(f"{name} must be a whole number from 1, but is {number}.")
    made = {str(index): metric for index, metric in enumerate(_metrics(metrics, tokenize, lowercase))}
    _check(baseline, references, baseline_name, ref_names)
    _check(hypotheses, references, hyp_name, ref_names)
    systems: list[tuple[str, Sequence[str]]] = [("baseline", list(baseline)), ("system", list(hypotheses))]
    with _sacrebleu_seed(seed):
        test = PairedTest(systems, made, [list(lines) for lines in references], "bs", n_samples=samples)
        signatures, results = test()
    return [_comparison(name, results[name], signatures[name].format()) for name in signatures]


def corpus_scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """`bleu`, `chrf` and their `signature`s for one validation in training.

    Subword marks pass: a model that has just begun may write anything. Raises InputError for unequal counts.
    """
    _check_counts(hypotheses, [references], "the translations", ["the references"])
    made: list[Metric] = [BLEU(force=True), CHRF()]
    bleu, chrf = (metric.corpus_score(list(hypotheses), [list(references)]) for metric in made)
    signature = " ".join(
        f"{result.name}|{metric.get_signature().format()}" for result, metric in zip((bleu, chrf), made, strict=True)
    )
    return {"bleu": float(bleu.score), "chrf": float(chrf.score), "signature": signature}


def data_warnings(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> list[str]:
    """What looks wrong with the data, a sentence each; the scores stand all the same."""
    found = []
    written = [line for line in hypotheses if line.strip()]
    if blank := len(hypotheses) - len(written):
        expected = sum(1 for line in references[0] if not line.strip())
        if blank > expected:
            found.append(f"{blank} of {len(hypotheses)} hypothesis lines are blank ({expected} of the references).")
    for name, lines in [("hypothesis", written), *(("reference", lines) for lines in references)]:
        # sacrebleu's own test is 100 lines; a small file can be as wrong.
        dots = sum(line.endswith(" .") for line in lines)
        if dots >= 100 or (dots >= 3 and dots >= 0.8 * len(lines)):
            found.append(
                f"{dots} of {len(lines)} {name} lines end in a tokenised full stop (' .'): "
                "detokenise before scoring, or the score is not comparable."
            )
        if moses := sum(bool(_MOSES.search(line)) for line in lines):
            found.append(
                f"{moses} of {len(lines)} {name} lines hold marks of the Moses tokenizer "
                "(such as &apos; or @-@): detokenise before scoring."
            )
    if not lowercase and written and not any(map(_has_capitals, written)):
        capitals = sum(map(_has_capitals, references[0]))
        if capitals > 0.5 * len(references[0]):
            found.append(
                f"the hypothesis has no capital letter, but {capitals} of {len(references[0])} reference "
                "lines have; lowercase=True (--lowercase) ignores case, and says so in the signature."
            )
    letters = [c for lines in references for line in lines[:1000] for c in line if c.isalpha()]
    if tokenize in (None, "13a") and sum(bool(_CJK.match(c)) for c in letters) > 0.5 * max(1, len(letters)):
        found.append(
            "the references look Chinese or Japanese, which the tokenizer 13a takes for a few long words; "
            "use zh, ja-mecab or char."
        )
    if written and len(references) == 1 and list(hypotheses) == list(references[0]):
        found.append("the hypothesis is the reference, line for line.")
    return found


def _has_capitals(line: str) -> bool:
    return line != line.lower()


def _metrics(names: Sequence[str], tokenize: str | None, lowercase: bool) -> list[Metric]:
    """sacrebleu's metrics of these names."""
    if not names:
        raise InputError(f"no metric is named; known are {', '.join(METRICS)}.")
    if tokenize is not None and "bleu" not in names:
        raise InputError(
            f"the tokenizer {tokenize!r} concerns BLEU alone, which is not asked for; add --metric bleu or drop it."
        )
    made: list[Metric] = []
    for name in dict.fromkeys(names):
        if name == "bleu":
            # `force` only silences sacrebleu's log: data_warnings says it.
            made.append(BLEU(lowercase=lowercase, tokenize=_checked_tokenizer(tokenize), force=True))
        elif name == "chrf":
            made.append(CHRF(lowercase=lowercase))
        elif name == "chrf++":
            made.append(CHRF(word_order=2, lowercase=lowercase))
        elif name == "ter":
            made.append(TER())
        else:
            raise InputError(f"there is no metric {name!r}; {nearest(name, METRICS)}")
    return made


def _checked_tokenizer(name: str | None) -> str | None:
    """The tokenizer's name, if sacrebleu has it and can make it here."""
    if name is None:
        return None
    known = list(BLEU.TOKENIZERS)
    if name not in known:
        close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InputError(f"there is no tokenizer {name!r}; {hint}known are {', '.join(known)}.")
    if name == "spm":
        name = "flores101"  # the same in sacrebleu, which deprecates the old name
    try:
        BLEU(tokenize=name)
    except (RuntimeError, ImportError) as error:
        advice = " ".join(str(error).split())
        raise InputError(f"the tokenizer {name} can't be used here: {advice}") from None
    except OSError as error:
        raise InputError(
            f"the tokenizer {name} needs a model that sacrebleu downloads, which failed: {error}; "
            "connect once, or use a tokenizer that needs none, such as 13a, intl or char."
        ) from None
    return name


def _check(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], hyp_name: str, ref_names: Sequence[str]
) -> None:
    names = [
        ref_names[i] if i < len(ref_names) else ("the reference" if len(references) == 1 else f"reference {i + 1}")
        for i in range(len(references))
    ]
    _check_counts(hypotheses, references, hyp_name, names)
    for number, line in enumerate(hypotheses, 1):
        if _SENTENCEPIECE_MARK in line:
            raise InputError(
                f"{hyp_name}, line {number} holds SentencePiece's word mark '▁' (U+2581): "
                "decode the subwords into text before scoring."
            )
        if mark := _BPE_MARK.search(line):
            word = line[: mark.end()].split()[-1]
            raise InputError(
                f"{hyp_name}, line {number} holds the subword mark '@@' ({word!r}): "
                "join the subwords (sed -E 's/@@( |$)//g') and detokenise before scoring."
            )


def _check_counts(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], hyp_name: str, names: Sequence[str]
) -> None:
    if not references:
        raise InputError("there is no reference to score against; give one or more.")
    for lines, name in zip(references, names, strict=True):
        if len(lines) != len(hypotheses):
            raise InputError(
                f"{hyp_name} has {len(hypotheses)} lines, but {name} has {len(lines)}: "
                "every hypothesis line needs its reference, so the counts must be equal."
            )
    if not hypotheses:
        raise InputError(f"{hyp_name} has no lines: there is nothing to score.")


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """sacrebleu takes its seed from the environment alone: ours, for as long as this lasts."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def _comparison(name: str, results: Sequence[str | Result], signature: str) -> Comparison:
    baseline, system = results
    figures = []
    for result in (system, baseline):
        assert isinstance(result, Result)
        assert result.mean is not None
        assert result.ci is not None
        figures.append((float(result.score), float(result.mean), float(result.ci)))
    assert isinstance(system, Result)
    assert system.p_value is not None
    # Of two equal systems sacrebleu says p = 1 / (samples + 1), as no resampled difference exceeds 0:
    # it counts with ">" what chance reaches in every sample.
    p_value = 1.0 if figures[0] == figures[1] else float(system.p_value)
    return Comparison(name, *figures[0], *figures[1], p_value, signature)
