"""How a model is run: settings of `vtrans.load` that no file stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vtrans.keys import check_fields, choice, flag, text

ENGINES = ("compiled", "torch")  # the first is the default where it is available
DECODING_PRECISIONS = ("float32", "bfloat16", "float16", "int8")  # the first is the default
CACHE_VARIABLE = "VTRANS_CACHE"  # the environment variable with the folder of compiled code


@dataclass(frozen=True)
class EngineConfig:
    """What runs a model, where and how. None stands for a default that depends on the model and the machine."""

    PANEL: ClassVar[str] = "Speed"

    engine: str | None = choice(
        None,
        {
            "compiled": "C++ on a CPU; several threads divide the sentences of a batch",
            "torch": "any device and precision",
        },
        "Program that runs the model.",
        metavar="NAME",
        panel="Model",
        unset="compiled if possible, else torch",
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
        "Precision of matrix products: float32, bfloat16, float16, or int8, which needs the engine compiled.",
        metavar="TYPE",
        unset=DECODING_PRECISIONS[0],
    )

    def __post_init__(self) -> None:
        check_fields(self)
