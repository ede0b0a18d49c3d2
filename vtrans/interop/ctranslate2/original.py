"""Runs a CTranslate2 folder in CTranslate2, an optional package, to compare an import or an export with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vtrans.config import SearchConfig
from vtrans.errors import VtransError
from vtrans.interop.comparison import ROUNDING, IdPair, Tolerance
from vtrans.interop.ctranslate2.folder import ctranslate2
from vtrans.text.vocabulary import EOS_ID

SCORED_TOKENS = 2048  # padded subwords scored at a time; their logits are in memory at once


class CTranslate2Model:
    """Implements `comparison.Program` on the CPU.

    `tokens` are the folder's names of our subwords, for source and target. `source_end` is appended to sources that
    CTranslate2 does not end itself. `has_own` says that the model file has CTranslate2's default search. Raises
    InputError if CTranslate2 is not installed, and VtransError for a folder that it cannot load.
    """

    def __init__(
        self,
        folder: Path,
        tokens: tuple[list[str], list[str]],
        *,
        source_end: Sequence[str] = (),
        weights: str = "float32",
        tolerance: Tolerance = ROUNDING,
        has_own: bool = False,
    ) -> None:
        package = ctranslate2()
        self.name, self.tolerance = f"ctranslate2 {package.__version__} with {weights} weights", tolerance
        self._src_tokens, self._tgt_tokens = tokens
        self._source_end, self._has_own = source_end, has_own
        try:
            # On a CPU, CTranslate2 computes with float16 weights in float32, and warns unless told so.
            self._translator = package.Translator(
                str(folder),
                device="cpu",
                compute_type="default" if weights == "int8" else "float32",
                inter_threads=torch.get_num_threads(),
                intra_threads=1,
            )
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise VtransError(f"CTranslate2 cannot load {folder}: {reason}.") from None

    def encode(self, lines: Sequence[str]) -> None:
        """Returns None: the folder does not split text."""

    def logprobs(self, pairs: Sequence[IdPair]) -> list[list[float]]:
        results = self._translator.score_batch(
            [self._source(source) for source, _ in pairs],
            [[self._tgt_tokens[i] for i in target[:-1]] for _, target in pairs],
            max_batch_size=SCORED_TOKENS,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]

    def translate(
        self, sources: Sequence[Sequence[int]], longest: int, search: SearchConfig | None
    ) -> list[list[int]] | None:
        options: dict[str, Any] = {"max_decoding_length": longest}
        if search:
            wide = (search.stop, search.length_penalty, search.beam_groups) != ("count", "length", 1)
            if search.has_rules or (search.beam > 1 and (wide or search.alpha <= 0)):
                return None
            options |= {"beam_size": search.beam, "length_penalty": search.alpha, "min_decoding_length": 0}
            options |= {"max_batch_size": search.batch_tokens, "batch_type": "tokens"}
            options |= {"max_input_length": 0}  # do not truncate sources
            options |= {"return_end_token": True}  # which counts in the length that divides the score
        elif not self._has_own:
            return None
        results = self._translator.translate_batch([self._source(source) for source in sources], **options)
        ids = {token: i for i, token in enumerate(self._tgt_tokens)}
        best = [[ids[token] for token in result.hypotheses[0]] for result in results]
        return [tokens[:-1] if tokens[-1:] == [EOS_ID] else tokens for tokens in best]

    def _source(self, tokens: Sequence[int]) -> list[str]:
        """Returns the names of a source; CTranslate2 adds EOS, or `source_end` does if the model needs one."""
        return [*(self._src_tokens[i] for i in tokens[:-1]), *self._source_end]
