"""The recipe of a run: what resuming may change, and whose recipe.toml it is."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from conftest import TINY, tiny_train
from corpora import snapshot
from runs import heard, lines, story
from safetensors.torch import load_file

from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import InputError
from vtrans.training.recipe import load_recipe


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
