"""Commands of an experiment: a signal stops them once, they may write to a file, and their failure is an error."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from vtrans.apps.experiments.work import INTO, LOCK, CommandError, Stage, Work, run
from vtrans.system.console import Console
from vtrans.system.errors import VtransError

WAITING = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
seen = []
open("begun", "w").close()
while not seen: time.sleep(0.01)
time.sleep(0.3)  # saving takes time, and a second signal would interrupt it
open("begun", "w").write(str(len(seen)))
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize(
    ("number", "usual"),
    [
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGINT, signal.SIG_IGN),  # as in the background job of a shell
        (signal.SIGTERM, signal.SIG_DFL),
    ],
)
def test_a_signal_stops_the_command_once_and_waits_for_it(number: signal.Signals, usual: Any, tmp_path: Path) -> None:
    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    before = signal.signal(number, usual)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(["python", "-c", WAITING], folder=tmp_path)
    finally:
        signal.signal(number, before)
    thread.join()
    assert (tmp_path / "begun").read_text() == "1"


def test_a_command_may_write_to_a_file_and_its_failure_is_an_error(tmp_path: Path) -> None:
    run(["python", "-c", "print(1)", INTO, "out"], folder=tmp_path)
    assert (tmp_path / "out").read_text() == "1\n"
    with pytest.raises(CommandError, match="python -c") as caught:
        run(["python", "-c", "raise SystemExit(3)"])
    assert caught.value.exit_code == 3
    with pytest.raises(VtransError, match="vtrans-nowhere"):
        run(["vtrans-nowhere", "train"])


def test_a_command_holds_the_lock_of_its_folder(tmp_path: Path) -> None:
    """So a command that outlives the program keeps another program out."""

    def start(words: Any, _: Any, *, folder: Path, held: list[int]) -> None:
        assert os.path.sameopenfile(held[0], lock.fileno())
        run([*words, str(held[0])], folder=folder, held=held)

    work = Work(tmp_path, "mine", Console(quiet=True), start)
    with work.lock, (tmp_path / LOCK).open() as lock:
        work.run([Stage("stage", [["python", "-c", "import os, sys; os.fstat(int(sys.argv[1]))"]], [], [])])
        with pytest.raises(VtransError, match="another process"):
            Work(tmp_path, "mine", Console(quiet=True))
    Work(tmp_path, "mine", Console(quiet=True)).lock.close()
