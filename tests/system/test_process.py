"""Settings that a process makes before it loads torch."""

import os
import subprocess
import sys

import pytest

from vtrans.system.errors import VtransError
from vtrans.system.process import configure_process

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
