"""A line on its way from the reader to the writer, and what a stage of this way is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from vtrans.errors import InputError
from vtrans.wording.phrases import NO_WORDING, Wording
from vtrans.wording.protect import Masked, Span

if TYPE_CHECKING:
    from vtrans.config import SearchConfig
    from vtrans.engines.engine import Source
    from vtrans.search.loop import Hypothesis
    from vtrans.text.matches import Match
    from vtrans.text.vocabulary import Vocabulary
    from vtrans.translate.translation import Translation

Constraints = Mapping[str, Any]
"""What `phrases.wording_of` reads."""
T = TypeVar("T")
MOST_PHRASES = 50
"""Terms, and codes, that the search is told of per line: its time grows with their square."""


@dataclass
class Counts:
    """What happened to a line, or to all lines of a translator so far."""

    lines: int = 0
    blank: int = 0  # lines without text; their translations are blank, too
    copied: int = 0  # lines without words, such as numbers and addresses, which are their own translations
    known: int = 0  # lines whose translation is from a memory
    matched: int = 0  # lines that are translated with a fuzzy match
    cut: int = 0  # lines longer than max_source, translated in pieces
    empty: int = 0  # lines with text whose best translation, or that of a piece, is empty
    short: int = 0  # lines whose best translation, or that of a piece, is far shorter than the text
    unfinished: int = 0  # lines whose best translation reached its length limit
    looping: int = 0  # lines whose best translation, or that of a piece, is finished and loops
    retried: int = 0  # lines with at least one piece that was searched again
    numbers: int = 0  # lines whose best translation has other numbers than the line
    unmet: int = 0  # lines whose best translation does not obey its constraints
    doubtful: int = 0  # lines whose best translation is left blank, because its confidence is too low
    missing: int = 0  # n-best places for which the search found no hypothesis
    tgt_tokens: int = 0
    seconds: float = 0.0  # spent translating, without waiting for input

    def add(self, more: Counts) -> None:
        """Adds other counts, but no time: that of other processes overlaps."""
        for name, value in vars(more).items():
            if value and name != "seconds":
                setattr(self, name, getattr(self, name) + value)


@dataclass(eq=False)
class Line:
    """A line and what is asked of its translation; then what the stages make of it. Another process gets only what is
    asked."""

    number: int
    text: str
    prefix: str = ""
    """The beginning of the translation; blank for any."""
    constraints: Constraints = field(default_factory=dict)
    match: Match | None = None
    """The translation of a similar line, for a model that has learned to use it."""

    seen: Masked = field(init=False)
    """The line as the model sees it. Codes represent protected text."""
    protected: list[Span] = field(init=False, default_factory=list)
    """Which parts of `seen.text` get a code, in order."""
    other_text: str = field(init=False, default="")
    """Another reading of the line as the model sees it, or "". It is used if its translation has a better score."""
    wording: Wording = field(init=False, default=NO_WORDING)
    """What the translation must contain, and what it must not, as the model sees it."""
    before: list[int] = field(init=False, default_factory=list)
    """Subwords that stand before each piece: a tag, and a fuzzy match."""
    ids: list[int] = field(init=False, default_factory=list)
    """The subwords of the line."""
    pieces: list[Piece] = field(init=False, default_factory=list)
    translations: list[Translation] = field(init=False, default_factory=list)
    counts: Counts = field(init=False, default_factory=lambda: Counts(lines=1))
    warnings: list[str] = field(init=False, default_factory=list)
    kept: dict[Kept[Any], Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.seen = Masked.plain(self.text)
        if not self.prefix.strip():
            self.prefix = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return Line, (self.number, self.text, self.prefix, self.constraints, self.match)

    @property
    def model_text(self) -> str:
        """The text that the model is given: blank if there are no letters besides the protected text."""
        return "" if self.seen.texts and not self.seen.has_letters else self.seen.masked


@dataclass(eq=False)
class Piece:
    """A line, or a piece of a long one, as a source of the search, and what the search found for it, best first."""

    line: Line
    source: Source
    hypotheses: list[Hypothesis] = field(default_factory=list)
    other: list[int] = field(default_factory=list)
    """The subwords of another reading of the line, as in `Source`; empty without one."""
    gap: str = ""
    """The white space, and the bars of a row, after it in the line."""

    def required(self, vocab: Vocabulary) -> str:
        """Returns what its translation must begin with and contain, in any form, separated by line breaks."""
        forms = (form.tokens for phrase in self.source.phrases for form in phrase.forms)
        return "\n".join(vocab.decode(tokens) for tokens in (self.source.prefix, *forms))


class Kept(Generic[T]):
    """What a stage keeps with lines until they come back from the search."""

    def put(self, line: Line, value: T) -> None:
        """Keeps a value with a line."""
        line.kept[self] = value

    def get(self, line: Line) -> T | None:
        """Returns the value that is kept with a line."""
        return line.kept.get(self)


Search = Callable[[Sequence[Piece], "SearchConfig"], Iterator[Piece]]
"""Finds the hypotheses of pieces. Yields each piece as soon as it has them, in any order."""


class Stage:
    """Changes lines before the search and, in reverse order of the stages, after it. By itself it does nothing."""

    together: ClassVar[bool] = False
    """Whether `after` is cheaper for a whole window, so that no line is ready before the last one."""

    def before(self, lines: Sequence[Line]) -> None:
        """Changes the lines of a window."""

    def after(self, lines: Sequence[Line]) -> None:
        """Changes the translations of some lines of a window."""

    def around(self, search: Search) -> Search:
        """Returns the search as this stage changes it."""
        return search


def lines_of(
    texts: Iterable[str],
    prefixes: Iterable[str] | None = None,
    constraints: Iterable[Constraints] | None = None,
    *,
    first: int = 1,
) -> Iterator[Line]:
    """Yields lines with their prefixes and constraints. `first` is the number of the first one. Raises InputError for
    unequal numbers of them."""
    given = {"prefixes": prefixes, "constraints": constraints}
    rest: dict[str, Iterator[Any]] = {name: iter(values) for name, values in given.items() if values is not None}
    number = first - 1
    for number, text in enumerate(texts, first):
        asked: dict[str, Any] = {}
        for name, values in rest.items():
            if (value := next(values, None)) is None:
                raise InputError(
                    f"there are {number - first:,} {name}, but more lines; give one per line, blank for none."
                )
            asked[name] = value
        yield Line(number, text, asked.get("prefixes", ""), asked.get("constraints", {}))
    lines = number - first + 1
    for name, values in rest.items():
        if extra := sum(1 for _ in values):
            raise InputError(f"there are {lines + extra:,} {name}, but {lines:,} lines; give one per line.")
