"""The Makefile and the programs that it starts: values of variables arrive unchanged, and signals end commands once."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from recipes.make import program
from recipes.running import INTO, ROOT, run
from vtrans.system.errors import VtransError

MAKEFILE = Path(__file__).parents[2] / "Makefile"
ODD = 'it\'s 2 $$HOME; "new" #*'  # make reads $$ as one $
TYPED = ODD.replace("$$", "$")
KEPT = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open('given.json', 'w'))"

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed: apt-get install make")


def passed(folder: Path, target: str, *variables: str) -> list[str]:
    """Returns the arguments that the program of a target gets."""
    shutil.copy(MAKEFILE, folder)
    (folder / ".ci").mkdir()
    (folder / ".venv/bin").mkdir(parents=True)
    for name in ("pyproject.toml", ".ci/constraints.txt", ".venv/.installed"):
        (folder / name).touch()
    python = folder / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-S", "-c", KEPT])} "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(["make", target, *variables], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    words, environment = json.loads((folder / "given.json").read_text())
    return program(target, environment)[1] if words[0] == "recipes/make.py" else words


@needs_make
def test_an_experiment_gets_every_value_unchanged(tmp_path: Path) -> None:
    single = {"DATA": "--data", "SRC": "--src", "TGT": "--tgt", "WORK": "--work", "RECIPE": "--recipe", "RUN": "--run"}
    words = passed(tmp_path, "multi30k", *(f"{name}={ODD}" for name in single), "SET=a.b='c' f.g=[2, 0.5] d.e=1")
    assert words[0] == "multi30k"
    for option in single.values():
        assert words[words.index(option) + 1] == TYPED
    assert [words[i + 1] for i, word in enumerate(words) if word == "--set"] == ["a.b='c'", "f.g=[2, 0.5]", "d.e=1"]


@needs_make
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["study", f"STUDY={ODD}", "SEEDS=1 2", "ONLY=o'brien untied", "MINUTES=3"],
            [TYPED, "--minutes", "3", "--seeds", "1", "2", "--only", "o'brien", "untied"],
        ),
        (["student", f"CHAIN={ODD}", f"DATA={ODD}", "WORK=there"], [TYPED, "--data", TYPED, "--work", "there"]),
        (["everyday", f"MODEL={ODD}", "TGT=fr", "SHOW=urls title-case"],
         ["--model", TYPED, "--tgt", "fr", "--show", "urls", "title-case"]),
        (["everyday-model", f"DATA={ODD}", f"PAIRS={ODD}", "WORK=there", "SET=train.seed=2"],
         ["--data", TYPED, "--pairs", TYPED, "--work", "there", "--set", "train.seed=2"]),
    ],
)  # fmt: skip
def test_every_program_gets_every_value_unchanged(tmp_path: Path, words: list[str], expected: list[str]) -> None:
    assert passed(tmp_path, *words) == expected


@needs_make
@pytest.mark.parametrize("name", ["my demo's", "a;b", "a&b", "(a)", "demo-2.x"])
def test_a_folder_of_the_demo_may_have_any_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    done = subprocess.run(["make", "-f", str(MAKEFILE), "clean", f"DEMO={folder.name}"], cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert not folder.exists()
    assert not any(tmp_path.iterdir())


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
