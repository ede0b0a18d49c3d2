"""Text that stays in place around a sentence: bullets, bars around a row, and symbols that the vocabulary lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import regex

from vtrans.lines.characters import Characters
from vtrans.text.lines import one_line
from vtrans.translate.translation import Translation
from vtrans.wording.protect import Span

# A bullet, where `- 5` and `> 5` are text, and the bars around a row of a table.
_BULLET = regex.compile(r"\s*(?:[\p{Pd}\p{Sm}\p{So}*#\u2022\u2023\u00b7]\s+(?=[^\s\d])|(?:\|++\s+)++)")
_BAR_AT_END = regex.compile(r"(?<![\s|])(?:\s+\|++)++\s*$")
_PART = regex.compile(r"[\w\p{M}]+|\X")
_SENTENCE_END = regex.compile(r"[\p{Sentence_Terminal}\u2026]")


def sentence_in(line: str, protected: Sequence[Span], characters: Characters) -> Span:
    """Returns where the sentence of a line begins and ends, which has all of its protected text."""
    bullet, bar = _BULLET.match(line), _BAR_AT_END.search(line)
    begin, end = bullet.end() if bullet else 0, bar.start() if bar else len(line)
    if characters.lacks_any(line):
        parts = (part for part in _PART.finditer(line, begin, end) if not _is_symbol(part.group(), characters))
        known = [*protected, *(part.span() for part in parts)]
        first, last = (min(known)[0], max(stop for _, stop in known)) if known else (end, end)
        begin = first if line[begin:first].strip() else begin
        end = last if line[last:end].strip() and _SENTENCE_END.match(line, last - 1) else end
    return begin, end


def _is_symbol(part: str, characters: Characters) -> bool:
    """Returns whether a part of a line is a blank, or a symbol that the vocabulary lacks."""
    return part.isspace() or (not any(map(str.isalnum, part)) and characters.lacks_any(part))


def between(line: str, before: str, after: str, translation: Translation) -> Translation:
    """Returns the translation of a line with the text around it."""
    text = one_line(before + translation.text + after)
    links, words = translation.alignment, translation.word_confidences
    # A symbol that touches the line is part of one of its words.
    first, last = len((before + "x").split()) - 1, len(("x" + after).split()) - 1
    src_words, tgt_words = len(line.split()), len(text.split())
    if links is not None:
        links = (*((i, i) for i in range(first)), *((i + first, j + first) for i, j in links))
        links += tuple((src_words - last + i, tgt_words - last + i) for i in range(last))
    if words is not None:
        words = (*[1.0] * first, *words, *[1.0] * (tgt_words - first - len(words)))
    return replace(translation, text=text, alignment=links, word_confidences=words)
