"""Hooks of pytest, which conftest.py imports: choices of tests, and the seed of their cases."""

from pathlib import Path

import drawn
import hypothesis
import pytest

# Modules of tests/helpers whose functions depend on VTRANS_SEED.
DRAWING = ("drawn", "networks", "translators", "fakes", "foreign", "near_ties")
SLOW_LIST = Path(__file__).parents[1] / "slow.txt"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vtrans")
    group.addoption("--quick", action="store_true", help="Leave out what tests/slow.txt lists or the mark slow has.")
    group.addoption("--laws", action="store_true", help="Run only tests whose cases VTRANS_SEED draws.")


def pytest_report_header() -> str:
    """Says how to draw the same cases again (drawn.py)."""
    return f"cases of laws: VTRANS_SEED={drawn.SEED} (VTRANS_SEED=all takes all of them)"


def function_of(item: pytest.Item) -> str:
    """Returns the file and the function of a test, without its parameters."""
    return item.nodeid.partition("[")[0]


def is_law(item: pytest.Item) -> bool:
    """Whether VTRANS_SEED draws cases of this test, or of others in its file."""
    if not isinstance(item, pytest.Function):
        return False
    if hypothesis.is_hypothesis_test(item.obj):
        return True
    return any(getattr(value, "__module__", "") in DRAWING for value in vars(item.module).values())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out: list[pytest.Item] = []
    if config.getoption("quick"):
        slow = set(SLOW_LIST.read_text(encoding="utf-8").split("\n"))
        left_out += [item for item in items if function_of(item) in slow or item.get_closest_marker("slow")]
    if config.getoption("laws"):
        left_out += [item for item in items if not is_law(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    if drawn.SEED not in (drawn.USUAL, "all"):
        for item in items:
            if isinstance(item, pytest.Function) and hypothesis.is_hypothesis_test(item.obj):
                hypothesis.seed(int(drawn.SEED))(item.obj)
