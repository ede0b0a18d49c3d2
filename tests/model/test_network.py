"""The model, compared with independent implementations, and the laws of its masks, positions and ties."""

import dataclasses
import warnings
from typing import Any

import pytest
import torch
from drawn import some
from networks import BOS, PAD, SEQUENCES, SMALL, VARIANTS, V, make, padded, sequences
from torch import Tensor, nn

from vtrans.config import ModelConfig, resolve_tie
from vtrans.model.layers import DecoderLayer
from vtrans.model.network import Decoder, Transformer, count_parameters
from vtrans.training.recipe import load_recipe


def test_logits_equal_those_of_torch_transformer() -> None:
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


def copy_into_torch(model: Transformer, reference: nn.Transformer) -> None:
    def attention(theirs: Any, in_weight: Tensor, in_bias: Tensor, out: nn.Linear) -> None:
        theirs.in_proj_weight.copy_(in_weight)
        theirs.in_proj_bias.copy_(in_bias)
        theirs.out_proj.weight.copy_(out.weight)
        theirs.out_proj.bias.copy_(out.bias)

    def rest(ours: Any, theirs: Any, norms: list[tuple[Any, Any]]) -> None:
        theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
        theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
        for mine, other in norms:
            other.load_state_dict(mine.norm.state_dict())

    stacks: Any = [(model.encoder, reference.encoder), (model.decoder, reference.decoder)]
    with torch.no_grad():
        for a, theirs in zip(model.encoder.layers, reference.encoder.layers, strict=True):
            attention(theirs.self_attn, a.self_attention.qkv.weight, a.self_attention.qkv.bias, a.self_attention.out)
            rest(a, theirs, [(a.self_attention_residual, theirs.norm1), (a.feed_forward_residual, theirs.norm2)])
        assert isinstance(model.decoder, Decoder)
        for b, theirs in zip(model.decoder.layers, reference.decoder.layers, strict=True):
            assert isinstance(b, DecoderLayer)
            attention(theirs.self_attn, b.self_attention.qkv.weight, b.self_attention.qkv.bias, b.self_attention.out)
            cross = b.cross_attention
            attention(
                theirs.multihead_attn,
                torch.cat([cross.query.weight, cross.kv.weight]),
                torch.cat([cross.query.bias, cross.kv.bias]),
                cross.out,
            )
            rest(
                b,
                theirs,
                [
                    (b.self_attention_residual, theirs.norm1),
                    (b.cross_attention_residual, theirs.norm2),
                    (b.feed_forward_residual, theirs.norm3),
                ],
            )
        for ours, theirs in stacks:
            if theirs.norm is not None:
                theirs.norm.load_state_dict(ours.final_norm.state_dict())


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


def test_sinusoidal_positions_are_the_papers_and_reach_any_length() -> None:
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
