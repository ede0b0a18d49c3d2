"""The processors and the memory that a process may use, read from made-up /proc and /sys folders."""

import math
import os
from pathlib import Path

import pytest

from vtrans.system.resources import available_memory, cpu_quota, total_memory, usable_cores, usable_processors

V1 = "cpu.cfs_quota_us", "cpu.cfs_period_us"


def machine(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """Writes /proc/self/cgroup and other files below `root`."""
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("limit", "quota"),
    [
        ("max 100000\n", None),
        ("10000 100000\n", 1),
        ("150000 100000\n", 2),
        ("1250000 50000\n", 25),
    ],
)
def test_a_quota_of_cgroup_v2_is_rounded_and_at_least_1(tmp_path: Path, limit: str, quota: int | None) -> None:
    files = {"sys/fs/cgroup/job/cpu.max": limit}
    assert cpu_quota(machine(tmp_path, "0::/job\n", files)) == quota


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
@pytest.mark.parametrize("place", ["", "docker/1234"])
def test_a_quota_of_cgroup_v1(tmp_path: Path, mount: str, place: str) -> None:
    """In a container the mounted folder may be the cgroup that /proc names by its path on the host."""
    folder = f"sys/fs/cgroup/{mount}/{place}"
    files = {f"{folder}/{name}": value for name, value in zip(V1, ("300000\n", "100000\n"), strict=True)}
    cgroup = "5:memory:/elsewhere\n4:cpu,cpuacct:/docker/1234\n0::/\n"
    assert cpu_quota(machine(tmp_path, cgroup, files)) == 3


def test_processors_are_limited_by_affinity_and_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: {0, 1, 4, 5}, raising=False)
    assert usable_processors(tmp_path) == usable_cores(tmp_path) == 4
    files = {f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": f"{n % 4},{n % 4 + 4}\n" for n in range(8)}
    machine(tmp_path, "0::/\n", files)
    assert usable_processors(tmp_path) == 4
    assert usable_cores(tmp_path) == 2  # the processors 0 and 4 are one core
    machine(tmp_path, "0::/\n", {"sys/fs/cgroup/cpu.max": "300000 100000"})
    assert usable_processors(tmp_path) == 3
    assert usable_cores(tmp_path) == 2
    machine(tmp_path, "0::/\n", {"sys/fs/cgroup/cpu.max": "90000 100000"})
    assert usable_processors(tmp_path) == usable_cores(tmp_path) == 1


FILES = {
    "proc/meminfo": "MemTotal:       9000 kB\nMemFree: 1000 kB\nMemAvailable:    6000 kB\n",
    "sys/fs/cgroup/memory.max": "5000000\n",
    "sys/fs/cgroup/memory.current": "2000000\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "700\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "900\n",
}


@pytest.mark.parametrize(
    ("files", "available", "total"),
    [
        (0, math.inf, math.inf),
        (1, 6_144_000, 9_216_000),
        (2, 6_144_000, 9_216_000),
        (3, 3_000_000, 5_000_000),
        (5, 0, 700),
    ],
)
def test_system_and_container_limit_the_memory(files: int, available: float, total: float, tmp_path: Path) -> None:
    machine(tmp_path, "4:memory:/\n0::/\n", dict(list(FILES.items())[:files]))
    assert (available_memory(tmp_path), total_memory(tmp_path)) == (available, total)
    machine(tmp_path, "4:memory:/\n0::/\n", {"sys/fs/cgroup/memory.max": "max\n"})
    unlimited = {0: (math.inf, math.inf), 5: (0, 700)}.get(files, (6_144_000, 9_216_000))
    assert (available_memory(tmp_path), total_memory(tmp_path)) == unlimited
