"""vtrans study: the shipped studies are valid, files are checked, rows are trained once, alike, and tabulated."""

import dataclasses
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, TRAIN_PAIRS, VALID_PAIRS, write_pairs

from vtrans import cli
from vtrans.apps.experiments import measure
from vtrans.apps.experiments.experiment_files import TextFiles
from vtrans.apps.experiments.study import (
    Budget,
    Found,
    Row,
    compared,
    load_study,
    prepared,
    recipes_of,
    run_study,
    table,
)
from vtrans.apps.experiments.work import CommandError, Run
from vtrans.config import resolve_tie
from vtrans.model.network import Transformer, count_parameters
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.training.recipe import load_recipe

SHIPPED = sorted((Path(__file__).parents[3] / "recipes/studies").glob("*.toml"))
QUIET = Console(quiet=True, stream=io.StringIO())
SIZES = [value for value in TINY if "max_steps" not in value]


def built(row: Row, recipe: str) -> int:
    """The parameters of the row's model, with 30 subwords on a side."""
    config = recipes_of([row], load_recipe(recipe, ["model.d_model=16", "model.heads=2"]), Budget(1))[row.name].model
    joint = "--separate" not in row.prepare
    model = Transformer(dataclasses.replace(config, tie=resolve_tie(config.tie, joint)), 30, 30, joint=joint, pad_id=0)
    return count_parameters(model)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_the_rows_of_a_study_are_distinct_and_can_be_trained(file: Path) -> None:
    study = load_study(file, {"folder": Path("text")})
    every = study.rows.values()
    facts = {str(dataclasses.replace(row, name="", words="")) for row in every}
    assert len(facts) == len({row.words for row in every}) == len(every) > 1
    for row in every:
        assert built(row, study.recipe) > 0


HEAD = "text = {src = 'en', tgt = 'de', folder = 'text'}\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (HEAD + 'recipe = 3\nrows.a.words = "a"', "recipe"),
        ('resipe = "small"\nrows.a.words = "a"', "resipe.*recipe"),
        (HEAD, "no rows"),
        ("rows.a.words = 'a'\ntext.tgt = 'de'", "text.src"),
        ("rows.a.words = 'a'\ntext = {src = 'de', tgt = 'de', folder = 'x'}", "text.tgt.*de"),
        ("rows.a.words = 'a'\ntext = {src = 'en', tgt = 'de'}", "text.folder"),
        ("rows.a.words = 'a'\ntext.vocab = 3", "text.*vocab.*vocab_size"),
        (HEAD + 'rows."a/b".words = "a"', "rows.a/b"),
        (HEAD + "rows.a.model.tie = 'none'", "rows.a.words"),
        (HEAD + "rows.a.words = 'a | b'", "rows.a.words"),
        (HEAD + "rows.a = {words = 'a', prepares = 3}", "prepares.*prepare"),
        (HEAD + "rows.a = {words = 'a', train.seed = 2}", "rows.a.train.seed"),
        (HEAD + "rows.a = {words = 'a', train.max_steps = 2}", "rows.a.train.max_steps"),
    ],
)
def test_a_faulty_study_is_refused_by_the_name_of_its_fault(text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"mine\.toml.*{named}"):
        load_study(tmp_path / "mine.toml", {})


def test_a_study_needs_nothing_but_rows_and_a_text(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("rows.a.words = 'a'\ntext = {src = 'en', folder = 'x'}", encoding="utf-8")
    study = load_study(tmp_path / "mine.toml", {"tgt": "fr", "vocab_size": 300})
    assert (study.recipe, list(study.rows)) == ("small", ["a"])
    assert (study.corpus.folder, study.corpus.tgt, study.corpus.vocab_size) == (tmp_path / "x", "fr", 300)


def figures(name: str, seed: int, bleu: float, chrf: float = 50.0) -> Found:
    scores = [
        {"name": "BLEU", "value": bleu, "signature": "tok:13a"},
        {"name": "chrF2", "value": chrf, "signature": "nc:6"},
    ]
    made = {
        "updates": 6 + seed, "seconds": 60.0 * seed, "parameters": 1000, "bytes": 1_250_000,
        "parameters_without_sharing": 3000, "train_tokens_a_second": 1000.0 * seed, "sentences_a_second": 10.0,
        "singles_a_second": 5.0, "scores": scores, "host": "a box",
        "search": {"beam": 4, "alpha": 0.6, "engine": "torch"},
    }  # fmt: skip
    return name, f"the {name}", made


def test_the_table_has_the_mean_and_the_deviation_over_the_seeds() -> None:
    found = [figures("a", 1, 30.0), figures("b", 1, 12.25, 40.0), figures("c", 1, 13.25), figures("a", 2, 31.0)]
    lines = table(found, "Recipe r, 7 updates.").split("\n")
    notes = lines.pop(6)
    assert all(fact in notes for fact in ("- Recipe r, 7 updates. Scores", "beam 4", "alpha 0.6", "torch"))
    assert lines == [
        "| row | what | seeds | parameters | unshared | file, MB | tokens/s | updates | minutes | sentences/s "
        "| one at a time | BLEU | chrF |",
        f"| --- | --- |{' ---: |' * 11}",
        "| a | the a | 2 | 1,000 | 3,000 | 1.2 | 2,000 | 7-8 | 1.5 | 10 | 5 | 30.5 ±0.7 | 50.0 ±0.0 |",
        "| b | the b | 1 | 1,000 | 3,000 | 1.2 | 1,000 | 7 | 1.0 | 10 | 5 | 12.2 | 40.0 |",
        "| c | the c | 1 | 1,000 | 3,000 | 1.2 | 1,000 | 7 | 1.0 | 10 | 5 | 13.2 | 50.0 |",
        "",
        "- BLEU tok:13a",
        "- chrF2 nc:6",
        "- a box",
        "",
    ]


def test_a_star_marks_a_score_that_differs_from_that_of_the_first_row() -> None:
    refs = ["A dog sleeps in the house today .", "Two cats see a bird in the snow .", "Men sit on the red chair ."] * 9
    rows = [Row(name) for name in ("bad", "good", "same", "failed")]
    texts = {"good": refs, "bad": [line[:-9] for line in refs], "same": [line[:-9] for line in refs]}
    tests = compared(rows, {name: {f"{name}-{n}": lines for n in (1, 2)} for name, lines in texts.items()}, refs)
    found = [figures(name, 1, 30.0) for name in texts]
    stars = [["*" in cell for cell in line.split(" | ")[-2:]] for line in table(found, "", tests).split("\n")[2:5]]
    assert stars == [[True, True], [False, False], [False, False]]
    assert compared([Row("failed"), *rows], {"good": {"good-1": refs}, "bad": {"bad-1": refs}}, refs) == []


# A study. Its commands run in this process or, to be fast, are pretended.

STUDY = """
text = {src = "en", tgt = "de"}

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


def run_words(folder: Path, words: str, start: Run, place: str = "work") -> str:
    """Runs the study as the command does. The words are `only=a,b steps=3 set=key=value`."""
    given: dict[str, Any] = dict(word.split("=", 1) for word in words.split())
    for name, kind in {"steps": int, "minutes": float}.items():
        given |= {name: kind(given[name])} if name in given else {}
    overrides = [*SIZES, *([given.pop("set")] if "set" in given else [])]
    only = given.pop("only").split(",") if "only" in given else []
    text = {"folder": folder / "text", "vocab_size": 320}
    return run_study(
        folder / "mine.toml", QUIET, text=text, overrides=overrides, only=only, out=folder / place, start=start, **given
    )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("only=none", "`only` must be among plain, other, wrong; got none"),
        ("steps=3 minutes=3", "exclude each other"),
        ("steps=3 set=train.seed=3", "train.seed.*`seeds`"),
        ("minutes=3 set=train.max_steps=3", "train.max_steps.*`minutes`"),
        ("steps=3", r"model\.d_model"),
    ],
)
def test_a_wrong_choice_is_refused_before_anything_runs(words: str, named: str, folder: Path) -> None:
    with pytest.raises(VtransError, match=named):
        run_words(folder, words, lambda *_, **__: pytest.fail("it ran a command"))
    assert not (folder / "work").exists()


def test_two_vocabularies_share_the_subwords_of_one(folder: Path) -> None:
    text = TextFiles.of(folder / "text", "en", "de", tested=False)
    for options, size in (((), "320"), (("--separate",), "160")):
        (command,) = prepared(Row("a", prepare=options), text, 320).commands
        assert command[command.index("--vocab-size") + 1] == size


def test_few_updates_shorten_the_warm_up_and_bring_the_checkpoints_closer() -> None:
    recipe = load_recipe("small", ["train.warmup=400", "train.checkpoint_every=190", "train.keep_last=5"])
    assert Budget(3800).settings(recipe) == ["train.max_steps=3800", "train.max_minutes=0"]
    shortened = ["train.warmup=25", "train.checkpoint_every=10"]
    assert Budget(100).settings(recipe) == ["train.max_steps=100", "train.max_minutes=0", *shortened]


@pytest.mark.parametrize(
    ("row", "named"), [("model = 'small'", "row a: model"), ("model.width = 3", r"row a: .*model\.width")]
)
def test_a_wrong_recipe_is_refused_by_the_name_of_its_row(row: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(HEAD + f"rows.a = {{words = 'a', {row}}}", encoding="utf-8")
    with pytest.raises(InputError, match=named):
        recipes_of(list(load_study(tmp_path / "mine.toml", {}).rows.values()), load_recipe("small"), Budget(1))


@pytest.mark.slow
def test_a_study_goes_on_after_a_failure_and_resumes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, failing = list[list[str]](), {"other-1/run"}

    def start(words: Sequence[str], _: object, **options: Any) -> None:
        ran.append(list(words))
        if failing.intersection(words):
            raise CommandError(words, 1)
        with monkeypatch.context() as patched:
            patched.chdir(options["folder"])
            if words[0] == "python":
                measure.main(words[3:])
                return
            patched.setattr(sys, "argv", list(words))
            with pytest.raises(SystemExit, match=r"^0$"):
                cli.main()

    words = "steps=12 only=plain,other"
    with pytest.raises(VtransError, match="failed: other-1;"):
        run_words(folder, words, start)
    assert [word[1] for word in ran] == ["prepare-bpe", "prepare-bpe", "train", "average", "-m", "train"]
    place = folder / "work" / "plain-1"
    figures = json.loads((place / "figures.json").read_bytes())
    assert figures["updates"] == 12
    assert figures["bytes"] == (place / "run/averaged.safetensors").stat().st_size
    assert min(figures[key] for key in ("train_tokens_a_second", "sentences_a_second", "singles_a_second")) > 0
    assert [score["name"] for score in figures["scores"]] == ["BLEU", "chrF2"]
    assert len((place / "translations.txt").read_text("utf-8").split("\n")) == len(VALID_PAIRS) + 1

    failing.clear()
    ran.clear()
    out = run_words(folder, words, start)
    assert [word[1] for word in ran] == ["train", "average", "-m"]
    assert out == (folder / "work" / "table.md").read_text("utf-8")
    assert [line.split(" | ")[0] for line in out.split("\n")[2:4]] == ["| plain", "| other"]

    with pytest.raises(InputError, match=r"holds the results of mine-12-updates, not mine-0\.005-minutes"):
        run_words(folder, "minutes=0.005 only=plain", start)
    run_words(folder, "minutes=0.005 only=plain", start, "minutes")
    assert json.loads((folder / "minutes/plain-1/figures.json").read_bytes())["seconds"] >= 0.15
