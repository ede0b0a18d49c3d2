"""The processors and the memory that this process may use, as the system and the cgroups of a container limit them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# The files of a cgroup with its limit and a second number, by version: the period of a CPU quota, the memory in use.
_FILES: dict[str, list[tuple[str, ...]]] = {
    "cpu": [("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")],
    "memory": [("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")],
}


def usable_processors(root: Path = Path("/")) -> int:
    """The number of logical processors that this process may use, at least 1. `root` is where /proc and /sys are."""
    return min(len(_allowed()), cpu_quota(root) or len(_allowed()))


def usable_cores(root: Path = Path("/")) -> int:
    """The number of physical cores that this process may use. Two threads of a core use the same arithmetic units."""
    siblings = set()
    for number in _allowed():
        file = root / f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        try:
            siblings.add(file.read_text())
        except OSError:  # not Linux, or a container that hides it
            siblings.add(str(number))
    return min(len(siblings), cpu_quota(root) or len(siblings))


def cpu_quota(root: Path = Path("/")) -> int | None:
    """The CPU quota of this process's cgroups, in processors, rounded and at least 1. None means no quota."""
    quotas = (quota / period for quota, period in _limits("cpu", root) if quota > 0)  # -1: no quota
    smallest = min(quotas, default=math.inf)
    return max(1, round(smallest)) if smallest < math.inf else None


def total_memory(root: Path = Path("/")) -> float:
    """The total memory of this system or container in bytes, used or free; infinite if unknown. `root` is where /proc
    and /sys are."""
    return min(_memory("MemTotal", root), *(limit for limit, _ in _limits("memory", root)), math.inf)


def available_memory(root: Path = Path("/")) -> float:
    """The bytes that processes can still allocate without swapping, as the system and the container estimate them;
    infinite if unknown. `root` is where /proc and /sys are."""
    free = (max(0.0, limit - used) for limit, used in _limits("memory", root))
    return min(_memory("MemAvailable", root), *free, math.inf)


def _allowed() -> set[int]:
    """The numbers of the logical processors that the affinity of this process allows."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _memory(name: str, root: Path) -> float:
    with suppress(OSError):  # not Linux
        if entry := re.search(rf"^{name}: *(\d+)", (root / "proc/meminfo").read_text(), re.M):
            return 1024.0 * int(entry[1])
    return math.inf


def _limits(controller: str, root: Path) -> Iterator[list[float]]:
    """Yields the two numbers of each cgroup that may limit this process; infinite for "max".

    A container may see its cgroup's path on the host, which does not exist inside, or a path below a limited cgroup. So
    all existing folders from the mount point to this path count.
    """
    cgroups = ""
    with suppress(OSError):  # not Linux
        cgroups = (root / "proc/self/cgroup").read_text().strip()
    for _, controllers, path in (line.split(":", 2) for line in cgroups.split("\n") if line):
        if controllers and controller not in controllers.split(","):
            continue
        for name in (controllers, controller) if controllers else ("", "unified"):  # cgroup v1, or v2
            mount = root / "sys/fs/cgroup" / name
            folder = mount / path.strip("/")
            for place in (folder, *(parent for parent in folder.parents if parent.is_relative_to(mount))):
                for files in _FILES[controller]:
                    with suppress(OSError):
                        words = " ".join((place / file).read_text() for file in files).split()
                        yield [math.inf if word == "max" else float(word) for word in words]
