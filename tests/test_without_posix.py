"""The commands on a system that lacks what only POSIX has, as Windows does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys, sysconfig
import multiprocessing.popen_spawn_posix, multiprocessing.shared_memory, shutil, subprocess, tempfile
import rich.console, sacrebleu, sentencepiece, torch, torch.distributed, typer.main

sysconfig.get_config_vars()  # reads a file whose name contains the platform
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for module, names in {
    os: ("fork", "geteuid", "getloadavg", "getuid", "register_at_fork", "sched_getaffinity", "sysconf"),
    signal: ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "pthread_kill", "pthread_sigmask", "setitimer"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
sys.platform = "win32"

from vtrans.cli import main

COMMANDS = (
    "prepare-bpe --src train.en --tgt train.de --vocab-size 300 --threads 1",
    "train --set model.d_model=8 --set model.d_ff=8 --set train.max_steps=2 --set train.checkpoint_every=1 --threads 1",
    "train --set train.max_steps=3 --threads 1",
    "average",
    "translate --input train.en --output train.hyp",
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
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    lines = [" ".join([words[i % 7], words[i % 5], words[i % 3], words[i // 7]]) for i in range(49)]
    for name in ("train.en", "train.de"):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "train.hyp").read_text(encoding="utf-8").split("\n")) == len(lines) + 1
