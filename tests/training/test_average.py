"""Averages of checkpoints: plain means that count a tied matrix once. Models that cannot be averaged are refused."""

import dataclasses
import shutil
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runner import Run
from drawn import seed_of
from model_files import make
from safetensors.torch import load_file
from torch import Tensor

import vtrans.training.average
from vtrans.config import TIE_FORMS, Recipe, SearchConfig, TrainConfig
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import aliases, load_model, save_model
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import save_state, state_of
from vtrans.storage.tensors import Framework, open_tensors, write_tensors
from vtrans.system.errors import FileError, InputError
from vtrans.training.average import average, newest_checkpoints, usual_checkpoints
from vtrans.training.optimization.optimizer import make_optimizer
from vtrans.training.recipe import recipe_toml


def saved(data: DataFolder, path: Path, seed: int, **config: Any) -> Path:
    """A model file with weights drawn from `seed`, which is also its step."""
    tie = config.pop("tie", "src-tgt-softmax" if data.joint else "tgt-softmax")
    loaded = make(data, tie, seed=seed_of(seed), **config)
    save_model(path, dataclasses.replace(loaded, search=SearchConfig(), training={"step": seed}))
    return path


@pytest.mark.parametrize(("count", "tie"), [(1, TIE_FORMS[0]), *((3, tie) for tie in TIE_FORMS)])
def test_an_average_counts_a_shared_matrix_once(tmp_path: Path, tiny_data: DataFolder, count: int, tie: str) -> None:
    files = [saved(tiny_data, tmp_path / str(i), seed=10 - i, tie=tie) for i in range(count)]
    out, shares = tmp_path / "mean.safetensors", list[float]()
    steps = average(files, out, progress=lambda weights, share: shares.append(share))
    assert steps == sorted(10 - i for i in range(count))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    parts = [load_file(f) for f in files]
    mean = load_file(out)
    assert set(mean) == set(parts[0])
    for name, value in mean.items():
        if name.startswith("vocabulary.") or count == 1:
            assert torch.equal(value, parts[0][name])
            continue
        expected = torch.stack([p[name].double() for p in parts]).mean(0)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), expected, rtol=1e-7, atol=1e-9)
    loaded = load_model(out)
    assert loaded.training == {"average_of": steps, "run_step": 10}
    assert aliases(loaded.model) == aliases(load_model(files[0]).model)
    assert out.stat().st_size - files[0].stat().st_size < 100  # of the header, not of a matrix


class _Watched:
    """A file that counts the tensors read from it that are still alive."""

    def __init__(self, file: Any, alive: weakref.WeakSet[Tensor], most: list[int]) -> None:
        self.file, self.alive, self.most = file, alive, most

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def get_tensor(self, name: str) -> Tensor:
        tensor: Tensor = self.file.get_tensor(name).clone()
        if not name.startswith("vocabulary."):
            self.alive.add(tensor)
            self.most.append(len(self.alive))
        return tensor


def test_averaging_holds_few_tensors(tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
    most: list[int] = []

    @contextmanager
    def watched(path: Path, kind: str, framework: Framework = "np") -> Iterator[tuple[Any, dict[str, Any]]]:
        with open_tensors(path, kind, framework) as (file, header):
            yield _Watched(file, alive, most), header

    files = [saved(tiny_data, tmp_path / str(i), seed=i) for i in range(6)]
    monkeypatch.setattr(vtrans.training.average, "open_tensors", watched)
    average(files, tmp_path / "out")
    weights = [name for name in load_file(files[0]) if not name.startswith("vocabulary.")]
    assert len(most) == 6 * len(weights)
    assert max(most) <= 3  # one of the first file, the one being added, and the one before it


def refused(files: list[Path], out: Path, *words: str) -> None:
    with pytest.raises(InputError) as caught:
        average(files, out)
    for word in words:
        assert word in str(caught.value)
    assert not out.exists()


def test_other_architectures_are_refused_by_name(tmp_path: Path, tiny_data: DataFolder) -> None:
    good = saved(tiny_data, tmp_path / "good", seed=1)
    out = tmp_path / "out"
    others: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"d_ff": 32}, ("model.d_ff is 24", "32")),
        ({"norm": "pre"}, ("model.norm is post", "pre")),
        ({"decoder_layers": 3}, ("model.decoder_layers is 2", "3")),
        ({"positions": "learned"}, ("model.positions is sinusoidal", "learned")),
    ]
    for number, (config, words) in enumerate(others):
        refused([good, saved(tiny_data, tmp_path / str(number), seed=1, **config)], out, *words, "good", str(number))
    # Dropout may differ, since it does not change what the weights mean.
    average([good, saved(tiny_data, tmp_path / "dropout", seed=2, dropout=0.3, attention_dropout=0.1)], out)


def changed(source: Path, target: Path, name: str, change: Callable[[Tensor], Tensor]) -> Path:
    with open_tensors(source, "model") as (_, header):
        write_tensors(target, load_file(source) | {name: change(load_file(source)[name])}, header)
    return target


def test_other_vocabularies_are_refused(tmp_path: Path, tiny_data: DataFolder, tiny_data_separate: DataFolder) -> None:
    good = saved(tiny_data, tmp_path / "good", seed=1)
    out = tmp_path / "out"
    name = "src_embedding.weight"
    shape = changed(good, tmp_path / "shape", name, lambda t: t[:300].clone())
    refused([good, shape], out, f"{shape}: {name} must have the shape [320, 16]", "[300, 16]")
    column = changed(good, tmp_path / "column", name, lambda t: t[:, :1].clone())  # would broadcast silently
    refused([good, column], out, f"{column}: {name} must have the shape [320, 16]", "[320, 1]")

    separate = saved(tiny_data_separate, tmp_path / "separate", seed=1)
    joint = saved(tiny_data, tmp_path / "joint", seed=1, tie="tgt-softmax")
    refused([joint, separate], out, "different vocabularies", "joint", "separate")
    refused([], out, "no checkpoints")


def test_an_average_never_replaces_a_checkpoint(run_copy: RunFolder, tmp_path: Path) -> None:
    files = newest_checkpoints(run_copy, 2)
    elsewhere = shutil.copyfile(files[0], tmp_path / "elsewhere.safetensors")
    before = {file: file.read_bytes() for file in run_copy.path.glob("*.safetensors")}
    for out in (files[0], run_copy.best, run_copy.last, run_copy.step_file(7), elsewhere):
        with pytest.raises(InputError, match="`out`"):
            average(files, out)
    assert {file: file.read_bytes() for file in run_copy.path.glob("*.safetensors")} == before


def test_few_checkpoints_get_a_warning(run_copy: RunFolder, run_cli: Run) -> None:
    advice = "a larger train.keep_last keeps more"
    assert advice in run_cli("average", run_copy.path, "--last", "9").err
    run_copy.recipe.write_text("[train]\nkeep_last = 9\n")  # training has not made as many yet
    said = run_cli("average", run_copy.path, "--last", "9").err
    assert advice not in said
    assert "of these 9 checkpoints" in said


def run_with(tmp_path: Path, data: DataFolder, *steps: int) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.states.mkdir(parents=True)
    for step in steps:
        saved(data, run.step_file(step), seed=step)
    model = load_model(run.step_file(steps[-1])).model
    optimizer = make_optimizer(model.parameters(), TrainConfig())
    save_state(run.state_file(steps[-1]), state_of(optimizer, dict(model.named_parameters())), {"seconds": 600.0})
    return run


def test_the_newest_checkpoints_are_chosen(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = run_with(tmp_path, tiny_data, 0, 20, 30, 40, 50)
    last = [run.step_file(s) for s in (20, 30, 40, 50)]
    assert newest_checkpoints(run, 2) == last[-2:]
    assert newest_checkpoints(run, 9) == last  # without the untrained model of step 0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"schedule": "inverse-sqrt", "keep_last": 3}, [94, 95, 100]),
        ({"schedule": "inverse-sqrt", "keep_last": 9}, [60, 80, 94, 95, 100]),
        ({"schedule": "cosine"}, [95, 100]),
        ({"schedule": "wsd"}, [95, 100]),
        ({"schedule": "wsd", "final_rate": 1.0}, [60, 80, 94, 95, 100]),  # it does not fall
        ({"schedule": "cosine", "warmup": 100}, [60, 80, 94, 95, 100]),  # it only rose
        ({"schedule": "linear", "keep_last": 1}, [100]),
        ({"schedule": "cosine", "max_steps": 101}, [60, 80, 94, 95, 100]),  # not finished
        ({"schedule": "cosine", "max_steps": 10**6, "max_minutes": 10.0}, [95, 100]),
        ({"schedule": "cosine", "max_steps": 10**6, "max_minutes": 10.1}, [60, 80, 94, 95, 100]),
    ],
)
def test_the_end_of_a_falling_rate_is_averaged(
    tmp_path: Path, tiny_data: DataFolder, run_cli: Run, settings: dict[str, Any], expected: list[int]
) -> None:
    run = run_with(tmp_path, tiny_data, 0, 60, 80, 94, 95, 100)
    config = TrainConfig(**{"max_steps": 100, "warmup": 10} | settings)
    assert usual_checkpoints(run, config) == [run.step_file(step) for step in expected]
    run.recipe.write_text(recipe_toml(Recipe(train=config)))
    assert run_cli("average", run.path).code == 0
    assert load_model(run.averaged).training["average_of"] == expected


def test_a_run_without_recipe_uses_the_recipe_of_its_state(run_copy: RunFolder, run_cli: Run) -> None:
    run_copy.recipe.unlink()
    run_copy.step_file(7).write_bytes(run_copy.step_file(20).read_bytes())
    assert run_cli("average", run_copy.path).code == 0
    assert load_model(run_copy.averaged).training["average_of"] == [20, 30]  # keep_last is 2, and not the default
    shutil.rmtree(run_copy.states)
    assert "--last" in run_cli("average", run_copy.path).err
    assert run_cli("average", run_copy.path, "--last", "1").code == 0
    assert load_model(run_copy.averaged).training["average_of"] == [30]


def test_a_run_without_checkpoints_says_so(tmp_path: Path, tiny_data: DataFolder) -> None:
    with pytest.raises(FileError, match="there is no run folder"):
        newest_checkpoints(RunFolder(tmp_path / "none"), 5)
    untrained = run_with(tmp_path, tiny_data, 0)
    with pytest.raises(FileError, match="no trained checkpoint"):
        newest_checkpoints(untrained, 5)


def test_float16_halves_the_file_and_rounds_each_weight_once(tmp_path: Path, tiny_data: DataFolder) -> None:
    files = [saved(tiny_data, tmp_path / str(i), seed=i, d_model=64, d_ff=512) for i in range(2)]
    full, half = tmp_path / "full.safetensors", tmp_path / "half.safetensors"
    average(files, full)
    average(files, half, float16=True)
    means, rounded = load_file(full), load_file(half)
    weights = sum(mean.numel() for mean in means.values() if mean.dtype == torch.float32)
    assert full.stat().st_size - half.stat().st_size == pytest.approx(2 * weights, rel=0.01)
    for name, mean in means.items():
        if name.startswith("vocabulary."):
            assert torch.equal(rounded[name], mean)
        else:  # the mean in float64 is rounded to float16 directly, so it may differ by one step from the float32 mean
            assert rounded[name].dtype == torch.float16
            torch.testing.assert_close(rounded[name].float(), mean, rtol=2**-11 + 2**-23, atol=2**-25)
    loaded = load_model(half)
    for name, weight in loaded.model.state_dict().items():
        assert weight.dtype == torch.float32
        assert aliases(loaded.model).get(name) or torch.equal(weight, rounded[name].float())


def test_an_average_has_the_search_settings_of_the_newest_checkpoint(tmp_path: Path, tiny_data: DataFolder) -> None:
    for step in (1, 2, 3):
        loaded = load_model(saved(tiny_data, tmp_path / str(step), seed=step))
        search = SearchConfig(beam=step, max_length=10 * step)
        save_model(tmp_path / str(step), dataclasses.replace(loaded, search=search))
    average([tmp_path / str(step) for step in (2, 3, 1)], tmp_path / "out")
    assert load_model(tmp_path / "out").search == SearchConfig(beam=3, max_length=30)
    average([tmp_path / "out", tmp_path / "2"], tmp_path / "again")  # an average is as new as its newest
    assert load_model(tmp_path / "again").search.beam == 3


@pytest.mark.parametrize(("value", "place"), [(torch.nan, 0), (-torch.inf, 1)])
def test_non_finite_weights_are_refused(tmp_path: Path, tiny_data: DataFolder, value: float, place: int) -> None:
    files = [saved(tiny_data, tmp_path / str(seed), seed=seed) for seed in (1, 2)]
    name = "encoder.layers.0.feed_forward.inner.weight"
    files[place] = changed(files[place], tmp_path / "bad", name, lambda t: t.index_fill(0, torch.tensor([2]), value))
    with pytest.raises(FileError, match=name) as caught:
        average(files, tmp_path / "out")
    assert str(files[place]) in str(caught.value)
    assert not (tmp_path / "out").exists()
