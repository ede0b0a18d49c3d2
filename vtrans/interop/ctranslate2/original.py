"""Runs a CTranslate2 folder in CTranslate2, an optional package, to compare an import or an export with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vtrans.config import SearchConfig
from vtrans.data.vocabulary import Vocabulary
from vtrans.engines.ctranslate2_engine import CTranslate2Engine
from vtrans.engines.ctranslate2_folder import ctranslate2
from vtrans.errors import VtransError
from vtrans.interop.verification import ROUNDING, Pair, Tolerance, translated


class CTranslate2Model:
    """Implements `verification.Program`."""

    def __init__(self, engine: CTranslate2Engine, tolerance: Tolerance = ROUNDING) -> None:
        self._engine, self.tolerance = engine, tolerance
        self.name = f"ctranslate2 {ctranslate2().__version__} with {engine.quantization} weights"

    def encode(self, lines: Sequence[str]) -> list[list[int]] | None:
        """Returns None: the folder does not split text."""
        return None

    def logprobs(self, pairs: Sequence[Pair]) -> list[list[float]]:
        return self._engine.score([source for source, _ in pairs], [target[:-1] for _, target in pairs])

    def translate(self, sources: Sequence[Sequence[int]], search: SearchConfig) -> list[list[int]] | None:
        """Returns the best translation of each source; None if CTranslate2 lacks the search."""
        if self._engine.unsupported(search):
            return None
        assert self._engine.max_length is not None
        return translated(self._engine, sources, search, self._engine.max_length)


def original(
    folder: Path,
    vocabularies: tuple[Vocabulary, Vocabulary],
    tokens: tuple[list[str], list[str]],
    source_end: Sequence[str],
    max_length: int,
) -> CTranslate2Model:
    """Returns the model of any folder, computed in float32.

    `tokens` are the folder's names of our subwords, for source and target. `source_end` is appended to sources that
    CTranslate2 does not end itself. `max_length` is the length of the position table. Raises InputError if CTranslate2
    is not installed.
    """
    package = ctranslate2()
    try:
        translator = package.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise VtransError(f"{folder} was not imported, because CTranslate2 cannot load it: {reason}.") from None
    return CTranslate2Model(
        CTranslate2Engine(
            translator,
            *vocabularies,
            SearchConfig(),
            max_length=max_length,
            quantization="float32",
            tokens=tokens,
            source_end=source_end,
        )
    )
