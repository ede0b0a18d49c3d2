"""Compares a model with the same model in another program, after an import or for an export.

`outputs` translates and scores sample sentences with vtrans, and `compare` does so with the other program. Only one of
the two models is in memory.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from vtrans.checkpoint import LoadedModel
from vtrans.config import SearchConfig
from vtrans.console import Console
from vtrans.engines.engine import Source
from vtrans.engines.torch_engine import TorchEngine
from vtrans.errors import InputError, VtransError
from vtrans.lines.reader import EXTRA_LENGTH
from vtrans.search.loop import length_penalty
from vtrans.text.languages import base
from vtrans.text.vocabulary import EOS_ID, Vocabulary

BEAMS = (1, 4)
# Other programs with a beam of 1 decode greedily, and transformers then applies the penalty to logits.
GREEDY: dict[int, dict[str, Any]] = {1: {"stop": "count", "repetition_penalty": 1.0}}
OWN = "each program with its own defaults, on real text"
LOGITS = 1 << 21  # of a step of a search, which has several copies of them in memory
FORCED_TOKENS = 16  # padded subwords scored at a time; their logits are in memory at once
TIE = 1e-4  # largest difference of the scores of two translations that counts as a tie
LONGEST = 2048  # most positions that are compared
GENERATED = 100  # sentences
# Everyday sentences by language, some with what models get wrong: names, numbers, quotation marks, capitals, one word.
REAL: dict[str, list[str]] = json.loads(Path(__file__).with_name("samples.json").read_text(encoding="utf-8"))

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

    def translate(
        self, sources: Sequence[Sequence[int]], longest: int, search: SearchConfig | None
    ) -> list[list[int]] | None:
        """Returns the best translation of each source, of at most `longest` subwords and without EOS. Without a search,
        the program takes its own defaults and those of the model's folder. Returns None if it does not have the search
        for this model, or has no defaults."""


@dataclass(frozen=True)
class Outputs:
    """Sample sentences with their translations and log-probabilities by vtrans."""

    lines: list[str]
    sources: list[list[int]]
    """With EOS."""
    searches: dict[str, SearchConfig]
    """By name. That of OWN is the model file's."""
    translations: dict[str, list[list[int]]]
    """For each search, without EOS."""
    pairs: list[IdPair]
    logprobs: list[list[float]]
    """Of each pair's target."""


@dataclass(frozen=True)
class Differences:
    """The differences of two translations of each source by one search."""

    equal: int
    ties: int
    """Translations that differ, but whose scores differ by rounding alone."""
    cut: int
    """Translations that differ and reach the length limit in the other program, which has rules of its own there."""
    missed: list[int]
    """The sources whose translations differ for another reason."""
    lost: float
    """How much less the other translations score, in the sum."""

    def __str__(self) -> str:
        others = {"ties": self.ties, "cut off at the length limit by other rules": self.cut}
        rest = "".join(f"; {count} others are {what}" for what, count in others.items() if count)
        return f"{self.equal} of {self.equal + self.ties + self.cut + len(self.missed)} translations are equal{rest}"


@dataclass(frozen=True)
class Comparison:
    """The differences of a model between vtrans and another program."""

    original: str
    """The name of the other program."""
    lines: Sequence[str]
    split: list[int] | None
    """The lines with other subwords; None if the other program does not split text."""
    logprobs: int
    largest: float
    """The largest difference of a log-probability."""
    mean: float
    """The mean of the absolute differences."""
    tolerance: Tolerance
    searches: dict[str, Differences]

    def as_dict(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self) | {"tolerance": self.tolerance.token, "lost": self.lost}
        lines = fields.pop("lines")
        for found in fields["searches"].values():
            found["missed"] = [lines[i] for i in found["missed"]]
        return fields | {"sentences": len(lines), "split": self.split and [lines[i] for i in self.split]}

    @property
    def lost(self) -> float:
        """How much less the other translations score, in the mean."""
        losses = [found.lost / len(self.lines) for found in self.searches.values()]
        return math.fsum(losses) / max(1, len(losses))

    def problem(self) -> str | None:
        """Returns the first difference that is larger than the tolerance, in words, or None."""
        allowed, count = self.tolerance, len(self.lines)
        if self.split:
            first = self.lines[self.split[0]][:80]
            return f"it splits {len(self.split)} of {count} sentences into other subwords, first {first!r}"
        for value, limit, what in (
            (self.largest, allowed.token, "a log-probability differs by {:.2g}"),
            (self.mean, allowed.mean, "log-probabilities differ by {:.2g} in the mean"),
            (self.lost, math.inf if allowed.lost is None else allowed.lost, "translations score {:.2g} less"),
        ):
            if not value <= limit:  # also for NaN
                return f"{what.format(value)}, more than {limit:g}"
        for name, found in self.searches.items():
            if found.missed and allowed.lost is None:
                first = self.lines[found.missed[0]][:80]
                return (
                    f"{name}: {len(found.missed)} of {count} translations differ by more than rounding, first that of "
                    f"{first!r}"
                )
        return None

    def show(self, console: Console) -> None:
        """Prints what was compared."""
        count = len(self.lines)
        said = [] if self.split is None else [f"{count - len(self.split)} of {count} sentences are split alike"]
        if self.logprobs:
            said.append(
                f"{self.logprobs:,} log-probabilities differ by {self.mean:.2g} in the mean and {self.largest:.2g} at "
                "most"
            )
        if self.tolerance.lost is not None:
            said.append(f"translations score {self.lost:.4f} less in the mean")
        console.info(f"compared with {self.original}: {'; '.join(said)}")
        for name, found in self.searches.items():
            console.info(f"{name}: {found}")

    def refuse(self, out: Path, advice: str = "") -> None:
        """Raises VtransError, which names the file `out`, if the differences are larger than the tolerance."""
        if problem := self.problem():
            raise VtransError(
                f"{out} was not written, because the model differs in {self.original}: {problem}"
                f"{'; ' if advice else ''}{advice}."
            )


# Sentences.


def real_sentences(loaded: LoadedModel) -> list[str]:
    """Returns the sentences in the model's source languages; those in all languages if none of them is here. They begin
    with a tag if the model needs one."""
    languages = {base(pair.src) for pair in loaded.languages}
    lines = [line for language in languages & REAL.keys() or REAL for line in REAL[language]]
    tag = "" if loaded.search.begin else next(iter(loaded.tags.values()), "")
    return [f"{tag} {line}".strip() for line in lines]


def generated_sentences(vocab: Vocabulary, count: int = GENERATED) -> list[str]:
    """Returns sentences of 1 to 30 words of the vocabulary, the same in each call; frequent words are likelier.

    They mean nothing but reach all parts of a network; a file of real sentences is a better sample.
    """
    subwords = _subwords(vocab)
    words = [i for i in subwords if len(vocab.piece(i)) > 1 and vocab.piece(i).startswith("\u2581")] or subwords
    numbers = random.Random("samples")
    lengths = [1 + 30 * k // count for k in range(count)]
    # Pieces are sorted by falling frequency; a rank on a logarithmic scale follows Zipf's law.
    return [vocab.decode(words[int(len(words) ** numbers.random()) - 1] for _ in range(n)) for n in lengths]


def _subwords(vocab: Vocabulary) -> list[int]:
    return [i for i in range(len(vocab)) if vocab.is_subword(i)]


# Translations and scores.


def outputs(
    loaded: LoadedModel,
    lines: Sequence[str],
    console: Console,
    *,
    own: bool = False,
    whole: bool = False,
) -> Outputs:
    """Translates and scores lines on the CPU in float32, without blank ones and those that are translated in pieces.

    The model's search runs with each of BEAMS, and without its minimum length; with `own` also as it is. `whole` scores
    a random pair as well that reaches the end of the position table. Raises InputError if no line is left.
    """
    search = loaded.search
    reach = min(loaded.model.config.max_length or search.max_source + EXTRA_LENGTH, LONGEST)  # with EOS
    if search.begin:  # the first subword is that of the target language, and sources begin with their own
        tag = next(iter(loaded.tags.values()), "")
        lines = [f"{tag} {line}".strip() for line in lines if line.strip()]
    longest = min(search.max_source, reach - 1)
    encoded = dict(zip(lines, loaded.src_vocab.encode_batch(list(lines)), strict=True))
    encoded = {line: ids for line, ids in encoded.items() if 0 < len(ids) <= longest}
    if not encoded:
        raise InputError(
            f"all sample sentences are blank or have more than {longest:,} subwords; give others to compare the two "
            "programs on."
        )
    sources = [[*ids, EOS_ID] for ids in encoded.values()]
    # EOS is scored after an unfinished translation, and needs a position, too.
    limit = min(max(map(len, sources)) + EXTRA_LENGTH, reach - 1)
    limited = dataclasses.replace(search, max_length=limit, min_length=0)
    searches = {f"beam {n}": dataclasses.replace(limited.with_beam(n), **GREEDY.get(n, {})) for n in BEAMS}
    if own:
        searches[OWN] = dataclasses.replace(search, max_length=min(limit, search.max_length or limit))
    translations = {}
    with console.progress("translating samples", len(searches), "searches") as counter:
        for name, each in searches.items():
            translations[name] = translated(loaded, sources, each)
            counter.advance()
    pairs: list[IdPair] = [
        (source, [*tokens, EOS_ID])
        for targets in translations.values()
        for source, tokens in zip(sources, targets, strict=True)
    ]
    if whole:
        numbers = random.Random("longest")
        sides = ((loaded.src_vocab, longest), (loaded.tgt_vocab, reach - 1))
        src, tgt = ([*numbers.choices(_subwords(vocab), k=length), EOS_ID] for vocab, length in sides)
        pairs.append((src, tgt))
    logprobs = [list(row) for row in scorer(loaded)(pairs)]
    return Outputs([*encoded], sources, searches, translations, pairs, logprobs)


def scorer(loaded: LoadedModel) -> Score:
    """Returns the function with which our model scores translations."""
    engine = TorchEngine([loaded])
    return lambda pairs: engine.token_logprobs([(source[:-1], target) for source, target in pairs], FORCED_TOKENS)


def translated(loaded: LoadedModel, sources: Sequence[Sequence[int]], search: SearchConfig) -> list[list[int]]:
    """Returns our best translation of each source, on the CPU in float32."""
    loaded.model.cpu().eval()
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    most = at_a_time(len(loaded.tgt_vocab), search.beam) * len(sources[order[0]])
    search = dataclasses.replace(search, batch_tokens=min(most, search.batch_tokens))
    asked = [Source(list(sources[i]), search.max_length, "") for i in order]
    best = {order[i]: list(hyps[0].tokens) for i, hyps in TorchEngine([loaded]).search(asked, search)}
    return [best[i] for i in range(len(sources))]


def at_a_time(vocabulary: int, beam: int) -> int:
    """Returns how many sentences a program searches at a time, so that the memory is that of the model."""
    return max(1, LOGITS // (vocabulary * beam))


# The comparison.


def compare(ours: Outputs, program: Program, console: Console, score: Score | None = None) -> Comparison:
    """Compares our outputs with those of another program.

    `score` scores the translations that differ. By default the program does; for an export our model should.
    """
    split = program.encode(ours.lines)  # before the weights are in memory, because a tokenizer may be large
    theirs = program.logprobs(ours.pairs)
    gaps = [abs(a - b) for rows in zip(ours.logprobs, theirs, strict=True) for a, b in zip(*rows, strict=True)]
    searches, exact = {}, program.tolerance.lost is None
    with console.progress(f"comparing with {program.name}", len(ours.searches), "searches") as counter:
        for name, search in ours.searches.items():
            found = program.translate(ours.sources, search.max_length, None if name == OWN else search)
            if found is not None:
                rows = ours.translations[name], found
                searches[name] = differences(score or program.logprobs, ours.sources, search, *rows, exact=exact)
            counter.advance()
    return Comparison(
        program.name,
        ours.lines,
        None if split is None else [i for i, ids in enumerate(ours.sources) if split[i] != ids],
        len(gaps),
        max(gaps, key=lambda gap: math.inf if math.isnan(gap) else gap),
        math.fsum(gaps) / len(gaps),
        program.tolerance,
        searches,
    )


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
    losses, missed = [], []
    for i, row, other in zip(judged, rows, other_rows, strict=True):
        losses.append(_score(row, search) - _score(other, search))
        place = first[i]
        tied = place is not None and abs(row[place] - other[place]) <= TIE
        if not tied and not abs(losses[-1]) <= TIE:  # also for NaN
            missed.append(i)
    equal, cut = len(mine) - len(different), len(different) - len(judged)
    return Differences(equal, len(judged) - len(missed), cut, missed, math.fsum(losses))


def _first_difference(tokens: Sequence[int], others: Sequence[int]) -> int | None:
    """Returns where two translations differ first; None if one is the beginning of the other."""
    return next((k for k, (a, b) in enumerate(zip(tokens, others, strict=False)) if a != b), None)


def _score(logprobs: Sequence[float], search: SearchConfig) -> float:
    """Returns the score of a translation by the log-probabilities of its subwords, and of EOS if it has one. The
    first subwords cost nothing if the search is forced to begin with them."""
    return math.fsum(logprobs[len(search.begin) :]) / length_penalty(len(logprobs), search.alpha, search.length_penalty)
