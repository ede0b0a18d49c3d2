"""The choice of kernels, and the equality of their results: attention, and oneDNN's products."""

import platform
from pathlib import Path

import pytest
import torch
from drawn import seeded_tensors
from torch import Tensor
from torch.nn import functional as F

from vtrans.model import automatic, products
from vtrans.model.attention_products import batched_attention, dot_product_attention
from vtrans.model.automatic import automatic_kernels, automatic_precision, emulates_bfloat16
from vtrans.model.kernels import ONEDNN_PRODUCTS, Kernels
from vtrans.model.products import linear


def masks(B: int, Q: int, n: int) -> dict[str, Tensor | None]:
    keep_Bn = torch.arange(n) < torch.randint(1, n + 1, (B, 1))
    return {"causal": None, "keys": keep_Bn[:, None, None], "each query": (torch.ones(B, 1, Q, n) > 0).tril()}


@pytest.mark.parametrize("mask", ["causal", "keys", "each query"])
def test_attention_and_its_gradients_are_the_same_with_a_mask_and_a_bias(mask: str) -> None:
    B, H, n, d = 3, 2, 7, 4
    keep = masks(B, n, n)[mask]
    # As the model gives them: views of one product.
    qkv = torch.randn(B, n, 3, H, d, dtype=torch.float64, requires_grad=True)
    found = []
    kept = torch.ones(n, n, dtype=torch.bool).tril() if keep is None else keep
    for given in (keep, torch.zeros(kept.shape, dtype=qkv.dtype).masked_fill(~kept, -torch.inf)):
        q, k, v = qkv.transpose(1, 3).unbind(2)
        out = dot_product_attention(q, k, v, given)
        found.append((out, torch.autograd.grad(out, qkv, torch.ones_like(out).cumsum(-1))[0]))
    for fused, batched in zip(*found, strict=True):
        torch.testing.assert_close(batched, fused, rtol=1e-10, atol=1e-10)


def test_attention_weights_are_dropped_at_their_rate() -> None:
    n = 32
    v = torch.eye(n).expand(64, 1, n, n)
    zeros = torch.zeros(64, 1, n, n)
    weights = batched_attention(zeros, zeros, v, torch.zeros(n, n), 0.25) * n
    dropped = weights == 0
    torch.testing.assert_close(weights[~dropped], torch.full_like(weights[~dropped], 4 / 3))
    assert abs(float(dropped.float().mean()) - 0.25) < 0.01


@pytest.mark.parametrize(
    ("machine", "maker", "mkl", "library"),
    [
        ("x86_64", "vendor_id\t: GenuineIntel", True, "blas"),
        ("x86_64", "vendor_id\t: GenuineIntel", False, "onednn"),
        ("AMD64", "vendor_id\t: AuthenticAMD", True, "onednn"),
        ("aarch64", "CPU implementer\t: 0x41", False, "blas"),
    ],
)
def test_automatic_kernels_depend_on_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, maker: str, mkl: bool, library: str
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor\t: 0\n{maker}\n")
    monkeypatch.setattr(automatic, "HAS_ONEDNN", True)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    assert automatic_kernels(tmp_path) == Kernels(library)


@pytest.mark.parametrize(
    ("supported", "maker", "expected"),
    [
        ((), "AuthenticAMD", "float32"),
        (("avx512_bf16",), "AuthenticAMD", "bfloat16"),
        (("avx512_bf16",), "GenuineIntel", "float32"),  # slower than float32
        (("avx512_bf16", "amx_tile"), "GenuineIntel", "bfloat16"),
    ],
)
def test_training_uses_bfloat16_where_it_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supported: tuple[str, ...], maker: str, expected: str
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"vendor_id\t: {maker}\n")
    for name in ("avx512_bf16", "amx_tile"):
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda name=name: name in supported, raising=False)
    monkeypatch.setattr(automatic, "has_bfloat16", lambda: True)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    cpu = torch.device("cpu")
    assert (automatic_precision(cpu, tmp_path), emulates_bfloat16(cpu)) == (expected, not supported)
    monkeypatch.setattr(automatic, "has_bfloat16", lambda: False)
    assert (automatic_precision(cpu, tmp_path), emulates_bfloat16(cpu)) == ("float32", True)


needs_onednn = pytest.mark.skipif(not products.HAS_ONEDNN, reason="this torch has no oneDNN")


def operands(*shape: int, outputs: int, requires_grad: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = seeded_tensors(7)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).requires_grad_(requires_grad)

    return draw(*shape), draw(outputs, shape[-1]), draw(outputs)


@needs_onednn
@pytest.mark.parametrize("shape", [(4096, 32), (8, 512, 32), (2, 2, 1024, 32)])
@pytest.mark.parametrize("outputs", [48, 20])
@pytest.mark.parametrize("biased", [True, False])
def test_outputs_and_gradients_equal_torch(shape: tuple[int, ...], biased: bool, outputs: int) -> None:
    x, weight, bias = operands(*shape, outputs=outputs, requires_grad=True)
    inputs = [x, weight, bias] if biased else [x, weight]
    assert x.numel() * outputs >= ONEDNN_PRODUCTS
    ours, theirs = linear(*inputs), F.linear(*inputs)
    assert "_Product" in type(ours.grad_fn).__name__
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    upstream = torch.randn(ours.shape, generator=seeded_tensors(8))
    for mine, reference in zip(
        torch.autograd.grad(ours, inputs, upstream), torch.autograd.grad(theirs, inputs, upstream), strict=True
    ):
        assert mine.shape == reference.shape
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-3)


@needs_onednn
@pytest.mark.parametrize("wanted", ["x", "weight", "bias"])
def test_only_the_operand_that_requires_a_gradient_gets_one(wanted: str) -> None:
    x, weight, bias = operands(4096, 32, outputs=48)
    named = {"x": x, "weight": weight, "bias": bias}
    named[wanted].requires_grad_()
    linear(x, weight, bias).sum().backward()  # type: ignore[no-untyped-call]  # torch's own
    expected = {"x": weight.sum(0).expand(4096, 32), "weight": x.sum(0).expand(48, 32), "bias": torch.full((48,), 4096)}
    for name, operand in named.items():
        if name != wanted:
            assert operand.grad is None
            continue
        assert operand.grad is not None
        torch.testing.assert_close(operand.grad, expected[name], rtol=1e-4, atol=1e-3, check_dtype=False)
