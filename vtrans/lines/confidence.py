"""Gives translations their confidence, and leaves doubtful ones blank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vtrans.lines.line import Line, Stage
from vtrans.text.vocabulary import Vocabulary
from vtrans.translate.confidence import Calibration
from vtrans.translate.translation import Translation


class BlankDoubtful(Stage):
    """Leaves translations blank whose confidence is too low, and counts the lines of the best ones."""

    def __init__(self, least: float) -> None:
        self._least = least

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            line.counts.doubtful = int(self._is_doubtful(line.translations[0]))
            line.translations = [t.blank() if self._is_doubtful(t) else t for t in line.translations]

    def _is_doubtful(self, translation: Translation) -> bool:
        return (translation.confidence or 0.0) < self._least


class RateConfidence(Stage):
    """Gives translations as the search found them, and their words, a confidence."""

    def __init__(self, calibration: Calibration, vocab: Vocabulary) -> None:
        self._calibration, self._vocab = calibration, vocab

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            rated = [(t, self._calibration(line.model_text, t, self._vocab)) for t in line.translations]
            line.translations = [replace(t, confidence=value, word_confidences=words) for t, (value, words) in rated]
