"""Translates the rows of a Ray dataset. Ray calls this class; nothing here imports Ray.

dataset.map_batches(Translate, fn_constructor_kwargs={"model": "/shared/run"}, concurrency=8, batch_size=2000)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vtrans.config import DEFAULT_RUN
from vtrans.errors import InputError
from vtrans.processes.process import configure_process


class Translate:
    """Adds the translations of the column `src` to each batch, in the column `tgt`: one text per row, in order.

    `settings` are further arguments of `vtrans.load`. The model, named by a path that all workers see, is loaded by the
    first call, once per worker; a pickled object has none. A blank text has a blank translation. Raises InputError for
    a batch without the column, or with values that are not texts.
    """

    def __init__(
        self, model: str | Path = DEFAULT_RUN, *, src: str = "text", tgt: str = "translation", **settings: Any
    ) -> None:
        self._model, self._src, self._tgt, self._settings = model, src, tgt, settings
        self._translator: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_translator": None}

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the columns of the batch and the translations."""
        if self._src not in batch:
            raise InputError(f"`src` must be one of the columns {', '.join(batch)}, got {self._src}.")
        texts = [str(text) if isinstance(text, str) else text for text in batch[self._src]]
        if wrong := next((repr(text) for text in texts if not isinstance(text, str)), None):
            raise InputError(f"the column {self._src} must hold texts, but holds {wrong[:80]}.")
        translations = list(self._loaded().translate(texts))
        return {**batch, self._tgt: np.array(translations, dtype=object)}

    def _loaded(self) -> Any:
        if self._translator is None:
            if "torch" not in sys.modules:
                configure_process()
            from vtrans.translate.loading import load

            self._translator = load(self._model, **self._settings)
        return self._translator
