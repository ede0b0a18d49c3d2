"""The common parts of beam search and sampling: the decoder protocol, hypotheses, and the loop that batches sentences.

Each step of the loop advances all sentences of the batch by one token. A sentence leaves when its search is finished,
at the latest at its own length limit, and a waiting sentence takes its place (continuous batching). A sentence's result
does not depend on the others in its batch. Rules change the log-probabilities of a step (rules.py), and a policy
chooses its tokens: beam.py ranks them, sampling.py draws them.

Legend: B sentences in the batch, K rows per sentence (the width of the beam, or the samples), r live rows among the
B * K, n rows of a block, V vocabulary, m best tokens of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from vtrans.errors import AbandonedError, LogprobsError
from vtrans.search.history import History, Ints

State = TypeVar("State")
Logprobs = NDArray[np.floating]

# An admission costs an encoder call, so waiting sentences enter together: when they fill an eighth of the batch, or are
# the last ones. When no sentence is waiting, the batch is compacted once a quarter of it is empty.
ADMIT_SHARE, EMPTY_SHARE = 8, 4


class Best(NamedTuple):
    """Log-probabilities [n, m] of the best tokens `ids` [n, m] of each row, best first; equal ones are ordered by id.
    None of them is NaN."""

    logprobs: Logprobs
    ids: Ints


Block = Logprobs | Best
"""Log-probabilities of some rows: an array covers the whole vocabulary, [n, V]."""


def logprobs_of(block: Block) -> Logprobs:
    """Returns the log-probabilities [n, m] or [n, V] of a block."""
    return block.logprobs if isinstance(block, Best) else block


class Decoder(Protocol[State]):
    """A model, or several, as the search sees it. A state holds one batch and advances by one token per step."""

    def start(self, sources: Sequence[Sequence[int]], width: int) -> State:
        """Returns a state with `width` rows for each source. Sources end in EOS. A sentence that starts alone stays
        alone: its state is only stepped and reordered."""

    def step(self, state: State, tokens_BK: Ints, live_r: Ints, best: int | None) -> Iterable[Block]:
        """Feeds each row its last token [B, K], and returns log-probabilities of the next token, n rows at a time.

        `live_r` [r] holds the live rows, increasing indices into the flattened B * K rows. The blocks cover these rows
        in order; the search reads each block once, before the next call, and may change it. The search reads no more
        than the `best` most probable tokens of a row, so the decoder may return only these; with None, it must return
        log-probabilities of the whole vocabulary. The first token of a sentence is BOS; EOS is never fed. Rows that
        are not live are fed any other token.
        """

    def reorder(self, state: State, parents_BK: Ints) -> None:
        """Row k of each sentence continues the old row `parents_BK[:, k]` [B, K]."""

    def drop(self, state: State, sentences: Sequence[int]) -> None:
        """Ends these sentences (indices into B). They keep their places; their rows are no longer live."""

    def admit(self, state: State, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        """Puts new sentences into the `places` of dropped ones, and the remaining new sentences after the last place.
        The sentences of one state therefore differ in age."""

    def select(self, state: State, sentences: Sequence[int]) -> None:
        """Keeps only these sentences (increasing indices into B)."""


@dataclass(frozen=True)
class Hypothesis:
    """A translation as token ids, without BOS and EOS."""

    tokens: tuple[int, ...]
    logprob: float  # natural logarithm, summed over the tokens and, if finished, EOS
    score: float  # logprob over the length penalty
    finished: bool  # whether it ended in EOS, not at the limit
    token_logprobs: tuple[float, ...]  # of each token and, if finished, of EOS


def length_penalty(length: int, alpha: float, kind: str) -> float:
    """Returns the divisor of a log-probability; `length` counts EOS.

    "gnmt" is ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14). "length" is length ** alpha, the penalty of
    fairseq, Marian and CTranslate2.
    """
    return float(((5 + length) / 6 if kind == "gnmt" else length) ** alpha)


class Policy(Protocol):
    """Chooses the tokens of each step, by beam search or sampling, and extends the histories of all rows by them."""

    history: History
    parents_BK: Ints | None  # the old row that each row continues after a step; None if each row continues itself
    reads: int | None  # the most probable tokens of a row that a step reads; None: all tokens

    def live(self) -> Ints:
        """Returns the live rows [r], increasing indices into the flattened B * K rows."""

    def enter(self, places: Sequence[int]) -> None:
        """Starts the new sentences in these places of the history."""

    def advance(self, blocks: Iterable[Block]) -> list[int]:
        """Takes a step with the log-probabilities of the live rows; returns the sentences (indices into B) whose
        search is finished."""

    def leave(self, b: int) -> list[Hypothesis]:
        """Returns the hypotheses of sentence `b`, whose search is finished."""

    def select(self, places: Sequence[int]) -> None:
        """Keeps only the sentences in these places."""


class StepRules(Protocol):
    """What may come next (rules.py)."""

    def most_forbidden(self, history: History) -> int | None:
        """Returns the most tokens of a row that the rules make impossible in the next step, if they change nothing
        else; None: any number."""

    def applied(self, blocks: Iterable[Block], history: History, live_r: Ints) -> Iterable[Block]:
        """Returns the log-probabilities of the live rows after all rules."""


def run(
    decoder: Decoder[State],
    sources: Sequence[Sequence[int]],
    batch_tokens: int,
    policy: Policy,
    rules: StepRules | None = None,
    abandoned: Callable[[], bool] | None = None,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yields (index into `sources`, hypotheses) as sentences finish, in no fixed order.

    `batch_tokens` bounds the padded source tokens of a batch. Sources enter in the order given: sort them longest
    first. Raises AbandonedError at the first step before which `abandoned()` is true.
    """
    assert all(sources), "a source is empty; it must end in EOS"
    lengths = [len(source) for source in sources]
    history = policy.history
    waiting = 0  # the first source that has not entered yet
    state: State | None = None
    changed = True  # whether sentences have left since the batch was last filled
    while True:
        if changed:
            live = [b for b, i in enumerate(history.sentences) if i is not None]
            places = len(history.sentences)
            fresh = _fresh(lengths, [i for i in history.sentences if i is not None], waiting, batch_tokens)
            empty = places - len(live)
            # Each empty place costs time in every step. An admission leaves none; else a quarter may be empty.
            if not live or (empty > len(fresh) and (fresh or EMPTY_SHARE * empty >= places)):
                if live:
                    decoder.select(state, live)  # type: ignore[arg-type]  # a live batch has a state
                else:
                    state = None
                history.select(live)
                policy.select(live)
            if fresh:
                entering = [sources[i] for i in fresh]
                if state is None:
                    state = decoder.start(entering, history.width)
                else:
                    decoder.admit(state, entering, [b for b, i in enumerate(history.sentences) if i is None])
                policy.enter(history.enter(fresh))
                waiting = fresh.stop
        if state is None:
            return
        if abandoned and abandoned():
            raise AbandonedError("the search was abandoned.")
        live_r = policy.live()
        more = rules.most_forbidden(history) if rules else 0
        best = None if policy.reads is None or more is None else policy.reads + more
        blocks = decoder.step(state, history.newest_BK, live_r, best)
        finished = policy.advance(blocks if rules is None else rules.applied(blocks, history, live_r))
        for b in finished:
            hypotheses = policy.leave(b)
            number, history.sentences[b] = history.sentences[b], None
            assert number is not None
            yield number, hypotheses
        changed = bool(finished)
        if not changed or any(i is not None for i in history.sentences):
            if policy.parents_BK is not None:
                decoder.reorder(state, policy.parents_BK)
            if finished:
                decoder.drop(state, finished)


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


def bad_logprobs() -> LogprobsError:
    """Returns the error for NaN in log-probabilities."""
    return LogprobsError(
        "the model's log-probabilities are not numbers: its weights are damaged, or the precision is too low; try "
        "another checkpoint, or float32."
    )
