"""Writes the numbers of translations with the marks of their language, by CLDR and by what the training text shows."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from difflib import SequenceMatcher

import regex

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
        text = translation.text
        if not source or not target or (written := localized(src, text, source, target)) == text:
            return translation
        return _relinked(replace(translation, text=written), text)


def _marks(code: str, pair: PairCounts | None, side: Side) -> Marks | None:
    counted = pair.marks(side)._asdict() if pair else {}
    known = {name: value for name, value in counted.items() if value is not None}
    given = cldr_marks(code) if code else None
    if given is None and not {"decimal", "group"} <= known.keys():
        return None
    return replace(given or Marks("", ""), **known)


def _relinked(translation: Translation, before: str) -> Translation:
    """Returns a translation whose words are linked and rated as those of its text before were. A number may have
    become several words, or several have become one."""
    links, confidences = translation.alignment, translation.word_confidences
    if links is None and confidences is None:
        return translation
    begins, old_begins = (
        [word.start() for word in regex.finditer(r"\S+", text)] for text in (translation.text, before)
    )
    words: list[set[int]] = [set() for _ in begins]  # the old words of each new one
    for _, old, _, new, end in SequenceMatcher(None, before, translation.text, autojunk=False).get_opcodes():
        for k in range(new, end):
            if not translation.text[k].isspace():
                place = min(old + k - new, len(before) - 1)
                words[bisect_right(begins, k) - 1].add(max(0, bisect_right(old_begins, place) - 1))
    if links is not None:
        links = tuple(sorted((i, k) for k, old_words in enumerate(words) for i, j in links if j in old_words))
    if confidences is not None:
        confidences = tuple(min((confidences[j] for j in old_words), default=1.0) for old_words in words)
    return replace(translation, alignment=links, word_confidences=confidences)
