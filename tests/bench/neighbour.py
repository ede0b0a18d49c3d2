"""Print how fast training and decoding are beside another busy process, by how long OpenMP's threads spin.

    python tests/bench/neighbour.py --data DATA --model RUN --input TEXT [--settings default GOMP_SPINCOUNT=2000 ...]

A thread that waits for the others spins before it sleeps. While it spins it keeps a core that another thread may need.
Each setting of the environment has processes of its own: one that trains `small` on a data folder, one that
translates a text in batches, and perhaps a second one that trains. They take turns: alone, beside a busy process of
nice 19, and as two trainings at once. The busy process runs on the first core ("pinned") or on any ("free"), in the
session of this program or in one of its own. Prints the median speed, and the median over the rounds of its ratios to
the same setting on an idle machine and to the first setting there; for two trainings at once, their sum.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from vtrans.console import Console
from vtrans.data.store import DataFolder
from vtrans.processes.memory import manage_memory
from vtrans.processes.ranks import CPU, Ranks
from vtrans.storage.run_folder import RunFolder
from vtrans.text.lines import open_bytes, read_lines
from vtrans.training.batch_loader import Cursor
from vtrans.training.setup import TrainOptions, set_up
from vtrans.training.trainer import Trainer
from vtrans.translate.loading import load

SETTINGS = ("default", "OMP_WAIT_POLICY=passive", *(f"GOMP_SPINCOUNT={n}" for n in (1000, 5000, 20_000, 100_000)))
BUSY = """
import os, sys
os.nice(19)
os.sched_setaffinity(0, map(int, sys.argv[1:]) if sys.argv[1:] else os.sched_getaffinity(0))
parent = os.getppid()
while os.getppid() == parent:  # it ends with the benchmark, even if that is killed
    pass
"""
Work = Callable[[], int]


def training(data: str) -> Work:
    """Returns a function that makes an update and returns its target tokens."""
    folder = tempfile.mkdtemp()
    options = TrainOptions(recipe="small", device="cpu")
    ready = set_up(DataFolder.open(Path(data)), RunFolder(Path(folder)), Console(quiet=True), Ranks(), CPU, options)
    trainer = Trainer(ready)
    trainer.learner.model.train()
    shares = trainer.loader.batches(Cursor())

    def update() -> int:
        share = next(shares)[1]
        trainer.updates.update([share])
        trainer.updates.read()
        return share[1]

    return update


def decoding(model: str, text: str, lines: int = 32) -> Work:
    """Returns a function that translates the next lines and returns how many."""
    translator = load(model, device="cpu", engine="torch")  # the settings are of its threads
    with open_bytes(Path(text)) as stream:
        whole = list(read_lines(stream, text))
    parts = cycle([whole[k : k + lines] for k in range(0, len(whole), lines)])
    return lambda: len(list(translator.translate(next(parts))))


class Worker:
    """A process with its own environment, which measures the speed of one kind of work."""

    def __init__(self, setting: str, threads: int, make: Callable[..., Work], *arguments: str) -> None:
        before = dict(os.environ)
        for word in setting.split(",") if setting != "default" else []:
            name, value = word.split("=")
            os.environ[name] = value
        context = multiprocessing.get_context("spawn")
        self.jobs, self.done = context.Queue(), context.Queue()
        self.process = context.Process(
            target=self.run, args=(self.jobs, self.done, threads, make, arguments), daemon=True
        )
        self.process.start()  # OpenMP reads the environment when the process loads torch
        os.environ.clear()
        os.environ.update(before)
        self.done.get()

    @staticmethod
    def run(jobs: Any, done: Any, threads: int, make: Callable[..., Work], arguments: Sequence[str]) -> None:
        manage_memory()
        torch.set_num_threads(threads)
        work = make(*arguments)
        for _ in range(4):  # prepares kernels
            work()
        done.put("ready")
        while seconds := jobs.get():
            count, began = 0, time.perf_counter()
            while (now := time.perf_counter()) < began + seconds:
                count += work()
            done.put(count / (now - began))


@contextmanager
def neighbour(pinned: bool, own_session: bool) -> Iterator[None]:
    """A busy process of nice 19. On Linux with autogroups, a session of its own has its own share of the machine,
    whatever its nice value."""
    core = [str(min(os.sched_getaffinity(0)))] if pinned else []
    busy = subprocess.Popen([sys.executable, "-c", BUSY, *core], start_new_session=own_session)
    time.sleep(0.3)
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def turn(workers: Sequence[Worker], seconds: float) -> float:
    """Returns the speed of workers that work at the same time, added up."""
    time.sleep(0.1)  # until the threads of the previous turn sleep
    for worker in workers:
        worker.jobs.put(seconds)
    return sum(float(worker.done.get()) for worker in workers)


CONDITIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "idle": nullcontext,
    "pinned, same session": partial(neighbour, True, False),
    "pinned, own session": partial(neighbour, True, True),
    "free, same session": partial(neighbour, False, False),
    "free, own session": partial(neighbour, False, True),
    "two trainings": nullcontext,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--model")
    parser.add_argument("--input")
    parser.add_argument("--settings", nargs="+", default=SETTINGS, help="variables, separated by commas")
    parser.add_argument("--conditions", nargs="+", default=list(CONDITIONS)[:-1], choices=CONDITIONS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="per turn")
    options = parser.parse_args()
    workers: dict[tuple[str, str], list[Worker]] = {}
    for setting in options.settings:
        if options.data:
            count = 1 + ("two trainings" in options.conditions)
            made = [Worker(setting, options.threads, training, options.data) for _ in range(count)]
            workers["training", setting] = made
        if options.model:
            workers["decoding", setting] = [Worker(setting, options.threads, decoding, options.model, options.input)]
    speeds: dict[tuple[str, str, str], list[float]] = {}
    for _ in range(options.rounds):
        for condition in options.conditions:
            for (kind, setting), each in workers.items():
                with CONDITIONS[condition]():
                    speed = turn(each if condition == "two trainings" else each[:1], options.seconds)
                speeds.setdefault((kind, setting, condition), []).append(speed)
    first = {kind: speeds[kind, options.settings[0], options.conditions[0]] for kind, _ in workers}
    for (kind, setting, condition), values in speeds.items():
        own = ratio(values, speeds[kind, setting, options.conditions[0]])
        print(
            f"{kind:9} {setting:24} {condition:22} {statistics.median(values):7,.0f} ({min(values):,.0f} to "
            f"{max(values):,.0f})  {own:5.2f} of its {options.conditions[0]}, {ratio(values, first[kind]):5.2f} of the "
            "first"
        )


def ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """Returns the median of the ratios of each round."""
    return statistics.median(a / b for a, b in zip(values, others, strict=True))


if __name__ == "__main__":
    main()
