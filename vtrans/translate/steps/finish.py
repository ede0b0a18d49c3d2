"""Last step: reverts the changes of the other steps, and checks the user's constraints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from vtrans.translate.steps.line import Line
from vtrans.translate.translation import NO_TRANSLATION, TranslateOptions, Translation
from vtrans.translate.wording.phrases import NO_WORDING

# U+FFFD, which replaces bytes that are not UTF-8.
_NO_CHARACTER = re.compile(r"(?<!\S)\ufffd+\s|\ufffd")


class Finish:
    """Turns the model's translations into translations of the original lines. Removes U+FFFD unless the line contains
    it."""

    def __init__(self, options: TranslateOptions) -> None:
        self._raw, self._least = options.raw, options.min_confidence
        self._distinct = options.nbest > 1 and options.sampling is None

    def __call__(self, lines: Sequence[Line]) -> None:
        for line in lines:
            is_new = any("\ufffd" in t.text for t in line.translations) and "\ufffd" not in line.model_input
            if is_new and not self._raw:
                line.translations = [t.rewritten(_NO_CHARACTER.sub("", t.text)) for t in line.translations]
            for undo in reversed(line.undo):
                line.translations = [undo(translation) for translation in line.translations]
            if self._distinct:
                line.translations = _without_equal(line.translations)
            if self._least and not line.counts.known:
                line.counts.doubtful = int(self._is_doubtful(line.translations[0]))
                line.translations = [t.blank() if self._is_doubtful(t) else t for t in line.translations]
            if line.wording != NO_WORDING and (unmet := line.wording.unmet(line.translations[0].text)):
                line.counts.unmet = 1
                line.warnings.append(f"line {line.number}: its translation does not obey the constraint {unmet[0]!r}")

    def _is_doubtful(self, translation: Translation) -> bool:
        return (translation.confidence or 0.0) < self._least


def _without_equal(translations: Sequence[Translation]) -> list[Translation]:
    """Returns translations with distinct texts, followed by empty ones. Duplicates arise because hypotheses may differ
    only in case or in codes, which the steps replace."""
    best, distinct = translations[0], dict[str, Translation]()
    for translation in translations:
        distinct.setdefault(translation.text, translation)
    missing = len(translations) - len(distinct)
    if not missing or not best.text:
        return list(translations)
    none = replace(NO_TRANSLATION, alignment=None if best.alignment is None else ())
    if best.confidence is not None:
        none = replace(none, confidence=0.0, word_confidences=())
    return [*distinct.values(), *[none] * missing]
