"""Encodes batches of parallel text as subword ids, in this process or in workers, with the same results in order.

Does not import torch, so that workers start quickly and stay small.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from vtrans.data.links import between_subwords, read_pharaoh
from vtrans.data.preparation.coverage import Coverage, Covering
from vtrans.system.workers import map_in_workers
from vtrans.text.vocabulary import Vocabulary
from vtrans.text.words import SPACED, words_of_line

TextPair = tuple[str, ...]
"""A source line, a target line and, if the corpus has word alignments, the line of their links."""

RATIO_FREE_TOKENS = 12
"""`max_ratio` applies only if the longer side has more tokens than this: short pairs vary freely."""

PAIRS_PER_WORKER = 50_000
"""Minimum number of pairs per worker; with fewer, starting a worker takes longer than it saves."""


@dataclass(frozen=True)
class Task:
    """The settings for encoding and filtering pairs."""

    src_proto: bytes
    tgt_proto: bytes
    pieces: int
    """Size of the larger vocabulary."""
    max_tokens: int | None = None
    max_ratio: float | None = None

    @property
    def wide(self) -> bool:
        """Whether ids need more than two bytes."""
        return self.pieces > 1 << 16


@dataclass(frozen=True)
class Side:
    """One side of the kept pairs of a batch."""

    ids: np.ndarray[Any, Any]
    """The concatenated ids of all sentences."""
    lengths: np.ndarray[Any, Any]
    """The length of each sentence, int64."""
    characters: int
    coverage: Coverage = field(default_factory=Coverage)


@dataclass(frozen=True)
class Encoded:
    """An encoded batch of pairs."""

    read: int
    kept: list[int]
    """Positions of the kept pairs in the batch."""
    dropped: dict[str, int]
    src: Side
    tgt: Side
    links: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None
    """Links between the subwords of the kept pairs: alternating source and target positions, and the count of these
    numbers per pair."""


def hash_of(*lines: str, seed: int = 0) -> int:
    """Returns an 8-byte hash of a sentence or pair, ignoring surrounding whitespace."""
    digest = hashlib.blake2b(digest_size=8, key=seed.to_bytes(8, "little"))
    digest.update("\n".join(line.strip() for line in lines).encode())
    return int.from_bytes(digest.digest(), "little")


def reason_to_drop(src: int, tgt: int, max_tokens: int | None, max_ratio: float | None) -> str | None:
    """Returns why a training pair with this many tokens per side is dropped; None if it is kept."""
    shorter, longer = (src, tgt) if src < tgt else (tgt, src)
    if not shorter:
        return "empty"
    if max_tokens is not None and longer > max_tokens:
        return "too_long"
    if max_ratio is not None and longer > max(RATIO_FREE_TOKENS, max_ratio * shorter):
        return "odd_ratio"
    return None


class Encoder:
    """Encodes and filters batches."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.src_vocab = self.tgt_vocab = Vocabulary(task.src_proto)
        if task.tgt_proto != task.src_proto:
            self.tgt_vocab = Vocabulary(task.tgt_proto)
        self._covering = Covering(self.src_vocab), Covering(self.tgt_vocab)

    def __call__(self, batch: Sequence[TextPair], threads: int = 1) -> Encoded:
        task = self.task
        src_ids = self.src_vocab.encode_batch([pair[0] for pair in batch], threads)
        tgt_ids = self.tgt_vocab.encode_batch([pair[1] for pair in batch], threads)
        kept: list[int] = []
        dropped = {"empty": 0, "too_long": 0, "odd_ratio": 0}
        for i, (src, tgt) in enumerate(zip(src_ids, tgt_ids, strict=True)):
            reason = reason_to_drop(len(src), len(tgt), task.max_tokens, task.max_ratio)
            if reason:
                dropped[reason] += 1
            else:
                kept.append(i)
        sides = [self._side(ids, batch, kept, side) for side, ids in enumerate((src_ids, tgt_ids))]
        links = self._links([batch[i] for i in kept], [(src_ids[i], tgt_ids[i]) for i in kept])
        return Encoded(len(batch), kept, dropped, sides[0], sides[1], links)

    def _side(self, ids: Sequence[list[int]], batch: Sequence[TextPair], kept: Sequence[int], side: int) -> Side:
        rows, lines = [ids[i] for i in kept], [batch[i][side] for i in kept]
        flat = np.fromiter(itertools.chain.from_iterable(rows), np.int32 if self.task.wide else np.uint16)
        lengths = np.array([len(row) for row in rows], np.int64)
        return Side(flat, lengths, sum(map(len, lines)), self._covering[side](lines))

    def _links(
        self, pairs: Sequence[TextPair], encoded: Sequence[tuple[list[int], list[int]]]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
        """Returns the subword links of the pairs, or None if the corpus has no word alignments."""
        if not pairs or len(pairs[0]) == 2:
            return None
        words: tuple[list[int], list[int]] = [], []  # by side, the word number of each subword, counted across pairs
        links, before = [], [0, 0]
        for pair, sides in zip(pairs, encoded, strict=True):
            links.append(read_pharaoh(pair[2]) + before)
            for side, vocab in enumerate((self.src_vocab, self.tgt_vocab)):
                words[side].extend(before[side] + i for i in words_of_line(pair[side], sides[side], vocab, SPACED))
                before[side] += len(pair[side].split())
        lengths = np.array([[len(ids) for ids in sides] for sides in encoded], np.int64)
        src, tgt = ((np.array(words[side], np.int64), lengths[:, side]) for side in (0, 1))
        return between_subwords(np.concatenate(links), src, tgt)


def encoders(total: int, threads: int) -> int:
    """Returns the number of processors to encode a text of `total` pairs."""
    return max(1, min(threads, total // PAIRS_PER_WORKER))


def encode(
    batches: Iterable[Sequence[TextPair]], task: Task, total: int, threads: int
) -> Generator[Encoded, None, None]:
    """Encodes the batches of a text of `total` pairs, in order, on up to `threads` processors.

    Worker processes encode a long text, because with SentencePiece's threads, one processor would do all filtering,
    counting and searching. Closing the generator ends the workers. Raises VtransError if a worker dies.
    """
    workers = encoders(total, threads)
    if workers == 1:
        encoder = Encoder(task)
        for batch in batches:
            yield encoder(batch, threads)
        return
    advice = "run the command again, with a lower `threads` if that does not help"
    yield from map_in_workers(partial(Encoder, task), batches, workers, "encoding text", advice)
