"""The compiled engine: C++ on a CPU, in float32, bfloat16 or int8."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

from vtrans.config import DECODING_PRECISIONS
from vtrans.config.threads import threads
from vtrans.engines.candidates import Candidates, More
from vtrans.engines.compiled.decoder import CompiledDecoder
from vtrans.engines.compiled.forced import mean_attention, token_logprobs
from vtrans.engines.compiled.plain_search import plain_search
from vtrans.engines.engine import Engine
from vtrans.search.decoder import Logprobs, SubwordPair
from vtrans.storage.model_file import Model, Weights


class CompiledEngine(Engine):
    """An engine in compiled code (`library`) on the CPU. See CompiledDecoder for `precision`."""

    name = "compiled"
    device = "cpu"
    beam_search = staticmethod(plain_search)

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

    def _limited(self, model: int, candidates: Candidates, more: More) -> CompiledDecoder:
        return self.decoders[model].limited(more)

    def _attention(self, model: int, pairs: Sequence[SubwordPair], batch_tokens: int) -> Iterator[tuple[int, Logprobs]]:
        return enumerate(mean_attention(self.decoders[model], pairs, threads()))

    def _logprobs(self, model: int, pairs: Sequence[SubwordPair], batch_tokens: int) -> Iterator[tuple[int, Logprobs]]:
        return enumerate(token_logprobs(self.decoders[model], pairs, threads()))
