"""Lexical shortlists: the likely target subwords of a source sentence, learned from the training pairs.

IBM model 1 (Brown et al. 1993) on subword ids gives each source subword its most likely translations. The list of a
sentence joins the translations of its subwords with the most frequent target subwords, and the decoder projects to
listed subwords only (Jean et al. 2015, section 3.3; L'Hostis et al. 2016).

Legend: B sentences, b those of a part, K rows per sentence, n rows of a block or subwords of several sentences, v
listed subwords of a block, X subwords that a source subword lists, D model width, S source and V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vtrans.checkpoint import Shortlist
from vtrans.compiled.decoder import CompiledDecoder
from vtrans.data.aligner import model_1
from vtrans.data.store import TokenStore
from vtrans.engines.incremental import IncrementalDecoder, logprobs
from vtrans.numerics.products import linear
from vtrans.search.history import Ints
from vtrans.search.loop import Decoder, Listed
from vtrans.text.vocabulary import EOS_ID, PAD_ID


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
    return Shortlist(torch.from_numpy(table), torch.from_numpy(often))


# Decoding.


class Candidates:
    """Lists the subwords for each sentence: the frequent ones, the translations of its source subwords, EOS, and, with
    a joint vocabulary, the source subwords themselves, because names and numbers are copied. `tags` are never
    listed. `common_V` says which subwords all sentences list."""

    def __init__(self, shortlist: Shortlist, tgt_size: int, joint: bool, tags: Sequence[int] = ()) -> None:
        self.lists_SX = shortlist.translations.numpy().astype(np.int64)  # of each source subword
        if joint:
            self.lists_SX = np.hstack((self.lists_SX, np.arange(len(self.lists_SX))[:, None]))
        never = [PAD_ID, *tags]
        self.common_V = np.zeros(tgt_size, dtype=bool)
        self.common_V[shortlist.frequent.numpy()] = True
        self.common_V[EOS_ID] = True
        self.common_V[never] = False
        self.others_V = ~self.common_V
        self.others_V[never] = False

    def more(self, sources: Sequence[Sequence[int]], forced: Sequence[Sequence[int]]) -> Tensor:
        """Returns what sentences list besides the common subwords, as pairs of a sentence and a subword [n, 2], in
        increasing order. A sentence may always use its `forced` subwords."""
        V = len(self.common_V)
        (src_n, numbers_n), (forced_n, forced_numbers_n) = _joined(sources), _joined(forced)
        keys_nX = numbers_n[:, None] * V + self.lists_SX[src_n]
        keys_n = np.concatenate((keys_nX.ravel(), forced_numbers_n * V + forced_n))
        return torch.from_numpy(np.stack(np.divmod(np.unique(keys_n[self.others_V[keys_n % V]]), V), 1))

    def listed(self, sources: Sequence[Sequence[int]], forced: Sequence[Sequence[int]]) -> Tensor:
        """Returns which subwords each sentence may use [B, V]."""
        listed_BV = torch.from_numpy(self.common_V).repeat(len(sources), 1)
        listed_BV[tuple(self.more(sources, forced).T)] = True
        return listed_BV


def _joined(rows: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Returns the subwords of all rows [n], and the number of the row of each."""
    return np.fromiter(chain.from_iterable(rows), np.int64), np.arange(len(rows)).repeat([*map(len, rows)])


def shortlisted(
    decoder: IncrementalDecoder | CompiledDecoder, candidates: Candidates, forced: Iterable[Sequence[int]]
) -> Decoder[Any]:
    """Returns a decoder that predicts only the subwords of a sentence's list. Probabilities sum to 1 over the list.

    `forced` holds additional subwords to list for each sentence, in the order in which the sentences enter.
    """
    rest = iter(forced)

    def entering(sources: Sequence[Sequence[int]]) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]:
        return sources, list(islice(rest, len(sources)))

    if isinstance(decoder, IncrementalDecoder):
        return Shortlisted(decoder, lambda sources: candidates.listed(*entering(sources)))
    return decoder.limited(lambda sources: candidates.more(*entering(sources)))


@dataclass
class Part:
    """Sentences whose rows are projected together, to every subword that one of them lists."""

    ids: Tensor  # [v], increasing
    weight_vD: Tensor
    bias_bv: Tensor  # the projection's bias where a sentence lists the subword, -inf elsewhere


@dataclass
class ShortlistedState:
    inner: Any  # of the decoder
    width: int
    listed_BV: Tensor
    parts: dict[int, Part]  # by number; a missing part is made in the next step


class Shortlisted:
    """A decoder in torch that predicts only the subwords that `listed` returns for the sentences that enter [B, V].

    Rows that are projected together have the same columns. Columns that are not in a sentence's own list are -inf for
    it, so its result does not depend on its batch.
    """

    def __init__(self, decoder: IncrementalDecoder, listed: Callable[[Sequence[Sequence[int]]], Tensor]) -> None:
        self.decoder, self._listed = decoder, listed

    def start(self, sources: Sequence[Sequence[int]], width: int) -> ShortlistedState:
        listed_BV = self._listed(sources)
        return ShortlistedState(self.decoder.start(sources, width), width, listed_BV, {})

    def step(self, state: ShortlistedState, tokens_BK: Tensor, live_r: Tensor) -> Iterator[Listed]:
        size = self._sentences_per_part(state)
        for i, listed_bV in enumerate(torch.split(state.listed_BV, size)):
            if i not in state.parts:
                state.parts[i] = self._part(listed_bV, state.width)
        sentence_r = live_r // state.width
        counts = torch.bincount(sentence_r // size, minlength=len(state.parts)).tolist()
        at_r = (sentence_r % size).to(self.decoder.device)
        h_rD = self.decoder.hidden(state.inner, tokens_BK, live_r)
        blocks = zip(torch.split(h_rD, counts), torch.split(at_r, counts), strict=True)
        # A part may have no live rows.
        return (self._project(h_nD, at_n, state.parts[i]) for i, (h_nD, at_n) in enumerate(blocks) if len(at_n))

    def _sentences_per_part(self, state: ShortlistedState) -> int:
        return max(1, self.decoder.rows // state.width)

    def _part(self, listed_bV: Tensor, width: int) -> Part:
        listed_V = listed_bV.any(0)
        listed_V[: width + 2] = True  # the search needs at least that many columns
        ids = listed_V.nonzero().squeeze(1)
        bias_bv = torch.zeros(len(listed_bV), len(ids)).masked_fill_(~listed_bV[:, ids], -torch.inf)
        ids = ids.to(self.decoder.device)
        projection = self.decoder.model.projection
        weight_vD = projection.weight[ids]
        bias_bv = bias_bv.to(weight_vD)
        return Part(ids, weight_vD, bias_bv if projection.bias is None else bias_bv + projection.bias[ids])

    def _project(self, h_nD: Tensor, sentence_n: Tensor, part: Part) -> Listed:
        """Returns the log-probabilities of rows; `sentence_n` holds their sentences within the part."""
        logits_nv = linear(h_nD, part.weight_vD)
        logits_nv += part.bias_bv[sentence_n]
        return Listed(logprobs(logits_nv), part.ids)

    def reorder(self, state: ShortlistedState, parents_BK: Tensor) -> None:
        self.decoder.reorder(state.inner, parents_BK)

    def drop(self, state: ShortlistedState, sentences: Sequence[int]) -> None:
        self.decoder.drop(state.inner, sentences)

    def admit(self, state: ShortlistedState, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        self.decoder.admit(state.inner, sources, places)
        listed_BV, B = self._listed(sources), len(state.listed_BV)
        state.listed_BV[list(places)] = listed_BV[: len(places)]
        state.listed_BV = torch.cat((state.listed_BV, listed_BV[len(places) :]))
        size = self._sentences_per_part(state)
        for b in (*places, *range(B, len(state.listed_BV))):
            state.parts.pop(b // size, None)

    def select(self, state: ShortlistedState, sentences: Sequence[int]) -> None:
        self.decoder.select(state.inner, sentences)
        state.listed_BV = state.listed_BV[list(sentences)]
        state.parts.clear()
