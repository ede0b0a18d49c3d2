"""recipes/studies: the shipped studies are valid, files are checked, rows are trained once, alike, and tabulated."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, TRAIN_PAIRS, VALID_PAIRS, write_pairs

from recipes.studies import measure, study
from recipes.studies.rows import Row, load_study, study_names
from recipes.studies.table import markdown, table
from vtrans import cli
from vtrans.config import resolve_tie
from vtrans.errors import InputError
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
