"""The package that users install: built as a wheel, its files listed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import vtrans

ROOT = Path(__file__).parent.parent


def test_the_wheel_has_the_package_and_the_recipes_and_the_version_of_the_package(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == f"vtrans-{vtrans.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as opened:
        files = {name for name in opened.namelist() if ".dist-info/" not in name}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "vtrans").rglob("*.py")}
    recipes = {f"vtrans/recipes/{path.name}" for path in (ROOT / "recipes").glob("*.toml")}
    pages = {
        str(path.relative_to(ROOT)) for end in ("html", "css", "js", "svg") for path in ROOT.glob(f"vtrans/**/*.{end}")
    }
    code = {str(path.relative_to(ROOT)) for end in ("cpp", "h") for path in ROOT.glob(f"vtrans/**/*.{end}")}
    assert files == modules | recipes | pages | code | {"vtrans/py.typed"}
