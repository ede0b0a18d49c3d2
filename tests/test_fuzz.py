"""The readers, with the inputs that fuzzing found: they accept an input, or raise what they may."""

from pathlib import Path

import pytest
from fuzz_targets import TARGETS

FOUND = sorted((Path(__file__).parent / "fuzz").glob("*/*"))


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_read(name: str, tmp_path: Path) -> None:
    accepted = [TARGETS[name].check(seed, tmp_path / "case") for seed in TARGETS[name].seeds()]
    assert accepted[-1]


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_fuzzing_found_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    TARGETS[path.parent.name].check(path.read_bytes(), tmp_path / "case")
