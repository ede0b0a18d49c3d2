"""recipes/running.py: commands end the program if they fail, and a signal ends each once."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from recipes.running import INTO, ROOT, run
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


PROGRAM = f"""
from recipes.running import run, run_program
run_program(lambda: run(["python", "-c", {WAITING!r}]))
"""
INTERRUPTED = {
    "make alone": (["make", "-s"], signal.SIG_DFL, -signal.SIGINT),
    "a background job": ([sys.executable, "program.py"], signal.SIG_IGN, 130),
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux shows that make was interrupted")
@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupted_program_stops_its_command(name: str, tmp_path: Path) -> None:
    words, disposition, code = INTERRUPTED[name]
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "Makefile").write_text(f"all:\n\t{sys.executable} program.py\n")
    started = subprocess.Popen(
        words,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ROOT},
        preexec_fn=lambda: signal.signal(signal.SIGINT, disposition),
        start_new_session=True,
    )
    try:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        started.send_signal(signal.SIGINT)
        assert started.wait(60) == code
        assert (tmp_path / "begun").read_text() == "1"
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGTERM)
            started.wait()


def test_a_command_may_write_to_a_file_and_ends_the_program_if_it_fails(tmp_path: Path) -> None:
    run(["python", "-c", "print(1)", INTO, "out"], folder=tmp_path)
    assert (tmp_path / "out").read_text() == "1\n"
    with pytest.raises(SystemExit, match="3"):
        run(["python", "-c", "raise SystemExit(3)"])
    with pytest.raises(VtransError, match="vtrans-nowhere"):
        run(["vtrans-nowhere", "train"])
