"""Streams that stay open or are full, terminals and signals, with commands in processes of their own."""

import functools
import itertools
import os
import re
import resource
import signal
import subprocess
from pathlib import Path

import pytest
from cli_runner import SENTENCE, read_line, start, terminal
from forking import start_python

from vtrans.storage.run_folder import RunFolder


def test_an_open_pipe_gets_its_answers(tiny_run: RunFolder) -> None:
    process = start("translate", "--model", tiny_run.path, "--quiet")
    assert process.stdin is not None
    for _ in range(2):
        for line in (SENTENCE, b"\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert (read_line(process) == b"\n") == (line == b"\n")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"")
    assert all(line.startswith("warning: ") for line in err.decode().split("\n")[:-1])


def test_a_closed_output_pipe_ends_the_command_quietly(tiny_run: RunFolder) -> None:
    with start("translate", "--model", tiny_run.path, "--quiet") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(SENTENCE)
        process.stdin.flush()
        assert read_line(process)
        process.stdout.close()
        process.stdin.write(SENTENCE)
        process.stdin.flush()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_interrupting_leaves_whole_lines(tiny_run: RunFolder, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")
    ends = {signal.SIGINT: "interrupted", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
    for words, number in itertools.product([(), ("--output", target)], ends):
        process = start("translate", "--model", tiny_run.path, *words)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stderr.readline()  # it has started: the model is named
        process.stdin.write(SENTENCE * 20)
        process.stdin.flush()
        first = b"" if words else read_line(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 1, err
        assert re.search(rf"(^|\n)error: .*{ends[number]}.*\n$", err.decode()), err
        assert b"Traceback" not in err
        assert (first + out).endswith(b"\n") or words
    assert target.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_translating_from_a_terminal(tiny_run: RunFolder) -> None:
    with terminal() as (ours, theirs):
        process = start("translate", "--model", tiny_run.path, stdin=theirs)
        os.write(ours, SENTENCE)
        assert read_line(process)
        os.write(ours, b"\x04")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, b"")
        assert "Ctrl-D" in err.decode()


def test_closed_streams_are_named(tiny_run: RunFolder) -> None:
    words = ["vtrans", "translate", "--quiet", "--model", str(tiny_run.path)]
    for number, name in enumerate(("stdin", "stdout")):
        # What Python does if the stream is closed when it starts.
        program = f"import os, sys; os.close({number}); sys.{name} = sys.__{name}__ = None; sys.argv = {words!r}\n"
        program += "from vtrans.cli import main\nmain()"
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with start_python(["-c", program], {**os.environ, "OMP_NUM_THREADS": "1"}, **pipes) as process:
            out, err = process.communicate(SENTENCE, timeout=120)
        assert (process.returncode, out) == (2, b"")
        assert err.decode().startswith(f"error: {name} ")
        assert err.count(b"\n") == 1


ROOM = 40  # bytes that the disk has left


@pytest.mark.parametrize(("how", "unbuffered"), [([], ""), (["--json"], "1")])
def test_a_result_that_does_not_fit_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: list[str], unbuffered: str
) -> None:
    """An unbuffered write of Python writes what fits, and raises nothing."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # a limited size would cut these files too
    ref = tmp_path / "ref"
    ref.write_text("A dog runs.\n")
    with (tmp_path / "result").open("wb") as out:
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (ROOM, ROOM))
        process = start("score", ref, "--hyp", ref, *how, stdout=out, preexec_fn=limit)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert said.split(b"\n")[-2:] == [b"error: stdout cannot be written: File too large.", b""]
