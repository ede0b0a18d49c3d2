"""Compares a model with the same model in another program on sample sentences, after an import or for an export.

`outputs` translates and scores with vtrans, and `verify` compares the results with those of the other program.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from vtrans.checkpoint import LoadedModel
from vtrans.config import SearchConfig
from vtrans.console import Console
from vtrans.engines.engine import Source
from vtrans.engines.torch_engine import TorchEngine
from vtrans.errors import InputError, VtransError
from vtrans.interop.samples import LONGEST_SAMPLE, generated_sentences, longest_pair, tagged
from vtrans.lines.pieces import EXTRA_LENGTH
from vtrans.search.loop import length_penalty
from vtrans.text.vocabulary import EOS_ID

SAMPLES = 6  # generated sentences of a short comparison; their translations are cut at LONGEST
BEAMS = (1, 4)
# Other programs with a beam of 1 decode greedily, and transformers then applies the penalty to logits.
GREEDY: dict[int, dict[str, Any]] = {1: {"stop": "count", "repetition_penalty": 1.0}}
LONGEST, LIMIT = 24, 64  # subwords of a sample sentence, and of its translation with EOS
LOGITS = 1 << 21  # of a step of a search, which has several copies of them in memory
FORCED_TOKENS = 16  # padded subwords scored at a time; their logits are in memory at once
TIE = 1e-4  # largest difference of the scores of two translations that counts as a tie

IdPair = tuple[Sequence[int], Sequence[int]]
"""A source and a target, which end in EOS."""
Score = Callable[[Sequence[IdPair]], Sequence[Sequence[float]]]
"""Returns the log-probabilities of each target's subwords."""


@dataclass(frozen=True)
class Tolerance:
    """Largest differences allowed between a model and the same model in another program, in natural logarithms."""

    token: float
    """In the log-probability of any subword of a given translation."""
    mean: float
    """In log-probabilities, as the mean of the absolute differences."""
    lost: float | None = None
    """Decrease of the mean score of the translations; None: all translations must be equal, except ties and those that
    the other program cut off."""


ROUNDING = Tolerance(token=1e-4, mean=1e-4)


class Program(Protocol):
    """Another program with a model. Token ids are ours."""

    name: str
    """With its version: "transformers 5.0"."""
    tolerance: Tolerance

    def encode(self, lines: Sequence[str]) -> list[list[int]] | None:
        """Returns the ids of each source line with EOS; None if the program does not split text."""

    def logprobs(self, pairs: Sequence[IdPair]) -> list[list[float]]:
        """Returns the log-probabilities of each target's tokens."""

    def translate(self, sources: Sequence[Sequence[int]], search: SearchConfig) -> list[list[int]] | None:
        """Returns the best translation of each source, without EOS; None if the program does not have this search for
        this model. Sources end in EOS, and translations have at most `search.max_length` subwords."""

    def plain(self, sources: Sequence[Sequence[int]], max_length: int) -> list[list[int]] | None:
        """Returns what `translate` does for the program's own defaults and those of the model's folder, without
        sampling and with at most `max_length` subwords; None if the search of the model file is not meant to be that.
        """


@dataclass(frozen=True)
class Outputs:
    """Sample sentences with their translations and log-probabilities by vtrans."""

    lines: tuple[str, ...]
    sources: list[list[int]]
    """With EOS."""
    searches: list[SearchConfig]
    translations: list[list[list[int]]]
    """For each search, without EOS."""
    longest: int
    """Subwords at which sources are cut."""
    pairs: list[IdPair]
    logprobs: list[list[float]]
    """Of each pair's target."""


@dataclass(frozen=True)
class PlainCall:
    """How the translations of the model file's search compare with those of the original's plain call."""

    sentences: int
    equal: int
    ties: int
    """Translations that differ, but whose scores differ by rounding alone."""
    cut: int
    """Translations that differ and reach the length limit in the original."""
    first: str | None
    """The first sentence with another translation that is neither a tie nor cut."""

    def problem(self) -> str | None:
        """Returns what differs, in words, or None."""
        if self.first is None:
            return None
        other = self.sentences - self.equal - self.ties - self.cut
        return (
            f"without options, {other} of {self.sentences} translations differ by more than rounding, first that of "
            f"{self.first[:80]!r}"
        )

    def show(self, console: Console) -> None:
        """Prints the result of the comparison."""
        others = {"ties": self.ties, "cut off at the length limit by other rules": self.cut}
        rest = "".join(f"; {count} others are {what}" for what, count in others.items() if count)
        console.info(
            f"each program with its own defaults, on real text: {self.equal} of {self.sentences} translations are "
            f"equal{rest}"
        )


@dataclass(frozen=True)
class Verified:
    """The differences of a model between vtrans and another program."""

    original: str
    """The name of the other program."""
    sentences: int
    split_alike: int | None
    """Sentences whose subwords are equal; None if the other program does not split text."""
    logprobs: int
    largest: float
    """The largest difference of a log-probability."""
    mean: float
    """The mean of the absolute differences."""
    tolerance: Tolerance
    equal: dict[int, int]
    """For each beam, the sentences with equal translations."""
    ties: int
    """Translations that differ, but whose scores differ by rounding alone."""
    cut: int
    """Translations of the other program that reach the limit, where programs differ in what they return."""
    lost: float
    """How much less the other translations score, in the mean over all sentences."""
    split_otherwise: str | None = None
    """The first sentence with other subwords."""
    plain: PlainCall | None = None
    """How the original's plain call compares; None if that was not called."""

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"tolerance": self.tolerance.token}

    @property
    def missed(self) -> int:
        """The translations that differ for another reason than rounding or a limit."""
        return len(self.equal) * self.sentences - sum(self.equal.values()) - self.ties - self.cut

    def problem(self) -> str | None:
        """Returns the first difference that is larger than the tolerance, in words, or None."""
        allowed = self.tolerance
        if self.split_alike not in (None, self.sentences):
            different = self.sentences - (self.split_alike or 0)
            return (
                f"it splits {different} of {self.sentences} sentences into other subwords, first "
                f"{str(self.split_otherwise)[:80]!r}"
            )
        for value, limit, what in (
            (self.largest, allowed.token, "a log-probability differs by {:.2g}"),
            (self.mean, allowed.mean, "log-probabilities differ by {:.2g} in the mean"),
            (self.lost, math.inf if allowed.lost is None else allowed.lost, "translations score {:.2g} less"),
        ):
            if not value <= limit:  # also for NaN
                return f"{what.format(value)}, more than {limit:g}"
        if self.missed and allowed.lost is None:
            return f"{self.missed} translations differ by more than rounding"
        return self.plain.problem() if self.plain else None

    def show(self, console: Console) -> None:
        """Prints what was compared."""
        alike = (
            "" if self.split_alike is None else f"{self.split_alike} of {self.sentences} sentences are split alike; "
        )
        equal = ", ".join(f"{n} of {self.sentences} at beam {beam}" for beam, n in self.equal.items()) or "not compared"
        gaps = (
            f"{self.logprobs:,} log-probabilities differ by {self.mean:.2g} in the mean and {self.largest:.2g} at most"
        )
        gaps = f"{gaps}; " if self.logprobs else ""
        others = {"ties": self.ties, "cut off at the length limit by other rules": self.cut}
        ties = "".join(f"; {count} others are {what}" for what, count in others.items() if count)
        lost = f"; translations score {self.lost:.4f} less in the mean" if self.missed else ""
        console.info(f"compared with {self.original}: {alike}{gaps}equal translations: {equal}{ties}{lost}")
        if self.plain:
            self.plain.show(console)


def outputs(
    loaded: LoadedModel,
    lines: Sequence[str] | None = None,
    done: Callable[[], None] = lambda: None,
    *,
    thorough: bool = False,
) -> Outputs:
    """Translates and scores the lines, or generated sentences, on the CPU in float32.

    The model's search runs with each of BEAMS, and without its minimum length. `thorough` compares 100 sentences of any
    length, and a pair that reaches the end of the position table; otherwise a few short ones. `done` is called after
    each search. Raises InputError if all lines are blank.
    """
    search, reach = loaded.search, reach_of(loaded)
    longest, limit = min(search.max_source, reach - 1), LIMIT
    if lines is None:
        lines, limit = generated_sentences(loaded.src_vocab), LONGEST
        lines = lines if thorough else lines[5 :: len(lines) // SAMPLES][:SAMPLES]
    if not thorough:
        longest = min(LONGEST, longest)
    lines = tagged(loaded, lines)
    every = loaded.src_vocab.encode_batch(list(lines))
    encoded = [(line, ids[:longest]) for line, ids in zip(lines, every, strict=True) if ids]
    if not encoded:
        raise InputError("all sample sentences are blank; give some text to compare the two programs on.")
    if thorough:
        limit = max(len(ids) for _, ids in encoded) + EXTRA_LENGTH
    # EOS is scored after an unfinished translation, and needs a position, too.
    limited = dataclasses.replace(search, max_length=min(limit, reach - 1), min_length=0)
    searches = [dataclasses.replace(limited.with_beam(n), **GREEDY.get(n, {})) for n in BEAMS]
    sources = [[*ids, EOS_ID] for _, ids in encoded]
    translations = []
    for each in searches:
        translations.append(translated(loaded, sources, each))
        done()
    pairs = [
        (source, [*tokens, EOS_ID]) for targets in translations for source, tokens in zip(sources, targets, strict=True)
    ]
    if thorough:
        source, target = longest_pair(loaded, longest, reach)
        pairs.append(([*source, EOS_ID], [*target, EOS_ID]))
    lines = tuple(line for line, _ in encoded)
    logprobs = [list(row) for row in scorer(loaded)(pairs)]
    return Outputs(lines, sources, searches, translations, longest, list(pairs), logprobs)


def scorer(loaded: LoadedModel) -> Score:
    """Returns the function with which our model scores translations."""
    engine = TorchEngine([loaded])
    return lambda pairs: engine.token_logprobs([(source[:-1], target) for source, target in pairs], FORCED_TOKENS)


def reach_of(loaded: LoadedModel) -> int:
    """Returns the number of positions that a comparison may use, EOS included."""
    return min(loaded.model.config.max_length or loaded.search.max_source + EXTRA_LENGTH, LONGEST_SAMPLE)


def translated(loaded: LoadedModel, sources: Sequence[Sequence[int]], search: SearchConfig) -> list[list[int]]:
    """Returns our best translation of each source, on the CPU in float32."""
    loaded.model.cpu().eval()
    engine = TorchEngine([loaded])
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    most = at_a_time(len(loaded.tgt_vocab), search.beam) * len(sources[order[0]])
    search = dataclasses.replace(search, batch_tokens=min(most, search.batch_tokens))
    asked = [Source(list(sources[i]), search.max_length, "") for i in order]
    best = {order[i]: list(hyps[0].tokens) for i, hyps in engine.search(asked, search)}
    return [best[i] for i in range(len(sources))]


def at_a_time(vocabulary: int, beam: int) -> int:
    """Returns how many sentences a program searches at a time, so that the memory is that of the model."""
    return max(1, LOGITS // (vocabulary * beam))


def verify(
    ours: Outputs, program: Program, done: Callable[[], None] = lambda: None, score: Score | None = None
) -> Verified:
    """Compares our outputs with those of another program. `done` is called after each search.

    `score` scores the translations that differ. By default the program does; for an export our model should.
    """
    split = program.encode(ours.lines)  # before the weights are in memory, because a tokenizer may be large
    theirs = program.logprobs(ours.pairs)
    gaps = [abs(a - b) for rows in zip(ours.logprobs, theirs, strict=True) for a, b in zip(*rows, strict=True)]
    exact = program.tolerance.lost is None
    compared: dict[int, Differences] = {}
    for search, mine in zip(ours.searches, ours.translations, strict=True):
        translations = program.translate(ours.sources, search)
        done()
        if translations is not None:
            compared[search.beam] = differences(
                score or program.logprobs, ours.sources, search, mine, translations, exact=exact
            )
    lost = [loss for found in compared.values() for loss in found.lost.values()]
    alike = [_begins(*both, ours.longest) for both in zip(split or [], ours.sources, strict=split is not None)]
    return Verified(
        original=program.name,
        sentences=len(ours.lines),
        split_alike=None if split is None else sum(alike),
        split_otherwise=next((line for line, same in zip(ours.lines, alike, strict=False) if not same), None),
        logprobs=len(gaps),
        largest=max(gaps, key=lambda gap: math.inf if math.isnan(gap) else gap),
        mean=math.fsum(gaps) / len(gaps),
        tolerance=program.tolerance,
        equal={beam: found.equal for beam, found in compared.items()},
        ties=sum(found.ties for found in compared.values()),
        cut=sum(found.cut for found in compared.values()),
        lost=math.fsum(lost) / (len(ours.lines) * max(len(compared), 1)),
    )


@dataclass(frozen=True)
class Differences:
    """The differences of two translations of each source."""

    equal: int
    lost: dict[int, float]
    """By the number of the source, how much less the other translation scores if it differs."""
    missed: list[int]
    """The sources whose translations differ by more than rounding."""
    cut: int
    """Translations that differ and are not in `lost`, because they reach the limit and must be equal."""

    @property
    def ties(self) -> int:
        return len(self.lost) - len(self.missed)


def differences(
    score: Score,
    sources: Sequence[Sequence[int]],
    search: SearchConfig,
    mine: Sequence[list[int]],
    theirs: Sequence[list[int]],
    *,
    exact: bool,
) -> Differences:
    """Compares our translations with others. They tie if rounding may have decided between them: if their scores are
    equal, or the probabilities of the first subwords that differ.

    `exact` leaves out other ones that reach the limit: those of a beam search, which have rules of their own there, and
    those of a greedy one that are equal to ours as far as both go.
    """
    different = [i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b]

    def with_end(tokens: Sequence[int]) -> Sequence[int]:
        return tokens if len(tokens) >= search.max_length else [*tokens, EOS_ID]

    first = {i: _first_difference(with_end(mine[i]), with_end(theirs[i])) for i in different}
    judged = [
        i
        for i in different
        if not exact or len(theirs[i]) < search.max_length or (search.beam == 1 and first[i] is not None)
    ]
    rows, other_rows = (
        score([(sources[i], with_end(targets[i])) for i in judged]) if judged else [] for targets in (mine, theirs)
    )
    lost, missed = dict[int, float](), list[int]()
    for i, row, other in zip(judged, rows, other_rows, strict=True):
        lost[i] = _score(row, search) - _score(other, search)
        place = first[i]
        tied = place is not None and abs(row[place] - other[place]) <= TIE
        if not tied and not abs(lost[i]) <= TIE:  # also for NaN
            missed.append(i)
    return Differences(len(mine) - len(different), lost, missed, len(different) - len(judged))


def _first_difference(tokens: Sequence[int], others: Sequence[int]) -> int | None:
    """Returns where two translations differ first; None if one is the beginning of the other."""
    return next((k for k, (a, b) in enumerate(zip(tokens, others, strict=False)) if a != b), None)


def _begins(whole: Sequence[int], source: Sequence[int], longest: int) -> bool:
    """Returns whether a sentence begins with these subwords; `source` was cut if it is long."""
    return list(whole) == list(source) or (
        len(source) == longest + 1 < len(whole) and list(whole[:longest]) == list(source[:-1])
    )


def _score(logprobs: Sequence[float], search: SearchConfig) -> float:
    """Returns the score of a translation by the log-probabilities of its subwords, and of EOS if it has one. The
    first subwords cost nothing if the search is forced to begin with them."""
    return math.fsum(logprobs[len(search.begin) :]) / length_penalty(len(logprobs), search.alpha, search.length_penalty)


@contextmanager
def progress(console: Console, beams: int = len(BEAMS)) -> Iterator[Callable[[], None]]:
    """Shows the progress of a comparison. Yields what to call after each search."""
    with console.progress("comparing both programs", 2 * beams, "searches") as counter:
        yield counter.advance


def refuse_different(verified: Verified, out: Path, advice: str = "") -> None:
    """Raises VtransError, which names the file `out`, if the differences are larger than the tolerance."""
    if problem := verified.problem():
        raise VtransError(
            f"{out} was not written, because the model differs in {verified.original}: {problem}"
            f"{'; ' if advice else ''}{advice}."
        )
