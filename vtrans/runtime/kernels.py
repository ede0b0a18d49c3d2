"""The choice of kernels on a CPU: which library computes a float32 product, and how training computes attention.

The faster one depends on the processor, the number of threads and the shape. On two Zen 5 cores oneDNN computes
[4096, 256] x [256, 1024] at 550 GFLOP/s and MKL at 245; on two cores of a Xeon, MKL computes [4096, 256] x [256, 8000]
at 144 GFLOP/s and oneDNN at 106. So measuring.py measures at the start, and `linear` (products.py) and `attention`
(attention.py) look the result up. The two sides of a choice differ in rounding, so a training state records it.

`KERNELS` is the choice of this process. Only one model trains in a process, and models that translate may share one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LIBRARIES = ("onednn", "blas")
ATTENTIONS = ("fused", "bmm")
# With fewer multiplications, calling oneDNN costs more than it saves: [64, 128] x [128, 128] is a tie.
SMALL = 1 << 20
# The largest number of rows of a small product, such as those of a search for one sentence.
FEW = 16
# The rows that stand for few: the beam of a sentence.
BEAM = 4
# The largest numbers of keys of the classes of attention. With more, the weights that `bmm` keeps for the backward
# pass take too much memory, so attention is fused.
KEYS = (32, 128)
# A kernel replaces the default only if it is faster by this factor. A smaller one would let noise choose in each run.
MARGIN = 1.05

Product = tuple[int, int, bool]
"""A class of products: inputs, outputs, and whether there are more than FEW rows."""
Use = tuple[bool, bool, bool]
"""Whether oneDNN computes a product, and the gradients of its left operand and of its weight."""


@dataclass(frozen=True)
class Kernels:
    """A choice of kernels. The default is what is used without measuring.

    `library` decides for products that were not measured: oneDNN for those of at least SMALL multiplications, or the
    BLAS library of torch for all. `products` decides for those that were. `bmm` has the classes of attention, as
    indices into KEYS, that training computes by batched products.
    """

    library: str = "onednn"
    products: Mapping[Product, Use] = field(default_factory=dict)
    bmm: frozenset[int] = frozenset()

    @property
    def uses_onednn(self) -> bool:
        """Whether oneDNN computes any product."""
        return self.library == "onednn" or any(map(any, self.products.values()))

    def use_onednn(self, rows: int, inputs: int, outputs: int) -> Use:
        """Returns which of the three products of these sizes oneDNN computes."""
        found = self.products.get((inputs, outputs, rows > FEW))
        if found is not None:
            return found
        large = self.library == "onednn" and rows * inputs * outputs >= SMALL
        return large, large, large

    def use_bmm(self, keys: int) -> bool:
        """Returns whether training computes attention to that many keys by batched products."""
        return keys <= KEYS[-1] and (keys > KEYS[0]) + 0 in self.bmm

    def record(self) -> dict[str, Any]:
        """The choice as JSON values; `from_record` reads it."""
        products = [[*shape, *use] for shape, use in sorted(self.products.items())]
        return {"library": self.library, "products": products, "bmm": sorted(self.bmm)}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Kernels:
        """The choice that `record` returned."""
        products = {(i, o, many): (x, y, z) for i, o, many, x, y, z in record["products"]}
        return Kernels(record["library"], products, frozenset(record["bmm"]))

    def __str__(self) -> str:
        ways = {"bmm" if number in self.bmm else "fused": None for number in range(len(KEYS))}
        return f"{self.products_text}; attention {' and '.join(ways)}"

    @property
    def products_text(self) -> str:
        """Says which library computes products."""
        uses = [onednn for use in self.products.values() for onednn in use]
        if uses and 0 < sum(uses) < len(uses):
            return f"oneDNN for {sum(uses)} of {len(uses)} sizes of float32 products, BLAS for the others"
        if uses:
            return f"{'oneDNN' if all(uses) else 'BLAS'} for all sizes of float32 products"
        small = ", BLAS for small ones" if self.library == "onednn" else ""
        return f"{'oneDNN' if small else 'BLAS'} for float32 products{small}"


KERNELS = Kernels()


def current() -> Kernels:
    """Returns the choice of this process."""
    return KERNELS


def use(kernels: Kernels) -> None:
    """Makes `kernels` the choice of this process."""
    global KERNELS
    KERNELS = kernels


def fastest(
    candidates: Sequence[Callable[[], object]],
    rounds: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    margin: float = MARGIN,
) -> int:
    """Returns the index of the fastest candidate. The first is the default, which another must beat by this factor.

    The candidates take turns, after a first call each that is not timed, and the shortest time of each counts: another
    process on the machine makes some turns longer, but none shorter.
    """
    for candidate in candidates:
        candidate()
    shortest = [float("inf")] * len(candidates)
    for _ in range(rounds):
        for number, candidate in enumerate(candidates):
            began = clock()
            candidate()
            shortest[number] = min(shortest[number], clock() - began)
    best = min(range(len(candidates)), key=shortest.__getitem__)
    return best if shortest[best] * margin < shortest[0] else 0
