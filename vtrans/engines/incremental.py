"""Incremental decoding with torch: each search step feeds one subword per row to a Transformer.

`Transformer.step` computes a step, and a Cache holds the state. This module adds the decoding precision and the
projection to the vocabulary, or to each sentence's shortlist.

Legend: B sentences, K rows per sentence, r live rows, S source length, D model width, V vocabulary, n rows of a block,
v subwords that any sentence of the batch allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.engines.candidates import More
from vtrans.model.cache import Cache, SourceCache
from vtrans.model.network import Transformer
from vtrans.model.products import linear
from vtrans.search.decoder import Best, LogprobBlock, Logprobs
from vtrans.search.history import Ints
from vtrans.search.ranking import checked
from vtrans.system.devices import to_device
from vtrans.system.errors import InputError

# Rows projected to the vocabulary at a time. On a CPU, a block stays in the processor's cache while the search reads
# it: 128 rows of 8,000 subwords are 4 MB.
ROWS_CPU, ROWS_GPU = 128, 8192


class IncrementalDecoder:
    """Implements `search.Decoder` with one model.

    `precision` is one of DECODING_PRECISIONS. "float32" uses the weights unchanged, so this decoder can be used on a
    model in training; "bfloat16" and "float16" convert the model in place. Raises InputError for "int8".
    """

    def __init__(self, model: Transformer, precision: str = "float32") -> None:
        self.model, self.device = model, model.device
        on_cpu = self.device.type == "cpu"
        if precision == "int8":
            raise InputError("`precision` must be float32, bfloat16 or float16 for the torch engine, got int8.")
        if precision != "float32":
            model.to(getattr(torch, precision))
        self.reuse_slots = on_cpu
        self.rows = ROWS_CPU if on_cpu else ROWS_GPU

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]], width: int) -> Cache:
        cache = self.model.new_cache(width, reuse_slots=self.reuse_slots)
        self.admit(cache, sources, ())
        return cache

    def _source(self, sources: Sequence[Sequence[int]]) -> SourceCache:
        lengths = [len(source) for source in sources]
        S, pad_id = max(lengths), self.model.pad_id
        src_BS = torch.tensor([[*s] + [pad_id] * (S - len(s)) for s in sources])
        keep_BS = torch.arange(S) < torch.tensor(lengths)[:, None]
        src_BS, keep_BS = to_device(src_BS, self.device), to_device(keep_BS, self.device)
        return self.model.source_cache(src_BS, keep_BS, lengths)

    @torch.inference_mode()
    def step(self, cache: Cache, tokens_BK: Ints, live_r: Ints, best: int | None = None) -> Iterator[LogprobBlock]:
        for h_nD in torch.split(self.hidden(cache, tokens_BK, live_r), self.rows):
            yield block_of(logprobs(self.model.logits(h_nD)), best)

    def hidden(self, cache: Cache, tokens_BK: Ints, live_r: Ints) -> Tensor:
        """Computes a step up to the projection. Returns the decoder's output [r, D] of the live rows."""
        fed_BK, at_r = (to_device(torch.from_numpy(array), self.device) for array in (tokens_BK, live_r))
        return self.model.step(fed_BK, cache).flatten(0, 1)[at_r]

    @torch.inference_mode()
    def reorder(self, cache: Cache, parents_BK: Ints) -> None:
        cache.reorder(to_device(torch.from_numpy(parents_BK), self.device))

    @torch.inference_mode()
    def drop(self, cache: Cache, sentences: Sequence[int]) -> None:
        cache.drop(sentences)

    @torch.inference_mode()
    def admit(self, cache: Cache, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        cache.admit(self._source(sources), places)

    @torch.inference_mode()
    def select(self, cache: Cache, sentences: Sequence[int]) -> None:
        cache.select(sentences)


def logprobs(logits_nV: Tensor) -> Tensor:
    """Returns log-probabilities [n, V], in at least float32."""
    return (logits_nV.float() if logits_nV.dtype in (torch.bfloat16, torch.float16) else logits_nV).log_softmax(-1)


def block_of(logprobs_nV: Tensor, best: int | None) -> LogprobBlock:
    """Returns log-probabilities as a block for the search. A GPU copies only the `best` ones of each row, unless
    None."""
    if best is None or logprobs_nV.device.type == "cpu":
        whole_nV: LogprobBlock = logprobs_nV.cpu().numpy()
        return whole_nV
    return best_of(logprobs_nV, best)


def best_of(logprobs_nV: Tensor, count: int) -> Best:
    """Returns the `count` most probable tokens of each row, or all if there are fewer. Equal ones are ordered by id.
    Raises LogprobsError for NaN."""
    values_nx, ids_nx = on_host(*logprobs_nV.topk(min(count + 1, logprobs_nV.shape[1])))
    # topk returns any of equal values, in any order.
    tied_n = ((values_nx[:, 1:] == values_nx[:, :-1]) & (values_nx[:, 1:] > -np.inf)).any(1).nonzero()[0]
    if len(tied_n):
        tied_nV = logprobs_nV[to_device(torch.from_numpy(tied_n), logprobs_nV.device)]
        values, ids = tied_nV.sort(dim=1, descending=True, stable=True)
        x = values_nx.shape[1]
        values_nx[tied_n], ids_nx[tied_n] = on_host(values[:, :x].contiguous(), ids[:, :x])
    return Best(checked(values_nx[:, :count]), ids_nx[:, :count])


def on_host(values: Tensor, ids: Tensor) -> tuple[Logprobs, Ints]:
    """Returns values and ids as arrays. Copies both at once, so that a GPU is synchronised only once."""
    bits = torch.int32 if values.element_size() == 4 else torch.int64
    both = torch.stack((values.view(bits), ids.to(bits))).cpu()
    return both[0].view(values.dtype).numpy(), both[1].long().numpy()


class Shortlisted(IncrementalDecoder):
    """Predicts only the subwords in `common_V` and, for each sentence, `more`. Their probabilities sum to 1.

    The projection covers the subwords that any sentence of the batch allows. Subwords that a sentence does not allow
    get -inf for it, so results do not depend on the batch. An instance is for one search and holds one batch at a time.
    """

    def __init__(self, decoder: IncrementalDecoder, common_V: NDArray[np.bool_], more: More) -> None:
        super().__init__(decoder.model)
        self._decoder, self._common_V, self._more = decoder, torch.from_numpy(common_V), more

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]], width: int) -> Cache:
        self._width, self._listed_BV = width, self._common_V[None][:0]
        return super().start(sources, width)

    @torch.inference_mode()
    def step(self, cache: Cache, tokens_BK: Ints, live_r: Ints, best: int | None = None) -> Iterator[LogprobBlock]:
        h_rD = self._decoder.hidden(cache, tokens_BK, live_r)
        sentence_r = to_device(torch.from_numpy(live_r // self._width), h_rD.device)
        for h_nD, sentence_n in zip(torch.split(h_rD, self.rows), torch.split(sentence_r, self.rows), strict=True):
            logits_nv = linear(h_nD, self._weight_vD) + self._bias_Bv[sentence_n]
            listed_nv = logprobs(logits_nv)
            every_nV = listed_nv.new_full((len(h_nD), len(self._common_V)), -torch.inf)
            every_nV[:, self._ids_v] = listed_nv
            yield block_of(every_nV, best)

    @torch.inference_mode()
    def admit(self, cache: Cache, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        super().admit(cache, sources, places)
        new_BV = self._common_V.repeat(len(sources), 1)
        new_BV[tuple(torch.from_numpy(self._more(sources)).T)] = True
        self._listed_BV[list(places)] = new_BV[: len(places)]
        self._project_to(torch.cat((self._listed_BV, new_BV[len(places) :])))

    @torch.inference_mode()
    def select(self, cache: Cache, sentences: Sequence[int]) -> None:
        super().select(cache, sentences)
        self._project_to(self._listed_BV[list(sentences)])

    def _project_to(self, listed_BV: Tensor) -> None:
        """Makes the projection to the subwords that any sentence allows; its bias is -inf where a sentence does not."""
        projection, self._listed_BV = self.model.projection, listed_BV
        host_v = listed_BV.any(0).nonzero().squeeze(1)
        self._ids_v, listed_Bv = to_device(host_v, self.device), to_device(listed_BV[:, host_v], self.device)
        self._weight_vD = projection.weight[self._ids_v]
        self._bias_Bv = torch.where(listed_Bv, 0.0, -torch.inf).to(projection.weight)
        if projection.bias is not None:
            self._bias_Bv += projection.bias[self._ids_v]
