"""Compares an imported model with the program that it comes from, on sample sentences."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrans.checkpoint import LoadedModel
from vtrans.config import SearchConfig
from vtrans.console import Console
from vtrans.data.vocabulary import EOS_ID
from vtrans.engines.engine import Source
from vtrans.engines.forced import Pair
from vtrans.engines.torch_engine import TorchEngine
from vtrans.errors import VtransError
from vtrans.interop.comparison import made_up
from vtrans.interop.imported import Original
from vtrans.search.loop import length_penalty
from vtrans.translate.sources import EXTRA_LENGTH
from vtrans.translate.translator import DEFAULT_OPTIONS

SAMPLES = 6  # generated sentences, if none are given; their translations are cut at LONGEST
BEAMS = (1, 4)
# Other programs with a beam of 1 decode greedily, and transformers then applies the penalty to logits.
GREEDY: dict[int, dict[str, Any]] = {1: {"stop": "count", "repetition_penalty": 1.0}}
LONGEST, LIMIT = 24, 64  # subwords of a sample sentence, and of its translation with EOS
FORCED_TOKENS = 16  # padded subwords scored at a time; their logits are in memory at once


@dataclass(frozen=True)
class Outputs:
    """What a model makes of sample sentences."""

    lines: tuple[str, ...]
    sources: list[list[int]]
    """With EOS."""
    searches: list[SearchConfig]
    translations: list[list[list[int]]]
    """For each search, without EOS."""
    longest: int
    """Subwords at which sources are cut."""
    pairs: list[Pair]
    logprobs: list[list[float]]
    """Of each pair's target, which ends in EOS. Sources of pairs have no EOS."""


@dataclass(frozen=True)
class Verified:
    """How an import differs from its original."""

    original: str
    sentences: int
    split_alike: int | None
    """Sentences whose subwords are equal; None if the original does not split text."""
    logprobs: int
    largest: float
    """The largest difference of a log-probability."""
    tolerance: float
    equal: dict[int, int]
    """For each beam, the sentences with equal translations."""
    ties: int
    """Translations that differ, but whose scores differ by rounding alone."""
    cut: int
    """Translations of the original that reach the limit, where programs differ in what they return."""

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def problem(self) -> str | None:
        """Returns the first difference that is not rounding, in words, or None."""
        if self.split_alike not in (None, self.sentences):
            different = self.sentences - (self.split_alike or 0)
            return f"it splits {different} of {self.sentences} sentences into other subwords"
        if not self.largest <= self.tolerance:  # also for NaN
            return f"a log-probability differs by {self.largest:.2g}, more than {self.tolerance:g}"
        missed = len(self.equal) * self.sentences - sum(self.equal.values()) - self.ties - self.cut
        return f"{missed} translations differ by more than rounding" if missed else None

    def show(self, console: Console) -> None:
        """Prints what was compared."""
        alike = (
            "" if self.split_alike is None else f"{self.split_alike} of {self.sentences} sentences are split alike; "
        )
        equal = ", ".join(f"{n} of {self.sentences} at beam {beam}" for beam, n in self.equal.items()) or "not compared"
        others = {"ties": self.ties, "cut off at the length limit by other rules": self.cut}
        ties = "".join(f"; {count} others are {what}" for what, count in others.items() if count)
        console.info(
            f"compared with {self.original}: {alike}{self.logprobs:,} log-probabilities differ by at most "
            f"{self.largest:.2g}; equal translations: {equal}{ties}"
        )


def outputs(
    loaded: LoadedModel, lines: Sequence[str] | None = None, done: Callable[[], None] = lambda: None
) -> Outputs:
    """Returns what our model makes of the lines, or of generated sentences. `done` is called after each search of
    BEAMS."""
    limit = LIMIT
    if lines is None:
        every = made_up(loaded.src_vocab)
        lines, limit = every[5 :: len(every) // SAMPLES][:SAMPLES], LONGEST
    engine, search = TorchEngine([loaded]), loaded.search
    reach = engine.max_length or search.max_source + EXTRA_LENGTH  # of an export with a table of positions
    limit = min(limit, reach - 1)  # EOS is scored after a translation of that length
    longest = min(LONGEST, search.max_source, reach - 1)
    encoded = [
        (line, ids[:longest]) for line, ids in zip(lines, loaded.src_vocab.encode_batch(list(lines)), strict=True)
    ]
    encoded = [(line, ids) for line, ids in encoded if ids]
    sources = [[*ids, EOS_ID] for _, ids in encoded]
    searches = [
        dataclasses.replace(search, beam=beam, beam_groups=1, max_length=limit, min_length=0, **GREEDY.get(beam, {}))
        for beam in BEAMS
    ]
    translations = []
    for search in searches:
        translations.append(_translate(engine, sources, search))
        done()
    pairs: list[Pair] = [
        (source[:-1], [*tokens, EOS_ID])
        for found in translations
        for source, tokens in zip(sources, found, strict=True)
    ]
    logprobs = [list(row) for row in engine.token_logprobs(pairs, FORCED_TOKENS)]
    return Outputs(tuple(line for line, _ in encoded), sources, searches, translations, longest, pairs, logprobs)


def _translate(engine: TorchEngine, sources: Sequence[Sequence[int]], search: SearchConfig) -> list[list[int]]:
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    asked = [Source(list(sources[i]), search.max_length, "") for i in order]
    found = {order[i]: list(best.tokens) for i, (best, *_) in engine.translate(asked, search, DEFAULT_OPTIONS)}
    return [found[i] for i in range(len(sources))]


def verify(ours: Outputs, original: Original, done: Callable[[], None] = lambda: None) -> Verified:
    """Compares our outputs with those of the original. `done` is called after each search of BEAMS."""
    theirs = original.logprobs([([*source, EOS_ID], target) for source, target in ours.pairs])
    gaps = [gap for pair in zip(ours.logprobs, theirs, strict=True) for gap in _gaps(*pair)]
    split = original.encode(ours.lines)
    equal, ties, cut = {}, 0, 0
    for search, mine in zip(ours.searches, ours.translations, strict=True):
        found = original.translate(ours.sources, search)
        done()
        if found is None:
            continue
        different = [i for i, (a, b) in enumerate(zip(mine, found, strict=True)) if a != b]
        equal[search.beam] = len(mine) - len(different)
        for i in different:
            if len(found[i]) == search.max_length:
                cut += 1
            else:
                ties += _is_tie(original, ours.sources[i], mine[i], found[i], search)
    return Verified(
        original=original.name,
        sentences=len(ours.lines),
        split_alike=None
        if split is None
        else sum(_begins(*both, ours.longest) for both in zip(split, ours.sources, strict=True)),
        logprobs=len(gaps),
        largest=max(gaps, key=lambda gap: math.inf if math.isnan(gap) else gap),
        tolerance=original.tolerance,
        equal=equal,
        ties=ties,
        cut=cut,
    )


def _begins(whole: Sequence[int], source: Sequence[int], longest: int) -> bool:
    """Returns whether a sentence has these subwords; a long one was cut."""
    return list(whole) == list(source) or (
        len(source) == longest + 1 < len(whole) and list(whole[:longest]) == list(source[:-1])
    )


def _gaps(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    if len(theirs) == 1 < len(ours):  # the original gives only the sum
        return [abs(math.fsum(ours) - theirs[0]) / len(ours)]
    return [abs(a - b) for a, b in zip(ours, theirs, strict=True)]


def _is_tie(
    original: Original, source: Sequence[int], ours: Sequence[int], theirs: Sequence[int], search: SearchConfig
) -> bool:
    """Returns whether the original gives both translations the same score but for rounding."""
    targets = [[*ours, EOS_ID], [*theirs, EOS_ID]]
    a, b = (
        math.fsum(logprobs) / length_penalty(len(target), search.alpha, search.length_penalty)
        for logprobs, target in zip(original.logprobs([(source, target) for target in targets]), targets, strict=True)
    )
    return abs(a - b) <= original.tolerance


def refuse_different(verified: Verified, out: Path) -> None:
    """Raises VtransError if there are differences that are not rounding. `out` is what was not written."""
    if problem := verified.problem():
        raise VtransError(f"{out} was not written, because the model differs in {verified.original}: {problem}.")
