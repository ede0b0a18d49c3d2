"""vtrans: train and run Transformer translation models.

>>> import vtrans
>>> translator = vtrans.load("run")
>>> list(translator.translate(["A dog runs."]))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vtrans.search.options import Mbr, Sampling
from vtrans.system.errors import FileError, InputError, RecipeError, VtransError
from vtrans.system.process import configure_process

if TYPE_CHECKING:
    from vtrans.data.noise import PairNoise
    from vtrans.score.metrics import CorpusMetric
    from vtrans.search.rules import SearchRule
    from vtrans.training.optimization.logprob_loss import LogprobLoss
    from vtrans.training.trainer import Trainer, train
    from vtrans.translate.loading import load
    from vtrans.translate.steps.line import LineStep
    from vtrans.translate.translation import Translation
    from vtrans.translate.translator import Translator

__version__ = "0.1.0"
__all__ = [
    "CorpusMetric",
    "FileError",
    "InputError",
    "LineStep",
    "LogprobLoss",
    "Mbr",
    "PairNoise",
    "RecipeError",
    "Sampling",
    "SearchRule",
    "Trainer",
    "Translation",
    "Translator",
    "VtransError",
    "__version__",
    "configure_process",
    "load",
    "train",
]


# Their modules import torch, so they are imported at first use: `import vtrans` and --help stay fast.
_LAZY = {
    "CorpusMetric": "score.metrics",
    "LineStep": "translate.steps.line",
    "LogprobLoss": "training.optimization.logprob_loss",
    "PairNoise": "data.noise",
    "SearchRule": "search.rules",
    "Trainer": "training.trainer",
    "Translation": "translate.translation",
    "Translator": "translate.translator",
    "load": "translate.loading",
    "train": "training.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'vtrans' has no attribute {name!r}")
    return getattr(importlib.import_module(f"vtrans.{_LAZY[name]}"), name)
