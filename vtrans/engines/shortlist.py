"""Lexical shortlists: the likely target subwords of a source sentence, learned from the training pairs.

IBM model 1 (Brown et al. 1993) on subword ids gives each source subword its most likely translations. The list of a
sentence joins the translations of its subwords with the most frequent target subwords, and the decoder projects to
listed subwords only (Jean et al. 2015, section 3.3; L'Hostis et al. 2016): candidates.py, listed.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vtrans.data.aligner import model_1
from vtrans.data.store import TokenStore
from vtrans.storage.model_file import Shortlist
from vtrans.text.vocabulary import EOS_ID


def learn_shortlist(
    store: TokenStore,
    src_size: int,
    tgt_size: int,
    translations: int,
    frequent: int,
    progress: Callable[[int, float], None] = lambda cells, share: None,
    *,
    tags: Sequence[int] = (),
) -> Shortlist:
    """Returns the shortlist of a corpus: `translations` target subwords per source subword, and the `frequent` most
    frequent target subwords, which are in every sentence's list and therefore excluded from the translations.

    `progress` and `tags` are those of `model_1`.
    """
    often = np.argsort(-store.counts("tgt", tgt_size), kind="stable")[:frequent].astype(np.int32)
    src, tgt, probabilities = model_1(store, src_size, tgt_size, progress, tags=tags)
    order = np.lexsort((tgt, -probabilities, src))
    order = order[(src[order] < src_size) & ~np.isin(tgt[order], often)]
    src, tgt = src[order], tgt[order]
    rank = np.arange(len(src)) - np.searchsorted(src, src)
    kept = rank < translations
    table = np.full((src_size, translations), EOS_ID, dtype=np.int32)
    table[src[kept], rank[kept]] = tgt[kept]
    return Shortlist(table, often)
