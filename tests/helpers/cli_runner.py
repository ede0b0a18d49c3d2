"""Runs commands for tests: `run_cli` in this process, `start` in another one; `terminal` makes a pseudo-terminal."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from forking import start_python

from vtrans import cli

SENTENCE = b"The big dog sees me today.\n"


@dataclass
class Done:
    """The exit code and output of a command."""

    code: int
    out: bytes
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Run:
    """Returns a function that runs a command in this process, with `stdin` as a file on its standard input."""

    def run(*words: str | Path, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["vtrans", *map(str, words)])
        given = tmp_path / ".stdin"
        given.write_bytes(stdin)
        kept = os.dup(0)
        capfdbinary.readouterr()
        try:
            with given.open("rb") as file:
                os.dup2(file.fileno(), 0)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        finally:
            os.dup2(kept, 0)
            os.close(kept)
            given.unlink()
        out, err = capfdbinary.readouterr()
        assert isinstance(ended.value.code, int)
        assert not foreign_options(words, err.decode()), err
        return Done(ended.value.code, out, err.decode())

    return run


def foreign_options(words: Sequence[str | Path], said: str) -> set[str]:
    """Returns the options and parameters that an error names although its command lacks them. The words that the user
    typed, and whole commands in backticks, may be named."""
    group: Any = typer.main.get_command(cli.app)
    command = next((group.commands[word] for word in map(str, words) if word in group.commands), group)
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "--debug", *(str(word).partition("=")[0] for word in words)}
    errors = " ".join(re.findall(r"^error: .*$", said, re.MULTILINE))
    named = re.findall(r"(?<![\w-])--[a-z][\w-]*|`\w+`", re.sub(r"`[^`\s]+ [^`]*`", "", errors))
    return {*named} - known


def start(*words: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a command in a process of its own, with one thread and pipes for its streams."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return start_python(["-m", "vtrans", *map(str, words)], environment, **{**streams, **options})


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    """Returns the next line of stdout while stdin is still open. The limit of 120 s is far above what it takes."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], 120)
        assert ready, "no answer on an open pipe"
        byte = os.read(process.stdout.fileno(), 1)
        assert byte, "stdout ended"
        line += byte
    return line


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Yields the two ends of a pseudo-terminal: ours and the command's."""
    ours, theirs = pty.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def children(pid: int) -> list[int]:
    """Returns the process ids of the children of a process."""
    found = list[int]()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread has ended
            found += map(int, (thread / "children").read_text().split())
    return found


def copies_of(process: subprocess.Popen[bytes], number: int = 2) -> list[int]:
    """Returns the workers of a command once they are there."""
    for _ in range(600):
        found = [copy for maker in children(process.pid) for copy in children(maker)]
        if len(found) == number:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{len(found)} of {number} workers")


def gone(process: subprocess.Popen[Any]) -> bool:
    """Returns whether all processes of the group end within ten seconds."""
    for _ in range(100):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
