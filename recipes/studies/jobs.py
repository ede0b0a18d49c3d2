"""Runs jobs, each a sequence of commands, several at a time, and stops them together."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vtrans.console import Console
from vtrans.errors import VtransError
from vtrans.processes.signals import ended_by_signals

PAUSE = 0.1  # seconds between two looks at the running commands


class Process(Protocol):
    """The part of `subprocess.Popen` that is used here."""

    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def send_signal(self, signal: int) -> None: ...


@dataclass(eq=False)
class Job:
    """Commands that run one after the other. The iterator may do work of its own between them. `after` names the job
    that must have succeeded before, if that job is among those to run. `log` is the file for the output."""

    name: str
    commands: Iterator[Sequence[str]]
    after: str = ""
    log: Path | None = None


Start = Callable[[Sequence[str], Path | None], Process]
"""Starts a command whose output goes to a file, or, with None, to stderr."""


def starter(threads: int | None) -> Start:
    """Returns what starts commands with that many threads each; None leaves the number to them. A first word of
    `vtrans` stands for this version of vtrans, `python` for this Python.

    A command is in a process group of its own: Ctrl-C reaches this program alone, which then stops its commands
    once. A second signal would keep a training from saving its state.
    """
    chosen = {"OMP_NUM_THREADS": str(threads)} if threads else {}
    programs = {"vtrans": [sys.executable, "-m", "vtrans"], "python": [sys.executable]}

    def start(words: Sequence[str], log: Path | None) -> Process:
        shown = shlex.join(words)
        sys.stderr.write("\n$ " + "".join(f"{name}={value} " for name, value in chosen.items()) + shown + "\n")
        sys.stderr.flush()
        command, environment = [*programs[words[0]], *words[1:]], {**os.environ, **chosen}
        output = log.open("ab") if log else None
        try:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output or sys.stderr, stderr=output, env=environment,
                process_group=0,
            )  # fmt: skip
        finally:
            if output:
                output.close()

    return start


def run_jobs(jobs: Sequence[Job], slots: int, start: Start, console: Console) -> list[str]:
    """Runs the jobs in their order, at most `slots` of them at a time, and returns the names of those that failed.

    A job that fails does not stop the others, except those that need it. A signal that ends this program ends the
    running commands, too, with SIGTERM; KeyboardInterrupt is raised when they have ended.
    """
    waiting, running = list(jobs), dict[Job, Process]()
    unfinished, failed = {job.name for job in jobs}, list[str]()

    def fail(job: Job, why: str) -> None:
        console.error(f"{job.name}: {why}")
        failed.append(job.name)

    def advance(job: Job) -> None:
        """Starts the next command of the job, or ends it."""
        try:
            running[job] = start(next(job.commands), job.log)
        except StopIteration:
            unfinished.remove(job.name)
        except VtransError as error:
            fail(job, str(error))

    with ended_by_signals():
        try:
            while waiting or running:
                ended = {job: code for job, process in running.items() if (code := process.poll()) is not None}
                for job, code in ended.items():
                    del running[job]
                    if code:
                        fail(job, f"its command ended with exit code {code}{f'; see {job.log}' if job.log else ''}")
                    else:
                        advance(job)
                for job in list(waiting):
                    if job.after in failed:
                        waiting.remove(job)
                        fail(job, f"it needs {job.after}, which failed")
                    elif len(running) < slots and job.after not in unfinished:
                        waiting.remove(job)
                        advance(job)
                if running and not ended:
                    time.sleep(PAUSE)
        except BaseException:
            for process in running.values():
                process.send_signal(signal.SIGTERM)
            for process in running.values():
                process.wait()
            raise
    return failed
