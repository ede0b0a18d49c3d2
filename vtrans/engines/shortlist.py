"""Lexical shortlists: the likely target subwords of a source sentence, learned from the training pairs.

IBM model 1 (Brown et al. 1993) on subword ids gives each source subword its most likely translations. The list of a
sentence joins the translations of its subwords with the most frequent target subwords, and the decoder projects to
listed subwords only (Jean et al. 2015, section 3.3; L'Hostis et al. 2016).

Legend: B sentences, b those of a part, K rows per sentence, n rows of a block, v listed subwords of a block, D model
width, V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vtrans.checkpoint import Shortlist
from vtrans.compiled.decoder import CompiledDecoder
from vtrans.data.aligner import model_1
from vtrans.data.store import TokenStore
from vtrans.data.vocabulary import EOS_ID, PAD_ID
from vtrans.engines.incremental import IncrementalDecoder, logprobs
from vtrans.runtime.products import linear
from vtrans.search.loop import Listed


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
    listed."""

    def __init__(self, shortlist: Shortlist, tgt_size: int, joint: bool, tags: Sequence[int] = ()) -> None:
        self.translations, self.joint = shortlist.translations.long(), joint
        self.never = [PAD_ID, *tags]
        self.always_V = torch.zeros(tgt_size, dtype=torch.bool)
        self.always_V[shortlist.frequent.long()] = True
        self.always_V[EOS_ID] = True

    def listed(self, sources: Sequence[Sequence[int]], forced: Sequence[Sequence[int]]) -> Tensor:
        """Returns which subwords each sentence may use [B, V]; it may always use its `forced` subwords."""
        listed_BV = self.always_V.repeat(len(sources), 1)
        for listed_V, source, tokens in zip(listed_BV, sources, forced, strict=True):
            listed_V[self.translations[list(source)].flatten()] = True
            listed_V[list(tokens)] = True
            if self.joint:
                listed_V[list(source)] = True
        listed_BV[:, self.never] = False
        return listed_BV


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
    """A decoder that predicts only the subwords of a sentence's list. Probabilities sum to 1 over the list.

    Rows that are projected together have the same columns. Columns that are not in a sentence's own list are -inf for
    it, so its result does not depend on its batch. `forced` holds additional subwords to list for each sentence, in
    the order in which the sentences enter.
    """

    def __init__(
        self,
        decoder: IncrementalDecoder | CompiledDecoder,
        candidates: Candidates,
        forced: Iterable[Sequence[int]],
    ) -> None:
        self.decoder, self.candidates = decoder, candidates
        self._forced = iter(forced)

    def _listed(self, sources: Sequence[Sequence[int]]) -> Tensor:
        return self.candidates.listed(sources, [next(self._forced) for _ in sources])

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
