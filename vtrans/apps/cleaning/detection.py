"""Detects the language of a text, given candidates.

py3langid knows 140 languages and needs only numpy. On 4,000 German and English sentences from Tatoeba, it is right for
99.4% among all 140 languages and for 100% between the two. lingua takes 18 seconds and 1.3 GB to load.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Any

LONGEST = 2000  # characters of a text that are read
CANDIDATES = 3  # languages returned
SERVED = 0.9  # prior probability that a text is in one of the requested languages


@dataclass(frozen=True)
class Detection:
    """A language, and its probability in percent among all languages that the detector knows."""

    language: str
    confidence: float


@cache
def detector() -> Any:
    """Returns the detector, which takes a second to load."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def is_known(code: str) -> bool:
    """Returns whether the detector knows a language."""
    return code.partition("-")[0] in detector().nb_classes


def probabilities(text: str, codes: Collection[str]) -> dict[str, float]:
    """Returns the probability of each language in `codes` that the detector knows; empty for a text without letters,
    which could be in any language."""
    if not any(character.isalpha() for character in text[:LONGEST]):
        return {}
    likely: dict[str, float] = dict(detector().rank(text[:LONGEST]))  # with a uniform prior
    known = {code: base for code in codes if (base := code.partition("-")[0]) in likely}
    if not known:
        return {}
    served = set(known.values())
    # Bayes' rule: a short text is probably in one of the requested languages.
    frequencies = {True: SERVED / len(served), False: (1 - SERVED) / max(len(likely) - len(served), 1)}
    weights = {base: probability * frequencies[base in served] for base, probability in likely.items()}
    total = math.fsum(weights.values())
    return {code: weights[base] / total for code, base in known.items()}


def detect(text: str, codes: Collection[str]) -> list[Detection]:
    """Returns the one to three most probable languages in `codes`, best first.

    For a text without letters, such as a number, returns the first of `codes` with confidence 0.
    """
    detections = [Detection(code, round(100 * value, 1)) for code, value in probabilities(text, codes).items()]
    detections.sort(key=lambda detection: -detection.confidence)
    return detections[:CANDIDATES] or [Detection(next(iter(codes)), 0.0)]
