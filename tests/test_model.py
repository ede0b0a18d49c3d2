"""The model against independent references, and the laws of its caches, masks and ties."""

from __future__ import annotations

import dataclasses
import random
import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vtrans.config import DECODING_PRECISIONS, TIE_FORMS, ModelConfig
from vtrans.decoding.state import DecodingState
from vtrans.errors import InputError
from vtrans.model import (
    CrossAttention,
    Dropout,
    SelfAttention,
    Transformer,
    count_parameters,
    make_model,
    merge_heads,
    resolve_tie,
)
from vtrans.training.recipe import load_recipe

V, PAD, BOS, EOS = 40, 0, 2, 3
SMALL = ModelConfig(d_model=16, d_ff=24, heads=4, encoder_layers=2, decoder_layers=3, tie="src-tgt-softmax")
VARIANTS = [
    SMALL,
    dataclasses.replace(SMALL, norm="pre", tie="tgt-softmax"),
    dataclasses.replace(SMALL, positions="learned", max_positions=64, activation="gelu", tie="none"),
    dataclasses.replace(SMALL, positions="learned", share_positions=True, norm="pre", tie="src-tgt"),
    dataclasses.replace(SMALL, share_layers="all", share_group=2, norm="pre"),
    dataclasses.replace(SMALL, share_layers="attention", scale_embedding=False),
    dataclasses.replace(SMALL, share_stacks=True, encoder_layers=3),
    dataclasses.replace(SMALL, share_stacks=True, share_layers="all", norm="pre"),
    dataclasses.replace(SMALL, cross_attention_residual=False),
    dataclasses.replace(SMALL, cross_attention_residual=False, norm="pre", encoder_layers=6, decoder_layers=1),
]
SEQUENCE = dataclasses.replace(SMALL, architecture="decoder-only", encoder_layers=0)
SEQUENCES = [
    SEQUENCE,
    dataclasses.replace(SEQUENCE, norm="pre", source_mask="causal", tie="tgt-softmax"),
    dataclasses.replace(SEQUENCE, positions="learned", max_positions=128, share_layers="all"),
    dataclasses.replace(SEQUENCE, norm="pre", scale_embedding=False, tie="none", activation="gelu"),
]


def make(config: ModelConfig = SMALL, *, src: int = V, tgt: int = V, seed: int = 1) -> Transformer:
    """A small model in float64 whose weights are not at their symmetrical start."""
    torch.manual_seed(seed)
    model = make_model(config, src, tgt, joint=src == tgt, pad_id=PAD).double().eval()
    for p in model.parameters():
        p.data += 0.1 * torch.randn_like(p)
    return model


def sequences(*lengths: int, seed: int = 0) -> list[list[int]]:
    """Sources with EOS."""
    generator = torch.Generator().manual_seed(seed)
    return [[*torch.randint(4, V, (n,), generator=generator).tolist(), EOS] for n in lengths]


def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
    return ids, torch.tensor([[i < len(row) for i in range(longest)] for row in rows])


# Parity with independent references.


def test_logits_equal_those_of_torch_transformer() -> None:
    for norm in ("post", "pre"):
        config = dataclasses.replace(SMALL, norm=norm)
        model = make(config).float()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="enable_nested_tensor is True")
            reference = nn.Transformer(
                16, 4, 2, 3, 24, dropout=0.0, activation="relu", batch_first=True, norm_first=norm == "pre"
            )  # in training mode, without dropout: its fast path for evaluation uses nested tensors
        if norm == "post":  # torch adds a norm at the end of each stack, which post-norm has not
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
            found = model(src, keep, tgt)
        assert torch.all(found[..., PAD] == -torch.inf)
        torch.testing.assert_close(found[..., 1:], expected[..., 1:], rtol=0, atol=1e-5)


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

    with torch.no_grad():
        for ours, theirs in zip(model.encoder.layers, reference.encoder.layers, strict=True):
            a: Any = ours
            attention(theirs.self_attn, a.self_attention.qkv.weight, a.self_attention.qkv.bias, a.self_attention.out)
            rest(a, theirs, [(a.self_attention_residual, theirs.norm1), (a.feed_forward_residual, theirs.norm2)])
        for ours, theirs in zip(model.decoder.layers, reference.decoder.layers, strict=True):
            b: Any = ours
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
        for ours, theirs in ((model.encoder, reference.encoder), (model.decoder, reference.decoder)):
            if theirs.norm is not None:
                theirs.norm.load_state_dict(ours.final_norm.state_dict())


def test_logits_equal_those_of_marian_in_transformers() -> None:
    from transformers import MarianConfig, MarianMTModel

    marian: Any = MarianMTModel(
        MarianConfig(
            vocab_size=V,
            d_model=16,
            encoder_layers=2,
            decoder_layers=3,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=64,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
            tie_word_embeddings=True,
        )
    )
    marian.eval()
    model = make().float()
    copy_into_marian(model, marian)
    src, keep = padded(sequences(5, 9, 3))
    tgt = torch.randint(4, V, (3, 7))
    with torch.no_grad():
        expected = marian(input_ids=src, attention_mask=keep.long(), decoder_input_ids=tgt).logits
        found = model(src, keep, tgt)
    torch.testing.assert_close(found[..., 1:], expected[..., 1:], rtol=0, atol=1e-5)


def copy_into_marian(model: Transformer, marian: Any) -> None:
    def linear(theirs: Any, weight: Tensor, bias: Tensor) -> None:
        theirs.weight.copy_(weight)
        theirs.bias.copy_(bias)

    def layer(ours: Any, theirs: Any, *, cross: bool) -> None:
        q, k, v = ours.self_attention.qkv.weight.chunk(3)
        bq, bk, bv = ours.self_attention.qkv.bias.chunk(3)
        for theirs_linear, weight, bias in (
            (theirs.self_attn.q_proj, q, bq),
            (theirs.self_attn.k_proj, k, bk),
            (theirs.self_attn.v_proj, v, bv),
            (theirs.self_attn.out_proj, ours.self_attention.out.weight, ours.self_attention.out.bias),
            (theirs.fc1, ours.feed_forward.inner.weight, ours.feed_forward.inner.bias),
            (theirs.fc2, ours.feed_forward.outer.weight, ours.feed_forward.outer.bias),
        ):
            linear(theirs_linear, weight, bias)
        norms = [(theirs.self_attn_layer_norm, ours.self_attention_residual)]
        norms.append((theirs.final_layer_norm, ours.feed_forward_residual))
        if cross:
            k, v = ours.cross_attention.kv.weight.chunk(2)
            bk, bv = ours.cross_attention.kv.bias.chunk(2)
            linear(theirs.encoder_attn.k_proj, k, bk)
            linear(theirs.encoder_attn.v_proj, v, bv)
            query, out = ours.cross_attention.query, ours.cross_attention.out
            linear(theirs.encoder_attn.q_proj, query.weight, query.bias)
            linear(theirs.encoder_attn.out_proj, out.weight, out.bias)
            norms.append((theirs.encoder_attn_layer_norm, ours.cross_attention_residual))
        for norm, residual in norms:
            linear(norm, residual.norm.weight, residual.norm.bias)

    with torch.no_grad():
        inner = marian.model
        inner.shared.weight.copy_(model.src_embedding.weight)
        marian.final_logits_bias.zero_()
        for stack, ours_stack in ((inner.encoder, model.encoder), (inner.decoder, model.decoder)):
            # Marian puts all sines before all cosines; the paper, and we, take turns.
            stack.embed_positions.weight.copy_(model.src_positions(64))
            for theirs, ours in zip(stack.layers, ours_stack.layers, strict=True):
                layer(ours, theirs, cross=stack is inner.decoder)


@pytest.mark.parametrize("config", VARIANTS)
def test_the_attention_that_is_shown_is_the_attention_that_mixes(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(config)
    src, keep = padded(sequences(5, 9, 3))
    tgt = torch.randint(4, V, (3, 7))
    mixed: list[Tensor] = []
    whole = CrossAttention.forward

    def spied(self: CrossAttention, *args: Any) -> Tensor:
        mixed.append(whole(self, *args))
        return mixed[-1]

    with torch.no_grad():
        memory = model.encode(src, keep)
        monkeypatch.setattr(CrossAttention, "forward", spied)
        model(src, keep, tgt)
        monkeypatch.undo()
        every = model.attentions(src, keep, tgt, 0)
        torch.testing.assert_close(model.attentions(src, keep, tgt, 2), every[2:])
        for layer, p_BHTS in enumerate(every):
            assert p_BHTS.shape == (3, config.heads, 7, src.shape[1])
            torch.testing.assert_close(p_BHTS.sum(-1), torch.ones(3, config.heads, 7, dtype=torch.float64))
            assert (p_BHTS.transpose(1, 3)[~keep] == 0).all()
            cross: Any = model.decoder.get_submodule(f"layers.{layer}.cross_attention")
            _, values_BHSd = cross.keys_values(memory)
            torch.testing.assert_close(cross.out(merge_heads(p_BHTS @ values_BHSd)), mixed[layer])
    assert len(mixed) == len(every) == config.decoder_layers


@pytest.mark.parametrize("config", SEQUENCES)
def test_the_attention_of_one_sequence_that_is_shown_is_the_attention_that_mixes(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole of it; `attentions` is the part of the target positions that goes to the source."""
    model = make(config)
    src, keep = padded(sequences(5, 9, 3))
    tgt = torch.randint(4, V, (3, 7))
    calls: list[tuple[Any, Tensor, Tensor, Tensor]] = []
    whole = SelfAttention.forward

    def spied(self: SelfAttention, x: Tensor, mask: Tensor) -> Tensor:
        calls.append((self, x, mask, whole(self, x, mask)))
        return calls[-1][-1]

    with torch.no_grad():
        monkeypatch.setattr(SelfAttention, "forward", spied)
        model(src, keep, tgt)
        monkeypatch.undo()
        every = model.attentions(src, keep, tgt, 0)
        torch.testing.assert_close(model.attentions(src, keep, tgt, 2), every[2:])
        S = src.shape[1]
        for (attention, x, mask, mixed), shown in zip(calls, every, strict=True):
            p_BHnn = attention.probabilities(x, mask)
            torch.testing.assert_close(p_BHnn.sum(-1), torch.ones(3, config.heads, S + 7, dtype=torch.float64))
            values = x @ attention.qkv.weight[32:].T + attention.qkv.bias[32:]
            values_BHnd = values.view(3, -1, 4, 4).transpose(1, 2)
            torch.testing.assert_close(attention.out(merge_heads(p_BHnn @ values_BHnd)), mixed)
            torch.testing.assert_close(shown, p_BHnn[:, :, S:, :S])
            assert (shown.transpose(1, 3)[~keep] == 0).all()
            assert (shown[:, :, 1:].sum(-1) < 1).all()


# Parameters.


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


def test_each_layer_has_projections_of_its_own() -> None:
    model = make()
    weights = [p for name, p in model.named_parameters() if "layers" in name and p.ndim == 2]
    assert len(weights) == 2 * 4 + 3 * 7
    assert len({p.untyped_storage().data_ptr() for p in weights}) == len(weights)


def test_fused_projections_start_as_they_would_apart() -> None:
    torch.manual_seed(0)
    D = 64
    attention = SelfAttention(ModelConfig(d_model=D, heads=4))
    bound = (6 / (D + D)) ** 0.5  # Xavier uniform of one D x D projection
    for part in attention.qkv.weight.chunk(3):
        assert part.abs().max() <= bound
        assert part.abs().max() > 0.98 * bound
        assert abs(part.std().item() - bound / 3**0.5) < 0.02 * bound
    assert not attention.qkv.bias.any()


def test_scaled_embeddings_and_logits_start_at_unit_variance() -> None:
    torch.manual_seed(0)
    model = Transformer(ModelConfig(d_model=256, tie="src-tgt-softmax"), 2000, 2000, joint=True, pad_id=PAD).eval()
    ids = torch.randint(4, 2000, (8, 50))
    assert abs(model.src_embedding(ids).std().item() - 1) < 0.02
    normed = torch.nn.functional.layer_norm(torch.randn(500, 256), (256,))
    assert abs(model.logits(normed)[:, 1:].std().item() - 1) < 0.03


# Tying.


@pytest.mark.parametrize("tie", TIE_FORMS)
def test_each_form_of_tie_shares_exactly_what_it_names(tie: str) -> None:
    model = make(dataclasses.replace(SMALL, tie=tie))
    src, tgt, out = model.src_embedding.weight, model.tgt_embedding.weight, model.projection.weight
    assert (src is tgt) == (tie in ("src-tgt-softmax", "src-tgt"))
    assert (tgt is out) == (tie in ("src-tgt-softmax", "tgt-softmax"))
    distinct = {"src-tgt-softmax": 1, "tgt-softmax": 2, "src-tgt": 2, "none": 3}[tie]
    assert len({w.data_ptr() for w in (src, tgt, out)}) == distinct
    matrices = [p for p in model.parameters() if p.shape == (V, 16)]
    assert len(matrices) == distinct
    with torch.no_grad():
        tgt[7, 3] = 123.0
    assert (src[7, 3] == 123.0) == (src is tgt)
    assert (out[7, 3] == 123.0) == (tgt is out)


@pytest.mark.parametrize("tie", TIE_FORMS)
def test_ties_survive_a_move(tie: str) -> None:
    model = make(dataclasses.replace(SMALL, tie=tie))
    before = count_parameters(model)
    moved = model.to(torch.float32)
    assert count_parameters(moved) == before
    assert (moved.src_embedding.weight is moved.tgt_embedding.weight) == tie.startswith("src-tgt")
    assert (moved.tgt_embedding.weight is moved.projection.weight) == tie.endswith("softmax")


def test_gradients_of_the_three_uses_add_up_in_one_matrix() -> None:
    tied, untied = make(), make(dataclasses.replace(SMALL, tie="none"))
    own = dict(tied.named_parameters())
    with torch.no_grad():
        for name, p in untied.named_parameters():
            p.copy_(own.get(name, tied.src_embedding.weight))
    src, keep = padded(sequences(5, 9))
    tgt = torch.randint(4, V, (2, 6))
    for model in (tied, untied):
        model(src, keep, tgt).log_softmax(-1)[..., 5].sum().backward()
    parts = [untied.src_embedding.weight.grad, untied.tgt_embedding.weight.grad, untied.projection.weight.grad]
    assert all(part is not None for part in parts)
    total = sum(part for part in parts if part is not None)
    torch.testing.assert_close(tied.src_embedding.weight.grad, total)


@pytest.mark.parametrize("tie", ["src-tgt-softmax", "src-tgt"])
def test_separate_vocabularies_refuse_a_shared_source(tie: str) -> None:
    with pytest.raises(InputError, match=f"model.tie = {tie} .* needs a joint vocabulary"):
        make(dataclasses.replace(SMALL, tie=tie), src=V, tgt=V + 5)
    make(dataclasses.replace(SMALL, tie="tgt-softmax"), src=V, tgt=V + 5)


def test_auto_tie_follows_the_vocabulary() -> None:
    assert resolve_tie("auto", True) == "src-tgt-softmax"
    assert resolve_tie("auto", False) == "tgt-softmax"
    assert resolve_tie("none", True) == "none"


def test_shared_positions_are_one_table() -> None:
    model = make(VARIANTS[3])
    assert model.src_positions is model.tgt_positions
    assert len([n for n, _ in model.named_parameters() if "positions" in n]) == 1
    assert len([n for n, _ in make(VARIANTS[2]).named_parameters() if "positions" in n]) == 2


def test_padding_is_never_predicted_and_its_row_gets_no_gradient_from_the_softmax() -> None:
    model = make(dataclasses.replace(SMALL, tie="tgt-softmax"))
    src, keep = padded(sequences(4))
    model(src, keep, torch.tensor([[BOS, 7, 8]])).log_softmax(-1)[0, :, 9].sum().backward()
    grad = model.projection.weight.grad
    assert grad is not None
    assert not grad[PAD].any()
    assert grad[5:].any()


# Masks and positions.


def test_of_one_sequence_the_source_sees_itself_or_its_past_and_never_the_target() -> None:
    """What changes at which position, in both masks, if one subword does."""
    for config in SEQUENCES:
        model = make(config)
        decoder: Any = model.decoder
        src, keep = padded(sequences(6, 4))  # 7 and 5 with EOS: the second is padded
        tgt = torch.randint(4, V, (2, 5))
        with torch.no_grad():
            outputs = {}
            for name, place in (("nothing", None), ("source", 3), ("target", 10)):
                x = torch.cat((model.encode(src, keep), model.embedded(tgt, keep)), 1)
                if place is not None:
                    x[:, place] += 1
                keep_Bnn = decoder.keep(keep, 5)
                for layer in decoder.layers:
                    x = layer(x, keep_Bnn)
                outputs[name] = x
        for name, place in (("source", 3), ("target", 10)):
            moved = (outputs[name] != outputs["nothing"]).any(-1)
            prefix = config.source_mask == "prefix" and name == "source"
            expected = torch.tensor([[(prefix and i < 7) or i >= place for i in range(12)]] * 2)
            assert torch.equal(moved, expected), (config, name)


def test_positions_of_the_target_go_on_from_the_length_of_its_own_source() -> None:
    model = make(SEQUENCES[0])
    rows = sequences(5, 9)
    _, keep = padded(rows)
    tgt = torch.tensor([[BOS, 7, 8], [BOS, 7, 8]])
    x = model.embedded(tgt, keep)
    for b, row in enumerate(rows):
        table = model.src_positions(20)
        expected = model.src_embedding.weight[tgt[b]] * 4 + table[len(row) : len(row) + 3]
        torch.testing.assert_close(x[b], expected)
    assert not torch.allclose(x[0], x[1])


def test_learned_positions_of_one_sequence_leave_either_side_a_half() -> None:
    model = make(dataclasses.replace(SEQUENCE, positions="learned", max_positions=21))
    assert model.max_length == 10
    rows = sequences(9, 3)
    with torch.inference_mode():
        model(*padded(rows), torch.full((2, 10), 5))
        step_by_step(model, rows, torch.full((2, 1, 10), 5))
        with pytest.raises(InputError, match=r"22 subwords is longer than model\.max_positions = 21"):
            model(*padded(rows), torch.full((2, 12), 5))


def test_a_mask_is_true_where_the_model_attends() -> None:
    """nn.MultiheadAttention means the opposite by True; this settles which is ours."""
    model = make()
    src, _ = padded(sequences(6))
    all_kept = model.encode(src, torch.tensor([[True] * 7]))
    changed = src.clone()
    changed[0, 2] = 9 if src[0, 2] != 9 else 10
    hidden = torch.tensor([[True, True, False, True, True, True, True]])
    with torch.no_grad():
        outside = torch.tensor([0, 1, 3, 4, 5, 6])
        assert torch.equal(model.encode(src, hidden)[:, outside], model.encode(changed, hidden)[:, outside])
        assert not torch.allclose(all_kept, model.encode(changed, torch.tensor([[True] * 7])))


@pytest.mark.parametrize("config", [*VARIANTS, *SEQUENCES])
def test_padding_is_inert(config: ModelConfig) -> None:
    model = make(config)
    rows = sequences(5, 9, 2)
    src, keep = padded(rows)
    tgt = torch.randint(4, V, (3, 6))
    with torch.no_grad():
        together = model(src, keep, tgt)
        other = src.masked_fill(~keep, 11)  # whatever stands in the padding
        assert torch.equal(model(other, keep, tgt), together)
        for i, row in enumerate(rows):
            alone = model(*padded([row]), tgt[i : i + 1])
            torch.testing.assert_close(alone[0, :, 1:], together[i, :, 1:], rtol=0, atol=1e-10)


@pytest.mark.parametrize("config", [SMALL, *SEQUENCES])
def test_decoder_is_causal(config: ModelConfig) -> None:
    model = make(config)
    src, keep = padded(sequences(5))
    tgt = torch.randint(4, V, (1, 8))
    later = tgt.clone()
    later[0, 5:] = 4
    with torch.no_grad():
        a, b = model(src, keep, tgt), model(src, keep, later)
    assert torch.equal(a[:, :5], b[:, :5])
    assert not torch.allclose(a[:, 5:, 1:], b[:, 5:, 1:])


def test_sinusoidal_positions_are_the_papers_and_reach_any_length() -> None:
    model = make(SMALL)
    table = model.src_positions(700)
    for p, i in ((0, 0), (1, 1), (5, 3), (699, 7)):
        angle = torch.tensor(p / 10000 ** (2 * i / 16), dtype=torch.float64)
        assert abs(table[p, 2 * i] - angle.sin()) < 1e-6
        assert abs(table[p, 2 * i + 1] - angle.cos()) < 1e-6
    assert torch.equal(model.src_positions(10), table[:10])
    assert model.max_length is None
    with torch.inference_mode():
        model.tgt_positions(5000)  # grown here, the table must serve training too
    memory = torch.randn(1, 4, 16).double()
    out = model.decode(torch.full((1, 3), 5), memory, torch.ones(1, 4, dtype=torch.bool))
    assert torch.autograd.grad(out.sum(), model.tgt_embedding.weight)[0].any()


def test_learned_positions_end_with_a_sentence() -> None:
    model = make(VARIANTS[2])
    assert model.max_length == 64
    with pytest.raises(InputError, match=r"65 subwords is longer than model\.max_positions = 64"):
        model.src_positions(65)


# Decoding step by step.


def step_by_step(model: Transformer, rows: list[list[int]], tgt_BKT: Tensor) -> Tensor:
    state = model.start(rows, tgt_BKT.shape[1])
    return torch.stack([step(model, state, tgt_BKT[:, :, t]) for t in range(tgt_BKT.shape[2])], 2)


def step(model: Transformer, state: DecodingState, tokens_BK: Tensor) -> Tensor:
    everyone_r = torch.arange(tokens_BK.numel())
    return torch.cat(list(model.step(state, tokens_BK, everyone_r))).view(*tokens_BK.shape, -1)


@pytest.mark.parametrize("config", [*VARIANTS, *SEQUENCES])
def test_step_by_step_equals_the_full_forward(config: ModelConfig) -> None:
    model = make(config)
    rows = sequences(5, 9, 2)
    tgt_BKT = torch.randint(4, V, (3, 2, 40))  # past the first room of the caches
    with torch.inference_mode():
        steps = step_by_step(model, rows, tgt_BKT)
        for b, row in enumerate(rows):
            for k in range(2):
                full = model(*padded([row]), tgt_BKT[b, k][None])[0].log_softmax(-1)
                torch.testing.assert_close(steps[b, k][:, 1:], full[:, 1:], rtol=0, atol=1e-10)


@pytest.mark.parametrize("config", [*VARIANTS, *SEQUENCES])
@pytest.mark.parametrize("width", [1, 3])
def test_each_hypothesis_keeps_its_own_past(config: ModelConfig, width: int) -> None:
    """Rows swap parents, sentences end, others take their places, the batch grows and shrinks: each live
    row still equals its full forward."""
    model = make(config)
    numbers = random.Random(3)
    batch: list[list[int] | None] = list(sequences(6, 4, 9))  # the sources; None: an empty place
    past: list[list[list[int]]] = [[[] for _ in range(width)] for _ in batch]
    calls = Counter[str]()
    with torch.inference_mode():
        state = model.start([source for source in batch if source], width)
        for _ in range(45):  # more than the caches have room for at first
            tokens = torch.tensor([[numbers.randrange(4, V) for _ in range(width)] for _ in batch])
            logprobs = step(model, state, tokens)
            for b, source in enumerate(batch):
                past[b] = [[*row, token] for row, token in zip(past[b], tokens[b].tolist(), strict=True)]
                if source is not None:
                    src, keep = padded([source] * width)
                    full = model(src, keep, torch.tensor(past[b]))[:, -1].log_softmax(-1)
                    torch.testing.assert_close(logprobs[b][:, 1:], full[:, 1:], rtol=0, atol=1e-10)
            parents = [[numbers.randrange(width) for _ in range(width)] for _ in batch]
            model.reorder(state, torch.tensor(parents))
            past = [[rows[parent] for parent in own] for rows, own in zip(past, parents, strict=True)]
            live = [b for b, source in enumerate(batch) if source is not None]
            over = [b for b in live[1:] if numbers.random() < 0.08]
            if over:
                model.drop(state, over)
                batch = [None if b in over else source for b, source in enumerate(batch)]
            empty = [b for b, source in enumerate(batch) if source is None]
            if len(empty) > 1 and numbers.random() < 0.5:
                calls["select"] += 1
                live = [b for b, source in enumerate(batch) if source is not None]
                model.select(state, live)
                batch, past, empty = [batch[b] for b in live], [past[b] for b in live], []
            if len(batch) < 6 and numbers.random() < (0.7 if empty else 0.2):
                fresh = sequences(*(numbers.randint(1, 12) for _ in range(len(empty) + numbers.randint(not empty, 1))))
                calls["admit" if empty else "append"] += 1
                model.admit(state, fresh, empty)
                batch += [None] * (len(fresh) - len(empty))
                past += [[] for _ in range(len(fresh) - len(empty))]
                for b, source in zip([b for b, s in enumerate(batch) if s is None], fresh, strict=True):
                    batch[b], past[b] = source, [[] for _ in range(width)]
    assert min(calls["select"], calls["admit"], calls["append"]) >= 2, calls


def test_where_slots_are_not_counted_each_step_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU."""
    monkeypatch.setattr(DecodingState, "counted", False)
    for config in (SMALL, SEQUENCE):
        test_each_hypothesis_keeps_its_own_past(config, 3)
        test_step_by_step_equals_the_full_forward(config)


def test_where_slots_are_not_counted_the_oldest_says_how_many_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DecodingState, "counted", False)
    model = make(SMALL)
    with torch.inference_mode():
        state = model.start(sequences(4, 4), 2)
        for _ in range(30):
            step(model, state, torch.full((2, 2), 5))
        assert state.near == state.used == 64  # 2 * 30, in whole eights
        model.drop(state, [0])
        model.select(state, [1])
        model.admit(state, sequences(4), [])
        model.drop(state, [0])
        for _ in range(12):
            step(model, state, torch.full((2, 2), 5))
        assert state.near == state.used == 24


@pytest.mark.parametrize("config", [SMALL, *SEQUENCES])
def test_a_dropped_sentence_asks_for_no_position(config: ModelConfig) -> None:
    """Though it stood at the last one that the model has, and those that go on beside it are short."""
    model = make(config)
    rows = sequences(122, 3, 2)
    tgt_BKT = torch.randint(4, V, (3, 2, 12))
    with torch.inference_mode():
        state = model.start(rows, 2)
        for t in range(12):
            given = step(model, state, tgt_BKT[:, :, t])
            if t == 4:
                model.drop(state, [0])
        for b in (1, 2):
            full = model(*padded([rows[b]] * 2), tgt_BKT[b])[:, -1].log_softmax(-1)
            torch.testing.assert_close(given[b, :, 1:], full[:, 1:], rtol=0, atol=1e-10)


def test_positions_are_asked_for_as_far_as_a_sentence_reaches() -> None:
    """Not as far as the longest source and the oldest target together."""
    model = make(SEQUENCES[2])
    with torch.inference_mode():
        state = model.start(sequences(3), 2)
        for t in range(60):
            if t == 40:
                model.admit(state, sequences(107), [])
            step(model, state, torch.full((1 + (t >= 40), 2), 5))
        with pytest.raises(InputError, match="129 subwords"):
            step(model, state, torch.full((2, 2), 5))


def test_an_empty_place_keeps_no_slots() -> None:
    model = make(SMALL)
    with torch.inference_mode():
        state = model.start(sequences(4, 4), 2)
        for t in range(60):
            step(model, state, torch.full((2, 2), 5))
            if t == 30:  # the older of the two would hold 31 columns for ever
                model.drop(state, [0])
                model.drop(state, [1])
                model.admit(state, sequences(4), [1])
    assert state.used <= 64  # of the younger one, whose rows have nothing in common: 2 * 29, in whole eights


def test_slots_that_are_nobodys_past_are_used_again() -> None:
    model = make(SMALL)
    with torch.inference_mode():
        state = model.start(sequences(4, 6), 4)
        for _ in range(40):
            step(model, state, torch.full((2, 4), 5))
            model.reorder(state, torch.tensor([[0, 0, 0, 0], [2, 2, 2, 2]]))
    assert state.used == 48  # 40 that the rows have in common, and the newest of each


@pytest.mark.parametrize("config", [SMALL, *SEQUENCES])
def test_a_sentence_far_behind_the_others_keeps_its_past(config: ModelConfig) -> None:
    """What few sentences use of the caches is looked at for these alone."""
    model, numbers = make(config), random.Random(5)
    sources = sequences(7, *[3, 4] * 4)
    past: list[list[list[int]]] = [[[] for _ in range(3)] for _ in sources]
    with torch.inference_mode():
        state = model.start(sources, 3)
        for t in range(36):
            if t == 30:
                for b in range(8):
                    model.drop(state, [b])
                sources[:8], past[:8] = sequences(*[5, 2] * 4), [[[] for _ in range(3)] for _ in range(8)]
                model.admit(state, sources[:8], range(8))
            tokens = [[numbers.randint(4, V - 1) for _ in range(3)] for _ in sources]
            given = step(model, state, torch.tensor(tokens))
            past = [[[*r, x] for r, x in zip(rows, new, strict=True)] for rows, new in zip(past, tokens, strict=True)]
            if t >= 30:
                assert state.far_f is not None
                assert state.far_f.tolist() == [8]
                for b in (0, 3, 8):
                    for k in range(3):
                        full = model(*padded([sources[b]]), torch.tensor([past[b][k]]))[0, -1].log_softmax(-1)
                        torch.testing.assert_close(given[b, k, 1:], full[1:], rtol=0, atol=1e-10)
            parents = [[numbers.randint(0, 2) for _ in range(3)] for _ in sources]
            model.reorder(state, torch.tensor(parents))
            past = [[rows[k] for k in chosen] for rows, chosen in zip(past, parents, strict=True)]


def test_decoding_follows_a_model_that_learns_on() -> None:
    """Validation decodes between updates; only a frozen model may keep anything of E."""
    model = make().float()
    rows, tokens = sequences(5), torch.tensor([[BOS, BOS]])
    for _ in range(2):
        with torch.inference_mode():
            before = step(model, model.start(rows, 2), tokens)
        with torch.no_grad():  # unseen by the version counter, as a fused optimizer does it
            model.projection.weight.data.add_(torch.randn_like(model.projection.weight))
            full = model(*padded(rows), tokens[:, :1]).log_softmax(-1)
        with torch.inference_mode():
            after = step(model, model.start(rows, 2), tokens)
        assert not torch.allclose(before[..., 1:], after[..., 1:])
        torch.testing.assert_close(after[:, :1, 1:], full[..., 1:], rtol=0, atol=1e-4)


@pytest.mark.parametrize("precision", DECODING_PRECISIONS)
def test_a_frozen_model_decodes_as_it_did(precision: str) -> None:
    model = make().float()
    rows, tokens = sequences(5, 3), torch.tensor([[BOS, BOS], [BOS, BOS]])
    with torch.inference_mode():
        full = step(model, model.start(rows, 2), tokens)
    model.freeze(precision)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert model.src_embedding.weight.dtype == getattr(torch, precision.replace("int8", "float32"))
    with torch.inference_mode():
        found = step(model, model.start(rows, 2), tokens)
    assert found.dtype == torch.float32
    off = (found[..., 1:] - full[..., 1:]).abs().max()
    # Half precision has 8 or 11 bits, 8-bit weights are off by 1/254 of the row's largest.
    assert 0 <= off < {"float32": 1e-5, "float16": 0.01, "bfloat16": 0.1, "int8": 0.05}[precision]
    assert (off > 1e-5) == (precision != "float32")


def test_a_float16_model_gives_log_probabilities_in_float32() -> None:
    model = make().to(torch.bfloat16)
    with torch.inference_mode():
        state = model.start(sequences(3), 1)
        assert step(model, state, torch.tensor([[BOS]])).dtype == torch.float32


# Dropout: its masks come from 16 random bits an element, four elements a draw.


def masks(rate: float, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """1 where an element was kept, after checking that the others are 0 and those are scaled alike."""
    torch.manual_seed(seed)
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
    for lane in keep.view(-1, 4).mean(0).tolist():  # of the four that one draw decides
        assert abs(lane - (1 - rate)) < 4 * sigma / (keep.numel() / 4) ** 0.5
    assert abs(float(keep.mean(0).std()) - sigma / 1000**0.5) < 0.2 * sigma / 1000**0.5  # columns are no likelier
    assert abs(float(keep.mean(1).std()) - sigma / 400**0.5) < 0.2 * sigma / 400**0.5  # nor are rows


def test_dropout_decides_each_element_by_itself() -> None:
    centred = masks(0.3, (1000, 400)).flatten() - 0.7
    variance = 0.3 * 0.7
    for lag in (*range(1, 18), 400, 624, 1248):  # neighbours, draws, rows, the period of the generator's state
        correlation = float((centred[lag:] * centred[:-lag]).mean()) / variance
        assert abs(correlation) < 4.5 / centred.numel() ** 0.5, lag
    other = masks(0.3, (1000, 400), seed=1).flatten() - 0.7
    assert abs(float((centred * other).mean()) / variance) < 4.5 / centred.numel() ** 0.5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dropout_repeats_from_the_generators_state_and_passes_the_gradient_through(dtype: torch.dtype) -> None:
    dropout = Dropout(0.4).train()
    x = torch.randn(7, 5, 3, dtype=dtype, requires_grad=True)  # no multiple of four
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


def test_dropout_does_nothing_in_evaluation_or_at_rate_zero() -> None:
    x = torch.randn(4, 4)
    state = torch.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert torch.equal(torch.get_rng_state(), state)
