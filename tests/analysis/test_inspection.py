"""The anatomy of a model: numbers that add up, sharing found wherever it is, slices that are the heads'."""

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
from test_cli import Done, run_cli  # noqa: F401 - a fixture
from torch import nn

from vtrans.analysis.inspection import Anatomy, Part, overlap_of, shared, tree
from vtrans.checkpoint import LoadedModel, RunFolder, load_model, save_model
from vtrans.config import ModelConfig, SearchConfig
from vtrans.console import Console
from vtrans.data.store import DataFolder
from vtrans.errors import InputError
from vtrans.model import Transformer, count_parameters, make_model, split_heads

SMALL = ModelConfig(d_model=16, d_ff=24, heads=2, encoder_layers=4, decoder_layers=4, tie="src-tgt-softmax")


def build(**changes: object) -> Transformer:
    config = dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]  # of the right types
    return Transformer(config, 40, 40, joint=True, pad_id=0)


def plain(model: Transformer) -> None:
    pass


def whole_layers(model: Transformer) -> None:
    model.encoder.layers = nn.ModuleList([model.encoder.layers[0]] * 4)


def groups_of_two(model: Transformer) -> None:
    first, _, third, _ = model.encoder.layers
    model.encoder.layers = nn.ModuleList([first, first, third, third])


def attention_only(model: Transformer) -> None:
    for layer in model.encoder.layers:
        layer.self_attention = model.encoder.layers[0].self_attention


def between_stacks(model: Transformer) -> None:
    for ours, theirs in zip(model.encoder.layers, model.decoder.layers, strict=True):
        for name in ("self_attention", "feed_forward"):
            setattr(theirs, name, getattr(ours, name))


def everywhere(model: Transformer) -> None:
    whole_layers(model)
    model.decoder.layers = nn.ModuleList([model.decoder.layers[0]] * 4)
    between_stacks(model)


def one_weight_of_a_layer(model: Transformer) -> None:
    """Less than any part."""
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


def leaves(part: Part) -> list[Part]:
    return [leaf for below in part.parts for leaf in leaves(below)] if part.parts else [part]


@pytest.mark.parametrize("share", [*SHARINGS, everywhere])
@pytest.mark.parametrize("tie", ["src-tgt-softmax", "tgt-softmax", "src-tgt", "none"])
def test_the_numbers_add_up_however_weights_are_shared(share: Callable[[Transformer], None], tie: str) -> None:
    model = build(tie=tie)
    share(model)
    whole = tree(model)
    assert whole.parameters == sum(leaf.parameters for leaf in leaves(whole)) == count_parameters(model)
    every = sum(p.numel() for _, p in model.named_parameters(remove_duplicate=False))
    assert every - count_parameters(model) == sum(group.saved for group in shared(model))
    assert (every > count_parameters(model)) == (tie != "none" or share is not plain)


@pytest.mark.parametrize("share", SHARINGS)
def test_what_is_shared_is_named_by_the_largest_parts(share: Callable[[Transformer], None]) -> None:
    model = build(tie="none")
    share(model)
    assert [group.places for group in shared(model)] == SHARINGS[share]


def test_all_places_of_what_is_shared_between_layers_and_stacks() -> None:
    model = build(tie="none")
    everywhere(model)
    places = {group.places for group in shared(model)}
    both = tuple(f"{stack}.layers.{i}.feed_forward" for stack in ("encoder", "decoder") for i in range(4))
    assert both in places
    assert tuple(f"decoder.layers.{i}.cross_attention" for i in range(4)) in places


@pytest.mark.parametrize(
    ("tie", "groups"),
    [
        ("src-tgt-softmax", [("src_embedding", "tgt_embedding", "projection")]),
        ("tgt-softmax", [("tgt_embedding", "projection")]),
        ("src-tgt", [("src_embedding", "tgt_embedding")]),
        ("none", []),
    ],
)
def test_ties_are_named(tie: str, groups: list[tuple[str, ...]]) -> None:
    model = build(tie=tie, positions="learned", share_positions=True)
    assert [group.places for group in shared(model)] == [*groups, ("src_positions", "tgt_positions")]
    again = {leaf.path: leaf.same_as for leaf in leaves(tree(model)) if leaf.same_as}
    expected = {place: group[0] for group in [*groups, ("src_positions", "tgt_positions")] for place in group[1:]}
    assert again == expected


def test_the_one_position_table_of_a_decoder_only_model_is_no_sharing(tmp_path: Path, tiny_data: DataFolder) -> None:
    config = dataclasses.replace(
        SMALL, architecture="decoder-only", encoder_layers=0, positions="learned", tie="tgt-softmax"
    )
    vocab = tiny_data.src_vocab
    model = make_model(config, len(vocab), len(vocab), joint=True, pad_id=0)
    anatomy = Anatomy(tmp_path, "", LoadedModel(model, vocab, vocab, SearchConfig(), {}))
    assert [group.places for group in shared(model)] == [("tgt_embedding", "projection")]
    assert anatomy.parameters_unshared == anatomy.parameters + len(vocab) * config.d_model


def test_a_weight_beside_parts_is_a_part_of_its_own() -> None:
    class Both(nn.Module):
        def __init__(self, weight: nn.Parameter) -> None:
            super().__init__()
            self.weight, self.inner = weight, nn.Linear(3, 5)

    weight = nn.Parameter(torch.zeros(7))
    model = nn.ModuleList([Both(weight), Both(weight)])
    found = leaves(tree(model))
    assert [(leaf.path, leaf.parameters, leaf.same_as) for leaf in found] == [
        ("0.weight", 7, None),
        ("0.inner", 20, None),
        ("1.weight", 0, "0.weight"),
        ("1.inner", 20, None),
    ]
    assert [group.places for group in shared(model)] == [("0.weight", "1.weight")]


def test_the_slices_are_the_matrices_of_the_heads() -> None:
    """x W_i by the rows that are named is what the attention computes for head i."""
    model = build().double()
    x_BTD = torch.randn(2, 5, 16, dtype=torch.float64)
    found = {leaf.path: leaf for leaf in leaves(tree(model))}
    for path in (
        "encoder.layers.1.self_attention.qkv",
        "decoder.layers.0.cross_attention.kv",
        "decoder.layers.3.cross_attention.query",
    ):
        leaf, fused = found[path], cast(nn.Linear, model.get_submodule(path))
        parts = dict(zip(leaf.matrices, fused(x_BTD).chunk(len(leaf.matrices), -1), strict=True))
        assert len(leaf.slices) == 2 * len(leaf.matrices)
        for s in leaf.slices:
            rows = slice(s.first, s.last + 1)
            W_Dd = fused.weight[rows].T
            assert tuple(W_Dd.shape) == s.shape == (16, 8)
            torch.testing.assert_close(x_BTD @ W_Dd + fused.bias[rows], split_heads(parts[s.matrix], 2)[:, s.head])
    assert found["decoder.layers.0.feed_forward.outer"].matrices == ("W_2",)
    assert found["decoder.layers.0.cross_attention.out"].slices == ()


def anatomy(tmp_path: Path, data: DataFolder, model: Transformer) -> Anatomy:
    """Of a model that is loaded again only where the constructor would share as it does."""
    file = tmp_path / "model.safetensors"
    loaded = LoadedModel(model, data.src_vocab, data.tgt_vocab, SearchConfig(beam=7), {"step": 12, "data": "abc"})
    save_model(file, loaded)
    return Anatomy(file, "", loaded)


def shown(found: Anatomy, *, full: bool = False) -> list[str]:
    stream = io.StringIO()
    found.show(Console(stream=stream), full=full)
    return stream.getvalue().split("\n")


def test_the_bytes_are_those_of_the_file(tmp_path: Path, tiny_data: DataFolder) -> None:
    found = anatomy(tmp_path, tiny_data, build())
    sizes = found.bytes()
    assert sizes["file"] == found.file.stat().st_size
    assert sizes["weights"] == 4 * found.parameters
    assert sizes["vocabulary"] == len(tiny_data.src_vocab.proto)
    assert sizes["file"] == sizes["weights"] + sizes["vocabulary"] + sizes["header"]


def test_layers_that_are_alike_are_one_line(tmp_path: Path, tiny_data: DataFolder) -> None:
    lines = shown(anatomy(tmp_path, tiny_data, build()))
    layer = 4 * 16 * 16 + 4 * 16 + 2 * 16 * 24 + 24 + 16 + 4 * 16
    (line,) = (line for line in lines if f"4 x {layer:,}" in line)
    assert line.split() == ["layers", "0-3", "4", "x", f"{layer:,}", "each", "its", "own"]
    assert sum("W_Q, W_K, W_V of 2 heads: [16, 8] each" in line for line in lines) == 2
    assert any(line.startswith("search      beam 7") for line in lines)
    assert any(line.startswith("training    step 12, data abc") for line in lines)
    assert any("also tgt_embedding, projection" in line for line in lines)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (whole_layers, ["0 also encoder.layers.1-3", "layers 1-3 = encoder.layers.0"]),
        (groups_of_two, ["layers 0, 2 2 x", "also encoder.layers.1, 3", "layers 1, 3 = encoder.layers.0, 2"]),
        (between_stacks, ["self_attention also decoder.layers.0-3.self_attention",
                          "feed_forward = encoder.layers.0-3.feed_forward"]),
        (attention_only, ["also encoder.layers.1-3.self_attention", "layers 1-3 3 x",
                          "self_attention = encoder.layers.0.self_attention"]),
    ],
)  # fmt: skip
def test_folded_layers_say_what_they_share(
    share: Callable[[Transformer], None], expected: list[str], tmp_path: Path, tiny_data: DataFolder
) -> None:
    model = build()
    share(model)
    lines = shown(anatomy(tmp_path, tiny_data, model))
    words = [{*line.split()} for line in lines[lines.index("parts") : lines.index("shared")]]
    for line in expected:
        assert any(set(line.split()) <= found for found in words), (line, lines)
    whole_stack = "decoder" if share is not between_stacks else ""
    own = [line for line in lines if "each its own" in line]
    assert len(own) == bool(whole_stack), "said of the layers of a stack that share nothing, and of no others"


@pytest.mark.parametrize(
    ("config", "layers", "groups"),
    [
        (
            {"share_layers": "all", "share_group": 2},
            ["layers 1, 3 = encoder.layers.0, 2", "layers 1, 3 = decoder.layers.0, 2"],
            [
                "encoder.layers.0, 2 = encoder.layers.1, 3, one by one",
                "decoder.layers.0, 2 = decoder.layers.1, 3, one by one",
            ],
        ),
        (
            {"share_layers": "all"},
            ["layers 1-3 = encoder.layers.0", "layers 1-3 = decoder.layers.0"],
            ["encoder.layers.0-3", "decoder.layers.0-3"],
        ),
        (
            {"share_stacks": True},
            [],
            [
                f"encoder.layers.0-3.{part} = decoder.layers.0-3.{part}, one by one"
                for part in ("self_attention", "self_attention_residual", "feed_forward", "feed_forward_residual")
            ],
        ),
    ],
)
def test_the_variants_of_a_recipe_are_named(
    config: dict[str, object], layers: list[str], groups: list[str], tmp_path: Path, tiny_data: DataFolder
) -> None:
    lines = shown(anatomy(tmp_path, tiny_data, build(tie="none", **config)))
    texts = [re.sub(r" {2,}", " ", line).strip() for line in lines]
    at = texts.index("shared")
    assert [line for line in texts[:at] if line.startswith("layers 1")] == layers
    assert [re.sub(r"^((\d x )?[\d,]+ ){2}", "", line) for line in texts[at + 2 : -1]] == groups


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (  # a norm on the line of its residual is marked as well
            {"share_layers": "attention"},
            ["self_attention_residual.norm also encoder.layers.1-3.self_attention_residual",
             "cross_attention_residual.norm also decoder.layers.1-3.cross_attention_residual"],
        ),
        (  # several groups of more than two
            {"share_layers": "all", "share_group": 3, "encoder_layers": 6},
            ["layers 0, 3 also encoder.layers.1-2, 4-5", "layers 1-2, 4-5 = encoder.layers.0, 3"],
        ),
        (  # a last group of one layer shares nothing
            {"share_layers": "all", "share_group": 2, "encoder_layers": 5},
            ["layers 0, 2 also encoder.layers.1, 3", "layers 1, 3 = encoder.layers.0, 2", "4 1,960"],
        ),
        (  # places that differ in more than one number
            {"share_layers": "all", "share_group": 2, "share_stacks": True},
            ["self_attention also encoder.layers.1, 3.self_attention, decoder.layers.0-3.self_attention"],
        ),
    ],
)  # fmt: skip
def test_each_shared_part_is_marked_with_all_the_places_that_use_it(
    config: dict[str, object], expected: list[str], tmp_path: Path, tiny_data: DataFolder
) -> None:
    model = build(**config)
    lines = shown(anatomy(tmp_path, tiny_data, model))
    words = [{*line.split()} for line in lines[lines.index("parts") : lines.index("shared")]]
    for line in expected:
        assert any(set(line.split()) <= found for found in words), (line, lines)
    full = shown(anatomy(tmp_path, tiny_data, model), full=True)
    assert sum(" also " in line for line in full) == len(shared(model))


def test_full_names_each_layer_and_each_head(tmp_path: Path, tiny_data: DataFolder) -> None:
    found = anatomy(tmp_path, tiny_data, build())
    lines = shown(found, full=True)
    assert sum("W_V of head 1" in line for line in lines) == 12  # 4 encoder layers, 4 decoder layers twice
    assert not any("4 x" in line for line in lines)
    assert any("rows 40-47" in line for line in lines)


def test_the_overlap_is_that_of_the_data_folder(tiny_run: RunFolder, tiny_data: DataFolder) -> None:
    loaded = load_model(tiny_run.last)
    found = overlap_of(tiny_data.path, loaded)
    assert found == tiny_data.report["overlap"]
    with_it = shown(Anatomy(tiny_run.last, "", loaded, found))
    assert any(line.startswith("overlap     ") and "% of types seen 1+ times" in line for line in with_it)
    assert any("not in the model file" in line for line in shown(Anatomy(tiny_run.last, "", loaded)))


def test_another_data_folder_is_refused(
    tiny_run: RunFolder, tiny_data: DataFolder, tiny_data_separate: DataFolder
) -> None:
    with pytest.raises(InputError, match="another vocabulary than the model"):
        overlap_of(tiny_data_separate.path, load_model(tiny_run.last))
    loaded = load_model(tiny_run.last)
    with pytest.raises(InputError, match="holds other pairs than the model was trained on"):
        overlap_of(tiny_data.path, dataclasses.replace(loaded, training={"step": 3, "data": "0" * 64}))


def test_the_command_shows_it_plainly_or_as_json(
    tiny_run: RunFolder,
    tiny_data: DataFolder,
    run_cli: Callable[..., Done],  # noqa: F811 - the fixture
) -> None:
    done = run_cli("inspect", tiny_run.path)
    assert done.code == 0
    text = done.out.decode()
    assert "\x1b" not in text
    assert "the best checkpoint" in text
    assert "src_embedding = tgt_embedding = projection" in text
    done = run_cli(
        "inspect", tiny_run.last, "--data", tiny_data.path, "--word", "Hund", "--sentence", "The dog.", "--json"
    )
    found = json.loads(done.out)
    model = load_model(tiny_run.last).model
    assert found["parameters"] == found["tree"]["parameters"] == count_parameters(model)
    assert found["overlap"] == tiny_data.report["overlap"]
    assert found["vocabulary"]["src"]["sha256"] == tiny_data.src_vocab.digest
    assert found["training"]["step"] == 30
    assert len(found["nearest"][0]["rows"]) == 10
    assert len(found["steps"][0]["by_dot"]) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nearest", "3"], "--nearest is of --word and --sentence"),
        (["--word", "a", "--full"], "--full is of the tree"),
        (["--word", " "], "--word must be a word"),
        (["--sentence", ""], "the sentence is blank"),
        (["--sentence", "dog " * 2000], "over the 1,024"),
        (["--nearest", "0", "--word", "a"], "--nearest"),
    ],
)
def test_what_cant_be_shown_is_refused(
    words: list[str],
    message: str,
    tiny_run: RunFolder,
    run_cli: Callable[..., Done],  # noqa: F811 - the fixture
) -> None:
    done = run_cli("inspect", tiny_run.path, *words)
    assert (done.code, done.out) == (2, b"")
    assert message in done.err
