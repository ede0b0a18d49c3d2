"""Runs CTranslate2, to compare an import or an export with it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from vtrans.apps.interop.comparison import IdPair, Outputs, Program, Tolerance
from vtrans.config import SearchConfig
from vtrans.system.errors import VtransError, need_packages

DEFAULTS = SearchConfig(beam=2, alpha=1.0, length_penalty="length", min_length=1)
SCORED_TOKENS = 2048  # padded subwords scored at a time; their logits are in memory at once


def ctranslate2() -> Any:
    """Returns the optional package CTranslate2. Raises InputError if it is not installed."""
    need_packages("CTranslate2 is not installed", "ctranslate2", "ctranslate2")
    return importlib.import_module("ctranslate2")


class CTranslate2Model(Program):
    """CTranslate2 on the CPU. Raises InputError if it is not installed, and VtransError for a folder that it cannot
    load."""

    search = DEFAULTS

    def __init__(
        self,
        folder: Path,
        tokens: tuple[list[str], list[str]],
        source_end: Sequence[str] = (),
        weights: str = "float32",
        tolerance: Tolerance = Program.tolerance,
    ) -> None:
        """`tokens` are CTranslate2's tokens by our ids, for source and target. `source_end` is appended to sources if
        CTranslate2 does not append EOS itself."""
        self._package, self._folder, self._weights = ctranslate2(), folder, weights
        self.name, self.tolerance = f"ctranslate2 {self._package.__version__} with {weights} weights", tolerance
        self._src_tokens, self._tgt_tokens = tokens
        self._source_end = source_end

    @cached_property
    def _translator(self) -> Any:
        # On a CPU, CTranslate2 computes in float32 with float16 weights, and warns unless float32 is requested.
        kind = "default" if self._weights == "int8" else "float32"
        threads = {"inter_threads": torch.get_num_threads(), "intra_threads": 1}
        try:
            return self._package.Translator(str(self._folder), device="cpu", compute_type=kind, **threads)
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise VtransError(f"CTranslate2 cannot load {self._folder}: {reason}.") from None

    def logprobs(self, pairs: Sequence[IdPair]) -> list[list[float]]:
        sources = [self._source(source) for source, _ in pairs]
        targets = [[self._tgt_tokens[i] for i in target[:-1]] for _, target in pairs]
        options = {"max_batch_size": SCORED_TOKENS, "batch_type": "tokens", "max_input_length": 0}  # no truncation
        return [list(result.log_probs) for result in self._translator.score_batch(sources, targets, **options)]

    def translate(self, ours: Outputs) -> list[list[int]]:
        ids = {token: i for i, token in enumerate(self._tgt_tokens)}
        options = {"beam_size": ours.search.beam, "min_decoding_length": ours.search.min_length}
        options |= {"max_decoding_length": max(ours.limits), "max_input_length": 0, "max_batch_size": 32}
        results = self._translator.translate_batch(list(map(self._source, ours.sources)), **options)
        return [[ids[token] for token in result.hypotheses[0]] for result in results]

    def _source(self, tokens: Sequence[int]) -> list[str]:
        """Returns the tokens of a source without EOS, which CTranslate2 appends, and with `source_end`."""
        return [*(self._src_tokens[i] for i in tokens[:-1]), *self._source_end]
