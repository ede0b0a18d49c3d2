"""recipes/studies: the shipped studies are valid, files are checked, rows are trained once, alike, and tabulated."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import TINY, TRAIN_PAIRS, VALID_PAIRS, write_pairs

from recipes import running
from recipes.running import INTO, Run
from recipes.studies import measure, study
from recipes.studies.rows import SHIPPED, Row, load_study, names_in
from recipes.studies.table import Found, table
from recipes.work import Starter
from vtrans import cli
from vtrans.config import resolve_tie
from vtrans.model.network import Transformer, count_parameters
from vtrans.system.errors import InputError, VtransError
from vtrans.training.recipe import load_recipe

SIZES = [f"--set={value}" for value in TINY if "max_steps" not in value]


def built(row: Row, recipe: str) -> int:
    """The parameters of the row's model, with 30 subwords on a side."""
    config = load_recipe(recipe, ["model.d_model=16", "model.heads=2", *row.settings]).model
    joint = "--separate" not in row.prepare
    model = Transformer(dataclasses.replace(config, tie=resolve_tie(config.tie, joint)), 30, 30, joint=joint, pad_id=0)
    return count_parameters(model)


@pytest.mark.parametrize("name", names_in(SHIPPED))
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
        ('recipe = 3\nrows.a.words = "a"', "recipe"),
        ('resipe = "small"\nrows.a.words = "a"', "resipe.*recipe"),
        ('experiment = "wmt"\nrecipe = "small"\nrows.a.words = "a"', "experiment.*multi30k.*wmt"),
        (HEAD, "no rows"),
        (HEAD + 'rows."a/b".words = "a"', "rows.a/b"),
        (HEAD + "rows.a.model.tie = 'none'", "rows.a.words"),
        (HEAD + "rows.a.words = 'a | b'", "rows.a.words"),
        (HEAD + "rows.a = {words = 'a', prepares = 3}", "prepares.*prepare"),
        (HEAD + "rows.a = {words = 'a', model = 'small'}", "rows.a.model"),
        (HEAD + "rows.a = {words = 'a', train.seed = 2}", "rows.a.train.seed"),
        (HEAD + "rows.a = {words = 'a', train.max_steps = 2}", "rows.a.train.max_steps"),
    ],
)
def test_a_faulty_study_is_refused_by_the_name_of_its_fault(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"mine\.toml.*{named}"):
        load_study(str(tmp_path / "mine.toml"))


def test_a_study_needs_nothing_but_rows(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("rows.a.words = 'a'", encoding="utf-8")
    study = load_study(str(tmp_path / "mine.toml"))
    assert (study.experiment, study.recipe, list(study.rows)) == ("multi30k", "small", ["a"])


def figures(name: str, seed: int, bleu: float, chrf: float = 50.0, p: tuple[float, ...] = ()) -> Found:
    scores = [
        {"name": "BLEU", "value": bleu, "signature": "tok:13a"},
        {"name": "chrF2", "value": chrf, "signature": "nc:6"},
    ]
    made = {
        "updates": 6 + seed, "seconds": 60.0 * seed, "parameters": 1000, "bytes": 1_250_000,
        "parameters_without_sharing": 3000, "train_tokens_a_second": 1000.0 * seed, "sentences_a_second": 10.0,
        "singles_a_second": 5.0, "scores": scores, "search": {"beam": 4, "alpha": 0.6}, "host": "a box",
    }  # fmt: skip
    values = (bleu, chrf) if p else ()
    tests = [{"p_value": each, "value": v, "baseline_value": 30.0} for each, v in zip(p, values, strict=True)]
    return Row(name, f"the {name}"), seed, made, tests


def test_the_table_has_the_mean_and_the_range_over_the_seeds() -> None:
    found = [figures("a", 1, 30.0), figures("b", 1, 12.25, 40.0), figures("c", 1, 13.25), figures("a", 2, 31.0)]
    lines = table(found, "Recipe r, 7 updates.").split("\n")
    notes = lines.pop(6)
    assert all(fact in notes for fact in ("- Recipe r, 7 updates. Scores", "beam 4", "alpha 0.6"))
    assert lines == [
        "| row | what | seeds | parameters | unshared | file, MB | tokens/s | updates | minutes | sentences/s "
        "| one at a time | BLEU | chrF |",
        f"| --- | --- |{' ---: |' * 11}",
        "| a | the a | 2 | 1,000 | 3,000 | 1.2 | 2,000 | 7-8 | 1.5 | 10 | 5 | 30.5 (30.0 to 31.0) | 50.0 |",
        "| b | the b | 1 | 1,000 | 3,000 | 1.2 | 1,000 | 7 | 1.0 | 10 | 5 | 12.2 | 40.0 |",
        "| c | the c | 1 | 1,000 | 3,000 | 1.2 | 1,000 | 7 | 1.0 | 10 | 5 | 13.2 | 50.0 |",
        "",
        "- BLEU tok:13a",
        "- chrF2 nc:6",
        "- a box",
        "",
    ]


@pytest.mark.parametrize(
    ("seeds", "stars"),
    [
        ([(29.0, (0.001, 0.05))], (True, False)),
        ([(29.0, (0.04, 0.2)), (28.0, (0.03, 0.01))], (True, False)),
        ([(29.0, (0.001, 0.001)), (31.0, (0.001, 0.001))], (False, True)),  # BLEU is once lower and once higher
        ([(29.0, (0.001, 0.001)), (29.0, ())], (False, False)),  # the first row of the second seed failed
        ([(29.0, ())], (False, False)),
    ],
)
def test_a_star_needs_all_seeds(seeds: list[tuple[float, tuple[float, ...]]], stars: tuple[bool, bool]) -> None:
    found = [figures("a", n, bleu, p=p) for n, (bleu, p) in enumerate(seeds, 1)]
    cells = table(found, "").split("\n")[2].split(" | ")[-2:]
    assert tuple("*" in cell for cell in cells) == stars


# A study. Its commands run in this process or, to be fast, are pretended.

STUDY = """
[rows.plain]
words = "the recipe"

[rows.other]
words = "digits as they are"
prepare = ["--no-split-digits"]

[rows.wrong]
words = "with a width that the heads do not divide"
model.heads = 7
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study file and its text, without a test set."""
    (tmp_path / "mine.toml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "text").mkdir()
    for name, pairs in (("train", TRAIN_PAIRS), ("valid", VALID_PAIRS)):
        write_pairs(tmp_path / "text", name, pairs)
    return tmp_path


def run_study(folder: Path, words: str, starter: Starter) -> int:
    chosen = ["--data", str(folder / "text"), "--work", str(folder / "work"), "--vocab-size", "320", *SIZES]
    return study.main([str(folder / "mine.toml"), *chosen, *words.split()], starter)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--only none", "--only must be among plain, other, wrong; got none"),
        ("--steps 0", "greater than 0"),
        ("--steps 3 --minutes 3", "exclude each other"),
        ("--steps 3 --set train.seed=3", "--seeds"),
        ("--steps 3", r"model\.d_model"),
    ],
)
def test_a_wrong_choice_is_refused_before_anything_runs(words: str, named: str, folder: Path) -> None:
    with pytest.raises(VtransError, match=named):
        run_study(folder, words, lambda *_: pytest.fail("it ran a command"))
    assert not (folder / "work").exists()


def test_few_updates_shorten_the_warm_up_and_bring_the_checkpoints_closer() -> None:
    recipe = load_recipe("small", ["train.warmup=400", "train.checkpoint_every=190", "train.keep_last=5"])
    assert study.Budget(3800).settings(recipe) == ["train.max_steps=3800", "train.max_minutes=0"]
    shortened = ["train.warmup=25", "train.checkpoint_every=10"]
    assert study.Budget(100).settings(recipe) == ["train.max_steps=100", "train.max_minutes=0", *shortened]


@pytest.mark.slow
def test_a_study_goes_on_after_a_failure_and_resumes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran, failing = list[list[str]](), {"other-1/run"}

    def starter(work: Path, _: int) -> Run:
        def run(words: Sequence[str]) -> None:
            ran.append(list(words))
            if failing.intersection(words):
                raise SystemExit(1)
            if INTO in words:
                running.run(words, sys.stderr, folder=work)
                return
            with monkeypatch.context() as patched:
                patched.chdir(work)
                if words[0] == "python":
                    measure.main(words[3:])
                    return
                patched.setattr(sys, "argv", list(words))
                with pytest.raises(SystemExit, match=r"^0$"):
                    cli.main()

        return run

    words = "--steps 12 --only plain other"
    with pytest.raises(VtransError, match="failed: other-1;"):
        run_study(folder, words, starter)
    assert [word[1] for word in ran] == ["prepare-bpe", "prepare-bpe", "train", "average", "-m", "train"]
    place = folder / "work" / "plain-1"
    figures = json.loads((place / "figures.json").read_bytes())
    assert figures["updates"] == 12
    assert figures["bytes"] == (place / "model.safetensors").stat().st_size
    assert min(figures[key] for key in ("train_tokens_a_second", "sentences_a_second", "singles_a_second")) > 0
    assert [score["name"] for score in figures["scores"]] == ["BLEU", "chrF2"]
    assert len((place / "translations.txt").read_text("utf-8").split("\n")) == len(VALID_PAIRS) + 1

    failing.clear()
    ran.clear()
    capsys.readouterr()
    assert run_study(folder, words, starter) == 0
    assert [word[1] for word in ran] == ["train", "average", "-m", "score"]
    tests = json.loads((folder / "work/other-1/tests.json").read_bytes())
    assert [(test["name"], test["baseline_value"]) for test in tests] == [
        (score["name"], score["value"]) for score in figures["scores"]
    ]
    out = capsys.readouterr().out
    assert out == (folder / "work" / "table.md").read_text("utf-8")
    assert [line.split(" | ")[0] for line in out.split("\n")[2:4]] == ["| plain", "| other"]

    refused = "holds the results of mine-12-updates, not mine-0.005-minutes"
    with pytest.raises(InputError, match=refused):
        run_study(folder, "--minutes 0.005 --only plain", starter)
    run_study(folder, f"--minutes 0.005 --only plain --work {folder / 'minutes'}", starter)
    assert json.loads((folder / "minutes/plain-1/figures.json").read_bytes())["seconds"] >= 0.15
