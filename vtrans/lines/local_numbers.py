"""Writes the numbers of translations with the marks of their language, by CLDR and by what the training text shows."""

from __future__ import annotations

from vtrans.storage.pair_counts import PairCounts, number_marks
from vtrans.text.languages import Languages
from vtrans.text.marks import localized
from vtrans.translate.translation import Translation


class LocalNumbers:
    """Gives numbers the target's marks (text/marks.py). What was counted in the training text wins over CLDR; a
    language that is neither known nor counted keeps the numbers as they are."""

    def __init__(self, languages: Languages, pair: PairCounts | None) -> None:
        self._marks = number_marks(languages.src, pair, "src"), number_marks(languages.tgt, pair, "tgt")

    def __call__(self, src: str, translation: Translation) -> Translation:
        """Returns the translation of a text with the target's marks."""
        source, target = self._marks
        if not source or not target:
            return translation
        return translation.rewritten(localized(src, translation.text, source, target))
