"""How translations are chosen other than by the search: drawn, or by their expected utility. This module imports no
torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vtrans.config import MBR_METRICS
from vtrans.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """Draws translations instead of searching for the best. Each line has its own generator, seeded from
    (seed, line number), so that a draw does not depend on the batch. `top_k` 0, `top_p` 1 and `epsilon` 0 filter
    nothing."""

    seed: int = 1
    top_k: int = 0
    top_p: float = 1.0
    epsilon: float = 0.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.top_k < 0:
            raise InputError(f"`top_k` must be at least 0, got {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise InputError(f"`top_p` must be above 0 and at most 1, got {self.top_p}.")
        if not 0 <= self.epsilon < 1:
            raise InputError(f"`epsilon` must be at least 0 and below 1, got {self.epsilon}.")
        if not 0 < self.temperature < math.inf:
            raise InputError(f"`temperature` must be above 0, got {self.temperature}.")


@dataclass(frozen=True)
class Mbr:
    """Minimum Bayes risk decoding: of the candidates for a translation, chooses the one that is the most similar to all
    of them by `metric`, "chrf" or "bleu". The candidates are the hypotheses of the search, or with sampling `samples`
    samples (None: MBR_SAMPLES)."""

    metric: str = MBR_METRICS[0]
    samples: int | None = None

    def __post_init__(self) -> None:
        if self.metric not in MBR_METRICS:
            raise InputError(f"`mbr` must be one of {', '.join(MBR_METRICS)}, got {self.metric!r}.")
        if self.samples is not None and not 2 <= self.samples <= 1024:
            raise InputError(f"`mbr_samples` must be from 2 to 1024, got {self.samples}.")
