"""Incremental decoding with torch, restricted to the subwords of each sentence's shortlist. Probabilities sum to 1 over
the shortlist.

Legend: B sentences, K rows per sentence, n rows of a block, v subwords that any sentence allows, D model width, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vtrans.engines.candidates import Listing
from vtrans.engines.incremental import IncrementalDecoder, block_of, logprobs
from vtrans.model.products import linear
from vtrans.search.decoder import LogprobBlock
from vtrans.search.history import Ints
from vtrans.system.devices import to_device


@dataclass
class ShortlistedState:
    inner: Any  # the wrapped decoder's state
    width: int
    listed_BV: Tensor
    ids_v: Tensor  # the subwords that any sentence allows
    weight_vD: Tensor  # the projection to `ids_v`
    bias_Bv: Tensor  # the projection's bias where a sentence allows the subword, -inf elsewhere


class Shortlisted:
    """A torch decoder that predicts only the subwords that `listing` allows for a sentence.

    The projection covers the subwords that any sentence of the batch allows. Subwords that a sentence does not allow
    get -inf for it, so results do not depend on the batch.
    """

    def __init__(self, decoder: IncrementalDecoder, listing: Listing) -> None:
        self.decoder, self._listing = decoder, listing

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]], width: int) -> ShortlistedState:
        inner, listed_BV = self.decoder.start(sources, width), torch.from_numpy(self._listing.listed(sources))
        return ShortlistedState(inner, width, listed_BV, *self._projection(listed_BV))

    @torch.inference_mode()
    def step(
        self, state: ShortlistedState, tokens_BK: Ints, live_r: Ints, best: int | None = None
    ) -> Iterator[LogprobBlock]:
        h_rD, rows = self.decoder.hidden(state.inner, tokens_BK, live_r), self.decoder.rows
        sentence_r = to_device(torch.from_numpy(live_r // state.width), h_rD.device)
        for h_nD, sentence_n in zip(torch.split(h_rD, rows), torch.split(sentence_r, rows), strict=True):
            logits_nv = linear(h_nD, state.weight_vD) + state.bias_Bv[sentence_n]
            listed_nv = logprobs(logits_nv)
            every_nV = listed_nv.new_full((len(h_nD), state.listed_BV.shape[1]), -torch.inf)
            every_nV[:, state.ids_v] = listed_nv
            yield block_of(every_nV, best)

    def _projection(self, listed_BV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        projection, device = self.decoder.model.projection, self.decoder.device
        host_v = listed_BV.any(0).nonzero().squeeze(1)
        ids_v, listed_Bv = to_device(host_v, device), to_device(listed_BV[:, host_v], device)
        bias_Bv = torch.where(listed_Bv, 0.0, -torch.inf).to(projection.weight)
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
        listed_BV = torch.from_numpy(self._listing.listed(sources))
        state.listed_BV[list(places)] = listed_BV[: len(places)]
        self._keep(state, torch.cat((state.listed_BV, listed_BV[len(places) :])))

    @torch.inference_mode()
    def select(self, state: ShortlistedState, sentences: Sequence[int]) -> None:
        self.decoder.select(state.inner, sentences)
        self._keep(state, state.listed_BV[list(sentences)])

    def _keep(self, state: ShortlistedState, listed_BV: Tensor) -> None:
        state.listed_BV = listed_BV
        state.ids_v, state.weight_vD, state.bias_Bv = self._projection(listed_BV)
