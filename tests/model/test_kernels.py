"""The choice of kernels: what it looks up, what `auto` chooses, and that every way computes the same."""

import platform
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vtrans.model import automatic
from vtrans.model.attention_products import batched_attention, fused_attention
from vtrans.model.automatic import automatic_kernels, automatic_precision
from vtrans.model.kernels import Kernels


def masks(B: int, Q: int, n: int) -> dict[str, Tensor | None]:
    keep_Bn = torch.arange(n) < torch.randint(1, n + 1, (B, 1))
    return {"causal": None, "keys": keep_Bn[:, None, None], "each query": (torch.ones(B, 1, Q, n) > 0).tril()}


@pytest.mark.parametrize("mask", ["causal", "keys", "each query"])
def test_attention_and_its_gradients_are_the_same_in_both_ways(mask: str) -> None:
    B, H, n, d = 3, 2, 7, 4
    keep = masks(B, n, n)[mask]
    # As the model gives them: views of one product.
    qkv = torch.randn(B, n, 3, H, d, dtype=torch.float64, requires_grad=True)
    found = []
    for compute in (fused_attention, batched_attention):
        q, k, v = qkv.transpose(1, 3).unbind(2)
        out = compute(q, k, v, keep, 0.0)
        found.append((out, torch.autograd.grad(out, qkv, torch.ones_like(out).cumsum(-1))[0]))
    for fused, batched in zip(*found, strict=True):
        torch.testing.assert_close(batched, fused, rtol=1e-10, atol=1e-10)


def test_attention_weights_are_dropped_at_their_rate() -> None:
    n = 32
    v = torch.eye(n).expand(64, 1, n, n)
    zeros = torch.zeros(64, 1, n, n)
    weights = batched_attention(zeros, zeros, v, torch.ones(n, n) > 0, 0.25) * n
    dropped = weights == 0
    torch.testing.assert_close(weights[~dropped], torch.full_like(weights[~dropped], 4 / 3))
    assert abs(float(dropped.float().mean()) - 0.25) < 0.01


@pytest.mark.parametrize(
    ("machine", "maker", "mkl", "library", "batched"),
    [
        ("x86_64", "vendor_id\t: GenuineIntel", True, "blas", True),
        ("x86_64", "vendor_id\t: GenuineIntel", False, "onednn", False),
        ("AMD64", "vendor_id\t: AuthenticAMD", True, "onednn", True),
        ("aarch64", "CPU implementer\t: 0x41", False, "blas", False),
    ],
)
def test_the_processor_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, maker: str, mkl: bool, library: str, batched: bool
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor\t: 0\n{maker}\n")
    monkeypatch.setattr(automatic, "HAS_ONEDNN", True)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    assert automatic_kernels(tmp_path) == Kernels(library, bmm=batched)


@pytest.mark.parametrize(
    ("supported", "expected"), [((), "float32"), (("avx512_bf16",), "bfloat16"), (("amx_tile",), "bfloat16")]
)
def test_bfloat16_needs_hardware(monkeypatch: pytest.MonkeyPatch, supported: tuple[str, ...], expected: str) -> None:
    for name in ("avx512_bf16", "amx_tile"):
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda name=name: name in supported, raising=False)
    monkeypatch.setattr(automatic, "has_bfloat16", lambda: True)
    assert automatic_precision(torch.device("cpu")) == expected
    monkeypatch.setattr(automatic, "has_bfloat16", lambda: False)
    assert automatic_precision(torch.device("cpu")) == "float32"
