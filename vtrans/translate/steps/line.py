"""A line on its way from the reader to the writer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vtrans.system.errors import InputError
from vtrans.translate.wording.phrases import NO_WORDING, Wording, wording_of

if TYPE_CHECKING:
    from vtrans.data.matches import Match
    from vtrans.engines.engine import Source
    from vtrans.search.loop import Hypothesis
    from vtrans.text.values import Difference
    from vtrans.translate.translation import Translation
    from vtrans.translate.wording.glossary import Term

Constraints = Mapping[str, Any]
"""Constraints as `phrases.wording_of` reads them."""
Undo = Callable[["Translation"], "Translation"]
"""Returns a translation of a line as it would be without the change of a step."""
MOST_PHRASES = 50
"""Maximum number of terms, and of codes, per line: the time of the search grows with their square."""


@dataclass
class Counts:
    """Counters of a line, and their sums for a translator."""

    lines: int = 0
    blank: int = 0  # lines without text; their translations are blank, too
    copied: int = 0  # lines without words, such as numbers and addresses, which are their own translations
    known: int = 0  # lines whose translation is from a memory
    matched: int = 0  # lines that are translated with a fuzzy match
    cut: int = 0  # lines longer than max_source, translated in pieces
    empty: int = 0  # lines with text whose best translation, or a piece of it, is empty
    short: int = 0  # lines whose best translation, or a piece of it, is far shorter than the text
    unfinished: int = 0  # lines whose best translation reached its length limit
    looping: int = 0  # lines whose best translation, or a piece of it, is finished and loops
    retried: int = 0  # lines with at least one piece that was searched again
    numbers: int = 0  # lines whose best translation has other numbers than the line
    unmet: int = 0  # lines whose best translation does not obey its constraints
    doubtful: int = 0  # lines whose best translation is left blank, because its confidence is too low
    missing: int = 0  # n-best places for which the search found no hypothesis
    tgt_tokens: int = 0
    seconds: float = 0.0  # spent translating, without waiting for input

    def add(self, more: Counts) -> None:
        """Adds other counts, but no time: the times of processes overlap."""
        for name, value in vars(more).items():
            if value and name != "seconds":
                setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True)
class Problems:
    """Problems of the best hypothesis of a piece."""

    unfinished: bool = False
    """It reaches its length limit without EOS."""
    loops: bool = False
    phrases: int = 0
    """Phrases and terms that are missing."""
    codes: int = 0
    """Codes that are missing, repeated or invented."""
    numbers: Difference | None = None
    """How its numbers differ from those of the source; None: they do not."""

    def __len__(self) -> int:
        return self.unfinished + self.loops + self.phrases + self.codes + len(self.numbers or ())


@dataclass(eq=False)
class Line:
    """A line with the constraints on its translation, and the results of the steps. Pickling drops the results."""

    number: int
    text: str
    prefix: str = ""
    """The beginning of the translation; blank for any."""
    wording: Wording = NO_WORDING
    """Required and forbidden wording, as the model sees it."""
    match: Match | None = None
    """The translation of a similar line, for a model that has learned to use it."""

    model_input: str = field(init=False)
    """The line as the model sees it; blank if it does not see it."""
    undo: list[Undo] = field(init=False, default_factory=list)
    """Functions that undo the changes of the steps in a translation; the last one is called first."""
    codes: Mapping[str, str] = field(init=False, default_factory=dict)
    """The protected text that each code in `model_input` represents."""
    terms: Sequence[Term] = field(init=False, default=())
    """The terms of a glossary in `model_input`."""
    before: list[int] = field(init=False, default_factory=list)
    """Subwords that stand before each piece: a tag, and a fuzzy match."""
    ids: list[int] = field(init=False, default_factory=list)
    """The subwords of the line."""
    pieces: list[Piece] = field(init=False, default_factory=list)
    translations: list[Translation] = field(init=False, default_factory=list)
    counts: Counts = field(init=False, default_factory=lambda: Counts(lines=1))
    warnings: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.model_input = self.text
        if not self.prefix.strip():
            self.prefix = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return Line, (self.number, self.text, self.prefix, self.wording, self.match)

    @property
    def asked(self) -> str:
        """All text that the translation is asked to begin with or to contain, one form per line."""
        forms = (form for forms in (*self.wording.phrases, *self.wording.terms) for form in forms)
        return "\n".join((self.prefix, *forms))

    def without_codes(self, text: str) -> str:
        """Returns a text of this line, or of its translation, with a space in the place of each code."""
        return re.sub(rf"\b(?:{'|'.join(self.codes)})(?!\d)", " ", text) if self.codes else text


@dataclass(eq=False)
class Piece:
    """A line, or a piece of a long one, as a source of the search, and what the search found for it, best first."""

    line: Line
    source: Source
    hypotheses: list[Hypothesis] = field(default_factory=list)
    problems: Problems = field(default_factory=Problems)
    """Problems of the best hypothesis."""
    gap: str = ""
    """The white space, and the bars of a row, after it in the line."""


def lines_of(
    texts: Iterable[str],
    prefixes: Iterable[str] | None = None,
    constraints: Iterable[Constraints] | None = None,
    *,
    first: int = 1,
) -> Iterator[Line]:
    """Yields lines with their prefixes and constraints. `first` is the number of the first one. Raises InputError for
    unequal numbers of them, and as `wording_of`."""
    given = {"prefixes": prefixes, "constraints": constraints}
    rest: dict[str, Iterator[Any]] = {name: iter(values) for name, values in given.items() if values is not None}
    number = first - 1
    for number, text in enumerate(texts, first):
        asked: dict[str, Any] = {name: next(values, None) for name, values in rest.items()}
        for name, value in asked.items():
            if value is None:
                lines = number - first
                raise InputError(f"there are {lines:,} {name}, but more lines; give one per line, blank for none.")
        wording = wording_of(asked["constraints"], text, number) if asked.get("constraints") else NO_WORDING
        yield Line(number, text, asked.get("prefixes", ""), wording)
    lines = number - first + 1
    for name, values in rest.items():
        if extra := sum(1 for _ in values):
            raise InputError(f"there are {lines + extra:,} {name}, but {lines:,} lines; give one per line.")
