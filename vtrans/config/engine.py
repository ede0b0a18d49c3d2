"""How a model is run: settings of `vtrans.load` that no file stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vtrans.config.train import KERNELS
from vtrans.keys import choice, flag, text

ENGINES = ("torch", "ctranslate2")
DECODING_PRECISIONS = ("float32", "bfloat16", "float16", "int8")  # the first is the default
KERNELS_VARIABLE = "VTRANS_KERNELS"  # the environment variable with the default for translating
CACHE_VARIABLE = "VTRANS_CACHE"  # the environment variable with the folder of compiled code


@dataclass(frozen=True)
class EngineConfig:
    """What runs a model, where and how. None stands for a default that depends on the model and the machine."""

    PANEL: ClassVar[str] = "Speed"

    engine: str | None = choice(
        None,
        ENGINES,
        "Program that runs the model: torch or ctranslate2.",
        metavar="NAME",
        panel="Model",
        unset="what the model was made for",
    )
    device: str | None = text(
        None, "Device: cpu, cuda, cuda:N or mps.", metavar="NAME", unset="the best available", speed_only=True
    )
    shortlist: bool = flag(
        False, "Restrict the output vocabulary to likely translations, as learned by `vtrans shortlist`."
    )
    precision: str | None = choice(
        None,
        DECODING_PRECISIONS,
        "Precision of matrix products: float32, bfloat16, float16, or int8, which needs a CPU.",
        metavar="TYPE",
        unset=DECODING_PRECISIONS[0],
    )
    kernels: str | None = choice(
        None,
        {
            "auto": "chosen by the processor",
            "onednn": "oneDNN",
            "blas": "MKL on x86",
        },
        "Library of float32 products on a CPU.",
        metavar="LIBRARY",
        unset=f"${KERNELS_VARIABLE}, else {KERNELS[0]}",
        speed_only=True,
    )
    compile: bool = flag(
        False,
        "Compile the code that runs models for this machine, with $CXX, else g++. The library is kept in "
        f"${CACHE_VARIABLE}, else ~/.cache/vtrans, and serves all models. It needs a CPU and float32, and translates a "
        "single sentence of a small model in a third of the time.",
        speed_only=True,
    )
