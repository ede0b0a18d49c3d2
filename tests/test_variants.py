"""Every variant of weight sharing: shared modules are one module, and are counted, trained and saved once."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import VALID_PAIRS, tiny_train
from drawn import some
from networks import V, make, padded, sequences
from runs import BRIEF, interrupted, same
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from vtrans.config import ModelConfig
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import aliases, load_model, weights_of
from vtrans.model.network import Transformer, count_parameters
from vtrans.model.positions import tensor_of
from vtrans.model.rotary import sinusoidal
from vtrans.system.errors import RecipeError
from vtrans.training.average import average
from vtrans.training.recipe import load_recipe
from vtrans.translate.loading import load

PLAIN = ModelConfig(d_model=16, d_ff=24, heads=4, encoder_layers=4, decoder_layers=4, tie="src-tgt-softmax")


@dataclass(frozen=True)
class Variant:
    """The recipe keys of a variant, and what it shares.

    `sublayers` has one letter per layer, and equal letters are one module. Its strings are the self-attention of the
    encoder and of the decoder, the cross-attention, and the feed-forward of the encoder and of the decoder.
    """

    keys: dict[str, Any]
    sublayers: tuple[str, str, str, str, str] = ("abcd", "efgh", "ABCD", "abcd", "efgh")

    @property
    def config(self) -> ModelConfig:
        return dataclasses.replace(PLAIN, **self.keys)


ONE_STACK = {"architecture": "decoder-only", "encoder_layers": 0}
ONLY = ("", "efgh", "", "", "efgh")
LEARNED: dict[str, Any] = {"positions": "learned", "max_positions": 64}
VARIANTS = {
    "plain": Variant({}),
    "pre-norm": Variant({"norm": "pre"}),
    "tgt-softmax": Variant({"tie": "tgt-softmax"}),
    "src-tgt": Variant({"tie": "src-tgt"}),
    "none": Variant({"tie": "none"}),
    "positions": Variant(LEARNED),
    "shared positions": Variant(LEARNED | {"share_positions": True}),
    "rotary": Variant({"positions": "rotary", "norm": "pre"}),
    "attention": Variant({"share_layers": "attention"}, ("aaaa", "eeee", "AAAA", "abcd", "efgh")),
    "feed-forward": Variant({"share_layers": "feed-forward"}, ("abcd", "efgh", "ABCD", "aaaa", "eeee")),
    "all": Variant({"share_layers": "all"}, ("aaaa", "eeee", "AAAA", "aaaa", "eeee")),
    "groups of 2": Variant({"share_layers": "all", "share_group": 2}, ("aabb", "eeff", "AABB", "aabb", "eeff")),
    "stacks": Variant({"share_stacks": True}, ("abcd", "abcd", "ABCD", "abcd", "abcd")),
    "stacks and groups": Variant(
        {"share_stacks": True, "share_layers": "all", "share_group": 2}, ("aabb", "aabb", "AABB", "aabb", "aabb")
    ),
    "stacks, other depths, all": Variant(
        {"share_stacks": True, "share_layers": "all", "encoder_layers": 6, "decoder_layers": 2},
        ("aaaaaa", "aa", "AA", "aaaaaa", "aa"),
    ),
    "SSRU": Variant({"autoregression": "ssru"}),
    "SSRU, groups of 2": Variant(
        {"autoregression": "ssru", "share_layers": "all", "share_group": 2}, ("aabb", "eeff", "AABB", "aabb", "eeff")
    ),
    "unscaled": Variant({"scale_embedding": False}),
    "of Marian": Variant(
        LEARNED | {"positions": "stored", "share_positions": True, "activation": "swish", "norm_eps": 1e-9}
    ),
    "no source EOS": Variant({"source_eos": False}),
    "no cross-attention residual": Variant({"cross_attention_residual": False}),
    "prefix": Variant(ONE_STACK, ONLY),
    "causal": Variant(ONE_STACK | {"source_mask": "causal"}, ONLY),
    "causal, learned positions": Variant(ONE_STACK | {"source_mask": "causal", "norm": "pre"} | LEARNED, ONLY),
    "prefix, groups of 2": Variant(
        ONE_STACK | {"share_layers": "attention", "share_group": 2}, ("", "eeff", "", "", "efgh")
    ),
}  # fmt: skip
DRAWN = some(VARIANTS, 9)
several_variants = pytest.mark.parametrize("variant", [VARIANTS[name] for name in DRAWN], ids=DRAWN)


def places(model: Transformer, variant: Variant) -> Iterator[tuple[str, nn.Module]]:
    """Yields each sublayer and each residual with a name. Equal names stand for one module."""
    rows = [
        (model.encoder, "self_attention"),
        (model.decoder, "ssru" if model.config.autoregression == "ssru" else "self_attention"),
        (model.decoder, "cross_attention"),
        (model.encoder, "feed_forward"),
        (model.decoder, "feed_forward"),
    ]
    for letters, (stack, attribute) in zip(variant.sublayers, rows, strict=True):
        if not letters:  # a decoder-only model has no encoder layers and no cross-attention
            assert len(model.encoder.layers) == 0
            assert not any("cross_attention" in name for name, _ in model.named_modules())
            continue
        for letter, layer in zip(letters, stack.get_submodule("layers").children(), strict=True):
            yield f"{attribute} {letter}", layer.get_submodule(attribute)
            yield f"{attribute}_residual {letter}", layer.get_submodule(f"{attribute}_residual")


@several_variants
def test_the_gradient_of_a_shared_weight_is_the_sum_over_its_uses(variant: Variant) -> None:
    """The sum is taken over the weights of a copy of the model that shares nothing."""
    shared = make(variant.config)
    apart = make(
        dataclasses.replace(
            variant.config, tie="none", share_positions=False, share_layers="none", share_group=0, share_stacks=False
        )
    )
    owner = aliases(shared)
    own = dict(shared.named_parameters())
    table = {"tgt_positions.weight"} & set(owner)  # a decoder-only model always has one table of positions
    assert set(aliases(apart)) == (table if variant.config.architecture == "decoder-only" else set())
    with torch.no_grad():
        for name, parameter in apart.named_parameters():
            parameter.copy_(own[owner.get(name, name)])
    src, keep = padded(sequences(5, 9))
    tgt = torch.randint(4, V, (2, 6))
    for model in (shared, apart):
        model(src, keep, tgt).log_softmax(-1)[..., 5].sum().backward()  # type: ignore[no-untyped-call]  # torch's own
    sums: dict[str, Tensor] = {}
    for name, parameter in apart.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.any(), name
        first = owner.get(name, name)
        sums[first] = sums.get(first, torch.zeros_like(parameter)) + parameter.grad
    assert set(sums) == set(own)
    for name, parameter in own.items():
        torch.testing.assert_close(parameter.grad, sums[name])


def test_without_its_residual_cross_attention_replaces_its_input() -> None:
    """All weights and the other residuals are equal. The input then has an effect through the query only."""
    for norm in ("post", "pre"):
        config = dataclasses.replace(PLAIN, norm=norm)
        whole, cut = make(config), make(dataclasses.replace(config, cross_attention_residual=False))
        assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), cut.parameters(), strict=True))
        x = torch.randn(2, 5, 16, dtype=torch.float64)
        around = [m.decoder.get_submodule("layers.1.cross_attention_residual") for m in (whole, cut)]
        found = [residual(x, lambda y: y.flip(-1)) for residual in around]
        layer_norm = around[1].get_submodule("norm")
        before = layer_norm(x)
        if norm == "pre":
            torch.testing.assert_close(found[0], x + before.flip(-1))
            torch.testing.assert_close(found[1], before.flip(-1))
        else:
            for out, y in ((found[0], x + x.flip(-1)), (found[1], x.flip(-1))):
                torch.testing.assert_close(out, layer_norm(y))
        for part in ("self_attention_residual", "feed_forward_residual"):
            a, b = (m.decoder.get_submodule(f"layers.1.{part}")(x, lambda y: y.flip(-1)) for m in (whole, cut))
            assert torch.equal(a, b)


# Invalid combinations of keys, and a pattern for the key and the values that the error names.
ONE = ("architecture=decoder-only", "encoder_layers=0")
REFUSED = [
    (["share_group=2"], r"model\.share_group = 2 .*model\.share_layers"),
    (["share_layers=all", "share_group=1"], r"model\.share_layers .*3\+3 .*model\.share_group"),
    (["share_layers=attention", "encoder_layers=1", "decoder_layers=1"], r"model\.share_layers .*1\+1"),
    (["share_stacks=true", "encoder_layers=4"], r"model\.share_stacks .*attention .*4 and 3"),
    (["share_stacks=true", "share_layers=attention", "encoder_layers=4"], r"share_stacks .*feed-forward .*4 and 3"),
    (["share_stacks=true", "share_layers=all", "share_group=3", "encoder_layers=4"], r"share_stacks .*2 and 1"),
    (["share_stacks=true", "autoregression=ssru"], r"model\.share_stacks .*model\.autoregression"),
    (["architecture=decoder-only"], r"model\.encoder_layers .*decoder-only.* 3"),
    ([*ONE, "share_stacks=true"], r"model\.share_stacks .*architecture"),
    ([*ONE, "share_positions=true", "positions=learned"], r"model\.share_positions .*model\.architecture"),
    ([*ONE, "cross_attention_residual=false"], r"model\.cross_attention_residual .*model\.architecture"),
    ([*ONE, "source_eos=false"], r"model\.source_eos .*model\.architecture"),
    ([*ONE, "autoregression=ssru"], r"model\.autoregression .*model\.architecture"),
    ([*ONE, "positions=learned", "max_positions=3"], r"model\.max_positions .*\b4\b.*\b3\b"),
    ([*ONE, "decoder_layers=1", "share_layers=all"], r"model\.share_layers .*0\+1"),
    (["encoder_layers=0"], r"model\.encoder_layers .*decoder-only"),
    (["source_mask=causal"], r"model\.source_mask .*model\.architecture"),
    (["architecture=encoder"], r"model\.architecture .*encoder-decoder.*decoder-only.*'encoder'"),
    (["share_layers=some"], r"model\.share_layers .*none.*attention.*feed-forward.*all.*'some'"),
    (["share_stacks=1"], r"model\.share_stacks .*\b1\b"),
]


@pytest.mark.parametrize(("keys", "words"), REFUSED)
def test_an_error_names_the_keys_that_contradict_each_other(keys: list[str], words: str) -> None:
    with pytest.raises(RecipeError, match=words) as caught:
        load_recipe("small", [f"model.{key}" for key in ("encoder_layers=3", "decoder_layers=3", *keys)])
    assert "\n" not in str(caught.value)


# Each key of these is among the keys of another one.
UNTRAINED = {
    *("plain", "pre-norm", "none", "unscaled", "attention", "stacks"),
    *("no cross-attention residual", "prefix", "causal"),
}
TRAINED = {name: VARIANTS[name] for name in some([name for name in VARIANTS if name not in UNTRAINED], 4)}


@pytest.mark.parametrize("variant", TRAINED.values(), ids=TRAINED)
def test_a_variant_trains_resumes_and_translates(variant: Variant, tmp_path: Path, tiny_data: DataFolder) -> None:
    """A resumed run ends with equal bytes, including the moving average and Adam's state, and every file holds each
    shared tensor once."""
    settings = [f"model.{key}={json.dumps(value)}" for key, value in dataclasses.asdict(variant.config).items()]
    settings += ["train.max_steps=6", "train.checkpoint_every=3", "train.ema=0.5", "train.log_every=1"]
    overrides = (*settings, *BRIEF)
    whole = tiny_train(tiny_data, tmp_path / "whole", *overrides)
    interrupted(tiny_data, tmp_path / "run", 4, *overrides)
    run = tiny_train(tiny_data, tmp_path / "run", *overrides)
    same(run, whole)

    model = load_model(run.last).model
    with safe_open(run.last, "pt") as file:
        listed = json.loads(file.metadata()["vtrans"])["aliases"]
    assert listed == aliases(model)
    saved = {name: t for name, t in load_file(run.last).items() if not name.startswith("vocabulary.")}
    assert set(saved) == set(weights_of(model))
    weights = {name: saved[name] for name, _ in model.named_parameters()}
    assert sum(t.numel() for t in weights.values()) == count_parameters(model)
    tables = [saved[name] for name in saved.keys() - weights.keys()]
    assert len(tables) == (model.config.positions == "stored")
    assert all(torch.equal(table, tensor_of(sinusoidal(64, model.config.d_model))) for table in tables)
    found = list(places(model, variant))
    assert all((a is b) == (name == other) for name, a in found for other, b in found)
    states = {name.rpartition(":")[0] for name in load_file(run.state_file(6))}
    assert states == set(weights)

    files = [run.step_file(step) for step in (3, 6)]
    assert average(files, run.averaged) == [3, 6]
    parts, mean = [load_file(f) for f in files], load_file(run.averaged)
    for name in weights:
        torch.testing.assert_close(mean[name], (parts[0][name] + parts[1][name]) / 2)
    lines = [src for src, _ in VALID_PAIRS]
    translated = list(load(run.path).translate(lines))
    assert len(translated) == len(lines)
    assert load_model(run.averaged).model.config == variant.config
