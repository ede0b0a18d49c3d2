"""Encodes batches of parallel text as subword ids, in this process or in workers, with the same results in order.

Does not import torch, so that workers start quickly and stay small.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from vtrans.data.links import between_subwords, divided, read_pharaoh
from vtrans.data.preparation.counting import Counting
from vtrans.data.preparation.coverage import Coverage, Covering
from vtrans.system.workers import map_in_workers
from vtrans.text.normalization import NFC
from vtrans.text.vocabulary import Vocabulary, words_between_spaces
from vtrans.text.words import SPACED, words_of_line

TextPair = tuple[str, ...]
"""A source line, a target line and, if the corpus has word alignments, the line of their links."""

RATIO_FREE_TOKENS = 12
"""`max_ratio` applies only if the longer side has more tokens than this: short pairs vary freely."""

PAIRS_PER_WORKER = 50_000
"""Minimum number of pairs per worker; with fewer, starting a worker takes longer than it saves."""

ADVICE = "run the command again, with a lower `threads` if that does not help"
"""For the user, if a worker dies."""

_MOST_WORDS, _LONGEST_WORD = 1 << 17, 64  # limits of the words whose ids are kept


@dataclass(frozen=True)
class Task:
    """The settings for encoding and filtering pairs."""

    src_proto: bytes
    tgt_proto: bytes
    pieces: int
    """Size of the larger vocabulary."""
    max_tokens: int | None = None
    max_ratio: float | None = None
    counted: int = 0
    """Number of pairs in the text if names, numbers and marks are counted, else 0."""

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
    dropped: Counter[str]
    src: Side
    tgt: Side
    links: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None
    """Links between the subwords of the kept pairs: alternating source and target positions, and the count of these
    numbers per pair."""
    counting: Counting | None = None


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
        self._dtype: np.dtype[Any] = np.dtype(np.int32 if task.wide else np.uint16)
        src = tgt = _Lines(task.src_proto, self._dtype)
        if task.tgt_proto != task.src_proto:
            tgt = _Lines(task.tgt_proto, self._dtype)
        self._sides = src, tgt

    def __call__(self, batch: Sequence[TextPair]) -> Encoded:
        task, size = self.task, self._dtype.itemsize
        src, tgt = (lines.encoded([pair[side] for pair in batch]) for side, lines in enumerate(self._sides))
        reasons = [
            reason_to_drop(len(src_ids) // size, len(tgt_ids) // size, task.max_tokens, task.max_ratio)
            for src_ids, tgt_ids in zip(src, tgt, strict=True)
        ]
        kept = [i for i, reason in enumerate(reasons) if reason is None]
        pairs = [batch[i] for i in kept]
        sides = [self._side([rows[i] for i in kept], pairs, side) for side, rows in enumerate((src, tgt))]
        counting = Counting(task.counted) if task.counted else None
        if counting:
            counting.add(pairs)
        dropped = Counter(filter(None, reasons))
        return Encoded(len(batch), kept, dropped, sides[0], sides[1], self._links(pairs, sides), counting)

    def _side(self, rows: Sequence[bytes], pairs: Sequence[TextPair], side: int) -> Side:
        lines = [pair[side] for pair in pairs]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows)) // self._dtype.itemsize
        coverage = self._sides[side].covering(lines)
        return Side(np.frombuffer(b"".join(rows), self._dtype), lengths, sum(map(len, lines)), coverage)

    def _links(
        self, pairs: Sequence[TextPair], sides: Sequence[Side]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
        """Returns the subword links of the pairs, or None if the corpus has no word alignments."""
        if not pairs or len(pairs[0]) == 2:
            return None
        words: tuple[list[int], list[int]] = [], []  # by side, the word number of each subword, counted across pairs
        links, before = [], [0, 0]
        for pair, *encoded in zip(pairs, *(divided(side.ids, side.lengths) for side in sides), strict=True):
            links.append(read_pharaoh(pair[2]) + before)
            for side, ids in enumerate(encoded):
                numbers = words_of_line(pair[side], ids.tolist(), self._sides[side].vocab, SPACED)
                words[side].extend(before[side] + i for i in numbers)
                before[side] += len(pair[side].split())
        src, tgt = ((np.array(words[i], np.int64), side.lengths) for i, side in enumerate(sides))
        return between_subwords(np.concatenate(links), src, tgt)


class _Lines(dict[str, bytes]):
    """Encodes lines as the bytes of their ids. Keeps the ids of words; SentencePiece takes four times as long for whole
    lines."""

    def __init__(self, proto: bytes, dtype: np.dtype[Any]) -> None:
        self.vocab = Vocabulary(proto)
        self.covering = Covering(self.vocab)
        self._dtype, self._by_word = dtype, self.vocab.kind == "bpe" and self.vocab.normalization == NFC

    def encoded(self, lines: Sequence[str]) -> list[bytes]:
        if self._by_word:
            return [b"".join(map(self.__getitem__, words_between_spaces(line))) for line in lines]
        return [array(self._dtype.char, ids).tobytes() for ids in self.vocab.encode_batch(lines)]

    def __missing__(self, word: str) -> bytes:
        ids = array(self._dtype.char, self.vocab.encode(word)).tobytes()
        if len(word) <= _LONGEST_WORD:  # without spaces, a word is a whole line
            if len(self) == _MOST_WORDS:
                self.clear()
            self[word] = ids
        return ids


def encoders(total: int, threads: int) -> int:
    """Returns the number of processors to encode a text of `total` pairs."""
    return max(1, min(threads, total // PAIRS_PER_WORKER))


def encode(
    batches: Iterable[Sequence[TextPair]], task: Task, total: int, threads: int
) -> Generator[Encoded, None, None]:
    """Encodes the batches of a text of `total` pairs, in order, on up to `threads` processors.

    Worker processes encode a long text. Closing the generator ends them. Raises VtransError if a worker dies.
    """
    return map_in_workers(partial(Encoder, task), batches, encoders(total, threads), "encoding text", ADVICE)
