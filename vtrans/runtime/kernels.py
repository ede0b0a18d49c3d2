"""The choice of kernels on a CPU: which library computes a float32 product, and how training computes attention.

The faster one depends on the processor: on two Zen 5 cores oneDNN computes [4096, 256] x [256, 1024] at 550 GFLOP/s
and MKL at 245; on two cores of a Xeon, MKL computes [4096, 256] x [256, 8000] at 144 GFLOP/s and oneDNN at 106. So
automatic.py chooses by the processor, and `linear` (products.py) and `dot_product_attention` (attention.py) look the
choice up. Kernels differ in rounding, so a training state records them.

`KERNELS` is the choice of this process. Only one model trains in a process, and models that translate may share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LIBRARIES = ("onednn", "blas")
# With fewer multiplications, calling oneDNN costs more than it saves: [64, 128] x [128, 128] is a tie.
SMALL = 1 << 20
# The largest number of rows of a small product, such as those of a search for one sentence.
FEW = 16
# The largest numbers of keys of the classes of attention. With more, the weights that `bmm` keeps for the backward
# pass take too much memory, so attention is fused.
KEYS = (32, 128)

Product = tuple[int, int, bool]
"""A class of products: inputs, outputs, and whether there are more than FEW rows."""
Use = tuple[bool, bool, bool]
"""Whether oneDNN computes a product, and the gradients of its left operand and of its weight."""


@dataclass(frozen=True)
class Kernels:
    """A choice of kernels. The default is that of training states which record none.

    `library` computes the products of at least SMALL multiplications: oneDNN, or the BLAS library of torch, which
    computes all smaller ones. `packed` is the library for large products of few rows with a packed weight, if it is
    another one. `products` has exceptions by shape, which earlier versions measured for a run. `bmm` has the classes of
    attention, as indices into KEYS, that training computes by batched products.
    """

    library: str = "onednn"
    products: Mapping[Product, Use] = field(default_factory=dict)
    bmm: frozenset[int] = frozenset()
    packed: str = ""

    @property
    def uses_onednn(self) -> bool:
        """Whether oneDNN computes any product."""
        return "onednn" in (self.library, self.packed) or any(map(any, self.products.values()))

    def use_onednn(self, rows: int, inputs: int, outputs: int, *, packed: bool = False) -> Use:
        """Returns which of the three products of these sizes oneDNN computes. `packed`: whether it would read a packed
        copy of the weight."""
        measured = self.products.get((inputs, outputs, rows > FEW))
        if measured is not None:
            return measured
        library = (self.packed if packed and rows <= FEW else "") or self.library
        onednn = library == "onednn" and rows * inputs * outputs >= SMALL
        return onednn, onednn, onednn

    def use_bmm(self, keys: int) -> bool:
        """Returns whether training computes attention to that many keys by batched products."""
        return keys <= KEYS[-1] and (keys > KEYS[0]) + 0 in self.bmm

    def record(self) -> dict[str, Any]:
        """The choice as JSON values; `from_record` reads it."""
        products = [[*shape, *use] for shape, use in sorted(self.products.items())]
        return {"library": self.library, "products": products, "bmm": sorted(self.bmm), "packed": self.packed}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Kernels:
        """The choice that `record` returned."""
        products = {(i, o, many): (x, y, z) for i, o, many, x, y, z in record["products"]}
        return Kernels(record["library"], products, frozenset(record["bmm"]), record.get("packed", ""))

    def __str__(self) -> str:
        ways = {"bmm" if number in self.bmm else "fused": None for number in range(len(KEYS))}
        return f"{self.products_text}; attention {' and '.join(ways)}"

    @property
    def products_text(self) -> str:
        """Says which library computes products."""
        names = {"onednn": "oneDNN", "blas": "BLAS"}
        text = f"{names[self.library]} for float32 products"
        if self.packed not in ("", self.library):
            text += f", {names[self.packed]} for few rows and a packed weight"
        if self.products:
            text += f", with {len(self.products)} sizes as they were measured"
        return text + (", BLAS for small ones" if self.uses_onednn else "")


KERNELS = Kernels()


def current() -> Kernels:
    """Returns the choice of this process."""
    return KERNELS


def use(kernels: Kernels) -> None:
    """Makes `kernels` the choice of this process."""
    global KERNELS
    KERNELS = kernels
