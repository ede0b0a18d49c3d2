"""The subwords that a model's shortlist allows for each sentence.

Legend: B sentences, n subwords of several sentences, X translations listed per source subword, S source and V target
vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice

import numpy as np

from vtrans.search.history import Ints
from vtrans.storage.model_file import Shortlist
from vtrans.text.vocabulary import EOS_ID, PAD_ID

More = Callable[[Sequence[Sequence[int]]], Ints]
"""Returns the allowed subwords of sources beyond the common ones, as sorted pairs of source and subword [n, 2]."""


class Candidates:
    """The allowed target subwords of each sentence: the frequent ones, the translations of its source subwords, EOS,
    and, with a joint vocabulary, the source subwords themselves, because names and numbers are copied. `tags` are
    excluded, except those in `begin`, with which all translations begin. `common_V` marks the subwords allowed in all
    sentences."""

    def __init__(
        self, shortlist: Shortlist, tgt_size: int, joint: bool, tags: Sequence[int] = (), begin: Sequence[int] = ()
    ) -> None:
        self.lists_SX = shortlist.translations.astype(np.int64)  # per source subword
        if joint:
            self.lists_SX = np.hstack((self.lists_SX, np.arange(len(self.lists_SX))[:, None]))
        never = [PAD_ID, *tags]
        self.common_V = np.zeros(tgt_size, dtype=bool)
        self.common_V[shortlist.frequent] = True
        self.common_V[EOS_ID] = True
        self.common_V[never] = False
        self.common_V[list(begin)] = True
        self.others_V = ~self.common_V
        self.others_V[never] = False

    def more(self, sources: Sequence[Sequence[int]], forced: Sequence[Sequence[int]]) -> Ints:
        """Returns the allowed subwords beyond the common ones, as sorted pairs of sentence and subword [n, 2]. The
        `forced` subwords of a sentence are always allowed."""
        V = len(self.common_V)
        (src_n, numbers_n), (forced_n, forced_numbers_n) = _joined(sources), _joined(forced)
        keys_nX = numbers_n[:, None] * V + self.lists_SX[src_n]
        keys_n = np.concatenate((keys_nX.ravel(), forced_numbers_n * V + forced_n))
        return np.stack(np.divmod(np.unique(keys_n[self.others_V[keys_n % V]]), V), 1)

    def entering(self, forced: Iterable[Sequence[int]]) -> More:
        """Returns a function for one search: like `more`, for the next sentences, which must enter in the order of
        `forced`."""
        left = iter(forced)
        return lambda sources: self.more(sources, list(islice(left, len(sources))))


def _joined(rows: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Returns the subwords of all rows [n] and the row number of each [n]."""
    return np.fromiter(chain.from_iterable(rows), np.int64), np.arange(len(rows)).repeat([*map(len, rows)])
