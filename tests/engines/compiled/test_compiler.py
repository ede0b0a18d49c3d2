"""Compiling on the user's machine: when code is compiled, where it is kept, and whose code is loaded."""

import io
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from compilers import COMPILER, needs_compiler

from vtrans.config import CACHE_VARIABLE
from vtrans.engines.compiled import compiler
from vtrans.engines.compiled.compiler import CompilerError, cache_folder, compiled_library
from vtrans.system.console import Console

pytestmark = needs_compiler


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Code whose function returns 1. The cache folder does not exist yet."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "a" / "cache"))
    path = tmp_path / "code.cpp"
    path.write_text('extern "C" int answer() { return 1; }\n')
    return path


def answer(source: Path) -> tuple[int, str]:
    """Returns the result of the code's function, and the messages to the user."""
    heard = io.StringIO()
    result = compiled_library([source], Console(stream=heard)).answer()
    return result, heard.getvalue()


def test_code_is_compiled_once_and_kept_for_the_user_alone(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(source)[0] == 1
    [kept] = cache_folder().iterdir()
    before = kept.stat().st_mtime_ns
    result, said = answer(source)
    assert (result, said, kept.stat().st_mtime_ns) == (1, f"compiled code: {kept}\n", before)
    assert cache_folder().stat().st_mode & 0o777 == 0o700


def test_a_library_for_other_code_options_or_processors_is_not_used(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(source)
    source.write_text('extern "C" int answer() { return 2; }\n')
    assert answer(source)[0] == 2
    monkeypatch.setenv("CXX", f"{COMPILER} -DOTHER")
    answer(source)
    monkeypatch.setitem(compiler.INSTRUCTIONS, "other", ("-DPROCESSOR",))
    monkeypatch.setattr(compiler, "instructions", lambda: "other")
    answer(source)
    assert len(list(cache_folder().iterdir())) == 4


def test_a_damaged_library_is_compiled_again(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(source)
    [kept] = cache_folder().iterdir()
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    (other / kept.name).write_bytes(b"no library")
    monkeypatch.setenv(CACHE_VARIABLE, str(other))
    assert answer(source)[0] == 1
    assert (other / kept.name).stat().st_size == kept.stat().st_size


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o755])
def test_a_folder_that_others_can_use_is_not_used(source: Path, mode: int) -> None:
    answer(source)
    cache_folder().chmod(mode)
    result, said = answer(source)
    assert (result, said.count("warning: ")) == (1, 1)
    assert f"{mode:o}" in said
    assert len(list(cache_folder().iterdir())) == 1


def test_compiler_errors_are_reported(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source.write_text("nonsense\n")
    with pytest.raises(CompilerError, match="nonsense"):
        answer(source)
    assert not list(cache_folder().iterdir())
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompilerError, match="no-such-compiler"):
        answer(source)


def test_code_that_is_needed_twice_at_the_same_time_is_compiled_once(source: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(answer, [source] * 2))
    assert [result for result, _ in results] == [1, 1]
    assert sum("made in" in said for _, said in results) == 1
    assert len(list(cache_folder().iterdir())) == 1


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/one")
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    for xdg, expected in (("/var/x", "/var/x/vtrans"), ("relative", "/home/one/.cache/vtrans")):
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
        assert cache_folder() == Path(expected)
    monkeypatch.setenv(CACHE_VARIABLE, "mine")
    assert cache_folder() == Path("mine")


def test_systems_without_users_are_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "geteuid")
    with pytest.raises(CompilerError, match=sys.platform):
        answer(source)


def test_the_library_of_another_user_is_not_loaded(source: Path) -> None:
    """Another user may have put it there while the folder was open to others."""
    answer(source)
    [kept] = cache_folder().iterdir()
    theirs = kept.stat().st_ino
    try:
        os.chown(kept, os.geteuid() + 1, -1)
    except PermissionError:
        pytest.skip("only root can give a file to another user")
    assert answer(source)[0] == 1
    assert kept.stat().st_uid == os.geteuid()
    assert kept.stat().st_ino != theirs


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ("macosx-10.13-x86_64", "macosx_11_0_x86_64"),
        ("linux-x86_64", "linux_x86_64"),
        ("win-amd64", "win_amd64"),
    ],
)
def test_the_platform_of_a_wheel_matches_python(python: str, expected: str) -> None:
    assert compiler.wheel_platform(python) == expected


@pytest.mark.parametrize(
    ("machine", "sets"),
    [("x86_64", list(compiler.INSTRUCTIONS)), ("amd64", list(compiler.INSTRUCTIONS)), ("arm64", ["baseline"])],
)
def test_a_wheel_has_code_for_the_instruction_sets_of_its_machine(
    source: Path, tmp_path: Path, machine: str, sets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "cross-compiler"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    made = compiler.compile_for_wheel([source], tmp_path, machine)
    assert [path.name.split("-")[1] for path in made] == sets
