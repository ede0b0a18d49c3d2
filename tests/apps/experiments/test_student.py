"""vtrans student: chain files are checked, stages run once per content, and a chain that was killed, moved and resumed
makes the same bytes."""

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import TINY, tiny_pairs, write_pairs
from forking import ENVIRONMENT, start_python

from vtrans.apps.experiments.chain import load_chain
from vtrans.apps.experiments.experiment_files import write_recipe
from vtrans.apps.experiments.student import run_chain
from vtrans.apps.experiments.work import INTO, RECORD, CommandError, Run
from vtrans.system.console import Console
from vtrans.system.errors import FileError, InputError
from vtrans.training.recipe import load_recipe

SHIPPED = sorted((Path(__file__).parents[3] / "recipes/student").glob("*.toml"))
HEAD = '[text]\nsrc = "en"\ntgt = "de"\nfolder = "text"\n'
SETTINGS = dict(setting.split("=", 1) for setting in TINY)
SETTINGS |= {"train.max_steps": "6", "train.checkpoint_every": "3", "train.valid_sentences": "4", "search.beam": "1"}
MODEL = "".join(f"{key} = {value}\n" for key, value in SETTINGS.items())
WHOLE = (
    f"{HEAD}clean = false\nvocab_size = 320\nprocesses = 1\n"
    f"[back_translation]\ntext = ['mono.de']\n{MODEL}"
    f"[teachers]\nseeds = [1, 2]\n{MODEL}"
    f"[student]\nreferences = true\nexport = 'ctranslate2'\n{MODEL}"
)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A folder with train, valid and test files and monolingual text."""
    folder, pairs = tmp_path / "text", tiny_pairs()
    folder.mkdir()
    for stem, chosen in (("train", pairs[:60]), ("valid", pairs[150:156]), ("test", pairs[156:160])):
        write_pairs(folder, stem, chosen)
    (folder / "mono.de").write_text("".join(f"{german}\n" for _, german in pairs[60:90]), encoding="utf-8")
    return folder


@pytest.fixture
def chain(tmp_path: Path, text: Path) -> Path:
    """A chain file with all sections, whose text is `text`."""
    path = tmp_path / "tiny.toml"
    path.write_text(WHOLE)
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_recipes_of_a_shipped_chain_can_be_read_back(path: Path, tmp_path: Path) -> None:
    chain = load_chain(path, {"folder": tmp_path})
    for section, model in chain.models.items():
        file = tmp_path / f"{section}.toml"
        assert write_recipe(model.resolved, file) == [file.name]
        assert load_recipe(str(file)) == model.resolved


def test_the_code_that_a_recipe_names_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    for place in ("", "other"):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "mine.py").write_text(f"# {place}")
    own = load_recipe("small", ["train.objective=mine.py:Focal", "train.best_metric=other/mine.py:Focal"])
    recipe, *codes = write_recipe(own, tmp_path / "work/row.toml")
    assert [(tmp_path / "work" / code).read_text() for code in sorted(codes)] == ["# other", "# "]
    read = load_recipe(f"work/{recipe}").train
    assert sorted([read.best_metric, read.objective]) == [f"{code}:Focal" for code in sorted(codes)]
    with pytest.raises(InputError, match=r"none\.py"):
        write_recipe(load_recipe("small", ["train.objective=none.py:Focal"]), tmp_path / "work/row.toml")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[student]\n", "text.src"),
        (HEAD, r"\[teachers\]"),
        (f"{HEAD}[teacher]\n", "teacher.*teachers"),
        (f"{HEAD}vocab = 3\n[teachers]\n", "text.*vocab.*vocab_size"),
        (f"{HEAD}vocab_size = 'x'\n[teachers]\n", "text.vocab_size"),
        (f"{HEAD}[teachers]\nmodel.network = 'mine.py:Mine'\n", r"teachers.model.network.*mine\.py"),
        ("[text]\nsrc = 'en'\n[teachers]\n", "text.tgt"),
        ("[text]\nsrc = 'en'\ntgt = 'en'\nfolder = 'x'\n[teachers]\n", "text.tgt.*en"),
        (f"{HEAD}[teachers]\nseeds = [1, 1]\n", "teachers.seeds"),
        (f"{HEAD}[teachers]\nrecipe = 'smal'\n", "smal.*small"),
        (f"{HEAD}[teachers]\nmodel.width = 3\n", r"teachers.*model\.width"),
        (f"{HEAD}[teachers]\nmodel = 3\n", "teachers: model"),
        (f"{HEAD}[back_translation]\n[teachers]\n", "back_translation.text"),
        (f"{HEAD}[teachers]\n[student]\ntext = ['x']\n", "student.text"),
        (f"{HEAD}[teachers]\n[student]\nexport = 'x'\n", "student.export"),
        (f"{HEAD}[teachers]\n[student]\nexport = 'huggingface'\n", "student.export.*positions"),
        (f"{HEAD}[teachers]\nmodels = ['none.safetensors']\n", r"teachers.models.*none\.safetensors"),
        (f"{HEAD}[teachers]\nmodels = ['wrong.toml']\nseeds = [1]\n", "teachers.seeds"),
        (f"{HEAD}[back_translation]\ntext = ['x']\n[student]\n", "back_translation"),
    ],
)
def test_a_wrong_chain_file_is_refused_with_the_name_of_the_key(tmp_path: Path, content: str, named: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(content)
    with pytest.raises(InputError, match=named):
        load_chain(path, {})


class Commands(list[list[str]]):
    """Records commands, and writes the hash of the words and of the files that they name to their outputs."""

    fail = ""

    def start(self, words: Sequence[str], _: object, *, folder: Path, held: object) -> None:
        self.append(list(words))
        if self.fail and self.fail in words:
            raise CommandError(words, 1)
        self.write(folder, words)

    def write(self, folder: Path, words: Sequence[str]) -> None:
        options = dict(itertools.pairwise(words))
        out = next(
            (options[name] for name in (INTO, "--out") if name in options),
            f"{words[2]}/averaged.safetensors",
        )
        files = [folder / word / name for word in words if word != out for name in ("", "content")]
        contents = [file.read_bytes() for file in files if file.is_file()]
        made = hashlib.sha256(b"".join([*contents, " ".join(words).encode()])).hexdigest()
        target = folder / out / ("" if "." in Path(out).name and not out.endswith(".chunks") else "content")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text('[{"value": 1}, {"value": 2}]' if out.endswith("json") else made)


def start(chain: Path, out: Path, start: Run, text: Path | None = None) -> None:
    """Runs a chain, quietly except for what the test reads."""
    run_chain(chain, {"folder": text} if text else {}, out, Console(), start)


def run(commands: Commands, chain: Path, out: Path, text: Path | None = None) -> list[str]:
    """Runs a chain, and returns the second words of its commands."""
    before = len(commands)
    start(chain, out, commands.start, text)
    return [command[1] for command in commands[before:]]


def test_changed_stages_run_again(tmp_path: Path, chain: Path, text: Path) -> None:
    commands, work = Commands(), tmp_path / "work"
    every = run(commands, chain, work)
    assert every[:2] == ["prepare-bpe", "prepare-bpe"]
    for file in work.rglob("*"):
        os.utime(file, (0, 0))
    assert run(commands, chain, work) == []
    # Another name of the same text changes nothing.
    shutil.copytree(text, tmp_path / "same")
    assert run(commands, chain, work, tmp_path / "same") == []
    chain.write_text(WHOLE.replace("references = true", "references = false"))
    assert run(commands, chain, work)[:2] == ["prepare-bpe", "train"]
    chain.write_text(WHOLE)
    run(commands, chain, work)
    (work / "student.safetensors").write_text("damaged")
    assert run(commands, chain, work) == ["shortlist"]
    (text / "test.de").write_text("Anders.\n" * 6)
    assert run(commands, chain, work) == ["translate", "score"] * 3


def test_what_a_stopped_stage_left_is_kept_only_if_the_stage_can_resume_it(tmp_path: Path, chain: Path) -> None:
    commands, work = Commands(), tmp_path / "work"
    left = {
        "distilled/1.de": work / "distilled" / "1.de.chunks" / "left",
        "student-data": work / "student-data" / "left",
    }

    def stopped(by: str) -> bool:
        """Stops the chain at a command, and returns whether the file that was left before is still there."""
        commands.fail = by
        with pytest.raises(CommandError):
            run(commands, chain, work)
        kept = left[by].exists()
        left[by].parent.mkdir(exist_ok=True)
        left[by].touch()
        return kept

    assert [stopped("distilled/1.de") for _ in range(2)] == [False, True]
    chain.write_text(WHOLE.replace("seeds = [1, 2]", "seeds = [1, 3]"))  # other teachers, so other translations
    assert not stopped("distilled/1.de")
    assert [stopped("student-data") for _ in range(2)] == [False, False]


def test_a_given_model_teaches_in_place_of_a_trained_one(tmp_path: Path, chain: Path) -> None:
    commands, work = Commands(), tmp_path / "work"
    (tmp_path / "opus.safetensors").write_text("opus")
    given = "[teachers]\nmodels = ['opus.safetensors']\ntranslate_options = ['--to', 'deu']\n[student]\n"
    chain.write_text(f"{HEAD}clean = false\n{given}")
    ran = run(commands, chain, work)
    assert ran == [
        *("prepare-bpe", "translate", "score", "translate", "collect", "prepare-bpe", "train", "average", "shortlist"),
        *("translate", "score", "translate", "score", "report"),
    ]
    first, *_ = (words for words in commands if "--chunk-lines" in words)
    assert first[2:6] == ["--model", str(tmp_path / "opus.safetensors"), "--input", str(tmp_path / "text/train.en")]
    assert first[-2:] == ["--to", "deu"]
    assert "| teachers | test |" in (work / "report.md").read_text()
    (tmp_path / "opus.safetensors").write_text("nllb")
    assert run(commands, chain, work)[:3] == ["translate", "score", "translate"]


def test_the_stages_of_a_chain_have_the_texts_models_and_options_of_its_file(
    tmp_path: Path, chain: Path, text: Path
) -> None:
    for language in ("en", "de"):
        (text / f"train.{language}").rename(text / f"train-a.{language}")
        shutil.copy(text / f"train-a.{language}", text / f"train-b.{language}")
    chain.write_text(WHOLE.replace("clean = false", "without = ['length']"))
    commands = Commands()
    run(commands, chain, tmp_path / "work")
    made = {dict(itertools.pairwise(words)).get("--out"): " ".join(words) for words in commands}
    assert f"--src {text}/train-b.en --tgt {text}/train-b.de --out clean-2 " in made["clean-2"]
    assert made["clean-2"].endswith(" --without length")
    swapped = "--src clean-1/train-a.de --tgt clean-1/train-a.en --src clean-2/train-b.de --tgt clean-2/train-b.en"
    assert f" {swapped} --valid-src {text}/valid.de " in made["back-data"]
    assert f" --src synthetic/mono.de.en --tgt {text}/mono.de " in made["teacher-data"]
    distilled = "--src clean-1/train-a.en --tgt distilled/1.de --src clean-2/train-b.en --tgt distilled/2.de"
    pairs = "--src clean-1/train-a.en --tgt clean-1/train-a.de --src clean-2/train-b.en --tgt clean-2/train-b.de"
    assert f" {distilled} {pairs} --valid-src " in made["student-data"]
    assert " --model teacher-1 --model teacher-2 " in made["test/test.teachers.de"]


def test_monolingual_text_is_found_from_the_folder_of_the_chain(
    tmp_path: Path, chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = Commands()
    run(commands, Path(chain.name), Path("work"))
    sources = [options["--input"] for words in commands if "--input" in (options := dict(itertools.pairwise(words)))]
    assert str(tmp_path / "text/mono.de") in sources
    assert all((tmp_path / "work" / source).is_file() for source in sources)


@pytest.mark.parametrize("name", ["none.de", "../text/mono.de"])
def test_monolingual_text_outside_the_folder_of_text_is_refused(tmp_path: Path, chain: Path, name: str) -> None:
    chain.write_text(WHOLE.replace("mono.de", name))
    with pytest.raises(FileError, match=name):
        run(Commands(), chain, tmp_path / "work")


def test_without_teachers_the_student_learns_from_the_pairs(tmp_path: Path, chain: Path) -> None:
    commands = Commands()
    chain.write_text(f"{HEAD}clean = false\n[student]\n")
    ran = run(commands, chain, tmp_path / "work")
    assert ran[:5] == ["prepare-bpe", "prepare-bpe", "train", "average", "shortlist"]
    assert commands[1][2:6] == ["--src", str(tmp_path / "text/train.en"), "--tgt", str(tmp_path / "text/train.de")]


def forked(kills: dict[str, str]) -> Run:
    """Returns a function that runs the real commands. It kills the one with the option `--out` that `kills` names once
    it has written the file named there."""

    def run(words: Sequence[str], _: object, *, folder: Path, held: object) -> None:
        options = dict(itertools.pairwise(words))
        out = options.get(INTO)
        words = words[:-2] if out else words
        with (folder / (out or "log")).open("wb") as stream, (folder / "errors").open("ab") as errors:
            if words[0] != "vtrans":
                subprocess.run(words, cwd=folder, stdout=stream, check=True)
                return
            process = start_python(["-m", "vtrans", *words[1:]], ENVIRONMENT, cwd=folder, stdout=stream, stderr=errors)
        if file := kills.pop(options.get("--out", ""), ""):
            while process.poll() is None:
                if any(folder.glob(file)):
                    process.kill()
                time.sleep(0.001)
        if process.wait():
            raise CommandError(words, 1)

    return run


def test_a_chain_that_is_killed_three_times_and_moved_makes_the_same_bytes(tmp_path: Path, chain: Path) -> None:
    calm, torn, moved = (tmp_path / name for name in ("calm", "torn", "moved"))
    back_translation = f"[back_translation]\ntext = ['mono.de']\n{MODEL}"
    chain.write_text(WHOLE.replace("seeds = [1, 2]", "seeds = [3]").replace(back_translation, ""))
    start(chain, calm, forked({}))
    with pytest.raises(CommandError):
        start(chain, torn, forked({"teacher-1": "teacher-1/step-*3.safetensors"}))
    assert not (torn / "teacher-1/averaged.safetensors").exists()
    shutil.copytree(torn, moved)
    for words in (
        {"distilled/1.de.chunks": "distilled/1.de.chunks/job.json"},
        {"student": "student/step-*3.safetensors"},
    ):
        with pytest.raises(CommandError):
            start(chain, moved, forked(words))
    start(chain, moved, forked({}))
    one, other = (json.loads((folder / RECORD).read_text())["stages"] for folder in (calm, moved))
    assert one.keys() == other.keys()
    for stage in one.keys() - {"report"}:  # which has times and speeds
        assert one[stage]["outputs"] == other[stage]["outputs"], stage
    assert "| student-int8 | test |" in (moved / "report.md").read_text()
