"""The search loop: hypotheses, batches of sentences, and the loop that refills batches.

- A batch of sentences holds the decoder's state and, for each row, its tokens so far and their summed log-probability
  (history.py).
- A step feeds each live row its newest token. The decoder returns the log-probabilities of the next token, rules change
  them (rules.py), and the search chooses tokens: beam.py ranks extensions, banks.py ranks them by the phrases that they
  still need, and sampling.py samples. engines/compiled/plain_search.py does all of this in C++.
- EOS, once chosen, finishes a hypothesis. A sentence leaves the batch when none of its rows is live, at the latest at
  its own length limit, and a waiting sentence takes its place (continuous batching). Results do not depend on the
  batch.

Legend: B sentences in the batch, K rows per sentence (the width of the beam, or the samples), r live rows among the
B * K.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vtrans.config import SearchConfig
from vtrans.search.decoder import Decoder, LogprobBlock, State
from vtrans.search.history import Ints, RowHistory
from vtrans.search.rules import NO_RULES, RuleSet
from vtrans.system.errors import AbandonedError
from vtrans.text.vocabulary import BOS_ID, EOS_ID

# An admission costs an encoder call, so waiting sentences enter together: when they fill an eighth of the batch, or
# when they are the last. When none is waiting, the batch is compacted once a quarter of it is empty.
ADMIT_SHARE, EMPTY_SHARE = 8, 4


@dataclass(frozen=True)
class Hypothesis:
    """A translation as token ids, without BOS and EOS."""

    tokens: tuple[int, ...]
    logprob: float  # natural logarithm, summed over the tokens and, if finished, EOS
    score: float  # logprob divided by the length penalty
    finished: bool  # whether it ends in EOS; False: it was cut at the limit
    token_logprobs: tuple[float, ...]  # of each token and, if finished, of EOS


@dataclass(frozen=True)
class SearchTask:
    """Sentences to translate, with the settings of the search or sampling."""

    sources: Sequence[Sequence[int]]
    """Token ids with EOS, the longest first."""
    limits: Sequence[int]
    """The maximum number of target tokens per source, including EOS."""
    config: SearchConfig
    nbest: int
    """The maximum number of hypotheses per source."""
    rules: RuleSet = NO_RULES
    abandoned: Callable[[], bool] | None = None
    """Called before each step; the search ends with AbandonedError once it returns True."""
    bos_id: int = BOS_ID
    eos_id: int = EOS_ID


def length_penalty(length: int, alpha: float, kind: str) -> float:
    """Returns the divisor of a log-probability; `length` counts EOS.

    "gnmt" is ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14). "length" is length ** alpha, the penalty of
    fairseq, Marian and CTranslate2.
    """
    return float(((5 + length) / 6 if kind == "gnmt" else length) ** alpha)


class SearchBatch(ABC):
    """The sentences that are searched together, each in a place of the batch. Initially empty.

    `batch_tokens` is the maximum number of padded source tokens.
    """

    def __init__(self, task: SearchTask, batch_tokens: int) -> None:
        self.task, self.batch_tokens = task, batch_tokens
        self.sentences: list[int | None] = []
        """The sentence in each place, as an index into the sources; None: an empty place."""

    @abstractmethod
    def select(self, places: Sequence[int]) -> None:
        """Keeps only the sentences in these places."""

    @abstractmethod
    def enter(self, sentences: Sequence[int]) -> None:
        """Starts new sentences in the empty places, and the others after the last place."""

    @abstractmethod
    def step(self) -> list[int]:
        """Advances all sentences by one token. Returns the places of those whose search is finished."""

    @abstractmethod
    def leave(self, b: int) -> list[Hypothesis]:
        """Returns the hypotheses of the sentence in a place, whose search is finished."""


class StepBatch(SearchBatch):
    """A batch whose steps call a decoder and rules. A subclass chooses the tokens."""

    reads: int | None = None
    """The most probable tokens of a row that a step reads; None: all tokens."""

    def __init__(self, decoder: Decoder[State], task: SearchTask, width: int, step: int = 1) -> None:
        # The wider the sentences, the fewer fit into a batch.
        super().__init__(task, task.config.batch_tokens * task.config.beam // max(width, task.config.beam))
        self.decoder = decoder
        self.history = RowHistory(width, task.bos_id, step)
        self.sentences = self.history.sentences
        self.state: Any = None  # None: the batch is empty

    def select(self, places: Sequence[int]) -> None:
        if places:
            self.decoder.select(self.state, places)
        else:
            self.state = None
        self.history.select(places)

    def enter(self, sentences: Sequence[int]) -> None:
        entering = [self.task.sources[i] for i in sentences]
        if self.state is None:
            self.state = self.decoder.start(entering, self.history.width)
        else:
            self.decoder.admit(self.state, entering, [b for b, i in enumerate(self.sentences) if i is None])
        self.history.enter(sentences)

    def step(self) -> list[int]:
        history, live_r = self.history, self.history.live()
        active = self.task.rules.now(history)
        more = active.most_forbidden
        best = None if self.reads is None or more is None else self.reads + more
        blocks = self.decoder.step(self.state, history.newest_BK, live_r, best)
        parents_BK = self.extend(active.applied(blocks, history, live_r), live_r)
        tops = history.sums_BK.max(1).tolist()
        finished = [b for b, i in enumerate(self.sentences) if i is not None and tops[b] == -math.inf]
        if max(tops) > -math.inf:
            if parents_BK is not None:
                self.decoder.reorder(self.state, parents_BK)
            if finished:
                self.decoder.drop(self.state, finished)
        return finished

    @abstractmethod
    def extend(self, blocks: Iterable[LogprobBlock], live_r: Ints) -> Ints | None:
        """Extends each row of the history by a token, given the log-probabilities of the live rows. Returns the old row
        [B, K] that each row continues, or None if each row continues itself."""


def run(batch: SearchBatch) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yields (index of a source, hypotheses) as sentences finish, in no fixed order.

    Sources enter in the order given. Raises AbandonedError before the next step once the task is abandoned.
    """
    task = batch.task
    assert task.nbest >= 1, task.nbest
    assert len(task.sources) == len(task.limits), (len(task.sources), len(task.limits))
    assert all(task.sources), "a source is empty; it must end in EOS"
    assert min(task.limits, default=1) >= 1, "a limit leaves no room for EOS"
    lengths = [len(source) for source in task.sources]
    waiting = 0  # the first source that has not entered yet
    changed = True  # whether sentences have left since the batch was last filled
    while True:
        if changed:
            live = [b for b, i in enumerate(batch.sentences) if i is not None]
            places = len(batch.sentences)
            fresh = _entering(lengths, [i for i in batch.sentences if i is not None], waiting, batch.batch_tokens)
            empty = places - len(live)
            if not live and not fresh:
                return
            # Empty places cost time in every step. An admission leaves none; without one, up to a quarter may be empty.
            if empty and (not live or (empty > len(fresh) and (fresh or EMPTY_SHARE * empty >= places))):
                batch.select(live)
            if fresh:
                batch.enter(fresh)
                waiting = fresh.stop
        if task.abandoned and task.abandoned():
            raise AbandonedError("the search was abandoned.")
        finished = batch.step()
        for b in finished:
            hypotheses = batch.leave(b)
            number, batch.sentences[b] = batch.sentences[b], None
            assert number is not None
            yield number, hypotheses
        changed = bool(finished)


def _entering(lengths: Sequence[int], batch: Sequence[int], waiting: int, batch_tokens: int) -> range:
    """Returns the sentences that enter now: as many as fit into `batch_tokens` padded source tokens together with the
    batch; at least one if the batch is empty; none if they are too few for an encoder call."""
    stop = waiting
    longest = max((lengths[i] for i in batch), default=0)
    while stop < len(lengths):
        longest = max(longest, lengths[stop])
        size = len(batch) + stop - waiting + 1
        if size > 1 and size * longest > batch_tokens:
            break
        stop += 1
    if stop < len(lengths) and ADMIT_SHARE * (stop - waiting) < len(batch):
        stop = waiting
    return range(waiting, stop)
