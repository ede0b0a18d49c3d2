"""vtrans: train and run Transformer translation models.

>>> import vtrans
>>> translator = vtrans.load("run")
>>> list(translator.translate(["A dog runs."]))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrans.config import Sampling
from vtrans.errors import FileError, InputError, RecipeError, VtransError
from vtrans.runtime.memory import manage_memory

if TYPE_CHECKING:
    from vtrans.decoding.translator import Translation, Translator, load

__version__ = "0.1.0"
__all__ = [
    "FileError",
    "InputError",
    "RecipeError",
    "Sampling",
    "Translation",
    "Translator",
    "VtransError",
    "__version__",
    "load",
    "manage_memory",
]


def __getattr__(name: str) -> Any:
    """What needs torch is imported at its first use, so that `import vtrans` and --help stay quick."""
    if name in ("Translation", "Translator", "load"):
        from vtrans.decoding import translator as translate

        return getattr(translate, name)
    raise AttributeError(f"module 'vtrans' has no attribute {name!r}")
