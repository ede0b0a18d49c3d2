"""A model is named in one way in all commands: as the first arguments, with --model, or not at all."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_runner import SENTENCE, Run

from vtrans import cli
from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder

GROUP: Any = typer.main.get_command(cli.app)
# What follows the model in the commands that take one. `+` marks those that take several.
AFTER = {
    "adapt": "--src text.en --tgt text.de",
    "attend": "sentence",
    "average+": "--last 1",
    "calibrate+": "text.en text.de",
    "export": "",
    "import": "",
    "inspect": "",
    "logprob+": "text.en text.de",
    "serve+": "--port 0",
    "shortlist": "--data data",
    "translate+": "--input text.en",
}


@pytest.fixture
def place(tmp_path: Path, tiny_run: RunFolder, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_data.path, "data")
    shutil.copy(tiny_run.last, "a.safetensors")
    shutil.copy(tiny_run.last, "b.safetensors")
    for language in ("en", "de"):
        Path(f"text.{language}").write_bytes(SENTENCE)
    return tmp_path


def test_every_command_with_a_model_takes_both_forms() -> None:
    """And every file or folder that a command writes has the same flags."""
    taking = {name.rstrip("+") for name in AFTER}
    for name, command in GROUP.commands.items():
        flags = [set(parameter.opts) for parameter in command.params]
        assert ({"--model"} in flags) == (name in taking)
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        assert any("MODEL" in each.metavar for each in arguments[:1]) == (name in taking), name
        for parameter in command.params:
            if parameter.name in ("out", "output") or "-o" in parameter.opts:
                assert set(parameter.opts) == {"--out", "--output", "-o"}, name


@pytest.mark.parametrize("form", ["none.safetensors", "--model none.safetensors"])
@pytest.mark.parametrize("name", AFTER)
def test_a_model_that_does_not_exist_is_named_by_the_error(name: str, form: str, place: Path, run_cli: Run) -> None:
    done = run_cli(name.rstrip("+"), *form.split(), *AFTER[name].split())
    assert done.code == 2
    assert "none" in done.err


@pytest.mark.parametrize("form", ["a.safetensors b.safetensors", "a.safetensors --model b.safetensors"])
@pytest.mark.parametrize("name", [name for name in AFTER if not name.endswith("+")])
def test_two_models_of_a_command_with_one_are_refused(name: str, form: str, place: Path, run_cli: Run) -> None:
    done = run_cli(name, *form.split(), *AFTER[name].split())
    assert (done.code, done.err) == (2, "error: --model must be one model, got a.safetensors and b.safetensors.\n")


def test_both_forms_do_the_same(place: Path, run_cli: Run) -> None:
    after = AFTER["logprob+"].split()
    model = "a.safetensors"
    for name, *words in (["inspect"], ["logprob", *after], ["attend", "A dog"], ["translate"]):
        first = run_cli(name, model, *words, stdin=SENTENCE)
        assert first.code == 0, first.err
        assert run_cli(name, *words, "--model", model, stdin=SENTENCE).out == first.out
        if name in ("inspect", "attend"):
            assert run_cli(name, model, *words, "--model", model).out == first.out
    both = run_cli("logprob", "a.safetensors", "b.safetensors", *after)
    mixed = run_cli("logprob", "a.safetensors", *after, "--model", "b.safetensors", "--weight", "1", "--weight", "1")
    assert both.out == mixed.out


def test_a_word_of_translate_is_a_model_or_a_document(place: Path, tiny_run: RunFolder, run_cli: Run) -> None:
    expected = run_cli("translate", "--model", tiny_run.path, stdin=SENTENCE).out
    assert run_cli("translate", tiny_run.path, stdin=SENTENCE).out == expected
    Path("page.txt").write_bytes(SENTENCE)
    shutil.copytree("data", "en-de")  # a folder of this name is no longer the model that ships with vtrans
    for words in ([tiny_run.path, "page.txt"], ["page.txt", "--model", tiny_run.path], ["page.txt", tiny_run.path]):
        assert run_cli("translate", *words).out == expected
    assert "--out" in run_cli("translate", "en-de").err
    shutil.rmtree("en-de")
    assert run_cli("translate", "en-de", stdin=b"\n").out == b"\n"
    missing = run_cli("translate", "page.tx", tiny_run.path)
    assert (missing.code, missing.err) == (2, "error: there is no model or document page.tx; did you mean page.txt?\n")
    assert "did you mean en-de?" in run_cli("translate", "ende", stdin=SENTENCE).err
    Path("empty").mkdir()
    for wrong in ("data", "empty", "nowhere"):  # a folder with data.json, an empty one, and nothing at all
        error = run_cli("translate", wrong, stdin=SENTENCE).err
        assert wrong in error
        assert "model" in error


def test_import_takes_the_name_of_a_model_that_ships_with_vtrans(place: Path, run_cli: Run) -> None:
    done = run_cli("import", "en-de")
    assert done.code == 2
    assert "--keep-text" in done.err, "the model was found, and is one of vtrans already"
