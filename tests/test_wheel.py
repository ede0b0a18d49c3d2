"""The package that users install: built as a wheel, its files listed, its compiled code loaded."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from compilers import COMPILER, needs_compiler

import vtrans
from vtrans.config import CACHE_VARIABLE
from vtrans.engines.compiled.compiler import INSTRUCTIONS, instructions, wheel_platform

pytest.importorskip("hatchling", reason="hatchling is not installed: pip install hatchling")
ROOT = Path(__file__).parent.parent
LOADED = """
import sys
from vtrans.engines.compiled import SOURCES
from vtrans.engines.compiled import compiler

assert compiler.instructions() == sys.argv[1]
for name in sys.argv[1:]:
    compiler.instructions = lambda: name
    print(compiler.compiled_library(SOURCES, None)._name)
"""


def built(folder: Path, compiler: str) -> tuple[Path, set[str]]:
    """Returns a wheel and the names of its files. It is built where the dependencies of vtrans are not installed."""
    for name in ("torch", "numpy", "rich", "typer", "safetensors", "sentencepiece", "sacrebleu", "regex"):
        (folder / f"{name}.py").write_text("raise ImportError\n")
    env = {**os.environ, "PYTHONPATH": str(folder), "CXX": compiler}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, timeout=600)
    (wheel,) = (folder / "dist").iterdir()
    with zipfile.ZipFile(wheel) as opened:
        return wheel, {name for name in opened.namelist() if ".dist-info/" not in name}


def expected() -> set[str]:
    """Returns the names of the files of the package: its code, the recipes, and the model to try with its card."""
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "vtrans").rglob("*.py")}
    recipes = {f"vtrans/recipes/{path.name}" for path in (ROOT / "recipes").glob("*.toml")}
    names = ("LICENCE.md", "README.md", "confidence.json", "en-de.safetensors", "spellings.tsv")
    models = {f"vtrans/recipes/tatoeba/{name}" for name in names}
    others = {
        str(path.relative_to(ROOT))
        for end in ("html", "css", "js", "cjs", "json", "svg", "cpp", "h", "tsv", "txt", "xz")
        for path in ROOT.glob(f"vtrans/**/*.{end}")
    }
    return modules | recipes | models | others | {"vtrans/py.typed"}


def test_without_a_compiler_the_wheel_is_for_every_platform(tmp_path: Path) -> None:
    wheel, files = built(tmp_path, "no-such-compiler")
    assert wheel.name == f"vtrans_nmt-{vtrans.__version__}-py3-none-any.whl"
    assert files == expected()


@needs_compiler
def test_the_wheel_brings_compiled_code_for_each_instruction_set(tmp_path: Path) -> None:
    script = tmp_path / "compiler"
    script.write_text(f'#!/bin/sh\nexec {COMPILER} "$@" -O0\n')  # to take less time
    script.chmod(0o755)
    wheel, files = built(tmp_path, str(script))
    libraries = files - expected()
    sets = list(INSTRUCTIONS) if instructions() != "baseline" else [instructions()]
    assert {name.split("-")[1] for name in libraries} >= set(sets)
    tag = wheel_platform(sysconfig.get_platform())
    assert wheel.name == f"vtrans_nmt-{vtrans.__version__}-py3-none-{tag}.whl"
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(installed)
    env = {**os.environ, "PYTHONPATH": str(installed), "CXX": "no-such-compiler", CACHE_VARIABLE: str(tmp_path)}
    names = sets[sets.index(instructions()) :]
    command = [sys.executable, "-c", LOADED, *names]
    done = subprocess.run(command, cwd=tmp_path / "dist", env=env, check=True, capture_output=True, text=True)
    loaded = [Path(line) for line in done.stdout.split("\n")[:-1]]
    assert {path.parent for path in loaded} == {installed / "vtrans" / "engines" / "compiled"}
    assert [path.name.split("-")[1] for path in loaded] == names
