"""Text that is copied because the vocabularies of a model cannot write it."""

from __future__ import annotations

import string
from collections.abc import Iterator

import regex

from vtrans.lines.characters import Characters
from vtrans.text.words import has_spaces
from vtrans.wording.protect import Span

_SYMBOLS = frozenset(string.punctuation) - set("-'`") | set("$\u20ac\u00a3\u00a5")  # of addresses, names and prices
_RUN = regex.compile(r"[^\s<>]+|[<>]")
_EDGES = r"\p{Pi}\p{Pf}\p{Ps}\p{Pe}\p{Pd}\"'*_~|="
_AROUND = regex.compile(rf"[{_EDGES}\u00bf\u00a1]*+((?:.*[^{_EDGES}.,:;!?\u2026])?)")  # a word
_EITHER = regex.compile(r"[\p{L}\p{M}]+/[\p{L}\p{M}]+")  # two words
_LONG = regex.compile(r"[\w\p{M}]{201,}+")  # is not a word, and would be translated for seconds
_PART = regex.compile(r"\p{Cf}*+\w[\w\p{M}\p{Cf}'\u2019-]*|\X")
_BRACKET = regex.compile(r"[\p{Ps}\p{Pe}]")  # is apart from what is inside
_LATIN = regex.compile(r"\p{Latin}+")


class UnknownText:
    """Finds words of Latin letters one of which the source vocabulary lacks, other words and symbols of which it lacks
    all, such as emoji, and addresses with such a symbol. ASCII digits stay: numbers are checked after the search."""

    def __init__(self, characters: Characters) -> None:
        self.characters = characters

    def added_to(self, protected: list[Span], line: str) -> list[Span]:
        """Returns the protected parts of a line, and between them those with unknown characters."""
        if not self.characters.lacks_any(line) and not _LONG.search(line):
            return protected
        spans, end = list[Span](), 0
        for begin, stop in (*protected, (len(line), len(line))):
            own = list[Span]()
            for first, last in self._unknown_in(line, end, begin):
                touches = bool(own) and own[-1][1] == first and not _BRACKET.search(line, first - 1, first + 1)
                own.append((own.pop()[0] if touches else first, last))
            spans += [*own, (begin, stop)]
            end = stop
        return spans[:-1]

    def _unknown_in(self, line: str, begin: int, end: int) -> Iterator[Span]:
        """Yields where a part of a line has text that is copied because of unknown characters."""
        for run in _RUN.finditer(line, begin, end):
            first, last = _AROUND.match(line, *run.span()).span(1)
            if self._is_address(line[first:last]):
                yield first, last
            else:
                parts = _PART.finditer(line, *run.span())
                yield from (part.span() for part in parts if self._is_unknown(part.group()))

    def _is_address(self, run: str) -> bool:
        """Returns whether a run of characters without blanks is copied as a whole: it has letters or digits and a
        symbol that the source vocabulary lacks, such as / in an address, or is longer than any word. Two words with a
        slash between them are translated."""
        if _LONG.search(run):
            return has_spaces(run)
        symbols = any(self.characters.lacks(0, symbol) for symbol in _SYMBOLS.intersection(run))
        return symbols and any(map(str.isalnum, run)) and not _EITHER.fullmatch(run)

    def _is_unknown(self, part: str) -> bool:
        lacks = self.characters.lacks
        letters = [character for character in part if character.isalpha()]
        if not letters:
            return any(lacks(0, character) for character in part if character not in string.digits)
        lacking = [lacks(0, letter) for letter in letters]
        if _LATIN.fullmatch("".join(letters)):
            return any(lacking) and not all(lacks(1, letter) for letter in letters)
        return all(lacking)
