"""Settings that a process makes for memory and for waiting threads, before it loads torch."""

import os
import subprocess
import sys

import pytest

from vtrans.system.errors import VtransError
from vtrans.system.process import configure_process, manage_memory


def test_environment_variables_of_the_user_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    class Library:
        def mallopt(self, parameter: int, value: int) -> int:
            calls.append((parameter, value))
            return 1

    monkeypatch.setattr("vtrans.system.process.ctypes.CDLL", lambda name: Library())
    monkeypatch.setattr("vtrans.system.process.platform.libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "1000")
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    manage_memory()
    assert calls == [(-1, 1 << 30)]
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"
    assert 64 <= int(os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) < 1024
    monkeypatch.setattr("vtrans.system.process.platform.libc_ver", lambda: ("", ""))
    manage_memory()
    assert len(calls) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_products_of_many_shapes_take_bounded_memory() -> None:
    """Without the limit of 256, a kernel of half a megabyte stays in memory for each of 1,000 shapes."""
    code = """
import os, sys
import vtrans.system.process
if sys.argv[1] == "managed":
    vtrans.system.process.manage_memory()
import torch
from vtrans.model.products import linear
torch.set_num_threads(1)
x, w = torch.randn(2000, 128), torch.randn(256, 128)
linear(x, w)
with open("/proc/self/statm") as file:
    before = int(file.read().split()[1])
for n in range(2000, 1000, -1):  # downwards, so that the next product fits into freed memory
    linear(x[:n], w)
with open("/proc/self/statm") as file:
    print((int(file.read().split()[1]) - before) * os.sysconf("SC_PAGE_SIZE"))
"""
    environment = {k: v for k, v in os.environ.items() if "CACHE_CAPACITY" not in k and not k.startswith("MALLOC")}
    grown = [
        int(subprocess.run([sys.executable, "-c", code, how], capture_output=True, check=True, env=environment).stdout)
        for how in ("managed", "as it comes")
    ]
    if grown[1] < 250e6:
        pytest.skip("this torch keeps no kernels")
    assert grown[0] < 0.5 * grown[1]


WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
CONFIGURE = "import os, vtrans; vtrans.configure_process(); "


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


def test_configuring_after_torch_is_loaded_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WAITING:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(VtransError, match="GOMP_SPINCOUNT"):
        configure_process()
    assert "GOMP_SPINCOUNT" not in os.environ
