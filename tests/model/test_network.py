"""The model, compared with independent implementations, and the laws of its masks, positions and ties."""

import dataclasses
import math
import re
import warnings
from typing import Any

import pytest
import torch
from drawn import seed_of, some
from networks import BOS, PAD, SEQUENCE, SEQUENCES, SMALL, VARIANTS, V, make, padded, sequences
from torch import Tensor, nn

from vtrans.config import ModelConfig, resolve_tie
from vtrans.model.dropout import Dropout
from vtrans.model.network import Transformer, count_parameters
from vtrans.model.positions import ComputedPositions, rotate
from vtrans.system.errors import InputError
from vtrans.training.recipe import load_recipe


def test_logits_equal_torch_transformer() -> None:
    for norm in ("post", "pre"):
        config = dataclasses.replace(SMALL, norm=norm)
        model = make(config).float()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="enable_nested_tensor is True")
            reference = nn.Transformer(
                16, 4, 2, 3, 24, dropout=0.0, activation="relu", batch_first=True, norm_first=norm == "pre"
            )  # in training mode, without dropout: its fast path for evaluation uses nested tensors
        if norm == "post":  # torch adds a norm at the end of each stack; post-norm has none
            reference.encoder.norm = None
            reference.decoder.norm = None
        copy_into_torch(model, reference)
        src, keep = padded(sequences(5, 9, 3))
        tgt = torch.randint(4, V, (3, 7))
        with torch.no_grad():
            x = model.src_embedding.weight[src] * 4.0 + model.src_positions(src.shape[1])
            y = model.src_embedding.weight[tgt] * 4.0 + model.tgt_positions(tgt.shape[1])
            hidden = reference(
                x,
                y,
                tgt_mask=nn.Transformer.generate_square_subsequent_mask(7),
                src_key_padding_mask=torch.zeros(keep.shape).masked_fill(~keep, -torch.inf),
                memory_key_padding_mask=torch.zeros(keep.shape).masked_fill(~keep, -torch.inf),
            )
            expected = hidden @ model.src_embedding.weight.T
            logits = model(src, keep, tgt)
        assert torch.all(logits[..., PAD] == -torch.inf)
        torch.testing.assert_close(logits[..., 1:], expected[..., 1:], rtol=0, atol=1e-5)


# Patterns of the names in torch's Transformer, and ours. Its cross-attention has one matrix for queries and keys.
NAMES = {
    r"self_attn\.in_proj_": "self_attention.qkv.",
    r"self_attn\.out_proj": "self_attention.out",
    r"multihead_attn\.out_proj": "cross_attention.out",
    r"linear1": "feed_forward.inner",
    r"linear2": "feed_forward.outer",
    r"norm1": "self_attention_residual.norm",
    r"(encoder.*)norm2": r"\1feed_forward_residual.norm",
    r"norm2": "cross_attention_residual.norm",
    r"norm3": "feed_forward_residual.norm",
    r"coder\.norm": "coder.final_norm",
}


def copy_into_torch(model: Transformer, reference: nn.Transformer) -> None:
    ours, theirs = model.state_dict(), reference.state_dict()
    for name in theirs:
        layer, found, kind = name.partition("multihead_attn.in_proj_")
        if found:
            theirs[name] = torch.cat([ours[f"{layer}cross_attention.{part}.{kind}"] for part in ("query", "kv")])
            continue
        own = name
        for pattern, replacement in NAMES.items():
            own = re.sub(pattern, replacement, own)
        theirs[name] = ours[own]
    reference.load_state_dict(theirs)


@pytest.mark.parametrize(("recipe", "count"), [("paper-base", 63_082_496), ("paper-big", 214_245_376)])
def test_presets_have_the_papers_parameter_counts(recipe: str, count: int) -> None:
    config = load_recipe(recipe).model
    with torch.device("meta"):
        model = Transformer(
            dataclasses.replace(config, tie=resolve_tie(config.tie, True)), 37_000, 37_000, joint=True, pad_id=PAD
        )
    assert count_parameters(model) == count
    papers = {"paper-base": 65e6, "paper-big": 213e6}[recipe]
    assert abs(count - papers) / papers < 0.04


def test_padding_is_never_predicted_and_its_row_gets_no_gradient_from_the_softmax() -> None:
    model = make(dataclasses.replace(SMALL, tie="tgt-softmax"))
    src, keep = padded(sequences(4))
    model(src, keep, torch.tensor([[BOS, 7, 8]])).log_softmax(-1)[0, :, 9].sum().backward()  # type: ignore[no-untyped-call]  # torch's own
    grad = model.projection.weight.grad
    assert grad is not None
    assert not grad[PAD].any()
    assert grad[5:].any()


def test_in_a_decoder_only_model_the_source_never_attends_to_the_target() -> None:
    """With either mask, changing one position changes exactly the positions that attend to it."""
    for config in SEQUENCES:
        model = make(config)
        decoder: Any = model.decoder
        src, keep = padded(sequences(6, 4))  # 7 and 5 with EOS: the second is padded
        tgt = torch.randint(4, V, (2, 5))
        with torch.no_grad():
            outputs = {}
            for name, place in (("nothing", None), ("source", 3), ("target", 10)):
                y, turn = model.embed_tgt(tgt, keep)
                x = torch.cat((model.encode(src, keep), y), 1)
                if place is not None:
                    x[:, place] += 1
                keep_B1nn = decoder.keep(keep, 5)
                for layer in decoder.layers:
                    x = layer(x, turn, keep_B1nn)
                outputs[name] = x
        for name, place in (("source", 3), ("target", 10)):
            moved = (outputs[name] != outputs["nothing"]).any(-1)
            prefix = config.source_mask == "prefix" and name == "source"
            expected = torch.tensor([[(prefix and i < 7) or i >= place for i in range(12)]] * 2)
            assert torch.equal(moved, expected), (config, name)


@pytest.mark.parametrize("config", some([*VARIANTS, *SEQUENCES], 6))
def test_padding_is_inert(config: ModelConfig) -> None:
    model = make(config)
    rows = sequences(5, 9, 2)
    src, keep = padded(rows)
    tgt = torch.randint(4, V, (3, 6))
    with torch.no_grad():
        together = model(src, keep, tgt)
        other = src.masked_fill(~keep, 11)  # other ids in the padding
        assert torch.equal(model(other, keep, tgt), together)
        for i, row in enumerate(rows):
            alone = model(*padded([row]), tgt[i : i + 1])
            torch.testing.assert_close(alone[0, :, 1:], together[i, :, 1:], rtol=0, atol=1e-10)


def test_sinusoidal_positions_match_the_paper_at_any_length() -> None:
    model = make(SMALL)
    table = model.src_positions(700)
    for p, i in ((0, 0), (1, 1), (5, 3), (699, 7)):
        angle = torch.tensor(p / 10000 ** (2 * i / 16), dtype=torch.float64)
        assert abs(table[p, 2 * i] - angle.sin()) < 1e-6
        assert abs(table[p, 2 * i + 1] - angle.cos()) < 1e-6
    assert torch.equal(model.src_positions(10), table[:10])
    assert model.config.max_length is None
    with torch.inference_mode():
        model.tgt_positions(5000)  # the table grown here must also serve training
    memory = torch.randn(1, 4, 16).double()
    out = model.decode(torch.full((1, 3), 5), memory, torch.ones(1, 4, dtype=torch.bool))
    assert torch.autograd.grad(out.sum(), model.tgt_embedding.weight)[0].any()


ROTARY = dataclasses.replace(SMALL, positions="rotary", norm="pre")


def rotated(x_d: Tensor, position: int) -> Tensor:
    """Equation 15 of Su et al. (2021), with a matrix for each pair of values."""
    out = x_d.clone()
    for i in range(len(x_d) // 2):
        angle = position / 10000 ** (2 * i / len(x_d))
        matrix = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        out[2 * i : 2 * i + 2] = matrix.to(x_d) @ x_d[2 * i : 2 * i + 2]
    return out


def test_each_head_is_rotated_by_the_angles_of_its_position() -> None:
    x_TD = torch.randn(300, 12)
    found = rotate(x_TD, ComputedPositions("rotary", 12, 2)(300))  # more positions than the table has at first
    for at in (0, 1, 7, 299):
        heads = torch.cat([rotated(head_d, at) for head_d in x_TD[at].view(2, 6)])
        torch.testing.assert_close(found[at], heads, atol=1e-4, rtol=0)


def test_compiled_training_rotates_by_the_same_formula() -> None:
    x_BTD, rows_TD = torch.randn(2, 7, 8, requires_grad=True), ComputedPositions("rotary", 8, 2)(7)
    (gradient,) = torch.autograd.grad(rotate(x_BTD, rows_TD).square().sum(), x_BTD)
    compiled = torch.compile(rotate, backend="aot_eager", fullgraph=True)(x_BTD, rows_TD)
    torch.testing.assert_close(compiled, rotate(x_BTD, rows_TD))
    torch.testing.assert_close(torch.autograd.grad(compiled.square().sum(), x_BTD)[0], gradient)


def test_the_sequence_of_a_decoder_only_model_has_no_gap_after_a_short_source() -> None:
    model = make(dataclasses.replace(SEQUENCE, positions="rotary"))
    short, long = sequences(3, 9)
    tgt = torch.tensor([[2, 7, 8]])
    alone = model(*padded([short]), tgt)
    beside = model(*padded([short, long]), tgt.expand(2, 3))
    torch.testing.assert_close(beside[:1], alone)


def test_rotary_positions_need_an_even_head_width() -> None:
    with pytest.raises(InputError, match=r"model\.d_model / model\.heads must be even"):
        Transformer(dataclasses.replace(ROTARY, d_model=12), V, V, joint=True, pad_id=0)


def masks(rate: float, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Returns 1 for kept elements and 0 for dropped ones. Checks that all kept elements have the same scale."""
    torch.manual_seed(seed_of(seed))
    out: Tensor = Dropout(rate).train()(torch.ones(shape, dtype=torch.float64))
    scale = (1 << 16) / ((1 << 16) - round(rate * (1 << 16)))
    assert scale == pytest.approx(1 / (1 - rate), rel=1e-3)
    torch.testing.assert_close(out.unique(), torch.tensor([0, scale], dtype=torch.float64))  # type: ignore[no-untyped-call]  # torch
    return out / scale


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.3, 0.5, 0.95])
def test_dropout_has_its_rate_in_every_lane_and_keeps_the_mean(rate: float) -> None:
    keep = masks(rate, (1000, 400))
    sigma = (rate * (1 - rate)) ** 0.5
    assert abs(float(keep.mean()) - (1 - rate)) < 4 * sigma / keep.numel() ** 0.5
    for lane in keep.view(-1, 4).mean(0).tolist():  # one draw decides four elements
        assert abs(lane - (1 - rate)) < 4 * sigma / (keep.numel() / 4) ** 0.5
    assert abs(float(keep.mean(0).std()) - sigma / 1000**0.5) < 0.2 * sigma / 1000**0.5  # columns
    assert abs(float(keep.mean(1).std()) - sigma / 400**0.5) < 0.2 * sigma / 400**0.5  # rows


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dropout_is_reproducible_and_scales_the_gradient_by_its_mask(dtype: torch.dtype) -> None:
    dropout = Dropout(0.4).train()
    x = torch.randn(7, 5, 3, dtype=dtype, requires_grad=True)  # 105 elements are not a multiple of 4
    state = torch.get_rng_state()
    out = dropout(x)
    after = torch.get_rng_state()
    assert not torch.equal(dropout(x), out)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x), out)
    assert torch.equal(torch.get_rng_state(), after)
    assert out.dtype == dtype
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad * x, out)
    assert 0 < int((grad == 0).sum()) < grad.numel()
