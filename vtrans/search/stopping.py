"""When the search of a sentence, or of one of its groups, is finished: a class for each value of `stop`.

The search also ends at the length limit, and when no live row can win any more, whatever the class (beam.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vtrans.search.ranking import Ranked


class Exhaustive:
    """Ends a search for no other reason. `beam` is the K of the definition, and `wanted` the hypotheses of a result."""

    keeps_unfinished = False
    """Whether the live rows at the length limit are results like the finished hypotheses."""
    by_first = False
    """Whether a search with a beam of 1 ends with its first hypothesis, however good the live row is."""

    def __init__(self, beam: int, wanted: int) -> None:
        self._beam = beam
        self.compared = wanted
        """How many of the best finished hypotheses must be known."""

    def is_over(self, ended: int, last: float, live: float) -> bool:
        """Returns whether `ended` finished hypotheses are enough. `last` is the score of the last one that is compared,
        and `live` the best score of a live row at its length so far."""
        return False

    def limit(self, extensions: Ranked, ended: Sequence[int]) -> None:
        """Makes the extensions impossible for which a sentence has no place after so many finished hypotheses."""


class Count(Exhaustive):
    """Ends a search when K hypotheses are finished."""

    by_first = True

    def is_over(self, ended: int, last: float, live: float) -> bool:
        return ended >= self._beam


class Current(Count):
    """Ends a search when K hypotheses are finished and no live row scores better than the K-th best of them."""

    def __init__(self, beam: int, wanted: int) -> None:
        super().__init__(beam, wanted)
        self.compared = beam

    def is_over(self, ended: int, last: float, live: float) -> bool:
        return ended >= self._beam and live <= last


class Shrink(Exhaustive):
    """Takes a place away for each finished hypothesis."""

    keeps_unfinished = True
    by_first = True

    def limit(self, extensions: Ranked, ended: Sequence[int]) -> None:
        places_B1 = self._beam - np.array(ended)[:, None]
        extensions.sums[np.arange(extensions.sums.shape[1]) >= places_B1] = -math.inf


STOPS: dict[str, type[Exhaustive]] = {"count": Count, "current": Current, "exhaustive": Exhaustive, "shrink": Shrink}
"""By the values of `search.stop`."""
