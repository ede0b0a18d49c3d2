"""The rows of a batch: the tokens of each row so far, their log-probabilities, and the sum.

All histories end in the newest column of one table, whatever the age of their sentence. The search adds a column per
step; rules and results read the table.

Legend: B places of sentences in the batch, K rows per sentence, N = B * K rows, T columns, n rows, x tokens of a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ROOM = 32  # columns of a new table


class RowHistory:
    """The hypotheses of all rows, without the BOS that every row is fed first. All rows of a new sentence are equal, so
    only every `step`-th is live."""

    def __init__(self, width: int, bos_id: int, step: int = 1) -> None:
        self.width, self.bos_id, self._step = width, bos_id, step
        self.sentences: list[int | None] = []
        """The sentence in each place, as an index into the sources; None: an empty place."""
        self.newest_BK: Ints = np.empty((0, width), dtype=np.int64)
        """The token that each row is fed next."""
        self.sums_BK: Floats = np.empty((0, width))
        """The summed log-probability of each row; -inf: the row is not live."""
        self._begins: list[int] = []  # the column in which each place's sentence begins
        self._columns = 0
        # Tokens (-1 before the sentence begins) and log-probabilities. Token ids are exact in floating point.
        self._table_N2T: Floats = np.empty((0, 2, ROOM))

    def enter(self, sentences: Sequence[int]) -> list[int]:
        """Starts sentences in the empty places, and the others after the last place. Returns their places."""
        places = [b for b, i in enumerate(self.sentences) if i is None]
        B, added = len(self.sentences), len(sentences) - len(places)
        places += range(B, B + added)
        self.sentences += [None] * added
        self._begins += [0] * added
        self.newest_BK = np.concatenate((self.newest_BK, np.empty((added, self.width), dtype=np.int64)))
        self.newest_BK[places] = self.bos_id
        self.sums_BK = np.concatenate((self.sums_BK, np.empty((added, self.width))))
        self.sums_BK[places] = -math.inf
        self.sums_BK[places, :: self._step] = 0.0
        new_N2T = np.empty((added * self.width, *self._table_N2T.shape[1:]))
        self._table_N2T = np.concatenate((self._table_N2T, new_N2T))
        for b, i in zip(places, sentences, strict=True):
            self.sentences[b], self._begins[b] = i, self._columns
            self._table_N2T[b * self.width : (b + 1) * self.width, 0, : self._columns] = -1
        return places

    def select(self, places: Sequence[int]) -> None:
        """Keeps only the sentences in these places."""
        self.sentences[:] = [self.sentences[b] for b in places]
        self._begins = [self._begins[b] for b in places]
        self.newest_BK, self.sums_BK = self.newest_BK[list(places)], self.sums_BK[list(places)]
        _, _, T = self._table_N2T.shape
        self._table_N2T = self._table_N2T.reshape(-1, self.width, 2, T)[list(places)].reshape(-1, 2, T)

    def extend(self, parents_BK: Ints | None, tokens_BK: Ints, logprobs_BK: NDArray[np.floating]) -> None:
        """Replaces row k of each sentence by row `parents_BK[:, k]` plus one token. Without parents, each row continues
        itself."""
        if parents_BK is not None:
            rows_BK = parents_BK + np.arange(0, parents_BK.size, self.width)[:, None]
            self._table_N2T = self._table_N2T.take(rows_BK.ravel(), axis=0)
        if self._columns == self._table_N2T.shape[2]:
            self._make_room()
        self._table_N2T[:, 0, self._columns] = tokens_BK.ravel()
        self._table_N2T[:, 1, self._columns] = logprobs_BK.ravel()
        self._columns += 1
        self.newest_BK = tokens_BK

    def _make_room(self) -> None:
        """Drops the columns before the oldest sentence, or doubles the number of columns."""
        oldest = min(begin for begin, i in zip(self._begins, self.sentences, strict=True) if i is not None)
        if 2 * oldest > self._columns:
            self._table_N2T[:, :, : self._columns - oldest] = self._table_N2T[:, :, oldest:].copy()
            self._columns -= oldest
            self._begins = [max(0, begin - oldest) for begin in self._begins]
        else:
            self._table_N2T = np.concatenate((self._table_N2T, np.empty_like(self._table_N2T)), 2)

    def live(self) -> Ints:
        """Returns the live rows [r], increasing indices into N."""
        return (self.sums_BK > -math.inf).ravel().nonzero()[0]

    def sentence(self, b: int) -> int:
        """Returns the sentence in a place that is not empty."""
        i = self.sentences[b]
        assert i is not None, b
        return i

    def age(self, b: int) -> int:
        """Returns the number of tokens so far of the sentence in a place."""
        return self._columns - self._begins[b]

    def path(self, b: int, k: int) -> Floats:
        """Returns a copy of the tokens and log-probabilities of row k of a sentence [2, age]."""
        return self._table_N2T[b * self.width + k, :, self._begins[b] : self._columns].copy()

    def tokens(self, rows: Sequence[int]) -> Ints:
        """Returns the tokens of these rows (indices into N) [n, x], where x is the length of the longest; shorter rows
        are left-padded with -1."""
        first = min((self._begins[row // self.width] for row in rows), default=self._columns)
        return self._table_N2T[list(rows), 0, first : self._columns].astype(np.int64)
