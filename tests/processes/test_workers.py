"""Worker processes return results in order, and end whatever happens."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import operator
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_runner import gone

import vtrans.processes.workers
from vtrans.errors import VtransError
from vtrans.processes.signals import ENDING
from vtrans.processes.workers import _REPLY, DiedError, WorkerPool, _make_copies, map_in_workers

UPPER = partial(operator.methodcaller, "upper")  # makes the function that returns item.upper()
WORDS = [f"word {i}" for i in range(20)]
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux copies a process safely")


def uppercase(items: Any, workers: int = 2) -> Any:
    return map_in_workers(UPPER, items, workers, "testing", "do better")


@pytest.mark.parametrize("workers", [2, 3])
def test_results_come_in_order(workers: int) -> None:
    assert list(uppercase(WORDS, workers)) == [word.upper() for word in WORDS]
    assert not multiprocessing.active_children()
    assert list(uppercase([], workers)) == []


def test_an_exception_of_the_function_is_raised_with_its_type() -> None:
    with pytest.raises(AttributeError, match="upper"):
        list(uppercase([7]))
    assert not multiprocessing.active_children()


def test_a_worker_that_dies_raises_what_it_was_doing_and_the_advice() -> None:
    stream = uppercase(itertools.cycle(WORDS))  # an end could come before the death is noticed
    next(stream)
    victim = multiprocessing.active_children()[0]
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(VtransError, match=r"testing.*do better\.$") as caught:
        deque(stream, 0)
    assert caught.value.exit_code == 1
    assert not multiprocessing.active_children()


# Without `if __name__ == "__main__"`: the workers must not run it again.
PROGRAM = """
import itertools, operator
from functools import partial
from vtrans.processes.workers import map_in_workers

try:
    words = itertools.repeat("a word")
    for number, _ in enumerate(map_in_workers(partial(operator.methodcaller, "upper"), words, 2, "testing", "")):
        if number == 3:
            print("started", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


COPIES = """
import time
from vtrans.processes.workers import WorkerPool

try:
    with WorkerPool(lambda item, done: time.sleep(item), 3, "testing", "") as copies:
        copies.submit(0).result()
        tasks = [copies.submit(100) for _ in range(2)]
        print("started", flush=True)
        tasks[0].result()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no process groups")
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("text", [PROGRAM, pytest.param(COPIES, marks=linux)], ids=["new", "copies"])
def test_workers_end_with_their_parent(tmp_path: Path, text: str, killed: bool) -> None:
    """Ctrl-C, which a terminal sends to the whole process group, ends them silently. So does SIGKILL to the parent."""
    program = tmp_path / "program.py"
    program.write_text(text, encoding="utf-8")
    root = Path(vtrans.processes.workers.__file__).parents[2]
    running = subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )  # fmt: skip
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "started\n"
        if killed:
            running.kill()
        else:
            os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert killed or (out, err, running.returncode) == ("interrupted\n", "", 0)
    assert gone(running), "a process outlived its parent"


def copies(answer: Callable[[Any, Callable[[], None]], Any], number: int = 2) -> WorkerPool[Any, Any]:
    return WorkerPool(answer, number, "testing", "do better")


@linux
def test_copies_answer_from_the_memory_of_this_process() -> None:
    table = {word: lambda word=word: word.upper() for word in WORDS}  # functions that no pickle could carry
    with copies(lambda word, done: (table[word](), os.getpid()), 3) as three:
        tasks = [three.submit(word) for word in WORDS]
        answers = [task.result(60) for task in tasks]
    assert [answer for answer, _ in answers] == [word.upper() for word in WORDS]
    assert os.getpid() not in {pid for _, pid in answers}
    assert not multiprocessing.active_children()


@linux
def test_what_makes_the_copies_ends_silently_if_its_parent_is_killed_before_it_reads_a_reply() -> None:
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [_REPLY.pack(1, 0)], [0])  # asks for the exit code of a process
    ours.close()
    try:
        _make_copies(theirs, socket.socket(), lambda item, done: item)
    finally:
        gc.unfreeze()
        theirs.close()


@linux
@pytest.mark.parametrize("every", [-1.0, 100.0])
def test_a_task_hears_each_part_of_its_result_at_most_once_and_in_order(
    every: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vtrans.processes.workers, "TELL", every)

    def answer(parts: list[str], done: Callable[..., None]) -> list[str]:
        for part in parts:
            done(part)
        return parts

    heard: dict[int, list[str]] = {0: [], 1: []}
    with copies(answer) as two:
        for number, task in [(n, two.submit(WORDS[n:], heard[n].append)) for n in (0, 1)]:
            assert task.result(60) == WORDS[number:]
    assert heard == ({0: WORDS, 1: WORDS[1:]} if every < 0 else {0: [], 1: []})


@linux
def test_a_copy_hears_that_its_task_is_abandoned_and_takes_the_next_one() -> None:
    def answer(number: int, done: Any) -> int:
        if number == 1:
            done("started")
            while not done.abandoned():
                done()
                time.sleep(0.001)
            raise KeyError("abandoned")
        return number + (1000 if done.abandoned() else 0)

    started = threading.Event()
    with copies(answer, 1) as workers:
        task = workers.submit(1, lambda part: started.set(), started.is_set)
        late = workers.submit(2, abandoned=lambda: True)
        others = [workers.submit(number) for number in range(3, 50)]
        with pytest.raises(KeyError):
            task.result(30)
        assert late.result(30) in (2, 1002)
        assert [other.result(30) for other in others] == list(range(3, 50))


def test_a_copy_that_dies_raises_how_and_the_advice_and_is_replaced() -> None:
    def answer(item: Any, done: Callable[[], None]) -> Any:
        if item == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    with copies(answer, 1) as one:
        assert one.submit("live").result(60) == "live"
        with pytest.raises(DiedError, match=r"SIGKILL.*testing.*do better\.$") as caught:
            one.submit("die").result(60)
        assert one.submit("live again").result(60) == "live again"
    assert caught.value.exit_code == 1
    assert not multiprocessing.active_children()


@linux
def test_a_copy_ignores_ending_signals_and_ends_with_the_block_in_the_middle_of_its_work(tmp_path: Path) -> None:
    def answer(seconds: float, done: Callable[[], None]) -> int:
        time.sleep(seconds)
        (tmp_path / f"{seconds}").touch()
        return os.getpid()

    with copies(answer, 1) as one:
        child = one.submit(0).result(60)
        (maker,) = multiprocessing.active_children()
        for number, process in itertools.product(ENDING, (child, maker.pid)):
            os.kill(process, number)
        assert one.submit(0).result(60) == child
        one.submit(100)
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert not multiprocessing.active_children()
