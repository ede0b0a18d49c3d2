"""Splits text into sentences and the separators between them.

Lines end at every character that some program treats as a line end, unless line ends count as spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

from vtrans.text.sentences import gap, sentences
from vtrans.translate.wording.patterns import CODE, PATH, PLACEHOLDERS
from vtrans.translate.wording.protection import Protection

_GROFF = r"\\(?:\(\w\w|f(?:\[\w*\]|\(\w\w|[BIPR])(?!\w)|\*?\[\w+\])"  # characters and fonts of man pages
_WEBLATE = r"\[X\d+X\]"  # a placeholder, as Weblate sends it to LibreTranslate
MARKS = [chr(code) for code in range(0xE000, 0xF900)]
"""Private-use characters, two of which surround the number of an atom (markup.Item)."""

MARKED = re.compile(r"(?P<mark>[\ue000-\uf8ff])[0-9]+(?P=mark)")
PROTECTION = Protection((_WEBLATE, CODE, MARKED.pattern, PATH, _GROFF, PLACEHOLDERS))
"""The protection of text that is copied to translations."""

_LINE_END = re.compile("([\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+)")
_SPACE = re.compile("[\n\r\t\f]")  # white space in markup

Splitting = Literal["lines", "sentences", "nothing"]
"""Where a text is split: at the ends of lines and sentences, at the ends of sentences only, or nowhere."""


def has_words(sentence: str) -> bool:
    """Returns whether a sentence has letters outside protected text. A model should not see any other sentence: it
    would hallucinate."""
    return any(map(str.isalpha, "".join(PROTECTION.masked(sentence).own)))


@dataclass(frozen=True)
class Split:
    """A text as sentences, and the parts before, between and after them: one more than the sentences."""

    sentences: list[str]
    between: list[str]

    def joined(self, sentences: list[str]) -> str:
        """Returns the text with these sentences in place of its own."""
        return "".join(chain(*zip(self._between(sentences), [*sentences, ""], strict=True)))

    def _between(self, sentences: Sequence[str]) -> list[str]:
        inner = gaps(self.sentences, self.between[1:-1], sentences)
        return [*self.between[:1], *inner, *self.between[1:][-1:]]

    def begins(self, sentences: Sequence[str]) -> Iterator[int]:
        """Yields the offset of each of these sentences in the text if they replace its own."""
        place = 0
        for between, sentence in zip(self._between(sentences)[:-1], sentences, strict=True):
            yield place + len(between)
            place += len(between) + len(sentence)


def gaps(sources: Sequence[str], between: Sequence[str], translations: Sequence[str]) -> list[str]:
    """Returns the separators of the translations, given the sentences and their separators (`between`). Neighbours that
    stay untranslated keep theirs."""
    pairs = zip(between, pairwise(sources), pairwise(translations), strict=True)
    return [given if ours == both or not all(both) else gap(given, ours[0], *both) for given, ours, both in pairs]


def trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    """Returns the begin and end of a part of a text, without surrounding white space."""
    part = text[begin:end]
    return (end - len(part.lstrip()), begin + len(part.rstrip())) if part.strip() else (begin, begin)


def split_sentences(text: str, language: str, splitting: Splitting = "lines") -> Split:
    """Splits a text in this language into sentences without surrounding white space. Line ends that do not split become
    spaces."""
    found, between, place, end = [], [], 0, 0
    for part in _parts(text, language, splitting):
        if sentence := part.strip():
            begin = place + part.index(sentence)
            between.append(text[end:begin])
            found.append(sentence)
            end = begin + len(sentence)
        place += len(part)
    return Split(found, [*between, text[end:]])


def _parts(text: str, language: str, splitting: Splitting) -> Iterator[str]:
    """Yields the parts of a text. Their total length is the text's."""
    if splitting == "nothing":
        yield _SPACE.sub(" ", _LINE_END.sub(lambda found: " " * len(found[0]), text))
        return
    if splitting == "sentences":
        text = _SPACE.sub(" ", text)
    for number, line in enumerate(_LINE_END.split(text)):
        yield from [line] if number % 2 else sentences(line, language)
