"""Streams: whole lines out, and one input shared by several processes."""

import dataclasses
import io
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from cli_runner import SENTENCE, gone, start
from forking import ENVIRONMENT, start_python
from translators import WORDS, sentences, translator

from vtrans.search.options import Mbr, Sampling
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.translate.steps.line import Counts, lines_of
from vtrans.translate.stream import Division, translate_stream, translate_windows, workers_for, written
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator

# Copies of this process.

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux copies a process safely")


class Heard(Console):
    """Keeps the warnings."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def streamed(
    lines: Sequence[str],
    options: TranslateOptions,
    processes: int,
    prefixes: Iterable[str] | None = None,
    translating: Translator | None = None,
) -> tuple[bytes, Counts, list[str]]:
    """Returns the output, the counts without the time, and the warnings."""
    ours = translating or translator(max_source=12)
    ours.console = heard = Heard()
    out, sizes = io.BytesIO(), list[int]()
    with workers_for(ours, options, Division(processes, 1)) as workers:
        read = lines_of(lines, prefixes=prefixes)
        translate_stream(ours, read, out, options, workers=workers, advance=sizes.append)
    assert ours.counts.seconds > 0 or not ours.counts.lines
    assert sorted(sizes) == sorted(len(line.encode()) + 1 for line in lines)
    return out.getvalue(), dataclasses.replace(ours.counts, seconds=0.0), sorted(heard.warnings)


FORMS = {
    "text": TranslateOptions(),
    "json": TranslateOptions(2, alignments=True, form="json"),
    "tsv": TranslateOptions(3, form="tsv"),
    "scores and alignments": TranslateOptions(alignments=True, form="scores"),
    "samples": TranslateOptions(2, Sampling(seed=3), form="scores"),
    "the best samples": TranslateOptions(2, Sampling(seed=3), Mbr(samples=5), alignments=True, form="json"),
}


@linux
@pytest.mark.parametrize(
    ("name", "begun", "processes"),
    [
        *(("text", True, 2), ("json", False, 3), ("tsv", False, 2)),
        *(("scores and alignments", True, 3), ("samples", True, 3), ("the best samples", False, 2)),
    ],
)
def test_any_number_of_processes_translates_like_one(
    name: str, begun: bool, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, so that batches do not matter. Some lines are blank, some are cut, some are searched again."""
    monkeypatch.setattr("vtrans.translate.stream.WINDOW_COST", 500)  # about ten lines
    lines = [*sentences(37), "a dog " * 20, "", "   ", *sentences(11, seed=2), "the park " * 30]
    prefixes = [word if line.strip() else "" for word, line in zip(itertools.cycle(WORDS), lines, strict=False)]
    expected, counts, warnings = streamed(lines, FORMS[name], 1, prefixes if begun else None)
    assert expected.count(b"\n") == FORMS[name].lines * len(lines)
    assert (counts.lines, counts.cut, len(warnings)) == (len(lines), 2, 2)
    found, others, heard = streamed(lines, FORMS[name], processes, prefixes if begun else None)
    assert rounded(found) == rounded(expected)
    assert (others, heard) == (counts, warnings)


def rounded(text: bytes) -> str:
    """The text with its numbers rounded: the last bits of a sum depend on the batch in float64, too."""
    return re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda number: f"{float(number[0]) + 0.0:.5f}", text.decode())


@linux
def test_an_error_while_reading_comes_after_the_lines_before_it() -> None:
    def lines() -> Iterator[str]:
        yield from sentences(5)
        raise InputError("line 6 is bad.")

    out, options, ours = io.BytesIO(), TranslateOptions(), translator()
    with pytest.raises(InputError, match="line 6"), workers_for(ours, options, Division(2, 1)) as workers:
        translate_stream(ours, lines_of(lines()), out, options, workers=workers)
    assert out.getvalue().count(b"\n") == 5


@linux
def test_lines_are_answered_while_the_input_waits() -> None:
    class Told(io.BytesIO):
        def flush(self) -> None:
            answered.release()

    answered = threading.Semaphore(0)

    def lines() -> Iterator[str]:
        for line in sentences(3):
            yield line
            assert answered.acquire(timeout=60), "no answer came"

    out, options, ours = Told(), TranslateOptions(), translator()
    with workers_for(ours, options, Division(2, 1)) as workers:
        translate_stream(ours, lines_of(lines()), out, options, complete=False, workers=workers)
    assert out.getvalue().count(b"\n") == 3


@linux
def test_processes_never_outnumber_lines() -> None:
    def pid(*_: object) -> int:
        return os.getpid()

    ours, options = translator(), TranslateOptions()
    with workers_for(ours, options, Division(50, 1), make=pid) as workers:
        assert len(set(translate_windows(ours, lines_of(sentences(2)), options, pid, workers=workers))) == 2


@linux
def test_a_writer_that_waits_stops_the_reader_and_one_that_ends_stops_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vtrans.translate.stream.WINDOW_COST", 100)
    before, read = set(threading.enumerate()), 0

    def lines() -> Iterator[str]:
        nonlocal read
        while read < 200:
            read += 1
            yield "a dog runs"

    ours, options = translator(), TranslateOptions()
    with workers_for(ours, options, Division(2, 1), make=written) as workers:
        blocks = translate_windows(ours, lines_of(lines()), options, written, workers=workers)
        next(blocks)
        others, seen = set(threading.enumerate()) - before, 0
        while read > seen:
            seen = read
            time.sleep(1)
        assert read <= 30  # four windows of at most three lines, and five lines twice
        blocks.close()
        for thread in others:
            thread.join(60)
    assert not set(threading.enumerate()) - before


@pytest.fixture
def divided(tiny_run: RunFolder) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts `vtrans translate --processes 2` in a process group of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*words: str | Path) -> subprocess.Popen[bytes]:
        options = ("--model", tiny_run.path, "--processes", "2", *words)
        started.append(start("translate", *options, start_new_session=True))
        assert started[-1].stderr is not None
        while b"2 processes" not in started[-1].stderr.readline():
            pass
        return started[-1]

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@linux
@pytest.mark.parametrize(("number", "group"), [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, True)])
def test_a_signal_ends_the_command_and_its_copies(
    number: signal.Signals, group: bool, divided: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = divided()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(SENTENCE * 2)
    process.stdin.flush()
    first = process.stdout.readline()
    process.stdin.write(SENTENCE * 5000)
    process.stdin.flush()
    (os.killpg if group else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    name = "interrupted" if number == signal.SIGINT else number.name
    assert re.fullmatch(rf"(warning: .*\n)*error: .*{name}.*\n", err.decode())
    assert (first + out).endswith(b"\n")
    assert gone(process)


@linux
def test_closing_the_output_ends_the_command_and_its_copies(
    divided: Callable[..., subprocess.Popen[bytes]],
) -> None:
    process = divided()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.write(SENTENCE * 100)
    process.stdin.close()
    process.stdin = None
    assert process.stderr is not None
    assert b"error" not in process.stderr.read()
    assert process.wait(60) == 1
    assert gone(process)


# Memory and signals.


@pytest.mark.slow
@linux
def test_memory_stays_flat_over_many_lines() -> None:
    """Measures the process that reads and writes, and the two that translate."""
    soak = str(Path(__file__).parents[1] / "bench" / "soak.py")
    words = [soak, "--lines", "15000", "--processes", "2"]
    with start_python(words, ENVIRONMENT, stdout=subprocess.PIPE) as process:
        shown, _ = process.communicate(timeout=600)
    assert process.returncode == 0, shown.decode()
    assert b"15,000 of 15,000 lines" in shown
    assert shown.count(b" MB in the middle") >= 3
