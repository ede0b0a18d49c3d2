"""The parts of a model and the report on a model file.

Counts add up however weights are shared, and every kind of sharing is found.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from cli_runner import Done
from drawn import each_with
from torch import nn

from vtrans.analysis.inspection import Inspection
from vtrans.analysis.parts import part_rows, parts_of, shared_groups, shared_rows
from vtrans.checkpoint import LoadedModel, load_model, save_model
from vtrans.config import ModelConfig, SearchConfig
from vtrans.console import Console
from vtrans.data.store import DataFolder
from vtrans.model import Transformer, count_parameters, module_list
from vtrans.storage.run_folder import RunFolder

SMALL = ModelConfig(d_model=16, d_ff=24, heads=2, encoder_layers=4, decoder_layers=4, tie="src-tgt-softmax")


def build(**changes: object) -> Transformer:
    config = dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]  # of the right types
    return Transformer(config, 40, 40, joint=True, pad_id=0)


def plain(model: Transformer) -> None:
    pass


def whole_layers(model: Transformer) -> None:
    model.encoder.layers = module_list([model.encoder.layers[0]] * 4)


def groups_of_two(model: Transformer) -> None:
    first, _, third, _ = model.encoder.layers
    model.encoder.layers = module_list([first, first, third, third])


def attention_only(model: Transformer) -> None:
    for layer in model.encoder.layers:
        layer.self_attention = model.encoder.layers[0].self_attention


def between_stacks(model: Transformer) -> None:
    for ours, theirs in zip(model.encoder.layers, model.decoder.layers, strict=True):
        for name in ("self_attention", "feed_forward"):
            setattr(theirs, name, getattr(ours, name))


def everywhere(model: Transformer) -> None:
    whole_layers(model)
    model.decoder.layers = module_list([model.decoder.layers[0]] * 4)  # type: ignore[assignment]  # of one kind
    between_stacks(model)


def one_weight_of_a_layer(model: Transformer) -> None:
    """Shares less than a whole part."""
    first: Any = model.decoder.layers[0]
    for layer in model.decoder.layers:
        cast(Any, layer).feed_forward.inner.weight = first.feed_forward.inner.weight


LAYERS, ATTENTION = "encoder.layers", "encoder.layers.{}.self_attention"
SHARINGS: dict[Callable[[Transformer], None], list[tuple[str, ...]]] = {
    plain: [],
    whole_layers: [tuple(f"{LAYERS}.{i}" for i in range(4))],
    groups_of_two: [(f"{LAYERS}.0", f"{LAYERS}.1"), (f"{LAYERS}.2", f"{LAYERS}.3")],
    attention_only: [tuple(ATTENTION.format(i) for i in range(4))],
    between_stacks: [
        (f"{LAYERS}.{i}.{name}", f"decoder.layers.{i}.{name}")
        for i in range(4)
        for name in ("self_attention", "feed_forward")
    ],
    one_weight_of_a_layer: [tuple(f"decoder.layers.{i}.feed_forward.inner.weight" for i in range(4))],
}


@pytest.mark.parametrize(
    ("share", "tie"), each_with([*SHARINGS, everywhere], ["src-tgt-softmax", "tgt-softmax", "src-tgt", "none"])
)
def test_counts_add_up_however_weights_are_shared(share: Callable[[Transformer], None], tie: str) -> None:
    model = build(tie=tie)
    share(model)
    assert sum(part.parameters for part in parts_of(model)) == count_parameters(model)
    without_sharing = sum(p.numel() for _, p in model.named_parameters(remove_duplicate=False))
    assert without_sharing - count_parameters(model) == sum(group.saved for group in shared_groups(model))
    assert (without_sharing > count_parameters(model)) == (tie != "none" or share is not plain)


@pytest.mark.parametrize(
    ("tie", "groups"),
    [
        ("src-tgt-softmax", [("src_embedding", "tgt_embedding", "projection")]),
        ("tgt-softmax", [("tgt_embedding", "projection")]),
        ("src-tgt", [("src_embedding", "tgt_embedding")]),
        ("none", []),
    ],
)
def test_tied_embeddings_are_named(tie: str, groups: list[tuple[str, ...]]) -> None:
    model = build(tie=tie, positions="learned", share_positions=True)
    assert [group.places for group in shared_groups(model)] == [*groups, ("src_positions", "tgt_positions")]
    again = {part.path for part in parts_of(model) if not part.parameters}
    assert again == {place for group in [*groups, ("src_positions", "tgt_positions")] for place in group[1:]}


def test_a_weight_of_a_module_with_submodules_is_a_part() -> None:
    class Both(nn.Module):
        def __init__(self, weight: nn.Parameter) -> None:
            super().__init__()
            self.weight, self.inner = weight, nn.Linear(3, 5)

    weight = nn.Parameter(torch.zeros(7))
    model = nn.ModuleList([Both(weight), Both(weight)])
    parts = [(part.path, part.parameters) for part in parts_of(model)]
    assert parts == [("0", 7), ("0.inner", 20), ("1", 0), ("1.inner", 20)]
    assert [group.places for group in shared_groups(model)] == [("0.weight", "1.weight")]


def test_equal_layers_are_one_row() -> None:
    rows = list(part_rows(parts_of(build(share_layers="attention"))))
    assert ("src_embedding", "640", "[40, 16]") in rows
    assert ("projection", "0", "[40, 16]") in rows
    assert ("encoder.layers.0-3.self_attention.qkv", f"{48 * 16 + 48:,}", "[48, 16] + [48]") in rows
    assert ("decoder.layers.0-3.feed_forward.inner", f"{4 * (24 * 16 + 24):,}", "[24, 16] + [24]") in rows
    assert sum(int(count.replace(",", "")) for _, count, _ in rows) == count_parameters(build(share_layers="attention"))


@pytest.mark.parametrize(
    ("config", "places"),
    [
        (
            {"share_layers": "all", "share_group": 2},
            [
                "encoder.layers.0, 2 = encoder.layers.1, 3, layer by layer",
                "decoder.layers.0, 2 = decoder.layers.1, 3, layer by layer",
            ],
        ),
        ({"share_layers": "all"}, ["encoder.layers.0-3", "decoder.layers.0-3"]),
        (
            {"share_stacks": True},
            [
                f"encoder.layers.0-3.{part} = decoder.layers.0-3.{part}, layer by layer"
                for part in ("self_attention", "self_attention_residual", "feed_forward", "feed_forward_residual")
            ],
        ),
    ],
)
def test_groups_that_repeat_in_each_layer_are_one_row(config: dict[str, object], places: list[str]) -> None:
    groups = shared_groups(build(tie="none", **config))
    assert [row[2] for row in shared_rows(groups)] == places


def inspection(tmp_path: Path, data: DataFolder, model: Transformer) -> Inspection:
    file = tmp_path / "model.safetensors"
    loaded = LoadedModel(model, data.src_vocab, data.tgt_vocab, SearchConfig(beam=7), {"step": 12, "data": "abc"})
    save_model(file, loaded)
    return Inspection(file, "", loaded)


def shown(found: Inspection, *, width: int | None = None) -> list[str]:
    stream = io.StringIO()
    found.show(Console(stream=stream), width=width)
    return stream.getvalue().split("\n")


def test_the_bytes_add_up_to_the_file(tmp_path: Path, tiny_data: DataFolder) -> None:
    inspected = inspection(tmp_path, tiny_data, build())
    sizes = inspected.bytes()
    assert sizes["file"] == inspected.file.stat().st_size
    assert sizes["weights"] == 4 * inspected.parameters
    assert sizes["vocabulary"] == len(tiny_data.src_vocab.proto)
    assert sizes["file"] == sizes["weights"] + sizes["vocabulary"] + sizes["header"]


def test_the_facts_are_shown_and_fit_the_terminal(tmp_path: Path, tiny_data: DataFolder) -> None:
    inspected = inspection(tmp_path, tiny_data, build())
    lines = shown(inspected, width=50)
    assert {("training", "step 12, data abc"), ("search", "beam 7")} <= {
        tuple(re.split(" {2,}", line)) for line in lines
    }
    facts = lines[: lines.index("parts")]
    assert all(len(line) <= 50 or len(line.split()) == 2 for line in facts), "only a long word stands out"
    assert len(facts) > len(shown(inspected)[: shown(inspected).index("parts")])


def test_the_command_prints_tables_or_json(
    tiny_run: RunFolder,
    tiny_data: DataFolder,
    run_cli: Callable[..., Done],
) -> None:
    done = run_cli("inspect", tiny_run.path)
    assert done.code == 0
    text = done.out.decode()
    assert "\x1b" not in text
    assert str(tiny_run.best) in text
    assert "src_embedding = tgt_embedding = projection" in text
    record = json.loads(run_cli("inspect", tiny_run.last, "--json").out)
    model = load_model(tiny_run.last).model
    assert record["parameters"] == sum(part["parameters"] for part in record["parts"]) == count_parameters(model)
    assert record["vocabulary"]["src"]["sha256"] == tiny_data.src_vocab.digest
    assert record["training"]["step"] == 30


def test_a_damaged_file_is_refused(run_copy: RunFolder, run_cli: Callable[..., Done]) -> None:
    raw = bytearray(run_copy.step_file(20).read_bytes())
    raw[-1] ^= 4
    run_copy.step_file(20).write_bytes(raw)
    done = run_cli("inspect", run_copy.step_file(20))
    assert (done.code, done.out) == (2, b"")
    assert str(run_copy.step_file(20)) in done.err
