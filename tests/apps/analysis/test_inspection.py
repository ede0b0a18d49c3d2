"""The parts of a model and the report on a model file.

Counts add up however weights are shared, and every kind of sharing is found.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from cli_runner import Run
from drawn import each_with
from torch import nn

from vtrans.apps.analysis.inspection import Inspection, weight_rows, weights_in
from vtrans.config import ModelConfig, SearchConfig
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import LoadedModel, load_model, save_model
from vtrans.model.network import Transformer, count_parameters, module_list
from vtrans.storage.run_folder import RunFolder

SMALL = ModelConfig(d_model=16, d_ff=24, heads=2, encoder_layers=4, decoder_layers=4, tie="src-tgt-softmax")


def build(**changes: object) -> Transformer:
    config = dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]  # of the right types
    return Transformer(config, 40, 40, joint=True, pad_id=0)


def whole_layers(model: Transformer) -> None:
    model.encoder.layers = module_list([model.encoder.layers[0]] * 4)


def one_weight_of_a_layer(model: Transformer) -> None:
    """Shares less than a whole part."""
    first: Any = model.decoder.layers[0]
    for layer in model.decoder.layers:
        cast(Any, layer).feed_forward.inner.weight = first.feed_forward.inner.weight


def by_recipe(model: Transformer) -> None:
    """Shares nothing but what the recipe says."""


Recipe = dict[str, object]
ALL, STACKS = Recipe(share_layers="all"), Recipe(share_stacks=True)
SHARINGS = [
    *((recipe, by_recipe) for recipe in (Recipe(), ALL | {"share_group": 2}, STACKS, ALL | STACKS)),
    (Recipe(share_layers="attention"), by_recipe),
    (Recipe(), whole_layers),
    (Recipe(), one_weight_of_a_layer),
]


@pytest.mark.parametrize(("sharing", "tie"), each_with(SHARINGS, ["src-tgt-softmax", "tgt-softmax", "src-tgt", "none"]))
def test_counts_add_up_with_any_weight_sharing(sharing: tuple[Recipe, Callable[[Transformer], None]], tie: str) -> None:
    recipe, share = sharing
    model = build(tie=tie, **recipe)
    share(model)
    parts = weights_in(model)
    assert sum(weights.parameters for weights in parts) == count_parameters(model)
    without_sharing = sum(p.numel() for _, p in model.named_parameters(remove_duplicate=False))
    assert without_sharing - count_parameters(model) == sum(weights.saved for weights in parts)
    assert (without_sharing > count_parameters(model)) == (tie != "none" or sharing is not SHARINGS[0])


def test_a_weight_of_a_module_with_submodules_is_a_part() -> None:
    class Both(nn.Module):
        def __init__(self, weight: nn.Parameter) -> None:
            super().__init__()
            self.weight, self.inner = weight, nn.Linear(3, 5)

    weight = nn.Parameter(torch.zeros(7))
    model = nn.ModuleList([Both(weight), Both(weight)])
    assert [(weights.places, weights.parameters) for weights in weights_in(model)] == [
        (("0", "1"), 7),
        (("0.inner",), 20),
        (("1.inner",), 20),
    ]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ("encoder.layers.*.feed_forward.inner", "4 x 408", "", "")),
        ({"encoder_layers": 1}, ("encoder.layers.0.feed_forward.inner", "408", "", "")),
        ({"share_layers": "attention"}, ("decoder.layers.*.cross_attention_residual.norm", "32", "96", "")),
        (
            {"share_layers": "all", "share_group": 2},
            ("encoder.layers.*.feed_forward.inner", "2 x 408", "2 x 408", ""),
        ),
        (
            {"share_stacks": True},
            ("encoder.layers.*.feed_forward.inner", "4 x 408", "4 x 408", "decoder.layers.*.feed_forward.inner"),
        ),
    ],
)
def test_each_shared_part_names_all_its_places(config: dict[str, object], expected: tuple[str, ...]) -> None:
    parts = weights_in(build(**config))
    assert expected in [(part, count, saved, others) for part, count, _, saved, others in weight_rows(parts)]
    assert len(list(weight_rows(parts, full=True))) == len(parts)


def test_the_one_position_table_of_a_decoder_only_model_is_not_shared() -> None:
    model = build(architecture="decoder-only", encoder_layers=0, positions="learned")
    assert [weights.places for weights in weights_in(model) if "src_positions" in weights.places] == [
        ("src_positions",)
    ]


def test_layers_inside_layers_are_listed_separately() -> None:
    """A network of one's own may have them."""

    class Stack(nn.Module):
        def __init__(self, *layers: nn.Module) -> None:
            super().__init__()
            self.layers = nn.ModuleList(layers)

    model = Stack(*(Stack(nn.Linear(3, 5), nn.Linear(3, 5)) for _ in range(2)))
    rows = [row[:2] for row in weight_rows(weights_in(model))]
    assert rows == [("layers.*.layers.0", "2 x 20"), ("layers.*.layers.1", "2 x 20")]


def inspection(tmp_path: Path, data: DataFolder, model: Transformer) -> Inspection:
    file = tmp_path / "model.safetensors"
    loaded = LoadedModel(model, data.src_vocab, data.tgt_vocab, SearchConfig(beam=7), {"step": 12, "data": "abc"})
    save_model(file, loaded)
    return Inspection(file, "", loaded)


def test_the_bytes_add_up_to_the_file(tmp_path: Path, tiny_data: DataFolder) -> None:
    inspected = inspection(tmp_path, tiny_data, build())
    sizes = inspected.bytes()
    assert sizes["file"] == inspected.file.stat().st_size
    assert sizes["weights"] == 4 * inspected.parameters
    assert sizes["vocabulary"] == len(tiny_data.src_vocab.proto)
    assert sizes["file"] == sizes["weights"] + sizes["vocabulary"] + sizes["header"]


def test_output_is_tables_or_json(tiny_run: RunFolder, tiny_data: DataFolder, run_cli: Run) -> None:
    done = run_cli("inspect", tiny_run.path)
    assert done.code == 0
    text = done.out.decode()
    assert "\x1b" not in text
    assert str(tiny_run.best) in text
    assert "tgt_embedding, projection" in text
    done = run_cli("inspect", tiny_run.last, "--json")
    record = json.loads(done.out)
    model = load_model(tiny_run.last).model
    assert record["parameters"] == sum(each["parameters"] for each in record["weights"]) == count_parameters(model)
    assert record["vocabulary"]["src"]["sha256"] == tiny_data.src_vocab.digest
    assert record["training"]["step"] == 30
