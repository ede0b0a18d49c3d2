"""recipes/running.py: commands end the program if they fail, and a signal ends each once."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from recipes.running import INTO, run
from vtrans.errors import VtransError

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
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_command_once_and_waits_for_it(number: signal.Signals, tmp_path: Path) -> None:
    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(["python", "-c", WAITING], folder=tmp_path)
    thread.join()
    assert (tmp_path / "begun").read_text() == "1"


def test_a_command_may_write_to_a_file_and_ends_the_program_if_it_fails(tmp_path: Path) -> None:
    run(["python", "-c", "print(1)", INTO, "out"], folder=tmp_path)
    assert (tmp_path / "out").read_text() == "1\n"
    with pytest.raises(SystemExit, match="3"):
        run(["python", "-c", "raise SystemExit(3)"])
    with pytest.raises(VtransError, match="vtrans-nowhere"):
        run(["vtrans-nowhere", "train"])
