"""The files around the package: workflows, images and metadata agree with the package."""

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import vtrans

ROOT = Path(__file__).parent.parent
TOP = {
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "Makefile", "README.md", "SECURITY.md",
    "compose.yaml", "docs", "hatch_build.py", "mkdocs.yml", "pyproject.toml", "recipes", "tests", "vtrans",
}  # fmt: skip


def parsed(path: str) -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install pyyaml")
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]  # type: ignore[no-any-return]


def test_the_top_level_has_only_what_a_reader_expects() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {line.partition("/")[0].strip('"') for line in listed.split("\n") if line}
    assert {name for name in names if not name.startswith(".")} <= TOP


def test_the_citation_and_the_changelog_have_the_version() -> None:
    assert parsed("CITATION.cff")["version"] == vtrans.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[({re.escape(vtrans.__version__)}|Unreleased)\]", changes, re.MULTILINE)


def test_the_workflows_test_every_supported_version_of_python() -> None:
    matrix = parsed(".github/workflows/check.yml")["jobs"]["test"]["strategy"]["matrix"]
    oldest = project()["requires-python"].removeprefix(">=")
    assert oldest == matrix["python"][0]
    assert len({name.partition("-")[0] for name in matrix["os"]}) == 3
    named = {line.rpartition(" ")[2] for line in project()["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert named == set(matrix["python"])


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / ".github" / "workflows").glob("*.yml")))
def test_a_workflow_has_the_fewest_permissions_and_an_end(name: str) -> None:
    workflow = parsed(f".github/workflows/{name}")
    assert workflow["permissions"]["contents"] == "read"
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90


def test_the_image_is_built_from_one_pinned_base() -> None:
    bases = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    pinned = re.fullmatch(r"python:(3\.\d+)\.\d+-slim-\w+@sha256:[0-9a-f]{64}", bases[0])
    assert pinned
    assert set(bases[1:]) == {"base"}
    assert f"Linux x86-64, Python {pinned[1]} | all tests" in (ROOT / "docs/install.md").read_text(encoding="utf-8")


def test_soak_prints_its_counts_at_ctrl_c(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run_round(seed: int, tests: list[str]) -> int:
        if seeds:
            raise KeyboardInterrupt
        seeds.append(seed)
        return 2

    seeds: list[int] = []
    program = runpy.run_path(str(ROOT / "tests" / "soak" / "laws.py"))
    monkeypatch.setitem(program["main"].__globals__, "run_round", run_round)
    monkeypatch.setattr(sys, "argv", ["laws.py"])
    assert program["main"]() == 1
    assert "1 round, 2 failures" in capsys.readouterr().out
