"""Compiled code refuses to run a network or search that has changed since the C++ was written."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from compilers import needs_compiler
from test_decoder import LINES

from vtrans.engines.compiled.definitions import PACKAGE, changed_files, digest_of_tree, recorded
from vtrans.storage.run_folder import RunFolder

# Both engines call these, or they decide only how fast torch computes.
COMMON = {"model/rotary.py", "system/devices.py", "model/kernels.py"}
SOURCE = b'''"""The module."""
class Layer:
    """A layer."""
    scale: float = 0.5
    """How much it counts."""
    def forward(self, x):
        # As in the paper.
        return self.scale * f"{x}" if x else None
'''
SAME = [(b"As in the paper.", b"Another."), (b"A layer.", b"A sublayer."), (b"0.5\n", b"0.5\n\n"), (b"\n", b"\r\n")]
OTHER = [
    (b"0.5", b"0.25"),
    (b"scale * f", b"scale + f"),
    (b"else None", b"else 0"),
    (b'{x}"', b'x"'),
    (b"(self,", b"(s,"),
]


def test_the_compiled_code_has_been_compared_with_these_files() -> None:
    changed = [name for name, (_, tree) in recorded().items() if digest_of_tree((PACKAGE / name).read_bytes()) != tree]
    assert not changed, (
        f"{changed} differ from vtrans/engines/compiled/definitions.txt: make decoder.cpp compute the same, run the "
        "tests in tests/engines, and then `python -m vtrans.engines.compiled.definitions`, which writes that file."
    )


def test_all_that_the_network_imports_is_compared() -> None:
    known = set(recorded())
    for name in known:
        for node in ast.walk(ast.parse((PACKAGE / name).read_bytes())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("vtrans.model", "vtrans.model")):
                inside = str(node.module).removeprefix("vtrans.").replace(".", "/")
                paths = [f"{inside}.py", f"{inside}/__init__.py", *(f"{inside}/{one.name}.py" for one in node.names)]
                assert set(paths) & (known | COMMON), f"{name}: {ast.unparse(node)}"


@pytest.mark.parametrize(("old", "new"), [*SAME, *OTHER])
def test_code_changes_the_digest_and_comments_do_not(old: bytes, new: bytes) -> None:
    assert old in SOURCE
    same = digest_of_tree(SOURCE.replace(old, new)) == digest_of_tree(SOURCE)
    assert same == ((old, new) in SAME)


def test_a_file_counts_if_its_code_is_there_and_has_changed(tmp_path: Path) -> None:
    assert not changed_files(tmp_path)  # an installation of bytecode
    shutil.copytree(PACKAGE / "model", tmp_path / "model")
    layers = tmp_path / "model/layers.py"
    layers.write_bytes(b"# A note.\n" + layers.read_bytes())
    assert not changed_files(tmp_path)
    layers.write_bytes(layers.read_bytes() + b"ACTIVATIONS = {}\n")
    assert changed_files(tmp_path) == ["model/layers.py"]


PROGRAM = """
import io, sys
import vtrans
from vtrans.system.console import Console
from vtrans.system.errors import InputError

def refusal(**settings):
    try:
        return vtrans.load(RUN, device="cpu", **settings).engine.name
    except InputError as error:
        return str(error)

heard = io.StringIO()
made = vtrans.load(RUN, device="cpu", console=Console(stream=heard))
other = vtrans.load(RUN, device="cpu", engine="torch")
assert made.engine.name == "torch"
assert list(made.logprob(LINES, LINES)) == list(other.logprob(LINES, LINES))
heard = heard.getvalue().splitlines()
assert ["vtrans/model/network.py" in line for line in heard] == [True, False], heard
assert "vtrans/model/network.py" in refusal(engine="compiled")
sys.modules["torch"] = None
assert "vtrans/model/network.py" in refusal() and "package torch" in refusal()
"""


@needs_compiler
def test_torch_runs_a_changed_network_and_one_line_says_why(tiny_run: RunFolder, tmp_path: Path) -> None:
    copied = shutil.copytree(PACKAGE, tmp_path / "vtrans", ignore=shutil.ignore_patterns("__pycache__"))
    network = copied / "model/network.py"
    network.write_bytes(network.read_bytes().replace(b" * self.scale\n", b" / self.scale\n"))
    program = f"RUN, LINES = {str(tiny_run.path)!r}, {LINES!r}\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
