"""The compiled attention and loss of training equal those of torch, with their gradients.

Legend: B sentences, T queries, n keys, D model width, V vocabulary.
"""

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from compilers import needs_compiler
from drawn import seeded_tensors
from torch import Tensor

from vtrans.config import ModelConfig
from vtrans.data.batches import Batch, Links, collate
from vtrans.engines.compiled import compiler, definitions
from vtrans.model import kernels
from vtrans.model.attention import SelfAttention
from vtrans.model.attention_products import dot_product_attention, merge_heads, split_heads
from vtrans.model.kernels import Kernels
from vtrans.model.layers import Sublayers
from vtrans.model.network import Transformer
from vtrans.model.positions import rotate
from vtrans.system.console import Console
from vtrans.training.optimization.compiled import CompiledTraining, compiled_training
from vtrans.training.optimization.loss import Objective, autocast, into_gradient

pytestmark = needs_compiler
CPU = torch.device("cpu")
TIED: dict[str, Any] = {"tie": "src-tgt-softmax"}


@pytest.fixture(scope="module")
def code() -> CompiledTraining:
    made = compiled_training(Console(quiet=True))
    assert made is not None
    return made


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def expected_attention(
    q_BTD: Tensor, kv_BnD: Tensor | None, heads: int, rotary: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Computes the attention with torch, in float64."""
    if kv_BnD is None:
        q_BTD, k_BnD, v_BnD = q_BTD.chunk(3, -1)
    else:
        k_BnD, v_BnD = kv_BnD.chunk(2, -1)
    if rotary is not None:
        q_BTD, k_BnD = rotate(q_BTD, rotary), rotate(k_BnD, rotary)
    q_BHTd, k_BHnd, v_BHnd = (split_heads(part, heads) for part in (q_BTD, k_BnD, v_BnD))
    return merge_heads(dot_product_attention(q_BHTd, k_BHnd, v_BHnd, mask))


def masks(B: int, T: int, n: int) -> dict[str, Tensor | None]:
    keys = torch.rand(B, 1, 1, n, generator=seeded_tensors(1)) < 0.7
    keys[..., 0] = True  # each query attends to at least one key
    return {"causal": None, "keys": keys, "each query": keys & (torch.ones(T, n) > 0).tril()}


# B, T, n, heads, head width: widths and numbers of keys below, at and above those of vectors and tiles.
SHAPES = [
    (1, 1, 1, 1, 2),
    (3, 7, 7, 2, 4),
    (2, 17, 17, 1, 16),
    (2, 5, 70, 3, 12),
    (2, 70, 5, 2, 64),
    (2, 33, 33, 1, 130),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask", ["causal", "keys", "each query"])
@pytest.mark.parametrize("rotary", ["none", "shared", "of each sentence"])
def test_attention_and_its_gradients_equal_torch(
    code: CompiledTraining, shape: tuple[int, ...], mask: str, rotary: str
) -> None:
    B, T, n, heads, d = shape
    D, draw = heads * d, seeded_tensors(2)
    to_itself = n == T
    q = torch.randn(B, T, D * (3 if to_itself else 1), generator=draw)
    kv = None if to_itself else torch.randn(B, n, 2 * D, generator=draw)
    keep = masks(B, T, n)[mask]
    angles = torch.rand(*([B] if rotary == "of each sentence" else []), T, d // 2, generator=draw)
    rows = torch.stack((angles.cos(), angles.sin()), -1).flatten(-2).repeat(*(1,) * (angles.dim() - 1), heads)
    turns = None if rotary == "none" or not to_itself else rows
    given = [each for each in (q, kv) if each is not None]
    upstream = torch.randn(B, T, D, generator=draw)
    exact = [each.double().requires_grad_() for each in given]
    wanted = expected_attention(exact[0], None if to_itself else exact[1], heads, turns, keep)
    wanted_gradients = torch.autograd.grad(wanted, exact, upstream.double())
    for dtype, error in ((torch.float32, 2e-5), (torch.bfloat16, 3e-2)):
        rounded = [each.to(dtype).requires_grad_() for each in given]
        found = code.attention(rounded[0], None if to_itself else rounded[1], heads, turns, keep)
        assert found.dtype is dtype
        gradients = torch.autograd.grad(found, rounded, upstream.to(dtype))
        for mine, reference in zip((found, *gradients), (wanted, *wanted_gradients), strict=True):
            scale = float(reference.detach().abs().max())
            torch.testing.assert_close(mine.double(), reference, rtol=0, atol=error * scale + 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropped", [0, 1 << 13])
def test_a_residual_connection_drops_the_same_elements_in_both_passes(
    code: CompiledTraining, dtype: torch.dtype, dropped: int
) -> None:
    draw = seeded_tensors(8)
    x, out = torch.randn(300, 101, generator=draw).requires_grad_(), torch.rand(300, 101, generator=draw) + 1
    out = out.to(dtype).requires_grad_()
    torch.manual_seed(9)
    found = code.residual(x, out, dropped)
    upstream = torch.randn(300, 101, generator=draw)
    grad_x, grad_out = torch.autograd.grad(found, (x, out), upstream)
    mask = (found != x) * (1 << 16) / ((1 << 16) - dropped)
    torch.testing.assert_close(found, x + mask * out)
    assert torch.equal(grad_x, upstream)
    torch.testing.assert_close(grad_out, (mask * upstream).to(dtype))
    share = float((mask == 0).float().mean())
    assert abs(share - dropped / (1 << 16)) < 0.01
    torch.manual_seed(9)
    assert torch.equal(code.residual(x, out, dropped), found)
    again = code.residual(x, out, dropped)  # the next mask is another one, which drops as many of the same elements
    both = float(((again == x) & (found == x)).float().mean())
    assert abs(both - share**2) < 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spread", [0.1, 3.0, 1000.0])
def test_the_loss_and_its_gradient_equal_torch(code: CompiledTraining, dtype: torch.dtype, spread: float) -> None:
    p, V, pad = 5, 37, 1
    draw = seeded_tensors(3)
    logits = (spread * torch.randn(p, V, generator=draw)).to(dtype)
    targets = torch.randint(2, V, (p,), generator=draw)
    wanted = logits.double()
    sums = into_gradient(wanted, targets[:, None], 0.1, pad, 0.0)
    found = code.loss_gradient(logits, targets, 0.1, pad)
    torch.testing.assert_close(found, sums[:2], rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(logits.double(), wanted, rtol=0, atol=1e-6 if dtype is torch.float32 else 4e-3)
    assert (logits[:, pad] == 0).all()


def test_a_logit_that_is_not_a_number_shows_in_the_loss(code: CompiledTraining) -> None:
    logits = torch.zeros(2, 40)
    logits[1, 39] = torch.nan
    assert code.loss_gradient(logits, torch.tensor([2, 3]), 0.1, 0).isnan().all()
    assert logits[0].isfinite().all()
    assert logits[1].isnan().any()


def test_threads_change_no_bit(code: CompiledTraining, threads: None) -> None:
    qkv = torch.randn(5, 9, 3 * 24, generator=seeded_tensors(4)).requires_grad_()
    logits, targets = torch.randn(7, 50, generator=seeded_tensors(5)), torch.arange(7)
    found = []
    for number in (1, 3, 8):
        torch.set_num_threads(number)
        torch.manual_seed(10)
        out, row = code.residual(qkv, code.attention(qkv, None, 2, None, None).repeat(1, 1, 3), 99), logits.clone()
        found.append(
            (out, *torch.autograd.grad(out.square().sum(), qkv), code.loss_gradient(row, targets, 0.1, 0), row)
        )
    for others in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], others, strict=True))


def batch_of_pairs() -> Batch:
    sources = [[5, 6, 7, 8, 3], [9, 10, 3], [11, 12, 13, 3]]
    targets = [[20, 21, 3], [22, 23, 24, 25, 3], [26, 3]]
    return collate([torch.tensor(line) for line in sources], [torch.tensor(line) for line in targets])


def gradients(model: Transformer, guided: float, code: CompiledTraining | None, precision: str) -> list[Tensor]:
    """Returns the loss of a batch, and the gradients of all parameters."""
    batch = batch_of_pairs()
    if guided:
        batch = replace(batch, links=Links(torch.tensor([0, 6, 12]), torch.tensor([1.0, 0.5, 0.5])))
    kernels.use(Kernels("blas", compiled=code is not None), code)
    torch.manual_seed(6)
    with autocast(CPU, precision):
        loss = Objective(model, 0.1, guided=guided)(batch)[0]
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize(
    ("settings", "guided"),
    [
        ({}, 0.0),
        ({"positions": "rotary", "norm": "pre", "alignment_layer": 2}, 0.3),
        ({"positions": "rotary", "architecture": "decoder-only", "encoder_layers": 0, "source_mask": "prefix"}, 0.0),
        ({"architecture": "decoder-only", "encoder_layers": 0, "projection_bias": True}, 0.0),
        ({"autoregression": "ssru", "share_layers": "all"}, 0.0),
    ],
)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_model_has_the_gradients_of_torch(
    code: CompiledTraining, settings: dict[str, object], guided: float, precision: str
) -> None:
    sizes = {"d_model": 24, "d_ff": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    config = ModelConfig(**TIED | sizes | settings)
    torch.manual_seed(7)
    model = Transformer(config, 40, 40, joint=True, pad_id=0).train()
    used, attention = [], code.attention
    spy = CompiledTraining(code.library)
    spy.attention = lambda *given: used.append(1) or attention(*given)  # type: ignore[method-assign, func-returns-value]
    mine, theirs = gradients(model, guided, spy, precision), gradients(model, guided, None, "float32")
    assert used
    if precision == "bfloat16":  # products round, so only the whole gradient is close
        mine, theirs = ([torch.cat([each.flatten() for each in found[1:]])] for found in (mine, theirs))
    for found, wanted in zip(mine, theirs, strict=True):
        error = 1e-5 if precision == "float32" else 0.1
        assert float((found - wanted).norm()) <= error * float(wanted.norm()) + 1e-6


class Doubled(SelfAttention):
    def queries_keys_values(self, x_BTD: Tensor, rotary_TD: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().queries_keys_values(x_BTD, rotary_TD)
        return q, k, 2 * v


class DoubledSublayers(Sublayers):
    self_attention_class = Doubled


class DoubledTransformer(Transformer):
    sublayers = DoubledSublayers


def test_a_users_attention_is_not_replaced(code: CompiledTraining) -> None:
    config = ModelConfig(**TIED, d_model=24, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0)
    model = DoubledTransformer(config, 40, 40, joint=True, pad_id=0).train()
    for found, wanted in zip(gradients(model, 0, code, "float32"), gradients(model, 0, None, "float32"), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_without_a_compiler_or_after_a_change_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = io.StringIO()
    monkeypatch.setattr(definitions, "changed_files", lambda: ["search/beam.py"])
    assert compiled_training(Console(stream=heard)) is not None  # training does not search
    monkeypatch.setattr(definitions, "changed_files", lambda: ["training/optimization/loss.py"])
    assert compiled_training(Console(stream=heard)) is None
    assert "has not been compared with vtrans/training/optimization/loss.py" in heard.getvalue()
    monkeypatch.undo()
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(compiler, "_loaded", lambda *_: None)
    assert compiled_training(Console(stream=heard)) is None
    assert "there is no C++ compiler no-such-compiler" in heard.getvalue()
