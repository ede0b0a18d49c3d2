"""The common parts of beam search and sampling: hypotheses, and the loop that batches sentences.

Each step of the loop advances all sentences of the batch by one token. A sentence leaves when its search is finished,
at the latest at its own length limit, and a waiting sentence takes its place (continuous batching). A sentence's result
does not depend on the others in its batch. Rules change the log-probabilities of a step (rules.py), and a policy
chooses its tokens: beam.py ranks them, sampling.py draws them. engines/compiled/plain_search.py does all of that by
itself.

Legend: B sentences in the batch, K rows per sentence (the width of the beam, or the samples), r live rows among the
B * K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vtrans.config import SearchConfig
from vtrans.search.decoder import Decoder, LogprobBlock, State
from vtrans.search.history import Ints, RowHistory
from vtrans.search.rules import NO_RULES, RuleSet
from vtrans.system.errors import AbandonedError
from vtrans.text.vocabulary import BOS_ID, EOS_ID

# An admission costs an encoder call, so waiting sentences enter together: when they fill an eighth of the batch, or are
# the last ones. When no sentence is waiting, the batch is compacted once a quarter of it is empty.
ADMIT_SHARE, EMPTY_SHARE = 8, 4


@dataclass(frozen=True)
class Hypothesis:
    """A translation as token ids, without BOS and EOS."""

    tokens: tuple[int, ...]
    logprob: float  # natural logarithm, summed over the tokens and, if finished, EOS
    score: float  # logprob over the length penalty
    finished: bool  # whether it ended in EOS, not at the limit
    token_logprobs: tuple[float, ...]  # of each token and, if finished, of EOS


@dataclass(frozen=True)
class SearchTask:
    """Sentences to translate, with the settings of the search or sampling."""

    sources: Sequence[Sequence[int]]
    """Token ids with EOS, the longest first."""
    limits: Sequence[int]
    """The largest numbers of tokens per source, EOS included."""
    config: SearchConfig
    nbest: int
    """Hypotheses per source, at most."""
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


class Policy(Protocol):
    """Chooses the tokens of each step, by beam search or sampling, and extends the histories of all rows by them."""

    history: RowHistory
    parents_BK: Ints | None  # the old row that each row continues after a step; None if each row continues itself
    reads: int | None  # the most probable tokens of a row that a step reads; None: all tokens

    def live(self) -> Ints:
        """Returns the live rows [r], increasing indices into the flattened B * K rows."""

    def enter(self, places: Sequence[int]) -> None:
        """Starts the new sentences in these places of the history."""

    def advance(self, blocks: Iterable[LogprobBlock]) -> list[int]:
        """Takes a step with the log-probabilities of the live rows; returns the sentences (indices into B) whose
        search is finished."""

    def leave(self, b: int) -> list[Hypothesis]:
        """Returns the hypotheses of sentence `b`, whose search is finished."""

    def select(self, places: Sequence[int]) -> None:
        """Keeps only the sentences in these places."""


class SearchBatch(Protocol):
    """The sentences that are searched together, each in a place."""

    @property
    def sentences(self) -> list[int | None]:
        """The sentence in each place, as an index into the sources; None: an empty place."""

    def select(self, places: Sequence[int]) -> None:
        """Keeps only the sentences in these places."""

    def enter(self, sentences: Sequence[int]) -> None:
        """Starts new sentences in the empty places, and the others after the last place."""

    def step(self) -> list[int]:
        """Advances all sentences by one token. Returns the places of those whose search is finished."""

    def leave(self, b: int) -> list[Hypothesis]:
        """Returns the hypotheses of the sentence in a place, whose search is finished."""


class StepBatch:
    """The sentences of a search whose steps are those of a decoder, rules and a policy."""

    def __init__(self, decoder: Decoder[State], task: SearchTask, policy: Policy) -> None:
        self.decoder, self.policy = decoder, policy
        self.sources, self.rules = task.sources, task.rules
        self.leave = policy.leave
        self.state: Any = None  # None: the batch is empty

    @property
    def sentences(self) -> list[int | None]:
        return self.policy.history.sentences

    def select(self, places: Sequence[int]) -> None:
        if places:
            self.decoder.select(self.state, places)
        else:
            self.state = None
        self.policy.history.select(places)
        self.policy.select(places)

    def enter(self, sentences: Sequence[int]) -> None:
        entering = [self.sources[i] for i in sentences]
        if self.state is None:
            self.state = self.decoder.start(entering, self.policy.history.width)
        else:
            self.decoder.admit(self.state, entering, [b for b, i in enumerate(self.sentences) if i is None])
        self.policy.enter(self.policy.history.enter(sentences))

    def step(self) -> list[int]:
        policy, history = self.policy, self.policy.history
        live_r = policy.live()
        active = self.rules.now(history)
        more = active.most_forbidden
        best = None if policy.reads is None or more is None else policy.reads + more
        blocks = self.decoder.step(self.state, history.newest_BK, live_r, best)
        finished = policy.advance(active.applied(blocks, history, live_r))
        if len(finished) < sum(i is not None for i in history.sentences):
            if policy.parents_BK is not None:
                self.decoder.reorder(self.state, policy.parents_BK)
            if finished:
                self.decoder.drop(self.state, finished)
        return finished


def run(batch: SearchBatch, task: SearchTask, batch_tokens: int) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yields (index of a source, hypotheses) as sentences finish, in no fixed order.

    `batch` is empty. `batch_tokens` bounds the padded source tokens of a batch. Sources enter in the order given.
    Raises AbandonedError at the first step before which the task has been abandoned.
    """
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
            fresh = _fresh(lengths, [i for i in batch.sentences if i is not None], waiting, batch_tokens)
            empty = places - len(live)
            if not live and not fresh:
                return
            # Each empty place costs time in every step. An admission leaves none; else a quarter may be empty.
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


def _fresh(lengths: Sequence[int], batch: Sequence[int], waiting: int, batch_tokens: int) -> range:
    """Returns the sentences that enter now: as many as fit into `batch_tokens` padded source tokens beside the batch,
    at least one if the batch is empty, none if they are too few for an encoder call."""
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
