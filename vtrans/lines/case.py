"""Translates lines in capitals or title case in lower case, and gives their translations the case of the line.

A model that has learned from clean text answers such lines with nonsense.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import regex

from vtrans.lines.line import Kept, Line, Stage
from vtrans.lines.unknowns import Characters
from vtrans.wording.protect import Masked

TITLE_WORDS = 4  # fewer words with initial capitals may be a name

_WORD = regex.compile(r"\p{L}[\p{L}\p{M}]*(?:['\u2019]\p{L}+)*")


@dataclass(frozen=True)
class Case:
    """A case that all words of a line have: `restore` gives it to a text."""

    restore: Callable[[str], str]


CAPITALS = Case(str.upper)
TITLE = Case(lambda text: regex.sub(r"(?<!\S)[^\w\s]*\w", lambda match: match.group().upper(), text))
CASE = Kept[Case]()


class LowerCase(Stage):
    """Writes lines that have a case in lower case, except for their first letter. A line with a prefix, with
    constraints or beside a fuzzy match in capitals, which the model has learned to correct as it is, keeps its case.
    Capitals that the vocabulary lacks are always written small."""

    def __init__(self, characters: Characters) -> None:
        self._characters = characters

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if self._characters.may_change(line.text):
                wording, capitals = line.wording, line.match is not None and line.match[0].isupper()
                kept = line.prefix or capitals or wording.phrases or wording.avoid
                case = None if kept else self.case_of(line.seen)
                if case:
                    CASE.put(line, case)
                if case or not self._characters.knows(line.seen.text):
                    line.seen = self.lowered(line.seen, case)

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if case := CASE.get(line):
                line.translations = [replace(t, text=case.restore(t.text)) for t in line.translations]
                terms = tuple(tuple(map(case.restore, forms)) for forms in line.wording.terms)
                line.wording = replace(line.wording, terms=terms)

    def case_of(self, line: Masked) -> Case | None:
        """Returns the case of a line if all its words are in capitals, or all begin with one. Protected text does not
        count.

        A single word in capitals may be a name such as NASA, and a few words with initial capitals one such as Tom
        Jackson. They count if they take more subwords than in lower case.
        """
        words = [word for text in line.own for word in _WORD.findall(text)]
        if any(word.islower() and word != word.upper() for word in words):  # as in most lines
            return None
        words = [word for word in words if word.lower() != word.upper()]
        if all(map(str.isupper, words)) and any(len(word) > 1 for word in words):
            return CAPITALS if len(words) > 1 or self._is_easier_small(words) else None
        if not all(word[0].isupper() and word[1:] == word[1:].lower() for word in words):
            return None
        return TITLE if len(words) >= TITLE_WORDS or self._is_easier_small(words[1:]) else None

    def _is_easier_small(self, words: Sequence[str]) -> bool:
        encode = self._characters.vocabs[0].encode
        lengths = [[len(encode(text)) for text in (word.lower(), word)] for word in words]
        return sum(small for small, _ in lengths) < sum(given for _, given in lengths)

    def lowered(self, line: Masked, case: Case | None) -> Masked:
        """Returns a line in lower case if it has a case, else with small letters for unknown capitals only."""
        parts, first = [], case is not None
        for code, text in line.parts:
            if code == text:
                start = _WORD.search(text) if first else None
                kept = len(text) if case is None else start.start() + 1 if start else 0
                code = text = self._in_known_case(text[:kept]) + text[kept:].lower()
                first = first and not start
            parts.append((code, text))
        return replace(line, parts=parts)

    def _in_known_case(self, text: str) -> str:
        characters = self._characters
        if characters.knows(text):
            return text
        small = [c for c in set(text) if characters.is_unknown(0, c) and not characters.lacks(0, c)]
        return text.translate({ord(c): c.lower() for c in small})
