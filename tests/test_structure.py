"""The rooms of the package: what may import what, and what must stay light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import vtrans
from vtrans import cli

PACKAGE = Path(vtrans.__file__).parent
COMMANDS = (
    "prepare_bpe", "train", "average", "shortlist", "overlap", "inspect", "attend", "export", "translate", "logprob",
    "score",
)  # fmt: skip
FLOORS = {
    "errors": 0,
    "config": 1,
    "console": 1,
    "events": 1,
    "linear": 1,
    "memory": 1,
    "scripts": 1,
    "state": 1,
    "signals": 1,
    "team": 1,
    "text": 1,
    "retry": 1,
    "ranks": 2,
    "vocab": 2,
    "model": 2,
    "store": 3,
    "encode": 3,
    "batching": 3,
    "logprob": 3,
    "optim": 3,
    "search": 3,
    "alignments": 4,
    "checkpoint": 4,
    "data_report": 4,
    "parallel": 4,
    "subwords": 5,
    "rehearsal": 6,
    "corpus": 7,
    "loss": 4,
    "segmentation": 4,
    "feed": 5,
    "progress": 5,
    "resolve": 5,
    "forecast": 6,
    "constraints": 4,
    "average": 5,
    "engine": 5,
    "score": 5,
    "warmstart": 5,
    "shortlist": 5,
    "anatomy": 5,
    "attend": 7,
    "overlap": 4,
    "similarity": 7,
    "translate": 6,
    "stream": 7,
    "validation": 7,
    "train": 8,
    "export": 7,
    "__init__": 8,
    "commands": 8,
    "commands.lines": 8,
    "commands.options": 8,
    **{f"commands.{name}": 9 for name in COMMANDS},
    "cli": 10,
    "__main__": 11,
}
# No torch at import.
LIGHT = ("errors", "config", "console", "memory", "retry", "team", "text", "vocab", "encode", "score", "cli")


def file_of(name: str) -> Path:
    """The file of a room: vtrans/text.py, vtrans/commands/lines.py, and of the package `commands` its __init__.py."""
    path = PACKAGE.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """The modules that a file imports anywhere, in functions and under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno} imports relatively"
            assert node.module is not None
            if node.module == "vtrans":
                yield from ((f"vtrans.{alias.name}", node) for alias in node.names)
            else:
                yield node.module, node


def room(module: str) -> str:
    """`vtrans.text` as `text`, `vtrans.commands.lines` as `commands.lines`, `vtrans` itself as `__init__`."""
    return module.partition(".")[2] or "__init__"


def test_the_rooms_are_those_of_the_design() -> None:
    assert set(PACKAGE.rglob("*.py")) == {file_of(name) for name in FLOORS}
    others = {path.name for path in PACKAGE.iterdir() if path.suffix != ".py"} - {"__pycache__"}
    assert others <= {"py.typed", "recipes", "commands"}
    assert "py.typed" in others


def test_each_command_is_a_file_and_the_command_line_has_them_in_order() -> None:
    names = [command.callback.__name__ for command in cli.app.registered_commands if command.callback]
    assert tuple(names) == COMMANDS


@pytest.mark.parametrize("name", FLOORS)
def test_a_room_imports_from_lower_floors_only(name: str) -> None:
    for module, node in imported(file_of(name)):
        if module.partition(".")[0] == "vtrans":
            other = room(module)
            assert other in FLOORS, f"{name} imports {module}"
            lower = FLOORS[other] < FLOORS[name]
            assert lower, f"{name}.py:{getattr(node, 'lineno', 0)} imports {other}"


def test_only_the_console_draws_with_rich() -> None:
    users = {name for name in FLOORS for module, _ in imported(file_of(name)) if module.startswith("rich")}
    assert users == {"console"}


def test_nothing_unpickles_and_nobody_imports_click() -> None:
    for name in FLOORS:
        path = file_of(name)
        modules = {module.partition(".")[0] for module, _ in imported(path)}
        assert not modules & {"pickle", "shelve", "marshal", "dill", "joblib", "click"}, name
        called = {
            ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call)
        }
        assert not called & {"torch.load", "torch.save", "eval", "exec", "np.load", "numpy.load"}, name


def test_no_text_is_split_at_the_line_ends_of_str() -> None:
    for name in FLOORS:
        for node in ast.walk(ast.parse(file_of(name).read_bytes())):
            assert not (isinstance(node, ast.Attribute) and node.attr == "splitlines"), name


@pytest.mark.parametrize("name", [*LIGHT, ""])
def test_what_must_be_light_imports_no_torch(name: str) -> None:
    module = f"vtrans.{name}" if name else "vtrans"
    program = f"import sys, {module}; print(sorted({{m.partition('.')[0] for m in sys.modules}} & {{'torch', 'rich'}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_what_the_readme_calls_is_there_after_import_vtrans() -> None:
    text = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    called = sorted(set(re.findall(r"\bvtrans(?:\.[a-z_]+)+(?=\()", text)))
    assert "vtrans.load" in called
    subprocess.run([sys.executable, "-c", "; ".join(("import vtrans", *called))], check=True, timeout=60)


def test_the_version_is_that_of_the_package() -> None:
    project = PACKAGE.parent / "pyproject.toml"
    assert tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"] == vtrans.__version__
