"""A network of one's own, in a file that the recipe names: trained, resumed, averaged, translated with, and refused."""

from pathlib import Path

import pytest
from cli_runner import Run, start
from conftest import EVERY_STEP, tiny_train
from guide import EXERCISES
from runs import BRIEF, heard, interrupted, same

import vtrans
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.storage.model_file import read_blueprint
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import FileError, InputError
from vtrans.training.average import average

SETTINGS = (*EVERY_STEP, *BRIEF, "model.network=mine.py:AlibiTransformer")
ALIBI = EXERCISES["alibi.py"]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file, in the current folder."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(ALIBI)
    return file


def test_a_run_with_an_own_network(tmp_path: Path, tiny_data: DataFolder, mine: Path, run_cli: Run) -> None:
    whole = tiny_train(tiny_data, tmp_path / "whole", *SETTINGS)
    interrupted(tiny_data, tmp_path / "run", 9, *SETTINGS)
    assert "bit-exactly" not in heard(tiny_data, tmp_path / "run")
    same(RunFolder(tmp_path / "run"), whole)
    blueprint = read_blueprint(whole.last)
    assert blueprint.model.config.network == "mine.py:AlibiTransformer"
    average([whole.step_file(14), whole.last], whole.averaged)
    moved = mine.rename(tmp_path / "moved.py")
    with pytest.raises(InputError, match=r"mine\.py:AlibiTransformer.*`code`"):
        vtrans.load(whole.averaged)
    with pytest.raises(InputError, match=r"`code` needs the torch engine"):
        vtrans.load(whole.averaged, code=moved, engine="compiled")
    translator = vtrans.load(whole.averaged, code=moved)
    assert translator.engine.name == "torch"
    (translation,) = translator.translate(["The big dog sees me."])
    source = tmp_path / "source.txt"
    source.write_text("The big dog sees me.\n")
    said_again = run_cli("translate", whole.averaged, "--code", moved, stdin=source.read_bytes())
    assert said_again.out.decode() == f"{translation}\n"
    assert run_cli("logprob", whole.averaged, source, source, "--code", moved).code == 0
    assert run_cli("attend", whole.averaged, "The big dog.", "--target", "Der Hund.", "--code", moved).code == 0
    reported = run_cli("report", whole.path, "--out", tmp_path / "report.html")
    assert (reported.code, "AlibiTransformer" in (tmp_path / "report.html").read_text()) == (0, True)
    refused = run_cli("export", whole.averaged, "--out", tmp_path / "exported")
    assert (refused.code, "model.network" in refused.err) == (2, True)
    sides = ("--src", source, "--tgt", source)
    refused = run_cli("adapt", "--model", whole.averaged, *sides, "--out", tmp_path / "adapted")
    assert (refused.code, refused.err.rstrip().endswith("which only that file can compute.")) == (2, True)
    with pytest.raises(InputError, match=r"model\.network"):
        tiny_train(tiny_data, tmp_path / "next", init_from=whole.averaged)


def test_another_file_is_warned_of_or_refused(tmp_path: Path, tiny_data: DataFolder, mine: Path) -> None:
    run = tiny_train(tiny_data, tmp_path / "run", *SETTINGS, "train.max_steps=1")
    mine.write_text(f"{ALIBI}\n\n")
    with pytest.warns(UserWarning, match=r"mine\.py has changed"):
        load_model(run.last, code=mine)
    _, said = start("inspect", run.last, "--code", mine).communicate()
    assert said.decode() == f"warning: {mine} has changed since {run.last} was trained\n"
    mine.write_text(
        f"{ALIBI}\n    def __init__(self, *sizes, **more):\n        super().__init__(*sizes, **more)\n"
        "        self.more = torch.nn.Parameter(torch.zeros(1))\n"
    )
    with pytest.warns(UserWarning, match="has changed"), pytest.raises(FileError, match="different weights"):
        load_model(run.last, code=mine)


def test_code_for_a_model_that_needs_none_is_refused(tiny_run: RunFolder, mine: Path) -> None:
    with pytest.raises(InputError, match=r"last\.safetensors needs no code; leave out `code`, got .*mine\.py"):
        vtrans.load(tiny_run.last, code=mine)
