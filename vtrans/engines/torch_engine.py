"""The torch engine, on any device and in any precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from vtrans.config import DECODING_PRECISIONS
from vtrans.engines.candidates import Candidates, More
from vtrans.engines.engine import Engine
from vtrans.engines.forced import Attention, attention, token_logprobs
from vtrans.engines.incremental import IncrementalDecoder, Shortlisted
from vtrans.model.checkpoint import LoadedModel
from vtrans.search.decoder import SubwordPair


class TorchEngine(Engine):
    """An engine in torch; all models are on one device. See IncrementalDecoder for `precision`."""

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

    def _limited(self, model: int, candidates: Candidates, more: More) -> Shortlisted:
        return Shortlisted(self.decoders[model], candidates.common_V, more)

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
