"""What is asked of the translation of a line: its case, its constraints, the terms of a glossary and protected text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from vtrans.errors import InputError
from vtrans.text.lines import one_line
from vtrans.text.matches import Match
from vtrans.text.vocabulary import Vocabulary
from vtrans.translate.translation import TranslateOptions, Translation
from vtrans.wording.glossary import Term
from vtrans.wording.phrases import NO_WORDING, Wording, wording_of
from vtrans.wording.protect import Masked, masked
from vtrans.wording.typed import Case, Typed

MOST = 50  # terms, and codes, that the search is told of per line: its time grows with their square

Constraints = Mapping[str, Any]
"""What `phrases.wording_of` reads."""


@dataclass(frozen=True)
class Asked:
    """A line as the model sees it, and what its translation must contain."""

    line: Masked
    """What is between `before` and `after`."""
    wording: Wording
    terms: tuple[Term, ...] = ()
    """Where the terms of the glossary are in the line as the model sees it."""
    case: Case | None = None
    """The case of the line, which the model sees in lower case."""
    before: str = ""
    after: str = ""
    """Symbols around the line, which stay where they are."""
    known: str | None = None
    """The translation, if it is from a memory."""
    match: Match | None = None

    @property
    def text(self) -> str:
        """The line as the model sees it; blank if there are no letters besides the protected text, or if the
        translation is known."""
        unseen = self.known is not None or (self.line.texts and not self.line.has_letters)
        return "" if unseen else self.line.masked

    def from_memory(self, options: TranslateOptions) -> list[Translation]:
        """Returns the known translation, and blank ones in the other places of an n-best list; [] if none is known."""
        if self.known is None:
            return []
        best = Translation(one_line(self.known), 0.0, 0.0, True, match=1.0)
        if options.calibration:
            best = replace(best, confidence=1.0, word_confidences=(1.0,) * len(best.text.split()))
        return [best, *[Translation("", -math.inf, -math.inf, False)] * (options.nbest - 1)]

    def finished(
        self, translations: Sequence[Translation], options: TranslateOptions, vocab: Vocabulary
    ) -> list[Translation]:
        """Returns translations as the search found them with their confidence, restored; blank if it is too low."""
        if self.known is not None:
            return list(translations)
        if self.match:
            translations = [replace(t, match=self.match[1]) for t in translations]
        if options.calibration:
            rated = [(t, options.calibration(self.text, t, vocab)) for t in translations]
            translations = [replace(t, confidence=value, word_confidences=words) for t, (value, words) in rated]
        restored = self.restored(translations)
        return [t.blank() if (t.confidence or 0.0) < options.min_confidence else t for t in restored]

    def restored(self, translations: Sequence[Translation]) -> list[Translation]:
        """Returns translations in the case of the line, with the protected text and the symbols around the line. Their
        subwords stay those of the search."""
        changed = self.line.texts or self.case or self.before or self.after
        return [self._around(self._restored(t)) for t in translations] if changed else list(translations)

    def _around(self, translation: Translation) -> Translation:
        text = one_line(self.before + translation.text + self.after)
        links, words = translation.alignment, translation.word_confidences
        if self.before or self.after:
            # A symbol that touches the line is part of one of its words.
            before, after = len((self.before + "x").split()) - 1, len(("x" + self.after).split()) - 1
            ends = len((self.before + self.line.text + self.after).split()), len(text.split())
            if links is not None:
                links = (*((i, i) for i in range(before)), *((i + before, j + before) for i, j in links))
                links += tuple((ends[0] - after + i, ends[1] - after + i) for i in range(after))
            if words is not None:
                words = (*[1.0] * before, *words, *[1.0] * (ends[1] - before - len(words)))
        return replace(translation, text=text, alignment=links, word_confidences=words)

    def unmet(self, translation: str) -> list[str]:
        """Returns what a translation in the case of the line lacks, and what it should have avoided."""
        if self.case is None:
            return self.wording.unmet(translation)
        terms = tuple(tuple(map(self.case.restore, forms)) for forms in self.wording.terms)
        return replace(self.wording, terms=terms).unmet(translation)

    def _restored(self, translation: Translation) -> Translation:
        if not self.text:
            words = None if translation.word_confidences is None else (1.0,) * len(self.line.text.split())
            return replace(translation, text=self.line.text, word_confidences=words)
        text = self.case.restore(translation.text) if self.case else translation.text
        restored = self.line.restored(text)
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
        words = translation.word_confidences
        if words is not None:
            least = [1.0] * len(restored.text.split())
            for word, confidence in zip(restored.words(), words, strict=False):
                least[word] = min(least[word], confidence)
            words = tuple(least)
        return replace(translation, text=restored.text, alignment=links, word_confidences=words)


def asked_of(
    line: str,
    number: int,
    constraints: Constraints,
    options: TranslateOptions,
    typed: Typed | None,
    *,
    begun: bool,
    codes: bool,
) -> Asked:
    """Returns what is asked of line `number`. Raises InputError for constraints that are not valid.

    Without `typed`, the model sees the line as it is. `begun` says whether the line has a prefix. With `codes`, the
    search keeps the codes of protected text.
    """
    wording = wording_of(constraints, line, number)
    if options.known and not begun and wording == NO_WORDING and (known := options.known(line)) is not None:
        return Asked(masked(line, ()), wording, known=known)
    match = options.match(line) if options.match and line.strip() else None
    typed = typed if typed and typed.reads(line) else None
    spans = list(options.protect.spans(line)) if options.protect else []
    begin, end = typed.body(line, spans) if typed and not begun else (0, len(line))
    before, line, after = line[:begin], line[begin:end], line[end:]
    spans = [(start - begin, stop - begin) for start, stop in spans]
    if typed:
        capitals = match is not None and match[0].isupper()  # the model has learned to correct it as it is
        read, case = typed.read(line, spans, keep_case=begun or capitals or bool(wording.phrases or wording.avoid))
    else:
        read, case = masked(line, spans), None
    terms = tuple(islice(options.glossary.terms_in(read.masked), MOST)) if options.glossary else ()
    counts = dict(islice(read.counts().items(), MOST)) if codes else {}
    if terms or counts:
        wording = replace(wording, terms=tuple(term.forms for term in terms), codes=counts)
    return Asked(read, wording, terms, case, before, after, match=match)


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
