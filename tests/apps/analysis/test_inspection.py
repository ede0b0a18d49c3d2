"""The parts of a model and the report on a model file.

Counts add up however weights are shared, every kind of sharing is found, and so is damage in any file of a run.
"""

import dataclasses
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from cli_runner import Run
from drawn import each_with
from torch import nn
from translators import window

from vtrans.apps.analysis.checksums import checks
from vtrans.apps.analysis.inspection import Inspection, part_rows, training_overlap
from vtrans.apps.analysis.model_parts import Part, part_tree, shared_groups
from vtrans.apps.analysis.neighbours import steps
from vtrans.config import ModelConfig, SearchConfig
from vtrans.data.store import DataFolder
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import LoadedModel, load_model, save_model
from vtrans.model.network import Transformer, count_parameters, module_list
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.translate.translator import Translator

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


def leaves(part: Part) -> list[Part]:
    return [leaf for below in part.parts for leaf in leaves(below)] if part.parts else [part]


@pytest.mark.parametrize(("sharing", "tie"), each_with(SHARINGS, ["src-tgt-softmax", "tgt-softmax", "src-tgt", "none"]))
def test_counts_add_up_with_any_weight_sharing(sharing: tuple[Recipe, Callable[[Transformer], None]], tie: str) -> None:
    recipe, share = sharing
    model = build(tie=tie, **recipe)
    share(model)
    tree = part_tree(model)
    assert tree.parameters == sum(leaf.parameters for leaf in leaves(tree)) == count_parameters(model)
    without_sharing = sum(p.numel() for _, p in model.named_parameters(remove_duplicate=False))
    assert without_sharing - count_parameters(model) == sum(group.saved for group in shared_groups(model))
    assert (without_sharing > count_parameters(model)) == (tie != "none" or sharing is not SHARINGS[0])


def test_a_weight_of_a_module_with_submodules_is_a_part() -> None:
    class Both(nn.Module):
        def __init__(self, weight: nn.Parameter) -> None:
            super().__init__()
            self.weight, self.inner = weight, nn.Linear(3, 5)

    weight = nn.Parameter(torch.zeros(7))
    model = nn.ModuleList([Both(weight), Both(weight)])
    parts = leaves(part_tree(model))
    assert [(leaf.path, leaf.parameters, leaf.same_as) for leaf in parts] == [
        ("0.weight", 7, None),
        ("0.inner", 20, None),
        ("1.weight", 0, "0.weight"),
        ("1.inner", 20, None),
    ]
    assert [group.places for group in shared_groups(model)] == [("0.weight", "1.weight")]


def notes(model: Transformer, *, full: bool = False) -> list[tuple[str, str, str]]:
    """The name, the count and the note of each row of the table of parts."""
    return [(name.strip(), count, note) for name, count, _, note in part_rows(part_tree(model), full=full)]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (  # a norm that shares a row with its residual
            {"share_layers": "attention"},
            {
                ("self_attention_residual.norm", "shared with encoder.layers.1-3.self_attention_residual"),
                ("cross_attention_residual.norm", "shared with decoder.layers.1-3.cross_attention_residual"),
            },
        ),
        (  # groups of more than two layers
            {"share_layers": "all", "share_group": 3, "encoder_layers": 6},
            {
                ("layers 1, 4 (layers.0, 3 in the file)", "shared with encoder.layers.1-2, 4-5"),
                ("layers 2-3, 5-6 (layers.1-2, 4-5 in the file)", "same as encoder.layers.0, 3"),
            },
        ),
        (  # the last group has one layer, which shares nothing
            {"share_layers": "all", "share_group": 2, "encoder_layers": 5},
            {
                ("layers 1, 3 (layers.0, 2 in the file)", "shared with encoder.layers.1, 3"),
                ("layers 2, 4 (layers.1, 3 in the file)", "same as encoder.layers.0, 2"),
                ("layer 5 (layers.4 in the file)", ""),
            },
        ),
        (  # places in both stacks
            {"share_layers": "all", "share_group": 2, "share_stacks": True},
            {
                (
                    "self_attention",
                    "shared with encoder.layers.1, 3.self_attention, decoder.layers.0-3.self_attention",
                ),
            },
        ),
    ],
)
def test_each_shared_part_names_all_its_places(config: dict[str, object], expected: set[tuple[str, str]]) -> None:
    model = build(**config)
    assert {(name, note) for name, _, note in notes(model)} >= expected
    full = notes(model, full=True)
    assert sum("shared with" in note for _, _, note in full) == len(shared_groups(model))


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


def test_the_overlap_comes_from_the_data_folder(tiny_run: RunFolder, tiny_data: DataFolder) -> None:
    loaded = load_model(tiny_run.last)
    measured = training_overlap(tiny_data.path, loaded)
    assert measured == tiny_data.report["overlap"]
    with_it, without = (shown(Inspection(tiny_run.last, "", loaded, each)) for each in (measured, None))
    (line,) = (line for line in with_it if line.startswith("overlap  "))
    assert f"{measured['rows'][0]['share']:.0%}" in line
    assert line not in without


def test_output_is_tables_or_json(tiny_run: RunFolder, tiny_data: DataFolder, run_cli: Run) -> None:
    done = run_cli("inspect", tiny_run.path)
    assert done.code == 0
    text = done.out.decode()
    assert "\x1b" not in text
    assert str(tiny_run.best) in text
    assert "src_embedding = tgt_embedding = projection" in text
    done = run_cli(
        "inspect", tiny_run.last, "--data", tiny_data.path, "--word", "Hund", "--sentence", "The dog.", "--json"
    )
    record = json.loads(done.out)
    model = load_model(tiny_run.last).model
    assert record["parameters"] == record["tree"]["parameters"] == count_parameters(model)
    assert record["overlap"] == tiny_data.report["overlap"]
    assert record["vocabulary"]["src"]["sha256"] == tiny_data.src_vocab.digest
    assert record["training"]["step"] == 30
    assert len(record["nearest"][0]["rows"]) == 10
    assert len(record["steps"][0]["by_dot"]) == 3


def flip(path: Path, place: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[place] ^= 4
    path.write_bytes(raw)


def test_every_file_of_a_run_is_checked(tiny_run: RunFolder, run_cli: Run) -> None:
    found = list(checks(tiny_run.path))
    assert {Path(check.file).resolve() for check in found} == set(tiny_run.path.resolve().rglob("*.safetensors"))
    assert all(check.tensors and not check.problem for check in found)
    done = run_cli("inspect", tiny_run.path, "--verify")
    assert (done.code, done.err, done.out.count(b"\n")) == (0, "", len(found))


def test_damage_is_named(run_copy: RunFolder, run_cli: Run) -> None:
    flip(run_copy.step_file(20), -1)
    flip(run_copy.state_file(30), -1)
    done = run_cli("inspect", run_copy.path, "--verify", "--json")
    assert done.code == 2
    damaged = {check["file"] for check in json.loads(done.out) if check["problem"]}
    assert damaged == {str(run_copy.step_file(20)), str(run_copy.state_file(30))}
    assert all(file in done.err for file in damaged)
    done = run_cli("inspect", run_copy.step_file(20), "--verify")
    assert (done.code, done.out) == (2, b"")
    assert str(run_copy.step_file(20)) in done.err


def test_the_steps_agree_with_the_search(tiny_run: RunFolder) -> None:
    loaded = load_model(tiny_run.last)
    greedy = Translator(TorchEngine([loaded]), dataclasses.replace(loaded.search, beam=1), retry=False)
    sentence = "The old cat hears me today."
    ((best,),) = greedy.translate_window(window([sentence]))
    text, found = steps(greedy, sentence, 5)
    assert text == best.text
    assert [step.chosen.id for step in found] == list(best.tokens)
    assert [step.logprob for step in found] == pytest.approx(best.token_logprobs, abs=1e-4)
    assert {step.rank_by_dot for step in found} == {1}, "beam 1 chooses the row with the largest dot product"
    E = loaded.model.projection.weight.detach()
    for step in found:
        assert step.by_dot[0] == step.chosen
        assert [row.dot for row in step.by_dot] == sorted((row.dot for row in step.by_dot), reverse=True)
        assert [row.cosine for row in step.by_cosine] == sorted((r.cosine for r in step.by_cosine), reverse=True)
        # The dot product over the cosine is |h| |row|, and |h| is the same for all rows of a step.
        norms = [row.dot / row.cosine / float(E[row.id].norm()) for row in step.by_dot]
        assert norms == pytest.approx([norms[0]] * 5, rel=1e-3)
        assert step.rank_by_cosine >= 1
        assert 0 not in {row.id for row in (*step.by_dot, *step.by_cosine)}, "padding is never predicted"
    _, every = steps(greedy, sentence, 10**6)
    for rows in (every[0].by_dot, every[0].by_cosine):
        assert sorted(row.id for row in rows) == list(range(1, len(loaded.tgt_vocab)))
    assert math.fsum(step.logprob for step in found) == pytest.approx(best.logprob, abs=1e-3)
