"""Starts Python programs as forks of a server that has imported torch and vtrans, because an import takes seconds.

`start_python` returns a Popen. Run as a program, this file is the server.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).parents[2])
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
# Variables that are read when Python, torch or a library starts, so that a fork would miss a change.
EARLY = ("PYTHON", "OMP_", "MKL_", "KMP_", "GOMP_", "MALLOC_", "ONEDNN_", "LRU_", "LD_", "TORCH_")
# What the commands import. torch's optimizers import _inductor when they are made, and recent versions of Typer import
# pydantic when they run a command.
PRELOADED = (
    *("torch", "torch._inductor", "torch.distributed.fsdp", "pydantic"),
    *(
        "vtrans.cli",
        "vtrans.score.metrics",
        "vtrans.apps.server.running",
        "vtrans.training.trainer",
        "vtrans.translate.translator",
    ),
)
PR_SET_CHILD_SUBREAPER = 36
STDIO = (0, 1, 2)
PIDS: list[int] = []  # of the server, once it is there


def start_python(words: Sequence[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen[Any]:
    """Starts Python with these arguments: as a fork of the server, or as a new process if the environment has other
    early variables than the server's."""
    alike = "preexec_fn" not in options and _early(environment) == _early(ENVIRONMENT)
    kind: type[subprocess.Popen[Any]] = Forked if alike and sys.platform == "linux" else subprocess.Popen
    return kind([sys.executable, *words], env=environment, **options)


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key.startswith(EARLY) and key != "PYTHONPATH"}


class Forked(subprocess.Popen[Any]):
    """A process that the server has forked, and which is a child of this process."""

    def __init__(self, words: Sequence[str], *, start_new_session: bool = False, **options: Any) -> None:
        self._new_session = start_new_session
        super().__init__(words, **options)

    def _execute_child(self, words: Sequence[str], *given: Any) -> None:
        """Replaces Popen's method of this name, whose arguments are the same since Python 3.11."""
        cwd, env, pipes = given[4], given[5], given[9:15]
        streams = [number if pipe < 0 else pipe for number, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        order = {"words": words[1:], "cwd": os.fspath(cwd or Path.cwd()), "env": env, "session": self._new_session}
        libc, connection = ctypes.CDLL(None), server()
        # The server's child ends after it has forked the new process, whose parent becomes the nearest subreaper.
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            socket.send_fds(connection, [json.dumps(order).encode()], streams)
            self.pid = int(connection.recv(100))
        finally:
            libc.prctl(PR_SET_CHILD_SUBREAPER, 0)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # another method of Popen


@cache
def server() -> socket.socket:
    """Starts the server, which ends when this process does. Returns the connection to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [sys.executable, __file__, str(theirs.fileno())]
    # Its file descriptor 0 keeps it off a terminal.
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=ENVIRONMENT)
    theirs.close()
    PIDS.append(process.pid)
    process.returncode = 0  # nobody waits for it
    return ours


def serve(connection: socket.socket) -> dict[str, Any]:
    """Forks a process for each order. Returns, in each of them, with the order; ends in the server."""
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, len(STDIO))
        if not message:
            sys.exit()
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            if grandchild := os.fork():
                os.write(writer, str(grandchild).encode())
                os._exit(0)
            for descriptor in (reader, writer, connection.detach()):
                os.close(descriptor)
            order: dict[str, Any] = json.loads(message)
            become(order, descriptors)
            return order
        os.waitpid(child, 0)
        connection.send(os.read(reader, 100))
        for descriptor in (reader, writer, *descriptors):
            os.close(descriptor)


def become(order: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Gives this process the streams, the environment and the folder of the order."""
    if order["session"]:
        os.setsid()
    for number, descriptor in zip(STDIO, descriptors, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for name, number, errors in (("stdin", 0, "strict"), ("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        raw: Any = io.FileIO(number, "w" if number else "r", closefd=False)
        if not number:
            raw = io.BufferedReader(raw)
        elif not unbuffered:
            raw = io.BufferedWriter(raw)
        lines = number == 2 or os.isatty(number)
        stream = io.TextIOWrapper(raw, errors=errors, line_buffering=lines, write_through=unbuffered)
        setattr(sys, name, stream)


def run(words: Sequence[str]) -> None:
    """Runs what `python` would run with these words."""
    first, *rest = words
    sys.argv = [first, *rest]
    if first == "-c":
        sys.argv = [first, *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(first, run_name="__main__")


def leave(code: object) -> None:
    """Ends this process as Python would, except that nothing is taken apart, which takes longer than many commands.
    Returns if Python has something to say at the end."""
    if not isinstance(code, int | None):
        return
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    from vtrans.system.process import configure_process

    configure_process()
    for module in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    words = serve(socket.socket(fileno=int(sys.argv[1])))["words"]
    try:
        run(words)
    except SystemExit as end:
        leave(end.code)
        raise
    leave(None)
