"""The choice of kernels on a CPU: which library computes a float32 product, and how training computes attention.

The faster library depends on the processor: on two Zen 5 cores oneDNN computes [4096, 256] x [256, 1024] at 550 GFLOP/s
and MKL at 245; on two cores of a Xeon, MKL computes [4096, 256] x [256, 8000] at 144 GFLOP/s and oneDNN at 106. So
automatic.py chooses by the processor, and `linear` (products.py) and `dot_product_attention` (attention_products.py)
look the choice up. Kernels round differently, so training states record them.

`KERNELS` is the choice of this process. A process trains at most one model; models that only translate can share the
choice.
"""

from __future__ import annotations

from dataclasses import dataclass

# With fewer multiplications, calling oneDNN costs more than it saves: [64, 128] x [128, 128] is a tie.
ONEDNN_PRODUCTS = 1 << 20
# The largest number of keys for which training may compute attention by batched products. With more keys, the weights
# kept for the backward pass take too much memory, so attention is fused.
BMM_KEYS = 128


@dataclass(frozen=True)
class Kernels:
    """A choice of kernels.

    `library`, "onednn" or "blas", computes the products of at least ONEDNN_PRODUCTS multiplications. The BLAS library
    computes all smaller ones. `bmm`: whether training computes attention by batched products.
    """

    library: str = "onednn"
    bmm: bool = False

    def use_onednn(self, rows: int, inputs: int, outputs: int) -> bool:
        """Returns whether oneDNN computes a product of these sizes, and the products of its gradient."""
        return self.library == "onednn" and rows * inputs * outputs >= ONEDNN_PRODUCTS

    def use_bmm(self, keys: int) -> bool:
        """Returns whether training computes attention to that many keys by batched products."""
        return self.bmm and keys <= BMM_KEYS

    def __str__(self) -> str:
        small = ", BLAS for small ones" if self.library == "onednn" else ""
        library = {"onednn": "oneDNN", "blas": "BLAS"}[self.library]
        return f"{library} for float32 products{small}; attention {'bmm' if self.bmm else 'fused'}"


KERNELS = Kernels()


def current() -> Kernels:
    """Returns the choice of this process."""
    return KERNELS


def use(kernels: Kernels) -> None:
    """Makes `kernels` the choice of this process."""
    global KERNELS
    KERNELS = kernels
