"""The commands on a system that lacks what only POSIX has, as Windows does.

There, a file that this process has open can be neither renamed, replaced nor removed, there is no compiler, and neither
the console nor a file that is opened without an encoding has UTF-8.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vtrans.config import CACHE_VARIABLE

PROGRAM = """
import os, signal, sys, sysconfig
from pathlib import Path
import multiprocessing.popen_spawn_posix, multiprocessing.shared_memory, shutil, subprocess, tempfile
import rich.console, sacrebleu, sentencepiece, torch, torch.distributed, typer.main

sysconfig.get_config_vars()  # reads a file whose name contains the platform
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for module, names in {
    os: (
        "fork", "geteuid", "getloadavg", "getuid", "register_at_fork", "sched_getaffinity", "set_blocking",
        "sysconf",
    ),
    signal: ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "pthread_kill", "pthread_sigmask", "setitimer"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
sys.platform = "win32"
DESCRIPTORS = Path("/proc/self/fd")


def refuse_open_files(event, arguments):
    if event not in ("os.rename", "os.remove") or not DESCRIPTORS.exists():
        return
    folder = arguments[-1]
    for name in arguments[: 2 if event == "os.rename" else 1]:
        path = os.path.realpath(DESCRIPTORS / str(folder) / name if folder != -1 else name)
        opened = any(os.path.realpath(open) == path for open in DESCRIPTORS.iterdir())
        mapped = path in (DESCRIPTORS.parent / "maps").read_text(encoding="utf-8")
        if os.path.isfile(path) and (opened or mapped):
            raise PermissionError(13, "it is in use", path)


sys.addaudithook(refuse_open_files)

from vtrans.cli import main

COMMANDS = (
    "prepare-bpe --src train.en --tgt train.de --vocab-size 300 --threads 1",
    "train --set model.d_model=8 --set model.d_ff=8 --set train.max_steps=2 --set train.checkpoint_every=1 --threads 1",
    "train --set train.max_steps=3 --threads 1",
    "average",
    "translate --input train.en --output train.hyp",
    "translate --output stdin.hyp",  # which exists
    "doctor --json",
)
for command in COMMANDS:
    sys.argv = ["vtrans", *command.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, command
"""


@pytest.mark.slow
def test_the_commands_need_nothing_that_only_posix_has(tmp_path: Path) -> None:
    words = ["one", "two", "thrée", "four", "five", "six", "séven"]
    lines = [" ".join([words[i % 7], words[i % 5], words[i % 3], words[i // 7]]) for i in range(49)]
    for name in ("train.en", "train.de"):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "stdin.hyp").write_text("old\n", encoding="utf-8")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    env = {**os.environ, **ascii_only, "CXX": "no-compiler", CACHE_VARIABLE: str(tmp_path / "cache")}
    with (tmp_path / "train.en").open("rb") as source:
        done = subprocess.run(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env=env,
            stdin=source,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    translated = (tmp_path / "train.hyp").read_bytes()
    assert translated.count(b"\n") == len(lines)
    assert (tmp_path / "stdin.hyp").read_bytes() == translated
