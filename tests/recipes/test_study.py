"""recipes/sharing/study.py: the rows are valid models, the table shows the measurements, a study resumes."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, TRAIN_PAIRS, VALID_PAIRS, write_pairs

from recipes.sharing import study
from recipes.sharing.study import Row, main, markdown, rows, table
from vtrans import cli
from vtrans.data.writing_systems import script_of
from vtrans.errors import InputError, VtransError
from vtrans.model import Transformer, count_parameters, resolve_tie
from vtrans.training.recipe import load_recipe

SIZES = [f"--set={value}" for value in TINY if "max_steps" not in value]


def built(row: Row, recipe: str) -> int:
    """The parameters of the row's model, with 30 subwords on a side."""
    config = load_recipe(recipe, ["model.d_model=16", "model.heads=2", *settings(row)]).model
    joint = not row.text.endswith("separate")
    tie = resolve_tie(config.tie, joint)
    model = Transformer(dataclasses.replace(config, tie=tie), 30, 30, joint=joint, pad_id=0)
    return count_parameters(model)


def settings(row: Row) -> list[str]:
    return [f"{key}={study.toml(value)}" for key, value in row.settings.items()]


@pytest.mark.parametrize("recipe", ["multi30k-10min", "phrasebook", "small"])
def test_the_rows_are_distinct_models(recipe: str) -> None:
    every = rows(load_recipe(recipe))
    assert len({row.name for row in every}) == len(every)
    assert len({(row.text, *settings(row)) for row in every}) == len(every)
    sizes = {row.name: built(row, recipe) for row in every}
    for fewer, more in (
        ("three-way", "two-way"),
        ("two-way", "untied"),
        ("embeddings", "untied"),
        ("shared-positions", "learned-positions"),
        ("layers-all", "layers-attention"),
        ("layers-all", "layers-feed-forward"),
        ("layers-attention", "three-way"),
        ("stacks", "three-way"),
        ("depth-12-1", "depth-1-12"),
    ):
        assert sizes[fewer] < sizes[more], (fewer, more)
    for one, other in (
        ("separate", "two-way"),  # here the separate vocabularies are as large as the joint one
        ("no-scaling", "three-way"),
        ("no-cross-residual", "three-way"),
        ("one-stack-prefix", "one-stack-causal"),
        ("other-letters-three-way", "three-way"),
    ):
        assert sizes[one] == sizes[other], (one, other)


def made_up(name: str, seed: int, bleu: float, chrf: float = 50.0) -> dict[str, Any]:
    made = {"recipe": "r", "seed": seed, "budget": "7 updates", "vocab_size": 800, "languages": ["en", "de"]}
    scores = [
        {"name": "BLEU", "value": bleu, "signature": "tok:13a"},
        {"name": "chrF2", "value": chrf, "signature": "nc:6"},
    ]
    return {
        "name": name, "words": f"the {name}", "made": made, "steps": 7, "parameters": 1000, "bytes": 1_250_000,
        "parameters_without_sharing": 3000, "train_seconds": 3.0, "train_tokens_a_second": 1000.0 * seed,
        "sentences_a_second": 10.0, "scores": {"test": scores}, "search": {"beam": 4, "alpha": 0.6}, "host": "a box",
    }  # fmt: skip


def test_the_table_has_the_mean_and_the_range_over_the_seeds() -> None:
    found = [made_up("a", 1, 30.0), made_up("a", 2, 31.0), made_up("b", 1, 12.25, 40.0)]
    a, b = table(found)
    assert a["bleu test"] == {"mean": 30.5, "least": 30.0, "most": 31.0}
    assert a["train_tokens_a_second"]["mean"] == 1500
    assert (a["seeds"], b["seeds"], b["chrf test"]["mean"]) == ([1, 2], [1], 40.0)
    lines = markdown(found).split("\n")
    notes = lines.pop(5)
    assert all(fact in notes for fact in ("Recipe r", "7 updates", "800 subwords", "beam 4", "alpha 0.6"))
    assert lines == [
        "| row | what | seeds | updates | parameters | unshared | file, MB | training tokens/s | sentences/s | BLEU "
        "| chrF |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        "| a | the a | 2 | 7 | 1,000 | 3,000 | 1.2 | 2,000 | 10 | 30.5 (30.0 to 31.0) | 50.0 |",
        "| b | the b | 1 | 7 | 1,000 | 3,000 | 1.2 | 1,000 | 10 | 12.2 | 40.0 |",
        "",
        "- BLEU tok:13a",
        "- chrF2 nc:6",
        "- a box",
        "",
    ]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    for name, pairs in (("train", TRAIN_PAIRS), ("valid", VALID_PAIRS), ("test", VALID_PAIRS[:5])):
        write_pairs(folder, name, pairs)
    return folder


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs the commands of a study in this process and records them."""
    run: list[str] = []

    def vtrans(*words: str) -> None:
        run.append(words[0])
        monkeypatch.setattr(sys, "argv", ["vtrans", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        if ended.value.code:
            raise VtransError(f"`vtrans {words[0]}` ended with exit code {ended.value.code}")

    monkeypatch.setattr(study, "vtrans", vtrans)
    return run


@pytest.fixture
def start(text: Path, tmp_path: Path, commands: list[str]) -> Callable[..., int]:
    def start(*words: str) -> int:
        commands.clear()
        return main(["--data", str(text), "--work", str(tmp_path / "work"), "--vocab-size", "320", *SIZES, *words])

    return start


@pytest.mark.slow
def test_a_study_resumes_where_it_stopped(
    start: Callable[..., int], commands: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work, only = tmp_path / "work", ["--steps", "12", "--only", "three-way", "other-letters-three-way"]
    assert start(*only, "--seeds", "1") == 0
    out = capsys.readouterr().out
    assert commands == ["prepare-bpe", "train", "average"] * 2
    assert out == (work / "table.md").read_text("utf-8")
    assert "| three-way | one matrix E: both embeddings and the projection | 1 | 12 |" in out
    cyrillic = (work / "other-letters" / "train.de").read_text("utf-8")
    assert {script_of(letter) for letter in cyrillic if letter.isalpha()} == {"Cyrillic"}
    kept = (work / "table.json").read_bytes()
    report = json.loads(kept)
    shared = {row["name"]: row["overlap"][0]["both"] for row in report["rows"]}
    assert shared["other-letters-three-way"] < 5 < shared["three-way"]
    assert all(row["train_tokens_a_second"] > 0 and row["sentences_a_second"] > 0 for row in report["rows"])

    assert start(*only, "--seeds", "1") == 0
    assert (commands, (work / "table.json").read_bytes()) == ([], kept), "all rows were finished"
    (work / "rows" / "three-way-1.json").unlink()
    assert start(*only, "--seeds", "1") == 0
    assert commands == ["prepare-bpe", "train", "average"], "the other row was finished"
    again = {row["name"]: row["scores"] for row in json.loads((work / "table.json").read_bytes())["rows"]}
    assert again == {row["name"]: row["scores"] for row in report["rows"]}
    assert start("--steps", "12", "--only", "three-way", "--seeds", "1", "2") == 0
    assert commands == ["prepare-bpe", "train", "average"], "the other seed was finished"
    assert "| three-way | one matrix E: both embeddings and the projection | 2 | 12 |" in capsys.readouterr().out

    with pytest.raises(InputError, match=r"three-way-1\.json.*12 updates.*13 updates"):
        start("--steps", "13", "--only", "three-way", "--seeds", "1")
    (work / "rows" / "three-way-1.json").write_bytes(b"{}")
    with pytest.raises(VtransError, match=r"three-way-1\.json"):
        start(*only, "--seeds", "1")


@pytest.mark.slow
def test_minutes_are_converted_to_updates_once(start: Callable[..., int], commands: list[str], tmp_path: Path) -> None:
    words = ["--minutes", "0.02", "--only", "two-way", "--seeds", "1"]
    assert start(*words) == 0
    assert commands == ["prepare-bpe", "train", "train", "average"]
    row = tmp_path / "work" / "rows" / "two-way-1.json"
    steps = json.loads(row.read_bytes())["steps"]
    assert steps == int((tmp_path / "work" / "runs" / "two-way-1.steps").read_text())
    assert steps >= study.CALIBRATION
    row.unlink()
    assert start(*words) == 0
    assert commands == ["prepare-bpe", "train", "average"], "no second calibration"
    assert json.loads(row.read_bytes())["steps"] == steps


def test_a_row_that_fails_does_not_stop_the_others(
    start: Callable[..., int], commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vtrans = study.vtrans

    def failing(*words: str) -> None:
        if words[0] == "train" and any("two-way" in word for word in words):
            raise VtransError("`vtrans train` ended with exit code 1")
        vtrans(*words)

    monkeypatch.setattr(study, "vtrans", failing)
    with pytest.raises(VtransError, match="two-way-1"):
        start("--steps", "6", "--only", "two-way", "untied", "--seeds", "1")
    assert [path.name for path in (tmp_path / "work" / "rows").iterdir()] == ["untied-1.json"]
    assert "| untied |" in (tmp_path / "work" / "table.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--only", "nothing"], "--only.*three-way, two-way.*nothing"),
        (["--steps", "5", "--minutes", "1"], "--minutes"),
        (["--steps", "0"], "--steps"),
        (["--set", "model.tie=some"], "model.tie"),
        (["--set", "train.seeds=1"], "train.seeds"),
    ],
)
def test_invalid_options_are_refused_before_any_training(
    words: list[str], named: str, start: Callable[..., int], commands: list[str]
) -> None:
    with pytest.raises(InputError, match=named):
        start(*words)
    assert commands == []
