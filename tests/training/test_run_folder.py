"""The run folder: one process trains in it, all checks precede writing, and a user's recipe.toml is never replaced."""

import errno
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY, TRAIN_PAIRS, make_data, tiny_train
from corpora import snapshot
from runs import heard, lines, run_trainer, same, set_up_run, story
from safetensors.torch import load_file

from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import InputError, RecipeError
from vtrans.training.recipe import load_recipe
from vtrans.training.trainer import Trainer
from vtrans.training.validation import Validation


def test_resuming_on_other_data_is_refused(
    run_copy: RunFolder, tiny_data: DataFolder, tiny_data_separate: DataFolder, tmp_path: Path
) -> None:
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    before = story(run_copy)
    for other in (tiny_data_separate, make_data(fewer, train=tuple(TRAIN_PAIRS[1:]))):
        with pytest.raises(InputError, match=r"data.*`fresh`"):
            tiny_train(other, run_copy.path, "train.max_steps=40")
    assert story(run_copy) == before


def test_fresh_removes_only_the_files_of_the_run(run_copy: RunFolder, tiny_data: DataFolder, tmp_path: Path) -> None:
    (run_copy.path / "notes.txt").write_text("mine")
    steps = run_copy.steps()
    assert len(steps) in (2, 3)
    run_copy.averaged.write_bytes(run_copy.last.read_bytes())
    with pytest.raises(RecipeError):  # what can't be trained removes nothing
        tiny_train(tiny_data, run_copy.path, "train.batch_tokens=3", fresh=True)
    with pytest.raises(InputError):
        tiny_train(tiny_data, run_copy.path, "model.positions=learned", "model.max_positions=5", fresh=True)
    assert run_copy.averaged.exists()
    assert run_copy.steps() == steps
    tiny_train(tiny_data, run_copy.path, "train.seed=4", fresh=True)
    assert (run_copy.path / "notes.txt").read_text() == "mine"
    (run_copy.path / "notes.txt").unlink()
    assert not run_copy.averaged.exists()
    same(run_copy, tiny_train(tiny_data, tmp_path / "whole", "train.seed=4"))


def test_a_second_training_in_the_same_folder_is_refused(
    tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, refusals = RunFolder(tmp_path / "run"), []
    measure = Validation.measure

    def meanwhile(validation: Validation, step: int, cancelled: Callable[[], bool]) -> dict[str, Any] | None:
        # Refused before the state is read: another recipe would be, too.
        for overrides, fresh in (((), False), (("train.seed=9",), False), ((), True)):
            with pytest.raises(InputError, match="another `vtrans train`") as caught:
                tiny_train(tiny_data, run.path, *overrides, fresh=fresh)
            refusals.append(caught.value.exit_code)
        return measure(validation, step, cancelled)

    monkeypatch.setattr(Validation, "measure", meanwhile)
    same(tiny_train(tiny_data, run.path), tiny_run)
    assert refusals == [2] * 9


def test_a_run_that_another_process_started_is_not_overwritten(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = RunFolder(tmp_path / "run")
    slow = Trainer(set_up_run(tiny_data, run.path))  # it has found no run
    tiny_train(tiny_data, run.path)
    before = story(run)
    with pytest.raises(InputError, match=re.escape(str(run.path))):
        run_trainer(slow)
    assert story(run) == before


def test_a_disk_may_lack_file_locks(tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unknown)
    tiny_train(tiny_data, tmp_path / "run", "train.max_steps=1")


def test_a_refused_training_leaves_no_run_folder(tmp_path: Path, tiny_data: DataFolder) -> None:
    store = tiny_data.train
    longest = max(int(store.src_lengths.max()), int(store.tgt_lengths.max())) + 1
    with pytest.raises(RecipeError, match=f"batch_tokens .*{longest}, .* {longest - 1}"):
        tiny_train(tiny_data, tmp_path / "run", f"train.batch_tokens={longest - 1}")
    with pytest.raises(InputError, match=r"model\.max_positions .* \d+"):
        tiny_train(tiny_data, tmp_path / "run", "model.positions=learned", "model.max_positions=5")
    with pytest.raises(RecipeError, match="did you mean d_model"):
        tiny_train(tiny_data, tmp_path / "run", "model.dmodel=3")
    assert not (tmp_path / "run").exists()
    tiny_train(tiny_data, tmp_path / "run", f"train.batch_tokens={longest}", "train.max_steps=1")


def test_a_refusal_of_another_recipe_names_every_difference(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    before, recipe = story(run_copy), run_copy.recipe.read_bytes()
    changes = {
        "model.d_ff=64": "model.d_ff 48 -> 64",
        "model.tie=none": 'model.tie "src-tgt-softmax" -> "none"',
        "model.dropout=0.2": "model.dropout 0.1 -> 0.2",
        "train.seed=3": "train.seed 1 -> 3",
        "train.warmup=11": "train.warmup 10 -> 11",
        "train.batch_tokens=300": "train.batch_tokens 240 -> 300",
        "train.accumulate=2": "train.accumulate 1 -> 2",
        "train.label_smoothing=0.0": "train.label_smoothing 0.1 -> 0.0",
        "train.learning_rate=0.02": "train.learning_rate 0.01 -> 0.02",
    }
    with pytest.raises(InputError) as caught:
        tiny_train(tiny_data, run_copy.path, "train.max_steps=40", *changes)
    for difference in changes.values():
        assert difference in str(caught.value)
    assert "max_steps" not in str(caught.value)
    assert story(run_copy) == before
    assert run_copy.recipe.read_bytes() == recipe
    # An edited recipe.toml is compared with the recipe in the training state, like any other recipe.
    run_copy.recipe.write_text(recipe.decode().replace("seed = 1", "seed = 5"))
    with pytest.raises(InputError, match=r"train\.seed 1 -> 5"):
        heard(tiny_data, run_copy.path)


ALLOWED = (
    "train.max_steps=40",
    "train.patience=9",
    "train.log_every=3",
    "train.checkpoint_every=4",
    "train.keep_last=3",
    "train.keep_best=1",
    "train.valid_sentences=2",
    "train.valid_beam=2",
    "train.samples=0",
    "train.precision=float32",
    "search.beam=7",
    "search.alpha=1.0",
)


def test_settings_of_saving_and_validation_may_change(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    tiny_train(tiny_data, run_copy.path, *ALLOWED)
    recipe = load_recipe(str(run_copy.recipe))
    for change in ALLOWED:
        section, _, rest = change.partition(".")
        key, _, value = rest.partition("=")
        assert str(getattr(getattr(recipe, section), key)) == value
    assert [line["step"] for line in lines(run_copy) if line["kind"] == "valid"] == [10, 20, 30, 32, 36, 40]
    assert load_model(run_copy.last).search.beam == 7
    # The weights equal those of a run whose settings never changed.
    weights = load_file(run_copy.last)
    straight = tiny_train(tiny_data, run_copy.path.parent / "straight", "train.max_steps=40")
    assert all(torch.equal(value, weights[name]) for name, value in load_file(straight.last).items())


OWN = "# my notes\n" + "".join(
    f"[{section}]\n" + "".join(f"{name.partition('.')[2]}\n" for name in TINY if name.startswith(f"{section}."))
    for section in ("model", "train", "search")
)


@pytest.mark.parametrize("text", [OWN, OWN.partition("\n")[2], "[model\n"])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_recipe_that_the_user_wrote_is_never_overwritten(
    tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder, text: str, fresh: bool
) -> None:
    for folder in (tmp_path / "new", Path(shutil.copytree(tiny_run.path, tmp_path / "run"))):
        run = RunFolder(folder)
        folder.mkdir(exist_ok=True)
        run.recipe.write_text(text)
        before = snapshot(folder)
        for name in (str(run.recipe), None, "small"):
            for dry_run in (False, True):
                with pytest.raises(InputError, match=re.escape(str(run.recipe))):
                    heard(tiny_data, folder, *TINY, recipe=name, fresh=fresh, dry_run=dry_run)
        assert snapshot(folder) == before


def test_the_recipe_that_training_wrote_repeats_the_run(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    own, wanted = str(run_copy.recipe), story(run_copy)
    for fresh in (False, True):
        heard(tiny_data, run_copy.path, recipe=own, fresh=fresh)
        assert story(run_copy) == wanted
    heard(tiny_data, run_copy.path, "train.max_steps=40", recipe=own)
    assert load_recipe(own).train.max_steps == 40
    # A crash before the first state leaves only the recipe and the metrics.
    shutil.rmtree(run_copy.states)
    for file in run_copy.path.glob("*.safetensors"):
        file.unlink()
    tiny_train(tiny_data, run_copy.path)
    assert story(run_copy) == wanted
