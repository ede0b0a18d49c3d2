"""recipes/synthetic.py: the commands and their text, the tag, and invalid options, which stop it before any command."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest
from conftest import TINY, tiny_pairs, write_pairs

from recipes import synthetic
from vtrans import cli
from vtrans.errors import InputError, RecipeError

Commands = list[list[str]]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A folder with train, valid and test files; the training text consists of two corpora."""
    folder, pairs = tmp_path / "text", tiny_pairs()
    folder.mkdir()
    for name, chosen in (("train-a", pairs[:60]), ("train-b", pairs[60:150]), ("valid", pairs[150:165])):
        write_pairs(folder, name, chosen)
    write_pairs(folder, "test", pairs[165:])
    return folder


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Records the commands instead of running them; `translate` writes its input in capitals."""
    found: Commands = []

    def run(command: Sequence[str], stdout: BinaryIO | None = None) -> None:
        found.append(list(command))
        if command[1] == "train":
            run = Path(command[command.index("--out") + 1])
            run.mkdir(parents=True, exist_ok=True)
            if not (run / "last.safetensors").exists():  # otherwise it is finished
                (run / "last.safetensors").touch()
        if command[1] == "translate":
            source, out = (Path(command[command.index(word) + 1]) for word in ("--input", "--output"))
            out.write_text(source.read_text(encoding="utf-8").upper(), encoding="utf-8")

    monkeypatch.setattr(synthetic, "run", run)
    return found


def values(command: Sequence[str], option: str) -> list[str]:
    return [value for word, value in itertools.pairwise(command) if word == option]


def lines(path: str | Path) -> list[str]:
    return Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_the_remaining_training_text_is_translated_back_and_tagged(
    tmp_path: Path, text: Path, commands: Commands
) -> None:
    work = tmp_path / "work"
    synthetic.main(["back-translation", "--data", str(text), "--work", str(work), "--pairs", "70"])
    english, german = zip(*tiny_pairs()[:150], strict=True)
    prepared = [command for command in commands if command[1] == "prepare-bpe"]
    assert [values(command, "--out") for command in prepared] == [
        [str(work / name / "data")] for name in ("back", "without", "with")
    ]
    back, without, with_ = prepared
    # The opposite model learns from the pairs alone, and its validation text is reversed too.
    assert (values(back, "--src"), values(back, "--tgt")) == ([f"{work}/pairs.de"], [f"{work}/pairs.en"])
    assert values(back, "--valid-src") == values(without, "--valid-tgt") == [str(text / "valid.de")]
    assert lines(work / "pairs.en") == list(english[:70])
    assert lines(work / "pairs.de") == list(german[:70])
    # Its translations of the other lines are tagged and become a second corpus.
    assert lines(work / "mono.de") == list(german[70:])
    assert lines(work / "tagged.en") == [f"<BT> {line.upper()}" for line in german[70:]]
    assert values(with_, "--src") == [f"{work}/pairs.en", f"{work}/tagged.en"]
    assert values(with_, "--tgt") == [f"{work}/pairs.de", f"{work}/mono.de"]
    assert values(without, "--src") == [f"{work}/pairs.en"]
    assert all(values(command, "--symbol") == ["<BT>"] for command in prepared)
    (score,) = (command for command in commands if command[1] == "score")
    assert score[2:] == [
        *(str(text / "test.de"), "--hyp", f"{work}/test.with.de", "--baseline", f"{work}/test.without.de")
    ]
    # A second run translates only what depends on a model that was trained further, or on other text.
    for changed, pairs, expected in ((None, "70", 0), ("without", "70", 1), ("back", "70", 1), (None, "71", 1)):
        before = len(commands)
        if changed:
            (work / changed / "run" / "last.safetensors").write_text("trained on")
        synthetic.main(["back-translation", "--data", str(text), "--work", str(work), "--pairs", pairs])
        assert [command[1] for command in commands[before:]].count("translate") == expected


def test_monolingual_text_of_the_user_is_translated_back(tmp_path: Path, text: Path, commands: Commands) -> None:
    work, mono = tmp_path / "work", tmp_path / "mono.txt"
    mono.write_text("Nur Deutsch.\n", encoding="utf-8")
    synthetic.main(["back-translation", "--data", str(text), "--work", str(work), "--mono", str(mono)])
    with_ = [command for command in commands if command[1] == "prepare-bpe"][-1]
    assert values(with_, "--src") == [str(text / "train-a.en"), str(text / "train-b.en"), f"{work}/tagged.en"]
    assert values(with_, "--tgt")[-1] == str(mono)
    assert lines(work / "tagged.en") == ["<BT> NUR DEUTSCH."]


def test_a_student_learns_from_its_teachers_translations(tmp_path: Path, text: Path, commands: Commands) -> None:
    work = tmp_path / "work"
    words = ["--set", "train.max_steps=5", "--student", "model.d_ff=8", "--student", "model.encoder_layers=1"]
    synthetic.main(["distillation", "--data", str(text), "--work", str(work), *words])
    teacher, alone, pupil = (command for command in commands if command[1] == "prepare-bpe")
    assert values(teacher, "--tgt") == values(alone, "--tgt") == [str(text / f"train-{x}.de") for x in "ab"]
    assert values(pupil, "--tgt") == [f"{work}/train-{x}.taught.de" for x in "ab"]
    assert values(pupil, "--src") == values(teacher, "--src")
    assert lines(work / "train-a.taught.de")[0] == tiny_pairs()[0][0].upper()
    trained = [values(command, "--set") for command in commands if command[1] == "train"]
    assert trained[0] == ["train.max_steps=5"]
    assert trained[1] == trained[2] == ["train.max_steps=5", "model.d_ff=8", "model.encoder_layers=1"]
    assert len([command for command in commands if command[1] == "score"]) == 2


def test_without_data_the_built_in_corpus_is_generated(
    tmp_path: Path, text: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="work/distillation/text"):  # the fake command does not write it
        synthetic.main(["distillation"])
    assert commands[0][1].endswith("phrasebook/generate.py")
    assert values(commands[0], "--out") == ["work/distillation/text"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("back-translation --pairs 3 --mono x", "--pairs and --mono"),
        ("back-translation --pairs 0", "--pairs.* 0"),
        ("distillation --pairs 3", "--pairs"),
        ("back-translation --student model.d_ff=8", "--student"),
        ("distillation --src fr", "--data.* fr"),
        ("back-translation --data {text} --pairs 150", "--pairs.* 150"),
    ],
)
def test_invalid_options_are_refused_before_any_command(
    tmp_path: Path, text: Path, commands: Commands, words: str, named: str
) -> None:
    with pytest.raises(InputError, match=named):
        synthetic.main([*words.format(text=text).split(), "--work", str(tmp_path / "work")])
    assert not commands
    with pytest.raises(RecipeError, match=r"unknown key model\.width"):
        synthetic.main(["distillation", "--student", "model.width=3", "--work", str(tmp_path / "work")])


def test_back_translation_does_not_read_the_settings_of_a_student(
    tmp_path: Path, text: Path, commands: Commands
) -> None:
    shared = ["--set", "model.share_stacks=true"]  # impossible with the default student's single decoder layer
    synthetic.main(
        ["back-translation", "--data", str(text), "--work", str(tmp_path / "work"), "--pairs", "70", *shared]
    )
    assert commands


@pytest.mark.slow
def test_back_translation_from_text_to_scores(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    def run(command: Sequence[str], stdout: BinaryIO | None = None) -> None:
        monkeypatch.setattr("sys.argv", [*command, *(["--device", "cpu"] if command[1] == "train" else [])])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0

    monkeypatch.setattr(synthetic, "run", run)
    settings = [word for setting in TINY for word in ("--set", setting)]
    work = tmp_path / "work"
    synthetic.main(["back-translation", "--data", str(text), "--work", str(work), "--pairs", "90", *settings])
    assert b"BLEU" in capfdbinary.readouterr().out
    assert len(lines(work / "test.with.de")) == len(lines(text / "test.en"))
    assert len(lines(work / "tagged.en")) == 60
