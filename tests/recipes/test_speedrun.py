"""recipes/speedrun: which commands are timed, what the log holds, and that no training is resumed."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from recipes.speedrun import speedrun
from vtrans.system.errors import InputError


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Makes a small text. The commands are recorded, and a translation copies the reference except for the first line
    of the second seed's."""
    (tmp_path / "text").mkdir()
    for name in ("train", speedrun.VALID, speedrun.TEST):
        for language in ("en", "de"):
            (tmp_path / "text" / f"{name}.{language}").write_text("eins zwei drei vier\nfünf sechs sieben acht\n")
    ran = list[list[str]]()

    def run(words: Sequence[str]) -> None:
        ran.append(list(words))
        if words[1] == "translate":
            hypothesis = Path(words[words.index("--out") + 1])
            text = (tmp_path / "text" / hypothesis.name).read_text()
            hypothesis.write_text(text.replace("zwei", "neun") if "seed-2" in str(hypothesis) else text)

    monkeypatch.setattr(speedrun, "run", run)
    return ran


def test_the_log_has_every_stage_of_every_seed(
    tmp_path: Path, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data", str(tmp_path / "text"), "--work", str(tmp_path / "work"), "--set", "train.max_steps=7"]
    assert speedrun.main([*arguments, "--seeds", "1", "--seeds", "2"]) == 0
    assert [words[1] for words in commands] == ["prepare-bpe", "train", "average", "translate", "translate"] * 2
    assert all(words[words.index("--threads") + 1] == "1" for words in commands if words[1] != "average")
    trainings = [words for words in commands if words[1] == "train"]
    assert ["train.max_steps=7" in words for words in trainings] == [True, True]
    assert [f"train.seed={seed}" in words for seed, words in zip((1, 2), trainings, strict=True)] == [True, True]
    assert str(tmp_path / "text" / f"{speedrun.TEST}.en") not in commands[0]

    log = json.loads((tmp_path / "work" / "log.json").read_bytes())
    assert [run["seed"] for run in log["runs"]] == [1, 2]
    for run in log["runs"]:
        assert list(run["minutes"]) == ["prepare", "train", "average", speedrun.VALID, speedrun.TEST]
    first, second = (run["bleu"][speedrun.TEST] for run in log["runs"])
    assert first == 100 > second
    assert f"BLEU {(first + second) / 2:.2f} of 39.0" in capsys.readouterr().err


def test_an_existing_folder_is_refused(tmp_path: Path, commands: list[list[str]]) -> None:
    (tmp_path / "work").mkdir()
    with pytest.raises(InputError, match="exists"):
        speedrun.main(["--data", str(tmp_path / "text"), "--work", str(tmp_path / "work")])
    assert not commands
