"""The report of runs as an HTML page."""

import math
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cli_runner import Done, Run

from vtrans.apps.analysis.report import PAGE, report
from vtrans.apps.analysis.run_history import MOST_POINTS, RunHistory, histories
from vtrans.model.checkpoint import load_model
from vtrans.model.network import count_parameters
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.system.errors import FileError

QUIET = Console(quiet=True)
VOID = {"meta", "input", "br", "link", "img"}


class Page(HTMLParser):
    """Checks that tags are balanced, and collects the tags, the text and what the page would load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.loaded: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href", "data")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_the_run_and_loads_nothing(tiny_run: RunFolder) -> None:
    (history,) = histories([tiny_run.path])
    page = Page(report([history], QUIET))
    assert page.loaded == []
    assert "default-src 'none'" in PAGE.read_text("utf-8")
    assert page.tags.count("svg") == 6
    assert history.sources is not None
    for shown in (*history.sources[:2], "Results", "train.max_steps"):
        assert shown in page.text
    assert history.best is not None
    assert f"{history.best['bleu']:.2f}" in page.text
    assert f"{count_parameters(load_model(tiny_run.best).model):,}" in page.text


def test_text_has_its_own_direction(tiny_run: RunFolder) -> None:
    (history,) = histories([tiny_run.path])
    page = report([history], QUIET)
    assert history.sources is not None
    assert history.references is not None
    for text in (history.sources[0], history.references[0]):
        assert f' dir="auto">{escape(text)}<' in page


def test_text_of_the_user_is_escaped(run_copy: RunFolder) -> None:
    (history,) = histories([run_copy.path])
    evil = "<script>alert(1)</script>&\"'"
    for path in (run_copy.valid_src, run_copy.valid_ref, *run_copy.validation.glob("step-*.txt")):
        path.write_text(f"{evil}\n" * len(path.read_text().splitlines()))
    renamed = run_copy.path.rename(run_copy.path.with_name("<b>&run"))
    (history,) = histories([renamed])
    page = Page(report([history], QUIET))
    assert page.tags.count("script") == 1
    assert "b" not in page.tags
    assert evil in page.text


def test_several_runs_are_compared(tiny_run: RunFolder, run_copy: RunFolder) -> None:
    recipe = run_copy.recipe.read_text()
    run_copy.recipe.write_text(recipe.replace("max_steps = 30", "max_steps = 31"))
    first, second = histories([tiny_run.path, run_copy.path])
    assert first.name != second.name
    page = Page(report([first, second], QUIET))
    text = " ".join(page.text.split())
    assert "Differences between the runs" in text
    assert "+0.00" in text  # the runs are equal
    changed = text.split("Recipes")[1].split("All ")[0]
    assert re.findall(r"(?:model|train|search)\.[a-z_]+", changed) == ["train.max_steps"]


@pytest.mark.parametrize("count", [0, 1, 7, MOST_POINTS - 1, MOST_POINTS, 10 * MOST_POINTS + 3])
def test_a_curve_has_some_points_in_order_and_the_last_one(count: int) -> None:
    train = [{"step": step, "loss": 0.5 * step} for step in range(1, count + 1)]
    train += [{"step": count + 1, "loss": math.inf}, {"step": count + 2}]
    points = RunHistory("run", RunFolder(Path()), train, [], {}).curve("train", "loss")
    assert points == sorted(points)
    assert all(value == 0.5 * step for step, value in points)
    assert [step for step, _ in points[-1:]] == [count][: bool(count)]
    assert len(points) == count if count < MOST_POINTS else MOST_POINTS / 2 <= len(points) <= MOST_POINTS


@pytest.mark.parametrize("line", ["{", "[]", '{"kind": "train", "step": "x", "seconds": 1}', '{"kind": "valid"}'])
def test_damaged_records_are_named(run_copy: RunFolder, line: str) -> None:
    lines = run_copy.metrics.read_text().splitlines()
    run_copy.metrics.write_text("\n".join([lines[0], line, *lines[1:], ""]))
    with pytest.raises(FileError, match="line 2"):
        histories([run_copy.path])


def test_the_command_writes_one_page(tiny_run: RunFolder, tmp_path: Path, run_cli: Run) -> None:
    out = tmp_path / "report.html"
    assert run_cli("report", tiny_run.path, "--out", out, "--quiet") == Done(0, b"", "")
    assert "svg" in Page(out.read_text()).tags
    assert run_cli("report", tiny_run.path, "--out", tmp_path / "report.txt").code == 2
    assert run_cli("report", tmp_path, "--out", out).code == 2
