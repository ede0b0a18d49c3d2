"""Runs the commands of a program, and ends the program itself."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from vtrans.system.console import Console
from vtrans.system.errors import VtransError
from vtrans.system.signals import ended_by_signals

ROOT = str(Path(__file__).resolve().parents[1])
PROGRAMS = {"vtrans": [sys.executable, "-m", "vtrans"], "python": [sys.executable]}  # this version of vtrans and Python
INTO = ">"  # before the last word of a command: a file for its standard output

Run = Callable[[Sequence[str]], None]
"""Runs a command; SystemExit if it fails."""


def run(
    words: Sequence[str], output: IO[Any] | None = None, *, folder: Path = Path(), held: Sequence[int] = ()
) -> None:
    """Prints a command and runs it in a folder; if it fails, the program ends with its exit code.

    The command is printed to `output` and writes to it; the default is stdout. It inherits the file descriptors `held`.
    It is in a process group of its own: Ctrl-C reaches this program alone, which then ends the command once and waits
    for it. A second signal would keep a training from saving its state.
    """
    shown = output or sys.stdout
    into = folder / words[-1] if INTO in words else None
    command = list(words[:-2] if into else words)
    shown.write(f"\n$ {shlex.join(command)}{f' {INTO} {shlex.quote(words[-1])}' if into else ''}\n")
    shown.flush()
    path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    stdout = into.open("wb") if into else output
    try:
        process = subprocess.Popen(
            [*PROGRAMS.get(command[0], command[:1]), *command[1:]], cwd=folder, env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL, stdout=stdout, process_group=0, pass_fds=held,
        )  # fmt: skip
    except FileNotFoundError:
        raise VtransError(f"the command {command[0]} is not installed; install it, and run this again.") from None
    finally:
        if into and stdout:
            stdout.close()
    with ended_by_signals((signal.SIGINT, signal.SIGTERM)):
        try:
            while process.returncode is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                stop_with_make()
        except BaseException:
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
    if process.returncode:
        raise SystemExit(process.returncode)


def stop_with_make() -> None:
    """Raises KeyboardInterrupt if make runs this program and has been interrupted alone. It then waits for the program,
    which a terminal would have interrupted as well, and catches SIGINT no more. Only Linux shows that."""
    with suppress(OSError):
        status = Path(f"/proc/{os.getppid()}/status").read_text(encoding="utf-8", errors="replace")
        masks = re.findall(r"^Sig(?:Ign|Cgt):\t(\w+)$", status, re.MULTILINE)
        catches = any(int(mask, 16) >> (signal.SIGINT - 1) & 1 for mask in masks)
        if re.match("Name:\tg?make\n", status) and not catches:
            raise KeyboardInterrupt


def run_program(main: Callable[[], int | None]) -> NoReturn:
    """Runs the function of a program, and ends it. An error is one line. SIGINT and SIGTERM end it even where a shell's
    background job ignores them, as in `vtrans train`."""
    try:
        with ended_by_signals((signal.SIGINT, signal.SIGTERM)):
            sys.exit(main())
    except VtransError as error:
        Console().error(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
