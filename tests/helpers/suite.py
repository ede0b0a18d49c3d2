"""Hooks of pytest, which conftest.py imports: a quick choice of the tests, and what is said about a whole suite."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SLOW_LIST = Path(__file__).parents[1] / "slow.txt"
SLOW, LONG = 0.1, 1.0  # seconds of processor time, and in all
_SLOW = "slow"  # the property of a report that says so
_REMEDY = re.compile(r"not installed: (.+)$")
_slow = set[str]()  # test functions of which a case is slow


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vtrans")
    group.addoption("--quick", action="store_true", help="Leave out what tests/slow.txt lists or the mark slow has.")
    group.addoption("--list-slow", action="store_true", help="Write tests/slow.txt anew, in a run of all tests.")


def pytest_report_header() -> str:
    """Says how to draw the same cases again (drawn.py)."""
    return f"cases of laws: VTRANS_SEED={os.environ['VTRANS_SEED']} (VTRANS_SEED=all takes all of them)"


def function_of(item: pytest.Item) -> str:
    """Returns the file and the function of a test, without its parameters."""
    return item.nodeid.partition("[")[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        slow = set(SLOW_LIST.read_text(encoding="utf-8").split("\n"))
        left_out = [item for item in items if function_of(item) in slow or item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Measures the processor time of a test and of the processes that it waits for, and the time that it takes, without
    its fixtures."""
    before = os.times()
    try:
        yield
    finally:
        passed = [after - then for after, then in zip(os.times(), before, strict=True)]
        if sum(passed[:4]) > SLOW or passed[4] > LONG:
            item.user_properties.append((_SLOW, function_of(item)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collects the slow tests, also those of other processes, whose reports come here."""
    _slow.update(str(value) for name, value in report.user_properties if name == _SLOW)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("list_slow") and not hasattr(session.config, "workerinput"):
        SLOW_LIST.write_text("".join(f"{name}\n" for name in sorted(_slow)), encoding="utf-8")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says in one line which commands install what skipped tests lack."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    remedies = Counter(found[1].rstrip("')") for reason in reasons if (found := _REMEDY.search(reason)))
    if remedies:
        commands = "; ".join(sorted(remedies))
        terminalreporter.write_line(f"{sum(remedies.values())} tests or files were skipped. They need: {commands}")
