"""console: plain lines without a terminal, rich with one; no text and no stream breaks it."""

import io
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrans.system.console import Console


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Bytes(io.TextIOWrapper):
    """A stream with this encoding whose bytes can be read."""

    def __init__(self, encoding: str) -> None:
        self.raw_bytes = io.BytesIO()
        super().__init__(self.raw_bytes, encoding=encoding, errors="strict", newline="\n")


class Broken(io.StringIO):
    """A pipe that nobody reads any more."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    def write(self, text: str) -> int:
        self.tries += 1
        raise BrokenPipeError(32, "Broken pipe")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A list whose only element is the time that the module sees."""
    now = [100.0]
    monkeypatch.setattr("vtrans.system.console.time.monotonic", lambda: now[0])
    return now


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def _use_everything(console: Console) -> None:
    console.info("[red]info[/red] [/] :smile: 東京")
    console.warn("careful [/x]")
    console.error("bad [b]")
    console.table("title [i]", [["a [u]", 1], ["b", 22]], header=["name", "n"])
    with console.progress("reading [x]", 10, "lines") as counter:
        for _ in range(10):
            counter.advance()
    with console.progress("training [y]", plain=False) as counter:
        counter.update(60, 0.6, "loss 3.2 [z]")
        console.info("above")
        with console.progress("translating") as counter:
            counter.update(3)


def test_without_a_terminal_lines_are_plain() -> None:
    out = io.StringIO()
    _use_everything(Console(stream=out))
    assert out.getvalue() == (
        "[red]info[/red] [/] :smile: 東京\n"
        "warning: careful [/x]\n"
        "error: bad [b]\n"
        "title [i]\n"
        "  name    n\n"
        "  a [u]   1\n"
        "  b      22\n"
        "above\n"
    )


@pytest.mark.parametrize("width", [60, 80, 110, 160])
def test_a_narrow_terminal_shows_the_note(monkeypatch: pytest.MonkeyPatch, clock: list[float], width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = Terminal()
    with Console(stream=out).progress("training", plain=False) as counter:
        clock[0] += 1
        counter.update(60, 0.6, "left 2 h 14 min  step 1,200  " + "loss 3.211  " * 9)
    shown = re.sub(r"\x1b\[[0-9;?]*\w", "", out.getvalue())
    assert re.search("[━╺╸]{4,} +60% left 2 h 14 min", shown)
    assert max(map(len, re.split(r"[\r\n]", shown))) <= width


def test_text_is_not_read_as_markup() -> None:
    out = Terminal()
    _use_everything(Console(stream=out))
    shown = out.getvalue()
    for text in ("[red]info[/red] [/] :smile: 東京", "careful [/x]", "bad [b]", "title [i]", "a [u]"):
        assert text in shown
    for text in ("reading [x]", "10 of 10 lines", "training [y]", "3.2 [z]", "60%", "above", "translating"):
        assert text in shown
    assert "\x1b[33mwarning: " in shown  # yellow
    assert "\x1b[1;31merror: " in shown  # bold red
    assert shown.endswith("\x1b[2K")  # the live display is wiped
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")  # the cursor is shown again


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    Console(stream=out).error("bad")
    assert "\x1b[3" not in out.getvalue()
    assert "error: bad" in out.getvalue()


@pytest.mark.parametrize("make", [io.StringIO, Terminal])
def test_control_characters_are_written_out(make: type[io.StringIO]) -> None:
    out = make()
    console = Console(stream=out)
    console.info("a\x1b[31mb\rc\x07d\x9be\tf\ng")
    console.info("file\u202etxt.exe")
    console.table("t", [["x\ny\x1b"]])
    assert "a\\x1b[31mb\\x0dc\\x07d\\x9be" in out.getvalue()
    assert "file\\u202etxt.exe" in out.getvalue()
    assert "x y\\x1b" in out.getvalue()
    assert "\x1b[31m" not in out.getvalue()


@given(st.text())
def test_any_text_can_be_printed_in_any_encoding(text: str) -> None:
    for encoding in ("ascii", "latin-1", "cp1252", "utf-8"):
        out = Bytes(encoding)
        console = Console(stream=out)
        console.info(text)
        console.table(text, [[text, text]])
        out.flush()
        assert out.raw_bytes.getvalue().endswith(b"\n")


def test_a_broken_pipe_is_ignored() -> None:
    out = Broken()
    _use_everything(Console(stream=out))
    assert out.tries == 1  # nothing is written after the first failure


def test_a_closed_pipe_does_not_change_the_exit_code() -> None:
    """Python exits with code 120 if it cannot flush a stream at exit."""
    code = "from vtrans.system.console import Console\nc = Console()\nfor _ in range(9999): c.info('x' * 99)"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"x" * 99 + b"\n"
        process.stderr.close()
        assert process.wait(60) == 0


def test_progress_lines_are_at_least_ten_seconds_apart(clock: list[float]) -> None:
    out = io.StringIO()
    with Console(stream=out).progress("reading", 1600, "lines") as counter:
        for _ in range(280):
            clock[0] += 0.125
            counter.advance(2)
    assert out.getvalue().split("\n") == [
        "reading: 160 of 1,600 lines, 16/s, 10%, 1 min 30 s left",
        "reading: 320 of 1,600 lines, 16/s, 20%, 1 min 20 s left",
        "reading: 480 of 1,600 lines, 16/s, 30%, 1 min 10 s left",
        "reading: 560 of 1,600 lines, 16/s, 35%, 1 min 05 s left",
        "",
    ]
