"""Glossaries, which fix the translations of source terms; and the data files next to a model."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from vtrans.system.errors import FileError
from vtrans.text.case import capitalized, lower
from vtrans.text.lines import lines_in
from vtrans.text.sentences import begins_sentence
from vtrans.text.words import joins
from vtrans.translate.wording.phrases import FIRST, Forms


class Term(NamedTuple):
    """An occurrence of a glossary term in a line: its span, and the forms of its translation."""

    begin: int
    end: int
    forms: Forms


@dataclass(frozen=True)
class Glossary:
    """Pairs of a source term and the forms of its translation. For each occurrence of a term, the translation contains
    one of the forms.

    A term matches whole words, case-sensitively; a term without capitals also matches with a capital at the beginning
    of a sentence. If several terms match at a place, the longest counts, and the next term may begin after it.
    """

    pairs: tuple[tuple[str, Forms], ...]

    @cached_property
    def _terms(self) -> Mapping[str, list[tuple[str, Forms]]]:
        """The terms by the key of their first word: longer ones first, then those with capitals."""
        terms_by_word: dict[str, list[tuple[str, Forms]]] = {}
        for pair in sorted(dict(self.pairs).items(), key=lambda pair: (-len(pair[0]), pair[0] == lower(pair[0]))):
            terms_by_word.setdefault(FIRST.match(_key(pair[0])).group(), []).append(pair)
        return terms_by_word

    def of_lines(self, lines: Iterable[str]) -> Glossary | None:
        """Returns the pairs whose first word occurs in some lines, so that the term may; None if there are none."""
        words = {word for line in lines for word in FIRST.findall(_key(line))}
        found = [pair for word, pairs in self._terms.items() if word in words for pair in pairs]
        return Glossary(tuple(found)) if found else None

    def terms_in(self, line: str, language: str = "", *, any_case: bool = False) -> Iterator[Term]:
        """Yields the terms in a line of this language. With `any_case`, a term also matches in another case if no term
        matches exactly."""
        place = 0
        while (word := FIRST.search(line, place)) is not None:
            begin, place = word.span()
            known = self._terms.get(_key(word.group()))
            if known and (term := _term_at(begin, line, language, known, any_case)):
                place = term.end
                yield term

    def with_terms(self, other: Glossary) -> Glossary:
        """Returns both glossaries as one; the terms of `other` replace equal ones."""
        return Glossary(tuple({**dict(self.pairs), **dict(other.pairs)}.items()))


def _key(text: str) -> str:
    """Returns a lower-case key that is the same in all languages: dotted and dotless I are equal."""
    return lower(text).replace("\u0131", "i")


def _term_at(begin: int, line: str, language: str, terms: Sequence[tuple[str, Forms]], any_case: bool) -> Term | None:
    """Returns the first of some terms that occurs at `begin` in a line, or None."""
    in_other_case, begins = None, begins_sentence(line[:begin])
    for term, forms in terms:
        end = begin + len(term)
        written = line[begin:end]
        if lower(written, language) != lower(term, language) or joins(term, line[end : end + 1]):
            continue
        if written == term or (begins and term == lower(term) and written == capitalized(term, language)):
            return Term(begin, end, forms)
        in_other_case = in_other_case or Term(begin, end, forms)
    return in_other_case if any_case else None


def pair_of(term: str, target: str) -> tuple[str, Forms]:
    """Returns a glossary pair. `|` separates the forms of `target`. Raises ValueError if a part is blank."""
    term, forms = " ".join(term.split()), tuple(" ".join(form.split()) for form in target.split("|"))
    if not term or not all(forms):
        raise ValueError("a part is blank")
    return term, forms


def _cells(line: str) -> list[str]:
    """Returns the cells of a CSV line, separated by commas or semicolons as spreadsheets write it."""
    found: list[list[str]] = [next(csv.reader([line], delimiter=delimiter)) for delimiter in ",;"]
    return max(found, key=lambda cells: len(cells) == 2)


def read_glossary(path: Path) -> Glossary:
    """Reads a glossary: per line, a source term, a tab and the forms of its translation, separated by `|`. In a file
    named `*.csv`, a comma or semicolon replaces the tab. Skips blank lines and lines that begin with `#`. Raises
    FileError for other lines."""
    seen: dict[str, int] = {}
    pairs = []
    is_csv = path.suffix.lower() == ".csv"
    for number, line in enumerate(lines_in(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        term, *targets = _cells(line) if is_csv else line.split("\t")
        try:
            (target,) = targets
            pair = pair_of(term, target)
        except ValueError:
            raise FileError(
                f"line {number} of {path} must be a term, a tab and its translation, got {line[:60]!r}."
            ) from None
        if pair[0] in seen:
            raise FileError(
                f"line {number} of {path} repeats the term {pair[0]!r} of line {seen[pair[0]]}; give each term "
                "once, with `|` between the forms of its translation."
            )
        seen[pair[0]] = number
        pairs.append(pair)
    return Glossary(tuple(pairs))


@dataclass(frozen=True)
class Beside:
    """The user-editable files next to a model file: its glossary, and the usual spelling of each lower-case word."""

    glossary: Glossary | None = None
    spellings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Path) -> Beside:
        """Reads `glossary.tsv` and `spellings.tsv` next to a model. Raises FileError for an invalid line."""
        terms, words = model.with_name("glossary.tsv"), model.with_name("spellings.tsv")
        glossary = read_glossary(terms) if terms.exists() else None
        spellings = read_glossary(words).pairs if words.exists() else ()
        for word, forms in spellings:
            if len(forms) > 1 or len(word.split()) > 1:
                raise FileError(f"a line of {words} must be a word, a tab and its usual spelling, got {word!r}.")
        return cls(glossary, {lower(word): form for word, (form,) in spellings})


NOTHING = Beside()
