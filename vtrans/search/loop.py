"""The common parts of beam search and sampling: the decoder protocol, hypotheses, and the loop that batches sentences.

Each step of the loop advances all sentences of the batch by one token. A sentence leaves when its search is finished,
at the latest at its own length limit, and a waiting sentence takes its place (continuous batching). A sentence's result
does not depend on the others in its batch. A policy chooses the tokens of a step: beam.py ranks them, sampling.py draws
them.

Legend: B sentences in the batch, K rows per sentence (the width of the beam, or the samples), r live rows among the
B * K, n rows of a block, V vocabulary, v listed tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from vtrans.errors import AbandonedError, LogprobsError

State = TypeVar("State")

# An admission costs an encoder call, so waiting sentences enter together: when they fill an eighth of the batch, or are
# the last ones. When no sentence is waiting, the batch is compacted once a quarter of it is empty.
ADMIT_SHARE, EMPTY_SHARE = 8, 4


class Listed(NamedTuple):
    """Log-probabilities [n, v] of the tokens `ids` [v], in increasing order; all other tokens are impossible."""

    logprobs: Tensor
    ids: Tensor


Block = Tensor | Listed
"""Log-probabilities of some rows: a tensor covers the whole vocabulary, [n, V]."""


def logprobs_of(block: Block) -> Tensor:
    """Returns the log-probabilities [n, v] of a block."""
    return block.logprobs if isinstance(block, Listed) else block


def columns_of(block: Block, pairs: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the rows [x] and columns [x] of (row, token) pairs in a block, and whether it has these tokens [x]."""
    rows, tokens = (torch.tensor(part, device=logprobs_of(block).device) for part in zip(*pairs, strict=True))
    if not isinstance(block, Listed):
        return rows, tokens, torch.ones_like(tokens, dtype=torch.bool)
    columns = torch.searchsorted(block.ids, tokens).clamp(max=len(block.ids) - 1)
    return rows, columns, block.ids[columns] == tokens


class Decoder(Protocol[State]):
    """A model, or several, as the search sees it. A state holds one batch and advances by one token per step."""

    def start(self, sources: Sequence[Sequence[int]], width: int) -> State:
        """Returns a state with `width` rows for each source. Sources end in EOS. A sentence that starts alone stays
        alone: its state is only stepped and reordered."""

    def step(self, state: State, tokens_BK: Tensor, live_r: Tensor) -> Iterable[Block]:
        """Feeds each row its last token [B, K], and returns log-probabilities of the next token, n rows at a time.

        `live_r` [r] holds the live rows, increasing indices into the flattened B * K rows. The blocks cover these
        rows in order; the search reads each block once, before the next call. A listed block has at least K + 2
        tokens, or the whole vocabulary. Both arguments are int64 on the CPU. The first token of a sentence is BOS;
        EOS is never fed. Rows that are not live are fed any other token.
        """

    def reorder(self, state: State, parents_BK: Tensor) -> None:
        """Row k of each sentence continues the old row `parents_BK[:, k]` [B, K], on the CPU."""

    def drop(self, state: State, sentences: Sequence[int]) -> None:
        """Ends these sentences (indices into B). They keep their places; their rows are no longer live."""

    def admit(self, state: State, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        """Puts new sentences into the `places` of dropped ones, and the remaining new sentences after the last place.
        The sentences of one state therefore differ in age."""

    def select(self, state: State, sentences: Sequence[int]) -> None:
        """Keeps only these sentences (increasing indices into B)."""


def abandonable(decoder: Decoder[State], abandoned: Callable[[], bool] | None) -> Decoder[State]:
    """Returns the decoder as one whose search ends with AbandonedError at the first step before which `abandoned()` is
    true."""
    return _Abandonable(decoder, abandoned) if abandoned else decoder


class _Abandonable(Generic[State]):
    def __init__(self, decoder: Decoder[State], abandoned: Callable[[], bool]) -> None:
        self.start, self.admit, self.select = decoder.start, decoder.admit, decoder.select
        self.reorder, self.drop = decoder.reorder, decoder.drop
        self._step, self._abandoned = decoder.step, abandoned

    def step(self, state: State, tokens_BK: Tensor, live_r: Tensor) -> Iterable[Block]:
        if self._abandoned():
            raise AbandonedError("the search was abandoned.")
        return self._step(state, tokens_BK, live_r)


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
    """Chooses the tokens of each step, by beam search or sampling, and holds the rows of the batch."""

    width: int  # K
    tokens_BK: Tensor  # the token that each row is fed next

    def live(self) -> Tensor:
        """Returns the live rows [r], increasing indices into the flattened B * K rows."""

    def enter(self, sentences: Sequence[int], places: Sequence[int]) -> None:
        """Starts new sentences (indices into the sources) in the places where `Decoder.admit` puts them."""

    def advance(self, blocks: Iterable[Block]) -> list[int]:
        """Takes a step with the log-probabilities of the live rows; returns the sentences (indices into B) whose
        search is finished."""

    def parents(self) -> Tensor | None:
        """Returns the old row that each row continues [B, K]; None if each row continues itself."""

    def leave(self, b: int) -> list[Hypothesis]:
        """Returns the hypotheses of sentence `b`, whose search is finished, and empties its place."""

    def select(self, sentences: Sequence[int]) -> None:
        """Keeps only these sentences."""


def run(
    decoder: Decoder[State], sources: Sequence[Sequence[int]], limits: Sequence[int], batch_tokens: int, policy: Policy
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yields (index into `sources`, hypotheses) as sentences finish, in no fixed order.

    `limits` are the largest numbers of tokens per sentence, EOS included; `batch_tokens` bounds the padded source
    tokens of a batch. Sources enter in the order given: sort them longest first.
    """
    assert len(sources) == len(limits), (len(sources), len(limits))
    assert min(limits, default=1) >= 1, "a limit leaves no room for EOS"
    assert all(sources), "a source is empty; it must end in EOS"
    lengths = [len(source) for source in sources]
    batch: list[int | None] = []  # indices into sources; None: an empty place
    waiting = 0  # the first source that has not entered yet
    state: State | None = None
    while True:
        live = [b for b, i in enumerate(batch) if i is not None]
        fresh = _fresh(lengths, [i for i in batch if i is not None], waiting, batch_tokens)
        empty = len(batch) - len(live)
        if not live:
            if batch and fresh:
                policy.select([])
            state, batch = None, []
        elif empty > len(fresh) and (fresh or EMPTY_SHARE * empty >= len(batch)):
            # Each empty place costs time in every step. An admission leaves none; else a quarter may be empty.
            decoder.select(state, live)  # type: ignore[arg-type]  # a live batch has a state
            policy.select(live)
            batch = [batch[b] for b in live]
        if fresh:
            entering = [sources[i] for i in fresh]
            places = [b for b, i in enumerate(batch) if i is None]
            if state is None:
                state = decoder.start(entering, policy.width)
            else:
                decoder.admit(state, entering, places)
            policy.enter(fresh, places)
            batch += [None] * (len(fresh) - len(places))
            for b, i in zip([b for b, i in enumerate(batch) if i is None], fresh, strict=True):
                batch[b] = i
            waiting = fresh.stop
        if state is None:
            return
        finished = policy.advance(decoder.step(state, policy.tokens_BK, policy.live()))
        for b in finished:
            number = batch[b]
            assert number is not None
            batch[b] = None
            yield number, policy.leave(b)
        if any(i is not None for i in batch):
            parents_BK = policy.parents()
            if parents_BK is not None:
                decoder.reorder(state, parents_BK)
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


def wide_type(logprobs: Tensor) -> torch.dtype:
    """Returns the type in which log-probabilities are summed: float64, or float32 on Apple's MPS, which has no
    float64."""
    return torch.float32 if logprobs.device.type == "mps" else torch.float64


def bad_logprobs() -> LogprobsError:
    """Returns the error for NaN in log-probabilities."""
    return LogprobsError(
        "the model's log-probabilities are not numbers: its weights are damaged, or the precision is too low; try "
        "another checkpoint, or float32."
    )
