"""Lexical shortlists: the likely target subwords of a source sentence, learned from the training pairs.

IBM model 1 (Brown et al. 1993) on subword ids gives each source subword its most likely translations. The list of a
sentence joins the translations of its subwords with the most frequent target subwords, and the decoder projects to
listed subwords only (Jean et al. 2015, section 3.3; L'Hostis et al. 2016).

Legend: B sentences, K rows per sentence, n rows of a block or subwords of several sentences, v subwords that any of
them lists, X subwords that a source subword lists, D model width, S source and V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.compiled.decoder import CompiledDecoder
from vtrans.data.aligner import model_1
from vtrans.data.store import TokenStore
from vtrans.engines.incremental import IncrementalDecoder, block_of, logprobs
from vtrans.numerics.products import linear
from vtrans.search.history import Ints
from vtrans.search.loop import Block, Decoder
from vtrans.storage.model_file import Shortlist
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
    return Shortlist(table, often)


# Decoding.


class Candidates:
    """Lists the subwords for each sentence: the frequent ones, the translations of its source subwords, EOS, and, with
    a joint vocabulary, the source subwords themselves, because names and numbers are copied. `tags` are never
    listed. `common_V` says which subwords all sentences list."""

    def __init__(self, shortlist: Shortlist, tgt_size: int, joint: bool, tags: Sequence[int] = ()) -> None:
        self.lists_SX = shortlist.translations.astype(np.int64)  # of each source subword
        if joint:
            self.lists_SX = np.hstack((self.lists_SX, np.arange(len(self.lists_SX))[:, None]))
        never = [PAD_ID, *tags]
        self.common_V = np.zeros(tgt_size, dtype=bool)
        self.common_V[shortlist.frequent] = True
        self.common_V[EOS_ID] = True
        self.common_V[never] = False
        self.others_V = ~self.common_V
        self.others_V[never] = False

    def more(self, sources: Sequence[Sequence[int]], forced: Sequence[Sequence[int]]) -> Ints:
        """Returns what sentences list besides the common subwords, as pairs of a sentence and a subword [n, 2], in
        increasing order. A sentence may always use its `forced` subwords."""
        V = len(self.common_V)
        (src_n, numbers_n), (forced_n, forced_numbers_n) = _joined(sources), _joined(forced)
        keys_nX = numbers_n[:, None] * V + self.lists_SX[src_n]
        keys_n = np.concatenate((keys_nX.ravel(), forced_numbers_n * V + forced_n))
        return np.stack(np.divmod(np.unique(keys_n[self.others_V[keys_n % V]]), V), 1)

    def listed(self, sources: Sequence[Sequence[int]], forced: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
        """Returns which subwords each sentence may use [B, V]."""
        listed_BV = self.common_V[None].repeat(len(sources), 0)
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
class ShortlistedState:
    inner: Any  # of the decoder
    width: int
    listed_BV: Tensor
    ids_v: Tensor  # the subwords that any of the sentences lists
    weight_vD: Tensor  # the projection to these
    bias_Bv: Tensor  # the projection's bias where a sentence lists the subword, -inf elsewhere


class Shortlisted:
    """A decoder in torch that predicts only the subwords that `listed` returns for the sentences that enter [B, V].

    It projects to the subwords that any sentence of the batch lists. Those that are not in a sentence's own list are
    -inf for it, so its result does not depend on its batch.
    """

    def __init__(
        self, decoder: IncrementalDecoder, listed: Callable[[Sequence[Sequence[int]]], NDArray[np.bool_]]
    ) -> None:
        self.decoder, self._listed = decoder, listed

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]], width: int) -> ShortlistedState:
        inner, listed_BV = self.decoder.start(sources, width), torch.from_numpy(self._listed(sources))
        return ShortlistedState(inner, width, listed_BV, *self._projection(listed_BV))

    @torch.inference_mode()
    def step(self, state: ShortlistedState, tokens_BK: Ints, live_r: Ints, best: int | None = None) -> Iterator[Block]:
        h_rD, rows = self.decoder.hidden(state.inner, tokens_BK, live_r), self.decoder.rows
        sentence_r = torch.from_numpy(live_r // state.width).to(h_rD.device)
        for h_nD, sentence_n in zip(torch.split(h_rD, rows), torch.split(sentence_r, rows), strict=True):
            logits_nv = linear(h_nD, state.weight_vD) + state.bias_Bv[sentence_n]
            listed_nv = logprobs(logits_nv)
            every_nV = listed_nv.new_full((len(h_nD), state.listed_BV.shape[1]), -torch.inf)
            every_nV[:, state.ids_v] = listed_nv
            yield block_of(every_nV, best)

    def _projection(self, listed_BV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ids_v = listed_BV.any(0).nonzero().squeeze(1).to(self.decoder.device)
        projection = self.decoder.model.projection
        bias_Bv = torch.where(listed_BV.to(ids_v.device)[:, ids_v], 0.0, -torch.inf).to(projection.weight)
        if projection.bias is not None:
            bias_Bv += projection.bias[ids_v]
        return ids_v, projection.weight[ids_v], bias_Bv

    def reorder(self, state: ShortlistedState, parents_BK: Ints) -> None:
        self.decoder.reorder(state.inner, parents_BK)

    def drop(self, state: ShortlistedState, sentences: Sequence[int]) -> None:
        self.decoder.drop(state.inner, sentences)

    @torch.inference_mode()
    def admit(self, state: ShortlistedState, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        self.decoder.admit(state.inner, sources, places)
        listed_BV = torch.from_numpy(self._listed(sources))
        state.listed_BV[list(places)] = listed_BV[: len(places)]
        self._keep(state, torch.cat((state.listed_BV, listed_BV[len(places) :])))

    @torch.inference_mode()
    def select(self, state: ShortlistedState, sentences: Sequence[int]) -> None:
        self.decoder.select(state.inner, sentences)
        self._keep(state, state.listed_BV[list(sentences)])

    def _keep(self, state: ShortlistedState, listed_BV: Tensor) -> None:
        state.listed_BV = listed_BV
        state.ids_v, state.weight_vD, state.bias_Bv = self._projection(listed_BV)
