"""The files of a run folder: links, what is removed, and which model is chosen."""

import dataclasses
import re
from pathlib import Path

import pytest
from model_files import make

import vtrans.storage.run_folder
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model, save_model
from vtrans.storage.run_folder import RunFolder, choose_model
from vtrans.system.errors import FileError


def test_a_file_comes_before_a_shipped_model_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = tmp_path / "recipes" / "fr" / "fr-en.safetensors"
    shipped.parent.mkdir(parents=True)
    shipped.touch()
    monkeypatch.setattr(vtrans.storage.run_folder, "shipped", lambda: tmp_path / "recipes")
    monkeypatch.chdir(tmp_path)
    assert choose_model("fr-en") == (shipped, "")
    with pytest.raises(FileError, match="fr-en"):
        choose_model("fr-de")
    mine = tmp_path / "fr-en"
    mine.touch()
    assert choose_model("fr-en").file == Path("fr-en")


def run_of(tmp_path: Path, data: DataFolder, *steps: int) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.states.mkdir(parents=True)
    loaded = make(data, "src-tgt-softmax")
    for step in steps:
        save_model(run.step_file(step), dataclasses.replace(loaded, training={"step": step}))
    return run


@pytest.mark.parametrize("hard_links", [True, False])
def test_a_link_is_replaced_and_not_written_through(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch, hard_links: bool
) -> None:
    run = run_of(tmp_path, tiny_data, 1, 2)
    if not hard_links:

        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr("os.link", refuse)
    for step in (1, 1, 2, 2):
        run.link(step, run.last)
        run.link(step, run.best)
        assert run.last.read_bytes() == run.best.read_bytes() == run.step_file(step).read_bytes()
        assert run.last.samefile(run.step_file(step)) == hard_links
    names = {p.name for p in run.path.iterdir()}
    assert names == {"state", run.last.name, run.best.name, run.step_file(1).name, run.step_file(2).name}
    assert load_model(run.step_file(1)).training == {"step": 1}


def test_pruning_removes_only_files_of_the_run(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = run_of(tmp_path, tiny_data, 1, 2, 3)
    for step in (1, 2, 3):
        run.state_file(step).write_bytes(b"")
    strangers = ["notes.txt", "step-3.safetensors", "step-00000001.safetensors.bak", ".hidden", "my.tmp"]
    for name in [*strangers, ".averaged.safetensors.9.tmp", ".test.de.9.tmp"]:
        (run.path / name).write_text("mine")
    for name in (".recipe.toml.9.tmp", ".step-00000003.safetensors.9.tmp"):
        (run.path / name).mkdir()
    (run.path / ".step-00000003.safetensors.9.tmp" / ".tmpX").write_text("half")
    run.prune([2], 3)
    assert run.steps() == [2]
    assert run.state_steps() == [3]
    left = {p.name for p in run.path.iterdir()} - {"state", run.step_file(2).name}
    assert left == {*strangers, ".averaged.safetensors.9.tmp", ".test.de.9.tmp"}  # other processes may be writing them


def test_the_average_is_chosen_unless_training_has_passed_it(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    with pytest.raises(FileError, match=str(run.path)):
        run.choose_model()
    run = run_of(tmp_path / "b", tiny_data, 10, 20)
    run.link(20, run.last)
    assert choose_model(run.path).file == run.last
    run.link(10, run.best)
    assert choose_model(run.path).file == run.best
    loaded = make(tiny_data, "src-tgt-softmax")
    save_model(run.averaged, dataclasses.replace(loaded, training={"average_of": [10, 20]}))
    file, why = choose_model(run.path)
    assert file == run.averaged
    assert "20" in why
    save_model(run.step_file(30), loaded)
    run.link(30, run.last)
    file, why = choose_model(run.path)
    assert file == run.best
    assert re.search(r"averaged\.safetensors .*20.*30", why)
    assert choose_model(run.step_file(10)) == (run.step_file(10), "")
