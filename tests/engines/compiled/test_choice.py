"""The choice of engine: compiled code by default, otherwise torch."""

import io
from pathlib import Path
from typing import Any

import pytest
from compilers import needs_compiler
from test_decoder import LINES

import vtrans
from vtrans.config import CACHE_VARIABLE
from vtrans.engines.compiled.weights import PRECISIONS
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.system.errors import InputError

pytestmark = needs_compiler


def engine(run: RunFolder, **settings: Any) -> str:
    return vtrans.load(run.path, device="cpu", **settings).engine.name


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine without compiled code. Returns the name of its compiler."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "empty"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    return "no-such-compiler"


def test_compiled_code_is_the_default_where_it_can_run(tiny_run: RunFolder) -> None:
    assert engine(tiny_run) == "compiled"
    assert engine(tiny_run, engine="torch") == "torch"
    for precision in PRECISIONS:
        assert engine(tiny_run, precision=precision) == "compiled"
    assert engine(tiny_run, engine="compiled") == "compiled"
    assert engine(tiny_run, precision="float16") == "torch"


@pytest.mark.parametrize("settings", [{"precision": "float16"}, {"device": "meta"}])
def test_settings_that_compiled_code_lacks_are_refused(tiny_run: RunFolder, settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"`{next(iter(settings))}`"):
        vtrans.load(tiny_run.path, engine="compiled", **{"device": "cpu", **settings})


def test_without_a_compiler_torch_runs_the_model_and_one_line_says_why(tiny_run: RunFolder, no_compiler: str) -> None:
    heard = io.StringIO()
    made = vtrans.load(tiny_run.path, device="cpu", console=Console(stream=heard))
    assert made.engine.name == "torch"
    assert [no_compiler in line for line in heard.getvalue().removesuffix("\n").split("\n")] == [True, False]
    again = vtrans.load(tiny_run.path, device="cpu", engine="torch")
    assert list(made.translate(LINES)) == list(again.translate(LINES))
    with pytest.raises(InputError, match=no_compiler):
        engine(tiny_run, engine="compiled")
    with pytest.raises(InputError, match="`precision`"):
        engine(tiny_run, precision="int8")
