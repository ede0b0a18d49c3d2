"""How translating on a CPU is divided between processes and threads."""

from __future__ import annotations

from dataclasses import dataclass

from vtrans.config.threads import check_processes, default_processes, set_threads, why_not_forked
from vtrans.config.threads import threads as usual_threads
from vtrans.engines.engine import Engine
from vtrans.system.process_memory import available_memory


@dataclass(frozen=True)
class Division:
    processes: int
    threads: int  # of each
    asked: bool  # whether the user chose the number of processes

    def copies(self, engine: Engine) -> int:
        """Returns the number of copies of this process that translate, 0 if it translates itself. Raises InputError if
        the user wants several, but the model is not on the CPU."""
        if self.processes == 1:
            return 0
        if engine.device == "cpu":
            return self.processes
        if self.asked:
            check_processes(self.processes, f"the model is on {engine.device}")
        set_threads(self.processes * self.threads)
        return 0


def divide(processes: int | None, threads: int | None, reason: str = "", *, prefer_one: bool = False) -> Division:
    """Returns the processes that will translate on a CPU, and gives this process the threads with which they compute.

    `reason` says why only one process can translate, and is empty if several can; `prefer_one` makes one the default.
    Raises InputError if the number that the user chose is not possible.
    """
    reason = reason or why_not_forked()
    check_processes(processes, reason)
    set_threads(threads)
    alone = reason or prefer_one or threads
    number = processes or (1 if alone else default_processes(usual_threads(), available_memory()))
    if number > 1:
        set_threads(1)  # kernels are chosen for what the copies will use
    return Division(number, threads or usual_threads(), processes is not None)
