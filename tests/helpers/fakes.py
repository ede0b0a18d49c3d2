"""Fake decoders for tests of the search. Their log-probabilities depend on the source and the prefix only.

They check every call against the decoder's protocol, so that a search which feeds a stale row, keeps a finished
sentence or exceeds a limit fails at that call.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from drawn import seeded

from vtrans.config import SearchConfig
from vtrans.search.beam import beam_search
from vtrans.search.decoder import Logprobs
from vtrans.search.history import Ints
from vtrans.search.loop import Hypothesis, SearchTask

BOS, EOS = 0, 1  # of the fakes; the words are 2 and up

Ids = tuple[int, ...]
Table = Callable[[Ids, Ids], Sequence[float]]  # (source, prefix without BOS) -> log-probabilities [V]


@dataclass
class FakeSentence:
    source: Ids
    rows: list[Ids]  # the prefix of each row, BOS included once it was fed
    age: int = 0  # tokens fed
    dropped: bool = False  # finished, so that its place is empty


@dataclass
class FakeState:
    sentences: list[FakeSentence]
    width: int
    alone: bool = False  # started with one source

    @property
    def live(self) -> list[FakeSentence]:
        return [sentence for sentence in self.sentences if not sentence.dropped]


@dataclass
class FakeDecoder:
    """A decoder that reads log-probabilities from a table, by default in float64."""

    table: Table
    limits: Mapping[Ids, int] = field(default_factory=dict)  # of sources whose age is to be checked
    batch_tokens: int | None = None  # largest padded batch allowed, if that is to be checked
    dtype: type[np.floating] = np.float64
    log: list[str] = field(default_factory=list)  # the calls
    ages: list[Ids] = field(default_factory=list)  # at each step, the ages of the live sentences
    empty: list[int] = field(default_factory=list)  # at each step, the empty places

    def start(self, sources: Sequence[Sequence[int]], width: int) -> FakeState:
        state = FakeState([], width, len(sources) == 1)
        self._enter("start", state, sources, [])
        return state

    def admit(self, state: FakeState, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        assert state.live, "an empty batch is started, not admitted to"
        assert not state.alone, "a sentence that starts alone stays alone"
        assert all(state.sentences[place].dropped for place in places)
        assert len(set(places)) == len(places) <= len(sources)
        self._enter("admit", state, sources, places)
        assert len(state.live) == len(state.sentences), "a fresh sentence stands beside an empty place"

    def _enter(self, call: str, state: FakeState, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        assert sources
        self.log.append(call)
        fresh = [FakeSentence(tuple(source), [()] * state.width) for source in sources]
        for place, sentence in zip(places, fresh, strict=False):
            state.sentences[place] = sentence
        state.sentences += fresh[len(places) :]
        padded = len(state.live) * max(len(sentence.source) for sentence in state.live)
        assert self.batch_tokens is None or len(state.live) == 1 or padded <= self.batch_tokens

    def step(self, state: FakeState, tokens_BK: Ints, live_r: Ints, best: int | None = None) -> Iterator[Logprobs]:
        assert tokens_BK.shape == (len(state.sentences), state.width)
        assert tokens_BK.dtype == live_r.dtype == np.int64
        rows = live_r.tolist()
        assert rows == sorted(set(rows))
        live = {row // state.width for row in rows}
        assert live == {b for b, sentence in enumerate(state.sentences) if not sentence.dropped}
        self.log.append("step")
        self.ages.append(tuple(sentence.age for sentence in state.live))
        self.empty.append(len(state.sentences) - len(state.live))
        answers: list[tuple[Ids, Ids]] = []
        for sentence, tokens in zip(state.sentences, tokens_BK.tolist(), strict=True):
            assert sentence.dropped or EOS not in tokens, "a finished hypothesis was extended"
            assert sentence.age > 0 or sentence.dropped or set(tokens) == {BOS}, "the first token is BOS"
            assert sentence.dropped or sentence.age < self.limits.get(sentence.source, math.inf), "past its limit"
            sentence.age += 1
            sentence.rows = [(*row, token) for row, token in zip(sentence.rows, tokens, strict=True)]
            assert all(len(row) == sentence.age for row in sentence.rows)
            answers += [(sentence.source, row[1:]) for row in sentence.rows]
        asked = [self.table(*answers[row]) for row in rows]
        for i in range(0, len(asked), 5):  # blocks that mix sentences
            yield np.array(asked[i : i + 5], dtype=self.dtype)

    def reorder(self, state: FakeState, parents_BK: Ints) -> None:
        self.log.append("reorder")
        assert parents_BK.shape == (len(state.sentences), state.width)
        assert parents_BK.dtype == np.int64
        for sentence, parents in zip(state.sentences, parents_BK.tolist(), strict=True):
            sentence.rows = [sentence.rows[parent] for parent in parents]

    def drop(self, state: FakeState, sentences: Sequence[int]) -> None:
        assert not any(state.sentences[b].dropped for b in sentences)
        for b in sentences:
            state.sentences[b].dropped = True
        assert state.live, "the last sentence of a batch must not be dropped"

    def select(self, state: FakeState, sentences: Sequence[int]) -> None:
        self.log.append("select")
        assert sentences
        assert not state.alone
        assert list(sentences) == sorted(set(sentences))
        state.sentences = [state.sentences[b] for b in sentences]


class BrokenDecoder(FakeDecoder):
    """A decoder whose second step returns NaN."""

    def step(self, state: FakeState, tokens_BK: Ints, live_r: Ints, best: int | None = None) -> Iterator[Logprobs]:
        for answers in super().step(state, tokens_BK, live_r):
            yield answers * math.nan if len(self.ages) == 2 else answers


def hashed(seed: int, words: int, *, ties: bool = False, holes: float = 0.0, eos: float = 0.0) -> Table:
    """Log-probabilities drawn at random for each (source, prefix); BOS is impossible.

    `ties`: quarters from a small set, so that many sums are equal (and rows do not sum to 1).
    `holes`: the share of impossible tokens. `eos`: added to the logit of EOS.
    """

    @cache
    def table(source: Ids, prefix: Ids) -> tuple[float, ...]:
        numbers = random.Random(f"{seed} {source} {prefix}")
        if ties:
            logits = [-0.25 * numbers.randint(1, 4) for _ in range(words + 1)]
        else:
            logits = [numbers.gauss(0, 1.5) for _ in range(words + 1)]
            logits[0] += eos
            total = math.log(math.fsum(math.exp(logit) for logit in logits))
            logits = [logit - total for logit in logits]
        return (-math.inf, *(-math.inf if numbers.random() < holes else logit for logit in logits))

    return table


# Tables for `hashed` that make a search difficult.
TROUBLES: list[dict[str, Any]] = [{}, {"ties": True}, {"holes": 0.3}, {"ties": True, "holes": 0.5}, {"eos": 2}]


def scripted(words: int, rules: Mapping[Ids, Mapping[int, float]]) -> Table:
    """Probabilities per prefix, as {token: p}, for known best paths. Without a rule, EOS has probability 1."""

    def table(source: Ids, prefix: Ids) -> list[float]:
        chances = rules.get(prefix, {EOS: 1.0})
        return [math.log(chances[t]) if chances.get(t) else -math.inf for t in range(words + 2)]

    return table


def searched(
    decoder: Any, sources: Sequence[Sequence[int]], limits: Sequence[int], nbest: int = 1, **config: Any
) -> list[list[Hypothesis]]:
    """Returns the hypotheses of every source, in the order of the sources; each must come exactly once."""
    task = SearchTask(sources, limits, SearchConfig(**config), nbest, bos_id=BOS, eos_id=EOS)
    found = list(beam_search(decoder, task))
    assert sorted(i for i, _ in found) == list(range(len(sources)))
    return [hypotheses for _, hypotheses in sorted(found, key=lambda pair: pair[0])]


def many_sentences(seed: int) -> tuple[list[Ids], list[int]]:
    """Returns distinct sources of 1 to 12 words, longest first, and a length limit for each."""
    numbers = seeded(seed)
    lengths = sorted((numbers.randint(1, 12) for _ in range(40)), reverse=True)
    sources = [(*(numbers.randint(2, 9) for _ in range(length)), i + 10, EOS) for i, length in enumerate(lengths)]
    return sources, [numbers.randint(1, 12) for _ in sources]
