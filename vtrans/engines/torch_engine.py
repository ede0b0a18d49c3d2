"""The torch engine, on any device and in any precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from vtrans.config import DECODING_PRECISIONS
from vtrans.engines.candidates import Candidates, Listing
from vtrans.engines.common import ModelEngine
from vtrans.engines.cross_attention import Attention, attention
from vtrans.engines.forced import token_logprobs
from vtrans.engines.incremental import IncrementalDecoder
from vtrans.engines.listed import Shortlisted
from vtrans.model.checkpoint import LoadedModel
from vtrans.search.decoder import SubwordPair


class TorchEngine(ModelEngine):
    """Implements `Engine` with torch; all models are on one device. See IncrementalDecoder for `precision`."""

    name = "torch"

    def __init__(
        self,
        models: Sequence[LoadedModel],
        weights: Sequence[float] | None = None,
        *,
        shortlist: bool = False,
        precision: str = DECODING_PRECISIONS[0],
    ) -> None:
        super().__init__(models, weights, shortlist=shortlist)
        self._transformers = [loaded.model for loaded in self.models]
        self.device = str(self._transformers[0].device)
        self.decoders: list[IncrementalDecoder] = [
            IncrementalDecoder(transformer, precision) for transformer in self._transformers
        ]

    def _listed_decoders(self, candidates: Candidates, forced: Sequence[Sequence[int]]) -> Sequence[Shortlisted]:
        return [Shortlisted(decoder, Listing(candidates, forced)) for decoder in self.decoders]

    @torch.inference_mode()
    def _attention(
        self, model: int, pairs: Sequence[SubwordPair], batch_tokens: int
    ) -> Iterator[tuple[int, Attention]]:
        yield from attention(self._transformers[model], pairs, batch_tokens)

    @torch.inference_mode()
    def _logprobs(
        self, model: int, pairs: Sequence[SubwordPair], batch_tokens: int
    ) -> Iterator[tuple[int, Sequence[float]]]:
        yield from token_logprobs(self._transformers[model], pairs, batch_tokens)
