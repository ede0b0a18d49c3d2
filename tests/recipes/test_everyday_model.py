"""Tests of the program that trains the model to try: what its commands get."""

import re
from pathlib import Path

import pytest

from recipes import experiment
from recipes.tatoeba import everyday_model, phrases
from recipes.tatoeba.joined import FEWEST_WORDS


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that the program runs."""
    run: list[list[str]] = []
    monkeypatch.setattr(everyday_model, "JOINED", 100)
    for module in (experiment, everyday_model):
        monkeypatch.setattr(module, "run", run.append)
    return run


@pytest.fixture
def text(tmp_path: Path) -> Path:
    for stem in ("train", "valid", "test"):
        (tmp_path / f"{stem}.en").write_text("Can you help me?\nI do.\n")
        (tmp_path / f"{stem}.de").write_text("Kannst du mir helfen?\nJa.\n")
    return tmp_path


def test_it_learns_text_templates_and_long_lines_with_forms_of_address(commands: list[list[str]], text: Path) -> None:
    assert everyday_model.main(["--data", str(text), "--work", str(text / "work"), "--set", "train.seed=2"]) == 0
    src, tgt = ((text / "work" / f"train.{language}").read_text("utf-8").splitlines() for language in ("en", "de"))
    made = phrases.pairs()
    assert (src[1], tgt[:2]) == ("I do.", ["Kannst du mir helfen?", "Ja."])
    assert [re.sub("^<[a-z]+> ", "", line) for line in src[2:-100]] == [pair[0] for pair in made]
    assert tgt[2:-100] == [pair[1] for pair in made]
    assert min(len(line.split()) for line in src[-100:]) >= FEWEST_WORDS
    assert any(line.startswith("<formal> ") for line in src)
    prepare = commands[0]
    assert "--pairs" not in prepare
    assert {"--align", "<formal>", "<informal>"} <= set(prepare)
    [trained] = [command for command in commands if command[1] == "train"]
    assert "train.seed=2" in trained
    stored = next(command for command in commands if "--float16" in command)
    assert stored[2] == trained[trained.index("--out") + 1]
