"""The choice of kernels on a CPU: which library computes a float32 product, and how training computes attention.

The faster one depends on the processor: on two Zen 5 cores oneDNN computes [4096, 256] x [256, 1024] at 550 GFLOP/s
and MKL at 245; on two cores of a Xeon, MKL computes [4096, 256] x [256, 8000] at 144 GFLOP/s and oneDNN at 106. So
automatic.py chooses by the processor, and `linear` (products.py) and `dot_product_attention` (attention.py) look the
choice up. Kernels differ in rounding, so training states and jobs of chunks record them.

`KERNELS` is the choice of this process. Only one model trains in a process, and models that translate may share one.
"""

from __future__ import annotations

from dataclasses import dataclass

# With fewer multiplications, calling oneDNN costs more than it saves: [64, 128] x [128, 128] is a tie.
ONEDNN_PRODUCTS = 1 << 20
# The largest number of rows of a small product, such as those of a search for one sentence.
FEW_ROWS = 16
# The largest number of keys for which training may compute attention by batched products. With more, the weights that
# they keep for the backward pass take too much memory, so attention is fused.
BMM_KEYS = 128


@dataclass(frozen=True)
class Kernels:
    """A choice of kernels.

    `library`, "onednn" or "blas", computes the products of at least ONEDNN_PRODUCTS multiplications. The BLAS library
    computes all smaller ones. `packed` is the library for large products of few rows with a packed weight, if it is
    another one. `bmm`: whether training computes attention by batched products.
    """

    library: str = "onednn"
    bmm: bool = False
    packed: str = ""

    @property
    def uses_onednn(self) -> bool:
        """Whether oneDNN computes any product."""
        return "onednn" in (self.library, self.packed)

    def use_onednn(self, rows: int, inputs: int, outputs: int, *, packed: bool = False) -> bool:
        """Returns whether oneDNN computes a product of these sizes, and the products of its gradient. `packed`: whether
        it would read a packed copy of the weight."""
        library = (self.packed if packed and rows <= FEW_ROWS else "") or self.library
        return library == "onednn" and rows * inputs * outputs >= ONEDNN_PRODUCTS

    def use_bmm(self, keys: int) -> bool:
        """Returns whether training computes attention to that many keys by batched products."""
        return self.bmm and keys <= BMM_KEYS

    def __str__(self) -> str:
        return f"{self.products_text}; attention {'bmm' if self.bmm else 'fused'}"

    @property
    def products_text(self) -> str:
        """Says which library computes products."""
        names = {"onednn": "oneDNN", "blas": "BLAS"}
        text = f"{names[self.library]} for float32 products"
        if self.packed not in ("", self.library):
            text += f", {names[self.packed]} for few rows and a packed weight"
        return text + (", BLAS for small ones" if self.uses_onednn else "")


KERNELS = Kernels()


def current() -> Kernels:
    """Returns the choice of this process."""
    return KERNELS


def use(kernels: Kernels) -> None:
    """Makes `kernels` the choice of this process."""
    global KERNELS
    KERNELS = kernels
