"""Lines and their pieces: the data that the steps of translating read and write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
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
"""Constraints in the form of `phrases.wording_of`."""
Undo = Callable[["Translation"], "Translation"]
"""Reverts a step's change of the line in its translation."""
MOST_PHRASES = 50
"""Maximum number of terms, and of codes, per line: search time grows with their square."""


@dataclass
class Counts:
    """Counters of a line, and their sums for a translator."""

    lines: int = 0
    blank: int = 0  # lines without text, whose translations are also blank
    copied: int = 0  # lines without words, such as numbers and addresses, copied as their own translations
    known: int = 0  # lines whose translation comes from a memory
    matched: int = 0  # lines translated with a fuzzy match
    cut: int = 0  # lines longer than max_source, translated in pieces
    empty: int = 0  # lines with text whose best translation, or a piece of it, is empty
    short: int = 0  # lines whose best translation, or a piece of it, is far shorter than the text
    unfinished: int = 0  # lines whose best translation reached its length limit
    looping: int = 0  # lines whose best translation, or a piece of it, is finished and loops
    retried: int = 0  # lines with a piece that was searched again
    numbers: int = 0  # lines whose best translation has different numbers
    unmet: int = 0  # lines whose best translation violates its constraints
    doubtful: int = 0  # lines whose best translation is left blank for low confidence
    missing: int = 0  # n-best places without a hypothesis
    tgt_tokens: int = 0
    seconds: float = 0.0  # spent translating, excluding waits for input

    def add(self, more: Counts) -> None:
        """Adds other counts except `seconds`, because the times of processes overlap."""
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
    """Missing phrases and terms."""
    codes: int = 0
    """Missing, repeated or invented codes."""
    numbers: Difference | None = None
    """The differences from the source's numbers; None: there are none."""

    def __len__(self) -> int:
        return self.unfinished + self.loops + self.phrases + self.codes + len(self.numbers or ())


@dataclass(eq=False)
class Line:
    """A line, the constraints on its translation, and the results of the steps. Pickling drops the results."""

    number: int
    text: str
    prefix: str = ""
    """The required beginning of the translation; "" for none."""
    wording: Wording = NO_WORDING
    """Required and forbidden wording, as the model sees it."""
    match: Match | None = None
    """A fuzzy match: the translation of a similar line, for a model trained with fuzzy matches."""

    model_input: str = field(init=False)
    """The line as the model sees it; blank if the line bypasses the model."""
    undo: list[Undo] = field(init=False, default_factory=list)
    """Functions that revert the steps' changes in a translation, called last to first."""
    codes: Mapping[str, str] = field(init=False, default_factory=dict)
    """The protected text that each code in `model_input` represents."""
    terms: Sequence[Term] = field(init=False, default=())
    """The glossary terms in `model_input`."""
    before: list[int] = field(init=False, default_factory=list)
    """Subwords before each piece: a tag, and a fuzzy match."""
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
        """All text that the translation must begin with or contain, one form per line."""
        forms = (form for forms in (*self.wording.phrases, *self.wording.terms) for form in forms)
        return "\n".join((self.prefix, *forms))

    def without_codes(self, text: str) -> str:
        """Returns a text, such as this line or its translation, with each code replaced by a space."""
        return re.sub(rf"\b(?:{'|'.join(self.codes)})(?!\d)", " ", text) if self.codes else text


@dataclass(eq=False)
class Piece:
    """A line, or a piece of a long line, as a source of the search, with its hypotheses, best first."""

    line: Line
    source: Source
    hypotheses: list[Hypothesis] = field(default_factory=list)
    problems: Problems = field(default_factory=Problems)
    """Problems of the best hypothesis."""
    gap: str = ""
    """The whitespace and table bars that follow the piece in the line."""


class LineStep:
    """The base class of user-defined steps, which define `__call__`. They run after the memory and before all other
    steps."""

    def __call__(self, lines: Sequence[Line]) -> None:
        """Changes `model_input` of each line, the text that the model gets. To change the finished Translation, append
        a function to `undo` that takes and returns one, for example with `translation.rewritten(text)`."""
        raise NotImplementedError("a LineStep must define `__call__`")


def lines_of(
    texts: Iterable[str],
    prefixes: Iterable[str] | None = None,
    constraints: Iterable[Constraints] | None = None,
    *,
    first: int = 1,
) -> Iterator[Line]:
    """Yields lines with their prefixes and constraints. `first` is the number of the first line. Raises InputError if
    the numbers of lines, prefixes and constraints differ, and like `wording_of`."""
    given = together(first, lines=texts, prefixes=prefixes, constraints=constraints)
    for number, asked in given:
        wording = wording_of(asked["constraints"], asked["lines"], number) if asked.get("constraints") else NO_WORDING
        yield Line(number, asked["lines"], asked.get("prefixes", ""), wording)


def together(first: int = 1, **columns: Iterable[Any] | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields numbers from `first` on, each with an element of every column that is not None. Raises InputError if the
    lengths of the columns differ."""
    names = [name for name, values in columns.items() if values is not None]
    rows = zip_longest(*(columns[name] or () for name in names))
    for number, row in enumerate(rows, first):
        asked = dict(zip(names, row, strict=True))
        if short := [name for name in names if asked[name] is None]:
            longer = next(name for name in names if name not in short)
            fewer, more = number - first, "more"
            if longer != "lines":  # which may come from a pipe that stays open
                more = f"{fewer + 1 + sum(1 for _ in rows):,}"
            raise InputError(f"there are {fewer:,} {short[0]}, but {more} {longer}; give one per line.")
        yield number, asked
