"""Fits the confidence of translations (translate/confidence.py) to a text with references.

Legend: N examples (sentences or words), F features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from vtrans.data.logistic import Floats, regression
from vtrans.system.errors import InputError
from vtrans.text.vocabulary import Vocabulary
from vtrans.text.words import words_in
from vtrans.translate.confidence import Calibration, Logistic, hashes, sentence_features, word_features
from vtrans.translate.translation import Translation

RIGHT = 60.0  # minimum chrF of a sentence that counts as right
FEWEST_SENTENCES = 200  # minimum for a calibration
FOLDS = 5
BINS = 10
STEPS = 50  # of Newton's method, which needs about ten


@dataclass(frozen=True)
class Report:
    """How well a regression separates right from wrong, on examples that it was not fitted to."""

    examples: int
    right: float
    """The share of right examples."""
    auroc: float
    """The probability that a right example has a higher confidence than a wrong one."""
    error: float
    """The expected calibration error: the gap between mean confidence and share of right examples, averaged over ten
    bins weighted by size."""


def calibrate(
    sources: Sequence[str],
    translations: Sequence[Translation],
    references: Sequence[str],
    models: Sequence[Path],
    vocab: Vocabulary,
    settings: dict[str, Any],
) -> tuple[Calibration, dict[str, Report]]:
    """Returns a calibration fitted to `translations`, which were made with `settings`, and cross-validated reports for
    sentences and words. Raises InputError for too few sentences, or if all or none are right."""
    chrf = CHRF()
    examples: dict[str, list[tuple[list[float], bool, int]]] = {"sentence": [], "word": []}  # features, right, fold
    for source, translation, reference in zip(sources, translations, references, strict=True):
        if not translation.token_logprobs or not source.strip():
            continue
        fold = len(examples["sentence"]) % FOLDS
        is_right = chrf.sentence_score(translation.text, [reference]).score >= RIGHT
        examples["sentence"].append((sentence_features(source, translation), is_right, fold))
        words = zip(word_features(translation, vocab).tolist(), right_words(translation.text, reference), strict=True)
        examples["word"] += [(features, right, fold) for features, right in words]
    if len(examples["sentence"]) < FEWEST_SENTENCES:
        count = len(examples["sentence"])
        raise InputError(f"a calibration needs at least {FEWEST_SENTENCES} sentences, got {count}.")
    regressions, reports = {}, {}
    for name, some in examples.items():
        x_NF, right_N, fold_N = map(np.array, zip(*some, strict=True))
        if not 0 < right_N.sum() < len(right_N):
            raise InputError(f"a calibration needs right and wrong {name}s, but all {len(right_N):,} are alike.")
        regressions[name] = fitted(x_NF, right_N)
        held_N = np.empty(len(right_N))
        for fold in range(FOLDS):
            is_held_N = fold_N == fold
            held_N[is_held_N] = fitted(x_NF[~is_held_N], right_N[~is_held_N])(x_NF[is_held_N])
        error = calibration_error(held_N, right_N)
        reports[name] = Report(len(right_N), float(right_N.mean()), auroc(held_N, right_N), error)
    return Calibration(**regressions, models=hashes(models), settings=settings), reports


def fitted(x_NF: Floats, right_N: Floats) -> Logistic:
    """Returns the logistic regression with an L2 penalty of half the sum of the squared weights."""
    scale = Logistic(tuple(x_NF.mean(0).tolist()), tuple((x_NF.std(0) + 1e-6).tolist()), ())
    inputs = scale.expanded(x_NF)
    ridge = np.ones(inputs.shape[1])
    ridge[0] = 1e-9  # no penalty on the intercept
    weights = regression(inputs, right_N, np.ones(len(right_N)), ridge, np.zeros(len(ridge)), STEPS)
    return replace(scale, weights=tuple(weights.tolist()))


def right_words(translation: str, reference: str) -> list[bool]:
    """Returns, for each word of a translation, whether the reference has it. Each reference word counts once."""
    left, right = Counter(words_in(reference)), []
    for word in words_in(translation):
        right.append(left[word] > 0)
        left[word] -= 1
    return right


def auroc(confidence_N: Floats, right_N: Floats) -> float:
    """Returns the area under the ROC curve; ties count half."""
    _, inverse, counts = np.unique(confidence_N, return_inverse=True, return_counts=True)
    ranks_N = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    right = right_N.sum()
    return float((ranks_N[right_N == 1].sum() - right * (right + 1) / 2) / (right * (len(right_N) - right)))


def calibration_error(confidence_N: Floats, right_N: Floats) -> float:
    """Returns the expected calibration error with ten bins of equal width (Naeini et al. 2015)."""
    bins_N = np.minimum((confidence_N * BINS).astype(int), BINS - 1)
    gaps = [(confidence_N[bins_N == k] - right_N[bins_N == k]).sum() for k in range(BINS)]
    return float(np.abs(gaps).sum() / len(right_N))
