"""What is asked of the translation of a line: its constraints, the terms of a glossary and protected text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from vtrans.errors import InputError
from vtrans.translate.translation import TranslateOptions, Translation
from vtrans.wording.glossary import Term
from vtrans.wording.phrases import Wording, wording_of
from vtrans.wording.protect import Masked

MOST = 50  # terms, and codes, that the search is told of per line: its time grows with their square

Constraints = Mapping[str, Any]
"""What `phrases.wording_of` reads."""


@dataclass(frozen=True)
class Asked:
    """A line as the model sees it, and what its translation must contain."""

    line: Masked
    wording: Wording
    terms: tuple[Term, ...] = ()
    """Where the terms of the glossary are in the line as the model sees it."""

    def restored(self, translations: Sequence[Translation]) -> list[Translation]:
        """Returns translations with the protected text. Their subwords stay those of the search."""
        return [self._restored(t) if self.line.texts else t for t in translations]

    def _restored(self, translation: Translation) -> Translation:
        restored = self.line.restored(translation.text)
        links = translation.alignment
        if links is not None:
            # A code is linked to itself: the model's attention says less.
            src_codes, tgt_codes = self.line.code_words(), restored.code_words()
            taken = (
                {i for code in src_codes for i in src_codes[code]},
                {j for code in tgt_codes for j in tgt_codes[code]},
            )
            links = tuple((i, j) for i, j in links if i not in taken[0] and j not in taken[1])
            for code in tgt_codes:
                links += tuple(
                    zip(src_codes[code], tgt_codes[code], strict=False)
                )  # it may occur too often or be missing
            src, tgt = self.line.words(), restored.words()
            links = tuple(sorted({(src[i], tgt[j]) for i, j in links}))
        return replace(translation, text=restored.text, alignment=links)


def asked_of(line: str, number: int, constraints: Constraints, options: TranslateOptions, *, codes: bool) -> Asked:
    """Returns what is asked of line `number`; with `codes`, also that the search keeps the codes of protected text.
    Raises InputError for constraints that are not valid."""
    masked = options.protect.masked(line) if options.protect else Masked([(line, line)], {})
    wording = wording_of(constraints, line, number)
    terms = tuple(islice(options.glossary.terms_in(masked.masked), MOST)) if options.glossary else ()
    counts = dict(islice(masked.counts().items(), MOST)) if codes else {}
    return Asked(masked, replace(wording, terms=tuple(term.forms for term in terms), codes=counts), terms)


def beside(
    windows: Iterable[list[str]], prefixes: Iterable[str] | None, constraints: Iterable[Constraints] | None
) -> Iterator[tuple[list[str], list[str] | None, list[Constraints] | None]]:
    """Yields each window of lines with its prefixes and constraints. Raises InputError for unequal numbers of them."""
    given = {"prefixes": prefixes, "constraints": constraints}
    rest: dict[str, Iterator[Any]] = {name: iter(values) for name, values in given.items() if values is not None}
    lines = 0
    for window in windows:
        parts: dict[str, Any] = {}
        for name, values in rest.items():
            parts[name] = list(islice(values, len(window)))
            if len(parts[name]) < len(window):
                raise InputError(
                    f"there are {lines + len(parts[name]):,} {name}, but more lines; give one per line, blank for none."
                )
        yield window, parts.get("prefixes"), parts.get("constraints")
        lines += len(window)
    for name, values in rest.items():
        if extra := sum(1 for _ in values):
            raise InputError(f"there are {lines + extra:,} {name}, but {lines:,} lines; give one per line.")
