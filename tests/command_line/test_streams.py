"""Streams that stay open, terminals and signals, with commands in processes of their own."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cli_runner import SENTENCE, read_line, start, terminal
from drawn import some
from forking import start_python

from vtrans.storage.run_folder import RunFolder


def test_an_open_pipe_gets_its_answers(tiny_run: RunFolder) -> None:
    for extra in ((), ("--line-buffered",)):
        process = start("translate", "--model", tiny_run.path, "--quiet", *extra)
        assert process.stdin is not None
        for _ in range(2):
            process.stdin.write(SENTENCE)
            process.stdin.flush()
            assert read_line(process)
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert read_line(process) == b"\n"
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, b"")
        assert all(line.startswith("warning: ") for line in err.decode().split("\n")[:-1])


def test_an_empty_nonblocking_pipe_has_not_ended(tiny_run: RunFolder) -> None:
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)
    process = start("translate", "--model", tiny_run.path, stdin=theirs)
    assert process.stderr is not None
    os.read(process.stderr.fileno(), 1)  # it has started and found nothing to read
    for _ in range(2):
        os.write(ours, SENTENCE)
        assert read_line(process)
    os.close(ours)
    os.close(theirs)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"")


def test_a_closed_output_pipe_ends_the_command_quietly(tiny_run: RunFolder, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_bytes(SENTENCE * 5000)
    with start("translate", "--model", tiny_run.path, "--input", source, "--quiet", "--line-buffered") as process:
        assert read_line(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_interrupting_leaves_whole_lines(tiny_run: RunFolder, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")
    ends = {signal.SIGINT: "interrupted", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
    for words, number in itertools.product([(), ("--output", target)], ends):
        process = start("translate", "--model", tiny_run.path, "--line-buffered", *words)
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


def test_an_interrupt_while_python_exits_prints_no_traceback() -> None:
    program = (
        "import atexit, signal\natexit.register(signal.raise_signal, signal.SIGINT)\n"
        "from vtrans.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("vtrans ")


def test_translating_from_a_terminal(tiny_run: RunFolder) -> None:
    with terminal() as (ours, theirs):
        process = start("translate", "--model", tiny_run.path, stdin=theirs)
        os.write(ours, SENTENCE)
        assert read_line(process)
        os.write(ours, b"\x04")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, b"")
        assert "Ctrl-D" in err.decode()


def test_progress_is_not_drawn_over_the_translations(tiny_run: RunFolder, tmp_path: Path) -> None:
    # The reader of a pipe often writes to the same terminal.
    for out, drawn in (("terminal", False), ("pipe", False), ("file", True)):
        with terminal() as (ours, theirs), (tmp_path / "out").open("wb") as file:
            stdout = {"terminal": theirs, "pipe": subprocess.PIPE, "file": file}[out]
            process = start("translate", "--model", tiny_run.path, stdout=stdout, stderr=theirs)
            process.communicate(SENTENCE, timeout=60)
            assert process.returncode == 0
            seen = os.read(ours, 1 << 16).decode()
            assert ("translated" in seen) == drawn
            assert "1 line in " in seen


def test_progress_knows_how_long_a_file_is(tiny_run: RunFolder, tmp_path: Path) -> None:
    packed: list[tuple[str, Callable[[bytes], bytes]]] = [
        ("in.gz", gzip.compress),
        ("in.xz", lzma.compress),
        ("in.bz2", bz2.compress),
    ]
    for name, pack in [("in", bytes), *some(packed, 1)]:
        source = tmp_path / name
        source.write_bytes(pack(SENTENCE * 60))
        with terminal() as (ours, theirs):
            words = ("--input", source, "--output", tmp_path / "out")
            process = start("translate", "--model", tiny_run.path, *words, stderr=theirs)
            seen = ""
            while (
                process.poll() is None or select.select([ours], [], [], 0)[0]
            ):  # a full terminal would block the command
                if select.select([ours], [], [], 0.1)[0]:
                    seen += os.read(ours, 1 << 16).decode()
            process.communicate(timeout=60)
            assert process.returncode == 0
        assert re.search(r"100%.*60 sentences, [0-9,.]+/s", seen), seen


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
