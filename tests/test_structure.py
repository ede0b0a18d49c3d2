"""The structure of the package: which part may import which, and what must not import torch."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import vtrans
from vtrans import cli

PACKAGE = Path(vtrans.__file__).parent
# A room may import itself and the rows above it. The rooms of applications are named after their folders.
LAYERS = (
    ("system",),
    ("config",),
    ("text",),
    ("storage",),
    ("data",),
    ("model",),
    ("score",),
    ("search",),
    ("engines",),
    ("translate",),
    ("training",),
    ("__init__", "commands"),
    ("apps",),
    ("cli",),
    ("__main__",),
)
# An application may import the core, and those before it.
APPLICATIONS = ("analysis", "cleaning", "documents", "adapting", "interop", "experiments", "server")
LAYER = {part: number for number, parts in enumerate(LAYERS) for part in parts}
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
    if "recipes" not in path.relative_to(PACKAGE).parts
}
SHARED = {"applications", "chunks", "generated", "lines", "shared_options", "texts"}  # what commands share
# Modules that import no torch.
LIGHT = (
    "system.errors", "system.files", "text.lines", "text.languages", "text.vocabulary", "config.keys", "config",
    "system.console", "data.options", "system.resources", "system.process", "system.workers",
    "data.preparation.encode", "score.metrics", "storage.model_file", "storage.run_folder", "search.options",
    "apps.analysis.commands.doctor", "apps.documents.files", "apps.server.app", "apps.server.running",
    "apps.server.models", "translate.loading", "translate.stream", "cli",
)  # fmt: skip


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of the syntax tree of a file."""
    return list(ast.walk(ast.parse(path.read_bytes())))


@cache
def imported(path: Path) -> frozenset[str]:
    """The names of all modules that a file imports, in functions and under TYPE_CHECKING too."""
    return frozenset(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno} imports relatively"
            assert node.module is not None
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                yield module if module.removeprefix("vtrans.") in MODULES else node.module


def imported_of_ours(name: str) -> set[str]:
    """The modules of the package that a module imports, without the leading `vtrans.`."""
    modules = {module for module in imported(MODULES[name]) if module.partition(".")[0] == "vtrans"}
    return {module.partition(".")[2] or "__init__" for module in modules}


def part(name: str) -> str:
    return name.partition(".")[0]


def test_every_module_belongs_to_a_layer() -> None:
    assert {part(name) for name in MODULES} == set(LAYER)


def test_a_module_imports_only_its_own_layer_and_those_below() -> None:
    pairs = [(name, other) for name in MODULES for other in imported_of_ours(name)]
    assert not [pair for pair in pairs if LAYER[part(pair[1])] > LAYER[part(pair[0])]]


def test_only_the_command_line_names_applications() -> None:
    """The core imports none, and an application only the core and the applications before it, and public names."""
    for name in MODULES:
        for other in imported_of_ours(name):
            if part(other) == "apps" and other != "apps" and name != "cli":
                assert part(name) == "apps", (name, other)
                mine, its = (APPLICATIONS.index(module.split(".")[1]) for module in (name, other))
                assert its <= mine, (name, other)
        private = [
            alias.name
            for node in nodes(MODULES[name])
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vtrans")
            for alias in node.names
            if alias.name.startswith("_") and not alias.name.startswith("__")
        ]
        assert not private, name


def test_no_import_is_circular() -> None:
    TopologicalSorter({name: imported_of_ours(name) for name in MODULES}).prepare()


def test_each_command_is_a_file_of_its_name() -> None:
    names = {command.callback.__name__ for command in cli.app.registered_commands if command.callback}
    assert {name.rpartition(".")[2] for name in MODULES if name.split(".")[-2:-1] == ["commands"]} - SHARED == names


def test_only_the_console_draws_with_rich() -> None:
    users = {name for name, path in MODULES.items() for module in imported(path) if module.startswith("rich")}
    assert users == {"system.console"}


def test_no_module_unpickles_or_imports_click() -> None:
    for name, path in MODULES.items():
        modules = {module.partition(".")[0] for module in imported(path)}
        assert not modules & {"pickle", "shelve", "marshal", "dill", "joblib", "click"}, name
        calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
        called = {
            ast.unparse(call.func) for call in calls if "weights_only=True" not in map(ast.unparse, call.keywords)
        }
        assert not called & {"torch.load", "torch.save", "eval", "exec"}, name
        for call in calls:
            if ast.unparse(call.func).endswith(("np.load", "numpy.load", "read_array", "write_array")):
                assert "allow_pickle=False" in map(ast.unparse, call.keywords), name


def test_no_text_is_split_at_the_line_ends_of_str() -> None:
    """Only the reader of lines finds these line ends so, and splits at others."""
    for name, path in MODULES.items():
        for node in nodes(path):
            splits = isinstance(node, ast.Attribute) and node.attr == "splitlines"
            assert not splits or name == "text.lines", name


def test_light_modules_import_neither_torch_nor_rich() -> None:
    names = ["vtrans", *(f"vtrans.{name}" for name in LIGHT)]
    program = (
        "import importlib, sys\n"
        f"for name in {names}:\n"
        "    importlib.import_module(name)\n"
        "    if heavy := {'torch', 'rich'} & sys.modules.keys():\n"
        "        sys.exit(f'{name} imports {heavy}')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_functions_that_the_readme_calls_exist() -> None:
    text = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    called = sorted(set(re.findall(r"\bvtrans(?:\.[a-z_]+)+(?=\()", text)))
    assert "vtrans.load" in called
    subprocess.run([sys.executable, "-c", "; ".join(("import vtrans", *called))], check=True, timeout=60)


@pytest.mark.parametrize(("page", "least"), [("tests/README.md", 27), ("tests/faults.md", 27), ("docs/systems.md", 8)])
def test_the_tests_that_a_page_names_exist(page: str, least: int) -> None:
    tests = Path(__file__).parent
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (tests.parent / page).read_text(encoding="utf-8"))
    assert len(named) >= least
    missing = [(file, name) for file, name in named if f"def {name}(" not in (tests / file).read_text(encoding="utf-8")]
    assert not missing


def test_the_log_has_every_fault_of_the_program() -> None:
    tests = Path(__file__).parent
    tables = tomllib.loads((tests / "faults.toml").read_text(encoding="utf-8"))
    tried = {
        (file.removeprefix("vtrans/"), what) for file, table in tables.items() for what in table if what != "tests"
    }
    log = (tests / "faults.md").read_text(encoding="utf-8")
    table = log.partition("| first test that fails |")[2].partition("##")[0]
    assert set(re.findall(r"^\| `(.+?)` \| (.+?) \|", table, re.MULTILINE)) == tried
    assert f"each of these {len(tried)} faults" in log
    gone = [
        (file, what)
        for file, table in tables.items()
        for what, texts in table.items()
        if what != "tests" and (tests.parent / file).read_text(encoding="utf-8").count(texts[0]) != 1
    ]
    assert not gone, "the text that the fault replaces must be in its file once"
