"""Settings that a process makes before it loads torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import torch
from drawn import some

from vtrans.errors import InputError, VtransError
from vtrans.processes.process import configure_process
from vtrans.processes.threads import set_threads, threads

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
CONFIGURE = "import os, vtrans; vtrans.configure_process(); "
# map_in_workers starts processes that import the package afresh.
WORKER = """
from functools import partial
from vtrans.processes.workers import map_in_workers
print(*map_in_workers(partial(partial, os.getenv), ["GOMP_SPINCOUNT"], 1, "testing", ""))
"""


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in a process that has these variables for OpenMP's waiting and no others."""
    environment = {name: value for name, value in os.environ.items() if name not in WAITING} | variables
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("given", "left_alone"),
    [
        ({}, ()),
        ({"OMP_WAIT_POLICY": "active"}, WAITING),
        ({"GOMP_SPINCOUNT": "7"}, ("GOMP_SPINCOUNT",)),
        ({"KMP_BLOCKTIME": "infinite"}, ("KMP_BLOCKTIME",)),
    ],
)
def test_waiting_is_set_where_the_user_has_not_set_it(given: dict[str, str], left_alone: tuple[str, ...]) -> None:
    done = run("-c", f"{CONFIGURE}print(*(os.getenv(name) for name in {WAITING}))", **given)
    found = dict(zip(WAITING, done.stdout.split(), strict=True))
    for name, value in found.items():
        if name in left_alone:
            assert value == given.get(name, "None")
        else:
            assert (value == "None") == (name == "OMP_WAIT_POLICY")


@pytest.mark.skipif("+cpu" not in torch.__version__, reason="needs a build of torch with libgomp")
def test_openmp_finds_the_setting_when_a_command_loads_torch() -> None:
    """On request, libgomp prints its settings when it is loaded."""
    spins = run("-c", f"{CONFIGURE}print(os.environ['GOMP_SPINCOUNT'])").stdout.strip()
    done = run("-m", "vtrans", "average", "nothing", OMP_DISPLAY_ENV="VERBOSE")
    assert set(re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)) == {spins}
    assert done.stderr.endswith("\n")
    assert done.returncode == 2


def test_worker_processes_inherit_the_setting() -> None:
    assert int(run("-c", CONFIGURE + WORKER).stdout) > 0


def test_configuring_after_torch_is_loaded_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WAITING:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(VtransError, match="GOMP_SPINCOUNT"):
        configure_process()
    assert "GOMP_SPINCOUNT" not in os.environ


def test_configuring_again_is_not_an_error() -> None:
    again = f"{CONFIGURE}import torch; vtrans.configure_process()"
    assert run("-c", again).returncode == 0


def test_threads_are_set_in_torch() -> None:
    try:
        set_threads(3)
        assert torch.get_num_threads() == threads() == 3
        set_threads(None)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_an_invalid_number_of_threads_is_refused(count: int) -> None:
    with pytest.raises(InputError, match=f"`threads`.* 1 to 1024, got {count}"):
        set_threads(count)


TOLD = """
from vtrans.processes import threads
before = threads.threads()
threads.set_threads(3)
known = threads.threads()
threads.tell_torch()
import torch
print(before, known, torch.get_num_threads(), threads.threads())
"""


@pytest.mark.parametrize(
    ("variables", "usual"),
    some([({"OMP_NUM_THREADS": "5,1"}, 5), ({"OMP_NUM_THREADS": "", "MKL_NUM_THREADS": "4"}, 4)], 1),
)
def test_threads_that_are_set_before_torch_is_imported_are_told_to_it(variables: dict[str, str], usual: int) -> None:
    assert run("-c", TOLD, **variables).stdout.split() == [str(usual), "3", "3", "3"]
