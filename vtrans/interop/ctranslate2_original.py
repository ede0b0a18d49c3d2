"""Runs a CTranslate2 folder in CTranslate2, an optional package, to compare an import with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vtrans.config import SearchConfig
from vtrans.data.vocabulary import Vocabulary
from vtrans.engines.ctranslate2_engine import CTranslate2Engine
from vtrans.engines.ctranslate2_folder import ctranslate2
from vtrans.engines.engine import Source
from vtrans.errors import VtransError
from vtrans.translate.sources import EXTRA_LENGTH
from vtrans.translate.translator import DEFAULT_OPTIONS


class CTranslate2Original:
    """A folder in float32; implements `imported.Original`.

    `tokens` has the folder's names of our subwords, for source and target, and `source_end` what ends a source unless
    CTranslate2 does. `max_length` is the length of the position table.
    """

    tolerance = 1e-4

    def __init__(
        self,
        folder: Path,
        vocabularies: tuple[Vocabulary, Vocabulary],
        tokens: tuple[list[str], list[str]],
        source_end: Sequence[str],
        max_length: int,
    ) -> None:
        package = ctranslate2()
        self.name = f"ctranslate2 {package.__version__}"
        try:
            translator = package.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise VtransError(f"{folder} was not imported, because {self.name} cannot load it: {reason}.") from None
        self._engine = CTranslate2Engine(
            translator,
            *vocabularies,
            SearchConfig(),
            max_length=max_length,
            quantization="float32",
            tokens=tokens,
            source_end=source_end,
        )

    def encode(self, lines: Sequence[str]) -> list[list[int]] | None:
        """Returns None: the folder does not split text."""
        return None

    def logprobs(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        """Returns the log-probabilities of each target's tokens."""
        return self._engine.score([source for source, _ in pairs], [target[:-1] for _, target in pairs])

    def translate(self, sources: Sequence[Sequence[int]], search: SearchConfig) -> list[list[int]] | None:
        """Returns the best translation of each source; None for a search that CTranslate2 does not have. An export of
        vtrans may store one."""
        if self._engine.unsupported(search):
            return None
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        limits = [search.max_length or len(source) - 1 + EXTRA_LENGTH for source in sources]
        asked = [Source(list(sources[i]), limits[i], "") for i in order]
        best = {order[k]: list(hyps[0].tokens) for k, hyps in self._engine.translate(asked, search, DEFAULT_OPTIONS)}
        return [best[i] for i in range(len(sources))]
