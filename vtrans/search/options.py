"""Options of sampling and of minimum Bayes risk decoding. This module imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from vtrans.config import MBR_BEAM, MBR_METRICS, MBR_SAMPLES
from vtrans.config.keys import check_fields, choice, number

_number = partial(number, advanced=True)


@dataclass(frozen=True)
class Sampling:
    """Samples translations instead of searching for the best. Each line has its own generator, seeded from (seed, line
    number), so a sample does not depend on its batch. `top_k` 0, `top_p` 1 and `epsilon` 0 filter nothing."""

    PANEL: ClassVar[str] = "Sampling"

    seed: int = _number(1, (-(2**63), 2**63 - 1), "Seed of the random numbers.")
    top_k: int = _number(0, (0, 10**9), "Sample only from the K most probable subwords.", metavar="K", unset="all")
    top_p: float = _number(
        1.0,
        (0.0, 1.0),
        "Sample only from the most probable subwords whose probabilities sum to P.",
        excluded=(0.0,),
        metavar="P",
    )
    epsilon: float = _number(
        0.0,
        (0.0, 1.0),
        "Sample only subwords with a probability of at least X; 0.02 is usual.",
        excluded=(1.0,),
        unset="all",
    )
    temperature: float = _number(
        1.0, (0.0, math.inf), "Translations vary less below 1 and more above 1.", excluded=(0.0, math.inf)
    )

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Mbr:
    """Minimum Bayes risk decoding: chooses the candidate translation that is most similar to all candidates by
    `metric`, "chrf" or "bleu". The candidates are the hypotheses of the search or, with sampling, `samples` samples
    (None: MBR_SAMPLES)."""

    PANEL: ClassVar[str] = "Minimum Bayes risk"

    metric: str = choice(
        MBR_METRICS[0],
        MBR_METRICS,
        "Choose the translation that is the most similar to all candidates by this metric, chrf or bleu. "
        f"The candidates are the hypotheses of the search, whose `beam` is then {MBR_BEAM} by default, or with "
        "`sampling` the samples. The score of a translation is its mean similarity, from 0 to 100.",
        option="mbr",
        metavar="METRIC",
        advanced=True,
        unset="off",
    )
    samples: int | None = _number(
        None, (2, 1024), "Number of samples per line.", option="mbr_samples", unset=str(MBR_SAMPLES)
    )

    def __post_init__(self) -> None:
        check_fields(self)
