"""Worker processes return results in order, and end whatever happens."""

import itertools
import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_runner import children, gone

import vtrans.system.workers
from vtrans.system.errors import AbandonedError, VtransError
from vtrans.system.forks import DiedError
from vtrans.system.signals import ENDING
from vtrans.system.workers import Tell, WorkerPool, _make_copies, map_in_workers

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
from vtrans.system.workers import map_in_workers

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
from concurrent.futures import ThreadPoolExecutor
from vtrans.system.workers import WorkerPool

try:
    with WorkerPool(lambda item, tell: time.sleep(item), 3, "testing", "") as copies:
        copies.call(0)
        tasks = [ThreadPoolExecutor().submit(copies.call, 100) for _ in range(2)]
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
    root = Path(vtrans.system.workers.__file__).parents[2]
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


def copies(answer: Callable[[Any, Any], Any], number: int = 2) -> WorkerPool[Any, Any]:
    return WorkerPool(answer, number, "testing", "do better")


@linux
def test_copies_answer_from_the_memory_of_this_process_and_are_made_on_demand() -> None:
    table = {word: lambda word=word: word.upper() for word in WORDS}  # functions that no pickle could carry
    with copies(lambda word, tell: (table[word](), os.getpid()), 3) as three, ThreadPoolExecutor(5) as threads:
        assert three.call(WORDS[0])[1] != os.getpid()
        (maker,) = multiprocessing.active_children()
        assert len(children(maker.pid or 0)) == 1
        answers = list(threads.map(three.call, WORDS, timeout=60))
    assert [answer for answer, _ in answers] == [word.upper() for word in WORDS]
    assert len({pid for _, pid in answers}) <= 3
    assert not multiprocessing.active_children()


@linux
def test_what_makes_the_copies_ends_silently_if_its_parent_is_killed_before_it_reads_a_reply() -> None:
    ours, theirs = multiprocessing.Pipe()
    ours.send(2**30)  # asks for the exit code of a process that does not exist
    ours.close()
    _make_copies(theirs, multiprocessing.Pipe()[0], lambda item, tell: item)
    theirs.close()


@linux
def test_a_caller_hears_each_part_of_its_result_once_and_in_order() -> None:
    def answer(parts: list[str], tell: Tell) -> list[str]:
        for part in parts:
            tell(part)
        return parts

    with copies(answer) as two, ThreadPoolExecutor(2) as threads:
        heard: list[list[str]] = [[], []]
        for n, found in enumerate(threads.map(lambda n: two.call(WORDS[n:], heard[n].append), (0, 1), timeout=60)):
            assert found == WORDS[n:]
            assert heard[n] == WORDS[n:]


@linux
def test_the_copy_of_an_abandoned_request_ends_and_another_one_takes_the_next() -> None:
    def answer(number: int, tell: Tell) -> tuple[int, int]:
        tell("started")
        time.sleep(number)
        return number, os.getpid()

    started = threading.Event()
    with copies(answer, 1) as one:
        _, first = one.call(0, abandoned=lambda: False)
        with pytest.raises(AbandonedError):
            one.call(100, lambda part: started.set(), started.is_set)
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
        assert one.call(0)[0] == 0


@linux
def test_a_caller_that_fails_leaves_nothing_of_its_request_to_the_next_one() -> None:
    def answer(number: int, tell: Tell) -> int:
        for _ in range(20):
            tell(number)
            time.sleep(0.005)
        return number

    def fail(part: int) -> None:
        raise KeyError(part)

    with copies(answer, 1) as one:
        with pytest.raises(KeyError):
            one.call(1, fail)
        heard: list[int] = []
        assert one.call(2, heard.append) == 2
        assert set(heard) == {2}


@linux
def test_a_copy_that_dies_raises_how_and_the_advice_and_is_replaced() -> None:
    def answer(item: Any, tell: Tell) -> Any:
        if item == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    with copies(answer, 1) as one:
        assert one.call("live") == "live"
        with pytest.raises(DiedError, match=r"SIGKILL.*testing.*do better\.$") as caught:
            one.call("die")
        assert one.call("live again") == "live again"
        (maker,) = multiprocessing.active_children()
        maker.kill()
        maker.join()
        with pytest.raises(DiedError, match=r"testing.*do better\.$"):
            one.call("die")
    assert caught.value.exit_code == 1
    assert not multiprocessing.active_children()


@linux
def test_a_copy_ignores_ending_signals_and_ends_with_the_block_in_the_middle_of_its_work(tmp_path: Path) -> None:
    def answer(seconds: float, tell: Tell) -> int:
        time.sleep(seconds)
        (tmp_path / f"{seconds}").touch()
        return os.getpid()

    with copies(answer, 1) as one:
        child = one.call(0)
        (maker,) = multiprocessing.active_children()
        for number, process in itertools.product(ENDING, (child, maker.pid)):
            os.kill(process, number)
        assert one.call(0) == child
        threading.Thread(target=pytest.raises, args=(DiedError, one.call, 100)).start()
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert not multiprocessing.active_children()
