"""The engine compiled: C++ on a CPU, in float32, bfloat16 or int8.

Legend: S source length with EOS, T target length, M models.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from vtrans.config import DECODING_PRECISIONS
from vtrans.config.threads import threads
from vtrans.engines.candidates import Candidates, Listing
from vtrans.engines.common import ModelEngine
from vtrans.engines.compiled import forced as forced_passes
from vtrans.engines.compiled import plain_search
from vtrans.engines.compiled.decoder import CompiledDecoder
from vtrans.search.decoder import Logprobs, SubwordPair
from vtrans.storage.model_file import Model, Weights


class CompiledEngine(ModelEngine):
    """Implements `Engine` with compiled code (`library`) on the CPU. `precision` is that of
    CompiledDecoder."""

    name = "compiled"
    device = "cpu"
    beam_search = staticmethod(plain_search.search)

    def __init__(
        self,
        models: Sequence[Model[Weights]],
        library: ctypes.CDLL,
        weights: Sequence[float] | None = None,
        *,
        shortlist: bool = False,
        precision: str = DECODING_PRECISIONS[0],
    ) -> None:
        super().__init__(models, weights, shortlist=shortlist)
        common = self._candidates.common_V.nonzero()[0].tolist() if self._candidates else []
        self.decoders: list[CompiledDecoder] = [
            CompiledDecoder(loaded.model, library, precision, common) for loaded in self.models
        ]

    def _listed_decoders(self, candidates: Candidates, forced: Sequence[Sequence[int]]) -> Sequence[CompiledDecoder]:
        return [decoder.limited(Listing(candidates, forced).more) for decoder in self.decoders]

    def _attention(self, pairs: Sequence[SubwordPair], batch_tokens: int) -> Iterator[tuple[int, Logprobs]]:
        given, among = {i: pair for i, pair in enumerate(pairs) if pair[1]}, threads()
        parts = [forced_passes.mean_attention(decoder, [*given.values()], among) for decoder in self.decoders]
        for i, attention_MTS in zip(given, zip(*parts, strict=True), strict=True):
            weighted = [weight * part_TS for weight, part_TS in zip(self.weights, attention_MTS, strict=True)]
            yield i, np.sum(weighted, axis=0)

    def token_logprobs(
        self, pairs: Sequence[SubwordPair], batch_tokens: int, done: Callable[[], None] = lambda: None
    ) -> list[tuple[float, ...]]:
        given, among = {i: pair for i, pair in enumerate(pairs) if pair[1]}, threads()
        logprobs: list[tuple[float, ...]] = [()] * len(pairs)
        parts = []
        for decoder in self.decoders:
            told = done if decoder is self.decoders[-1] else lambda: None
            parts.append(forced_passes.token_logprobs(decoder, [*given.values()], among, told))
        log_weights_M1 = np.log(self.weights)[:, None]
        for i, logprobs_MT in zip(given, zip(*parts, strict=True), strict=True):
            # Clamped as in the search: rounding may leave a certain subword above 0.
            mean_T = np.minimum(np.logaddexp.reduce(np.array(logprobs_MT) + log_weights_M1), 0.0)
            logprobs[i] = tuple(mean_T.tolist())
        return logprobs
