"""The model of cost, and the page that quotes it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder

FOLDER = Path(__file__).parents[2] / "recipes" / "at-scale"


@pytest.fixture(scope="module")
def cost() -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / "cost.py"))


def test_the_page_has_the_tables_of_the_script(cost: dict[str, Any]) -> None:
    page = (FOLDER.parents[1] / "docs" / "at-scale.md").read_text(encoding="utf-8")
    for block in cost["report"]().split("\n\n"):
        assert block in page


def test_the_shapes_are_those_of_the_recipes(cost: dict[str, Any]) -> None:
    assert [shape.parameters() for shape in cost["SHAPES"]] == [63_082_496, 214_245_376]


def test_files_have_the_sizes_of_the_formulas(cost: dict[str, Any], tiny_data: DataFolder, tiny_run: RunFolder) -> None:
    ids = sum(len(tiny_data.train.src(i)) + len(tiny_data.train.tgt(i)) for i in range(len(tiny_data.train)))
    store = (tiny_data.path / "train.safetensors").stat().st_size
    assert store == pytest.approx(cost["store_bytes"](len(tiny_data.train), ids), rel=0.1)
    shape = cost["Shape"]("tiny", 32, 48, 1, 30, 320)
    model, state = cost["checkpoint_bytes"](shape.parameters())
    assert tiny_run.state_file(30).stat().st_size == pytest.approx(state, rel=0.1)
    assert model < tiny_run.last.stat().st_size


def test_costs_grow_as_they_must(cost: dict[str, Any]) -> None:
    base, big = cost["SHAPES"]
    assert big.training(30, 30) > 3 * base.training(30, 30)
    assert base.search(30, 30, 1) < base.forward(30, 30) < base.search(30, 30, 4)
    assert cost["gradient_bytes"](10, 1) == 0
    assert cost["gradient_bytes"](10, 2) == 40
    assert base.training(60, 60) > 2 * base.training(30, 30)
