"""recipes/studies: the shipped studies are valid, files are checked, rows are trained once, alike, and tabulated."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, TRAIN_PAIRS, VALID_PAIRS, write_pairs

from recipes.studies import measure, study
from recipes.studies.rows import Row, load_study, study_names
from recipes.studies.study import Budget
from recipes.studies.table import close_rows, markdown, table
from vtrans import cli
from vtrans.config import resolve_tie
from vtrans.data.preparation.writing_systems import script_of
from vtrans.errors import InputError, VtransError
from vtrans.model import Transformer, count_parameters
from vtrans.training.recipe import load_recipe

SIZES = [f"--set={value}" for value in TINY if "max_steps" not in value]


# Study files.


def built(row: Row, recipe: str) -> int:
    """The parameters of the row's model, with 30 subwords on a side."""
    config = load_recipe(recipe, ["model.d_model=16", "model.heads=2", *row.overrides]).model
    joint = "--separate" not in row.prepare
    model = Transformer(dataclasses.replace(config, tie=resolve_tie(config.tie, joint)), 30, 30, joint=joint, pad_id=0)
    return count_parameters(model)


@pytest.mark.parametrize("name", study_names())
def test_the_rows_of_a_study_are_distinct_and_can_be_trained(name: str) -> None:
    study = load_study(name)
    every = study.rows.values()
    facts = {str(dataclasses.replace(row, name="", words="")) for row in every}
    assert len(facts) == len({row.words for row in every}) == len(every) > 1
    for row in every:
        assert built(row, study.recipe) > 0


HEAD = 'experiment = "multi30k"\nrecipe = "small"\n'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('experiment = "multi30k"\nrows.a.words = "a"', "recipe"),
        ('experiment = "wmt"\nrecipe = "small"\nrows.a.words = "a"', "experiment.*multi30k.*wmt"),
        (HEAD, "no rows"),
        (HEAD + "rows.a = 1", "rows.a"),
        (HEAD + 'rows."a/b".words = "a"', "rows.a/b"),
        (HEAD + "rows.a.model.tie = 'none'", "rows.a.words"),
        (HEAD + "rows.a.words = 'a | b'", "rows.a.words"),
        (HEAD + "rows.a = {words = 'a', averages = 3}", "averages.*average"),
        (HEAD + "rows.a = {words = 'a', average = 0}", "rows.a.average.*1"),
        (HEAD + "rows.a = {words = 'a', prepare = [1]}", "rows.a.prepare"),
        (HEAD + "rows.a = {words = 'a', target = 'nothing.py'}", "rows.a.target.*nothing.py"),
        (HEAD + "rows.a = {words = 'a', model = 'small'}", "rows.a.model"),
        (HEAD + "rows.a = {words = 'a', train.seed = 2}", "rows.a.train.seed"),
        (HEAD + "rows.a = {words = 'a', train.max_steps = 2}", "rows.a.train.max_steps"),
        (HEAD + "rows.a = {words = 'a', run_of = 'a'}", "rows.a.run_of"),
        (HEAD + "rows.a.words = 'a'\nrows.b = {words = 'b', run_of = 'a', target = 'x'}", "rows.b.target.*run_of"),
        (
            HEAD + "rows.a.words='a'\nrows.b = {words='b', run_of='a'}\nrows.c = {words='c', run_of='b'}",
            "rows.c.run_of.*one of a,",
        ),
        ("rows = ", "TOML"),
    ],
)
def test_a_faulty_study_is_refused_by_the_name_of_its_fault(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"mine\.toml.*{named}"):
        load_study(str(tmp_path / "mine.toml"))


def test_an_unknown_study_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sharing"):
        load_study("sharring")
    with pytest.raises(InputError, match=r"nowhere\.toml"):
        load_study(str(tmp_path / "nowhere.toml"))


def test_the_study_that_the_readme_shows_can_be_read(tmp_path: Path) -> None:
    readme = (Path(study.__file__).parents[1] / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"```toml\n(.*?)```", readme, re.S)
    (tmp_path / "mine.toml").write_text(shown, encoding="utf-8")
    (tmp_path / "lowercase.py").touch()
    found = load_study(str(tmp_path / "mine.toml"))
    for row in found.rows.values():
        assert built(row, found.recipe) > 0


def test_a_budget_replaces_that_of_the_recipe_and_shortens_what_does_not_fit() -> None:
    own = load_recipe("small")

    def changed(budget: Budget) -> Any:
        return load_recipe("small", ["train.max_minutes=3", *budget.settings(own)]).train

    whole = dataclasses.replace(own.train, max_steps=20_000)
    assert changed(Budget(20_000)) == whole, "a recipe's own minutes would end the rows at different updates"
    short = changed(Budget(200))
    assert (short.max_steps, short.warmup) == (200, 50)
    assert short.checkpoint_every * short.keep_last <= 100, "the average would include the first half"
    timed = changed(Budget(minutes=2))
    assert (timed.max_minutes, timed.warmup) == (2.0, own.train.warmup)
    assert timed.max_steps > 1e6


# The table.


def figures(name: str, seed: int, bleu: float, chrf: float = 50.0) -> dict[str, Any]:
    made = {"seed": seed, "vocab_size": 800, "languages": ["en", "de"]}
    scores = [
        {"name": "BLEU", "value": bleu, "signature": "tok:13a"},
        {"name": "chrF2", "value": chrf, "signature": "nc:6"},
    ]
    return {
        "name": name, "words": f"the {name}", "recipe": "r", "made": made, "updates": 6 + seed, "seconds": 60.0 * seed,
        "parameters": 1000, "bytes": 1_250_000, "parameters_without_sharing": 3000,
        "train_tokens_a_second": 1000.0 * seed, "sentences_a_second": 10.0, "singles_a_second": 5.0, "scores": scores,
        "search": {"beam": 4, "alpha": 0.6}, "host": "a box",
    }  # fmt: skip


def test_the_table_has_the_mean_and_the_range_over_the_seeds() -> None:
    found = [figures("a", 1, 30.0), figures("a", 2, 31.0), figures("b", 1, 12.25, 40.0), figures("c", 1, 13.25)]
    a, b, c = table(found)
    assert a["bleu"] == {"mean": 30.5, "least": 30.0, "most": 31.0}
    assert a["train_tokens_a_second"]["mean"] == 1500
    assert (a["seeds"], b["seeds"], b["chrf"]["mean"]) == ([1, 2], [1], 40.0)
    assert c["updates"] == {"mean": 7, "least": 7, "most": 7}
    lines = markdown(found, "7 updates").split("\n")
    notes = lines.pop(6)
    assert all(fact in notes for fact in ("Recipe r", "7 updates", "800 subwords", "beam 4", "alpha 0.6"))
    assert lines == [
        "| row | what | seeds | parameters | unshared | file, MB | tokens/s | updates | minutes | sentences/s "
        "| one at a time | BLEU | chrF |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        "| a | the a | 2 | 1,000 | 3,000 | 1.2 | 2,000 | 7-8 | 1.5 | 10 | 5 | 30.5 (30.0 to 31.0) | 50.0 |",
        "| b | the b | 1 | 1,000 | 3,000 | 1.2 | 1,000 | 7 | 1.0 | 10 | 5 | 12.2 | 40.0 |",
        "| c | the c | 1 | 1,000 | 3,000 | 1.2 | 1,000 | 7 | 1.0 | 10 | 5 | 13.2 | 50.0 |",
        "",
        "- BLEU tok:13a",
        "- chrF2 nc:6",
        "- a box",
        "- Within 1 BLEU of another row, but with one seed: b, c.",
        "",
    ]


def test_close_rows_are_compared_by_their_first_seed() -> None:
    found = [figures("a", 1, 30.0), figures("a", 2, 35.0), figures("b", 1, 30.9), figures("c", 1, 35.0)]
    assert close_rows(found) == ["a", "b"]
    assert close_rows(found[-1:]) == []


# A study. Its commands run in this process or, to be fast, are pretended.

STUDY = """
experiment = "multi30k"
recipe = "small"

[rows.plain]
words = "the recipe"

[rows.last]
words = "its last checkpoint"
run_of = "plain"
average = 1

[rows.other]
words = "in other letters"
target = "letters.py"
model.tie = "tgt-softmax"

[rows.half]
words = "of half the width"
model.d_ff = 24
"""

Ran = list[list[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study file and its text, without a test set."""
    (tmp_path / "mine.toml").write_text(STUDY, encoding="utf-8")
    transliterate = Path(study.__file__).parents[1] / "sharing" / "transliterate.py"
    (tmp_path / "letters.py").write_bytes(transliterate.read_bytes())
    (tmp_path / "text").mkdir()
    for name, pairs in (("train", TRAIN_PAIRS), ("valid", VALID_PAIRS)):
        write_pairs(tmp_path / "text", name, pairs)
    return tmp_path


def run_study(folder: Path, words: Sequence[str], run: Callable[[Sequence[str]], int]) -> tuple[int, Ran]:
    """Runs the study of `folder`, and returns its exit code and its commands."""
    ran: Ran = []

    def noted(words: Sequence[str]) -> None:
        ran.append(list(words))
        if code := run(words):
            raise SystemExit(code)

    chosen = ["--data", str(folder / "text"), "--work", str(folder / "work"), "--vocab-size", "320", *SIZES]
    return study.main([str(folder / "mine.toml"), *chosen, *words], noted), ran


def names_of(ran: Ran) -> list[str]:
    """The commands of a study that train, with their row, seed and budget."""
    return [Path(words[words.index("--out") + 1]).parent.name for words in ran if words[1] == "train"]


def option(words: Sequence[str], name: str) -> str:
    return words[words.index(name) + 1]


class Pretended:
    """Stands for the commands: the rows in `failing` cannot be trained."""

    def __init__(self) -> None:
        self.failing = set[str]()

    def __call__(self, words: Sequence[str]) -> int:
        if words[0] == "python":
            out = Path(option(words, "--out"))
            row, _, seed = out.parent.name.rpartition("-")
            made = figures(row, int(seed), 20.0)
            out.write_text(
                json.dumps({key: made[key] for key in made if key not in ("name", "words", "made", "recipe")})
            )
        return int(words[1] == "train" and Path(option(words, "--out")).parent.name in self.failing)


def test_every_row_is_trained_with_its_settings_and_the_same_budget(folder: Path) -> None:
    code, ran = run_study(folder, ["--steps", "100", "--seeds", "3"], Pretended())
    assert code == 0
    work = folder / "work"
    assert names_of(ran) == ["plain-3", "other-3", "half-3"]
    train = {Path(option(words, "--out")).parent.name: words for words in ran if words[1] == "train"}
    settings = {
        name: load_recipe(option(words, "--recipe"), [words[i + 1] for i, word in enumerate(words) if word == "--set"])
        for name, words in train.items()
    }
    assert all(
        (recipe.train.max_steps, recipe.train.seed, recipe.model.d_model) == (100, 3, 32)
        for recipe in settings.values()
    )
    assert [recipe.model.tie for recipe in settings.values()] == ["auto", "tgt-softmax", "auto"]

    prepared = {Path(option(words, "--out")).name: words for words in ran if words[1] == "prepare-bpe"}
    assert set(prepared) == {"data-320", "data-320-letters"}
    assert {name: Path(option(words, "--data")).name for name, words in train.items()} == {
        "plain-3": "data-320", "other-3": "data-320-letters", "half-3": "data-320"
    }  # fmt: skip
    cyrillic = Path(option(prepared["data-320-letters"], "--tgt")).read_text("utf-8")
    assert {script_of(letter) for letter in cyrillic if letter.isalpha()} == {"Cyrillic"}

    averaged = {Path(option(words, "--out")).parent.name: words for words in ran if words[1] == "average"}
    assert averaged["last-3"][2] == averaged["plain-3"][2], "one run"
    assert option(averaged["last-3"], "--last") == "1"
    assert "--last" not in averaged["plain-3"]
    measures = {Path(option(words, "--out")).parent.name: words for words in ran if words[0] == "python"}
    assert option(measures["other-3"], "--ref") == str(work / "letters" / "valid.de")
    report = json.loads((work / "100-updates" / "table.json").read_bytes())
    assert {row["name"]: row["updates"] for row in report["rows"]} == dict.fromkeys(
        ("plain", "last", "other", "half"), 9
    )


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ("average = 6", r"rows\.more\.average.*2.*6"),
        ("run_of = 'half'\naverage = 6", r"rows\.more\.average.*2.*6"),
        ("prepare = ['--symbol', '<A>']\n[rows.most]\nwords = 'b'\nprepare = ['--symbol', '(A)']", "rows.*most.*more"),
        ("target = 'other/letters.py'", "rows.*more.*other"),
    ],
)
def test_rows_that_cannot_have_what_they_ask_for_are_refused(folder: Path, values: str, named: str) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "letters.py").touch()
    (folder / "mine.toml").write_text(f"{STUDY}\n[rows.more]\nwords = 'more'\n{values}\n", encoding="utf-8")
    with pytest.raises(InputError, match=named):
        run_study(folder, ["--steps", "10"], Pretended())
    assert not list((folder / "work").rglob("figures.json"))


def test_text_that_has_changed_goes_through_the_program_again(folder: Path) -> None:
    words = ["--steps", "10", "--seeds", "1", "--only", "other"]
    run_study(folder, words, Pretended())
    (folder / "text" / "train.de").write_text("anders\n" * len(TRAIN_PAIRS), encoding="utf-8")
    (folder / "work" / "10-updates" / "other-1" / "figures.json").unlink()
    run_study(folder, words, Pretended())
    assert len(set((folder / "work" / "letters" / "train.de").read_text("utf-8").split())) == 1


def test_finished_rows_are_kept_and_the_table_shows_all_of_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretended = Pretended()
    only = ["--steps", "10", "--seeds", "1", "--only"]
    assert names_of(run_study(folder, [*only, "other"], pretended)[1]) == ["other-1"]
    assert names_of(run_study(folder, [*only, "last", "half"], pretended)[1]) == ["plain-1", "half-1"]
    capsys.readouterr()
    code, ran = run_study(folder, [*only, "other"], pretended)
    assert (code, ran) == (0, [])
    printed = capsys.readouterr().out
    assert re.findall(r"^\| (\w+) \|", printed, re.M) == ["row", "plain", "last", "other", "half"]
    assert printed == (folder / "work" / "10-updates" / "table.md").read_text("utf-8")
    (folder / "work" / "10-updates" / "half-1" / "figures.json").unlink()
    assert names_of(run_study(folder, [*only, "plain", "half"], pretended)[1]) == ["half-1"]


def test_results_of_other_settings_are_refused(folder: Path) -> None:
    words = ["--steps", "10", "--seeds", "1", "--only", "plain"]
    run_study(folder, words, Pretended())
    file = folder / "work" / "10-updates" / "plain-1" / "figures.json"
    with pytest.raises(InputError, match=r"plain-1.*model\.dropout"):
        run_study(folder, [*words, "--set", "model.dropout=0.3"], Pretended())
    (folder / "mine.toml").write_text(STUDY.replace('"the recipe"', '"the plain recipe"'), encoding="utf-8")
    assert run_study(folder, words, Pretended()) == (0, []), "words may change"
    assert "| the plain recipe |" in (file.parents[1] / "table.md").read_text("utf-8")
    file.write_bytes(b"{}")
    with pytest.raises(VtransError, match=r"figures\.json"):
        run_study(folder, words, Pretended())


def test_updates_and_minutes_are_two_studies_with_a_table_each(folder: Path) -> None:
    words = ["--steps", "10", "--minutes", "2", "--seeds", "1", "--only", "plain"]
    _, ran = run_study(folder, words, Pretended())
    assert names_of(ran) == ["plain-1", "plain-1"]
    limits = [[word for word in words if word.startswith("train.max_")] for words in ran if words[1] == "train"]
    assert limits[0] == ["train.max_steps=10", "train.max_minutes=0"]
    assert limits[1][1:] == ["train.max_minutes=2.0"]
    for name in ("10-updates", "2-minutes"):
        assert "| plain |" in (folder / "work" / name / "table.md").read_text("utf-8")


def test_a_row_that_fails_stops_only_those_that_need_it(folder: Path) -> None:
    pretended = Pretended()
    pretended.failing.add("plain-1")
    with pytest.raises(VtransError, match=r"plain-1.*last-1"):
        run_study(folder, ["--steps", "6", "--seeds", "1"], pretended)
    folders = {path.parent.name for path in (folder / "work" / "6-updates").glob("*/figures.json")}
    assert folders == {"other-1", "half-1"}
    assert "| other |" in (folder / "work" / "6-updates" / "table.md").read_text("utf-8")
    pretended.failing.clear()
    assert names_of(run_study(folder, ["--steps", "6", "--seeds", "1"], pretended)[1]) == ["plain-1"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--only", "nothing"], "--only.*plain, last.*nothing"),
        (["--steps", "0"], "--steps"),
        (["--set", "model.tie=some"], "model.tie"),
        (["--set", "train.seeds=1"], "train.seeds"),
        (["--set", "train.seed = 2"], "--seeds"),
    ],
)
def test_invalid_options_are_refused_before_any_training(words: list[str], named: str, folder: Path) -> None:
    with pytest.raises(InputError, match=named):
        run_study(folder, words, Pretended())
    assert not (folder / "work").exists()


@pytest.mark.slow
def test_a_study_trains_averages_and_measures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(words: Sequence[str]) -> int:
        if words[0] == "python":
            return measure.main(words[2:])
        monkeypatch.setattr(sys, "argv", list(words))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        assert isinstance(code, int)
        return code

    words = ["--steps", "12", "--only", "last"]
    assert run_study(folder, words, run)[0] == 0
    place = folder / "work" / "12-updates"
    rows = {row["name"]: row for row in json.loads((place / "table.json").read_bytes())["rows"]}
    assert {name: row["updates"] for name, row in rows.items()} == {"plain": 12, "last": 12}
    for row in rows.values():
        assert row["train_tokens_a_second"] > 0
        assert row["sentences_a_second"] > 0
        assert row["singles_a_second"] > 0
        assert row["bytes"] == (place / f"{row['name']}-1" / "model.safetensors").stat().st_size
        assert [score["name"] for score in row["scores"]] == ["BLEU", "chrF2"]
    translations = (place / "plain-1" / "translations.txt").read_text("utf-8").split("\n")
    assert len(translations) == len(VALID_PAIRS) + 1

    assert run_study(folder, ["--minutes", "0.005", "--seeds", "1", "--only", "half"], run)[0] == 0
    (row,) = json.loads((folder / "work" / "0.005-minutes" / "table.json").read_bytes())["rows"]
    assert row["seconds"] >= 0.15
