"""Starting a run from another model: which rows are copied under each form of tying, and resuming without that
model."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY, make_data, tiny_pairs, tiny_train
from drawn import seed_of
from runs import heard
from safetensors.torch import load_file

from vtrans.config import SearchConfig
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import LoadedModel, load_model, save_model
from vtrans.model.network import Transformer
from vtrans.storage.layout import layout_of
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import read_progress
from vtrans.system.errors import FileError, InputError
from vtrans.text.vocabulary import PAD_ID
from vtrans.training.recipe import load_recipe
from vtrans.training.warm_start import warm_start


@pytest.fixture(scope="module")
def other_data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """Another corpus, whose vocabulary has some subwords in common with the first."""
    pairs = [(f"{en} Colourless green ideas sleep.", f"{de} Farblose Ideen schlafen.") for en, de in tiny_pairs()]
    return make_data(tmp_path_factory.mktemp("other"), train=pairs[:100])


def begin(data: DataFolder, run: Path, model: Path, *overrides: str, fresh: bool = False) -> str:
    """Trains with --init-from. Returns the messages."""
    return heard(data, run, *TINY, *overrides, init_from=model, fresh=fresh)


def made(data: DataFolder, tie: str, **other: Any) -> Transformer:
    config = dataclasses.replace(load_recipe(overrides=TINY).model, tie=tie, **other)
    torch.manual_seed(seed_of(5))
    return Transformer(config, len(data.src_vocab), len(data.tgt_vocab), joint=data.joint, pad_id=PAD_ID)


@pytest.mark.parametrize("tie", ["src-tgt-softmax", "src-tgt", "none"])
@pytest.mark.parametrize("size", [320, 300])
def test_each_tensor_with_a_row_per_subword_is_matched_by_subword(
    tmp_path: Path, tiny_data: DataFolder, other_data: DataFolder, tie: str, size: int
) -> None:
    data = other_data if size == 320 else make_data(tmp_path, vocab_size=size)
    assert (len(tiny_data.src_vocab), len(data.src_vocab)) == (320, size)
    given, model = (made(each, tie, projection_bias=True) for each in (tiny_data, data))
    assert given.projection.bias is not None
    torch.nn.init.normal_(given.projection.bias)
    save_model(tmp_path / "model", LoadedModel(given, tiny_data.src_vocab, tiny_data.tgt_vocab, SearchConfig(), {}))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    taken = warm_start(model, data.src_vocab, data.tgt_vocab, tmp_path / "model")
    shapes, larger = (layout_of(model.config, n, n, joint=True).shapes for n in (size, size + 1))
    by_subword = {name for name in shapes if shapes[name] != larger[name]}
    assert "projection.bias" in by_subword
    places = {tiny_data.src_vocab.piece(i): i for i in range(320)}
    for name in by_subword:
        for row, value in enumerate(model.state_dict()[name]):
            place = places.get(data.src_vocab.piece(row))
            assert torch.equal(value, before[name][row] if place is None else given.state_dict()[name][place])
    for name in {name for name, _ in model.named_parameters()} - by_subword:
        assert torch.equal(model.state_dict()[name], given.state_dict()[name])
    shared = sum(data.src_vocab.piece(i) in places for i in range(size))
    assert (shared < size) == (data is other_data)
    assert taken["src_embedding"] == (shared, size)


def rows_of(model: Transformer, role: str, data: DataFolder) -> dict[str, torch.Tensor]:
    """The matrix row of each subword."""
    vocabulary = data.src_vocab if role == "src_embedding" else data.tgt_vocab
    return {vocabulary.piece(i): row for i, row in enumerate(getattr(model, role).weight)}


def test_any_tie_starts_from_any_other(tmp_path: Path, tiny_data: DataFolder, tiny_data_separate: DataFolder) -> None:
    files = {}
    for data, tie in ((tiny_data, "src-tgt-softmax"), (tiny_data, "src-tgt"), (tiny_data_separate, "none")):
        settings = ("train.max_steps=2", "train.checkpoint_every=2", f"model.tie={tie}")
        files[tie] = tiny_train(data, tmp_path / tie, *settings).last
    # From one matrix to three, with two vocabularies: each takes the row of its subword.
    one = rows_of(load_model(files["src-tgt-softmax"]).model, "src_embedding", tiny_data)
    three = made(tiny_data_separate, "none")
    taken = warm_start(three, tiny_data_separate.src_vocab, tiny_data_separate.tgt_vocab, files["src-tgt-softmax"])
    assert set(taken) == {"src_embedding", "tgt_embedding", "projection"}
    assert taken["tgt_embedding"] == taken["projection"]
    for role in taken:
        assert torch.equal(rows_of(three, role, tiny_data_separate)["e"], one["e"])
    # From three matrices to one: the projection's row, or the source's if the target lacks the subword.
    apart = load_model(files["none"]).model
    given = {role: rows_of(apart, role, tiny_data_separate) for role in taken}
    only_source = next(iter(one.keys() & given["src_embedding"].keys() - given["projection"].keys()))
    for tie, first in (("src-tgt-softmax", "projection"), ("src-tgt", "tgt_embedding")):
        joint = made(tiny_data, tie)
        warm_start(joint, tiny_data.src_vocab, tiny_data.tgt_vocab, files["none"])
        found = rows_of(joint, "src_embedding", tiny_data)
        assert torch.equal(found["e"], given[first]["e"])
        assert torch.equal(found[only_source], given["src_embedding"][only_source])
    # Matrices that are no longer tied start with equal weights.
    loose = made(tiny_data, "none")
    warm_start(loose, tiny_data.src_vocab, tiny_data.tgt_vocab, files["src-tgt"])
    tied = load_model(files["src-tgt"]).model
    assert torch.equal(loose.projection.weight, tied.projection.weight)
    assert torch.equal(loose.src_embedding.weight, loose.tgt_embedding.weight)
    assert not torch.equal(loose.projection.weight, loose.tgt_embedding.weight)


def test_a_longer_position_table_starts_with_the_shorter_one(tmp_path: Path, tiny_data: DataFolder) -> None:
    learned = ("model.positions=learned", "train.max_steps=1")
    file = tiny_train(tiny_data, tmp_path / "run", *learned, "model.max_positions=60").last
    model = made(tiny_data, "src-tgt-softmax", positions="learned", max_positions=80)
    before = model.src_positions.state_dict()["weight"].clone()
    warm_start(model, tiny_data.src_vocab, tiny_data.tgt_vocab, file)
    after, there = model.src_positions.state_dict()["weight"], load_file(file)["src_positions.weight"]
    assert torch.equal(after[:60], there)
    assert torch.equal(after[60:], before[60:])


def test_another_architecture_is_refused_by_name(tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder) -> None:
    settings = ("model.d_ff=64", "model.norm=pre", "model.share_stacks=true", "model.dropout=0.3")
    with pytest.raises(InputError) as caught:
        begin(tiny_data, tmp_path / "run", tiny_run.last, *settings)
    assert str(caught.value).endswith('model.d_ff = 48, model.norm = "post", model.share_stacks = false.')
    assert not (tmp_path / "run").exists()
    with pytest.raises(FileError, match="model"):
        begin(tiny_data, tmp_path / "run", tmp_path / "nothing")
    for setting in ("d_model=64", "heads=4", "activation=gelu", "scale_embedding=false", "decoder_layers=2"):
        name = setting.partition("=")[0]
        with pytest.raises(InputError, match=rf"model\.{name} = "):
            begin(tiny_data, tmp_path / "run", tiny_run.last, f"model.{setting}")


def test_a_run_resumes_exactly_without_the_model_file(
    tmp_path: Path, tiny_run: RunFolder, tiny_data: DataFolder, other_data: DataFolder
) -> None:
    file = tmp_path / "model.safetensors"
    shutil.copyfile(tiny_run.best, file)
    settings = ("train.checkpoint_every=4", "train.ema=0.9")
    said = begin(other_data, tmp_path / "whole", file, *settings, "train.max_steps=8")
    assert " of 320 rows of src_embedding" in said
    begin(other_data, tmp_path / "run", file, *settings, "train.max_steps=4")
    plain = tiny_train(other_data, tmp_path / "plain", *settings, "train.max_steps=8")
    state = RunFolder(tmp_path / "run").state_file(4)
    assert read_progress(state)["init_from"] == str(file)
    file.unlink()
    said = begin(other_data, tmp_path / "run", file, *settings, "train.max_steps=6")
    assert str(file) in said
    assert "rows of" not in said
    run = tiny_train(other_data, tmp_path / "run", *settings, "train.max_steps=8")
    assert run.last.read_bytes() == RunFolder(tmp_path / "whole").last.read_bytes() != plain.last.read_bytes()
    assert str(tmp_path) not in json.dumps(load_model(run.last).training)


def test_resuming_with_another_init_from_is_refused(run_copy: RunFolder, tiny_data: DataFolder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"`init_from`"):
        begin(tiny_data, run_copy.path, run_copy.last, "train.max_steps=40")
    first, second = run_copy.step_file(20), run_copy.step_file(30)
    run = tmp_path / "new"
    begin(tiny_data, run, first, "train.max_steps=1")
    begin(tiny_data, run, first, "train.max_steps=2")
    with pytest.raises(InputError, match=str(second)):
        begin(tiny_data, run, second, "train.max_steps=3")
    assert "every layer" in begin(tiny_data, run, second, "train.max_steps=3", fresh=True)
    with pytest.raises(InputError, match=r"`out`.*best\.safetensors"):
        begin(tiny_data, run, RunFolder(run).best, fresh=True)
