"""Writes the numbers of translations with the marks of their language, by CLDR and by what the training text shows."""

from __future__ import annotations

from dataclasses import replace

from vtrans.storage.pair_counts import PairCounts, Side
from vtrans.text.languages import Languages
from vtrans.text.marks import Marks, cldr_marks, localized
from vtrans.translate.translation import Translation


class LocalNumbers:
    """Gives numbers the target's marks (text/marks.py). What was counted in the training text wins over CLDR; a
    language that is neither known nor counted keeps the numbers as they are."""

    def __init__(self, languages: Languages, pair: PairCounts | None) -> None:
        self._marks = _marks(languages.src, pair, "src"), _marks(languages.tgt, pair, "tgt")

    def __call__(self, src: str, translation: Translation) -> Translation:
        """Returns the translation of a text with the target's marks."""
        source, target = self._marks
        if not source or not target:
            return translation
        return translation.rewritten(localized(src, translation.text, source, target))


def _marks(code: str, pair: PairCounts | None, side: Side) -> Marks | None:
    counted = pair.marks(side)._asdict() if pair else {}
    known = {name: value for name, value in counted.items() if value is not None}
    given = cldr_marks(code) if code else None
    if given is None and not {"decimal", "group"} <= known.keys():
        return None
    return replace(given or Marks("", ""), **known)
