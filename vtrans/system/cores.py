"""The number of processors and physical cores that this process may use, by affinity and the CPU quota of cgroups."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


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
    """The CPU quota of this process's cgroups, in processors, rounded and at least 1. None means no quota.

    A container may see its cgroup's path on the host, which does not exist inside, or a path below a limited cgroup. So
    the smallest limit of all existing folders from the mount point to this path counts.
    """
    try:
        cgroups = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().split("\n") if line]
    except OSError:  # not Linux
        return None
    limits = []
    for _, controllers, path in cgroups:
        for folder in _folders(root / "sys/fs/cgroup", controllers, path):
            with suppress(OSError):
                limits.append(_limit(folder))
    return max(1, round(min(limits))) if min(limits, default=math.inf) < math.inf else None


def _allowed() -> set[int]:
    """The numbers of the logical processors that the affinity of this process allows."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _folders(mounts: Path, controllers: str, path: str) -> Iterator[Path]:
    """The folders that may limit the CPU time of a cgroup. `controllers` is empty for cgroup v2."""
    if controllers and "cpu" not in controllers.split(","):
        return
    for mount in [mounts / controllers, mounts / "cpu"] if controllers else [mounts, mounts / "unified"]:
        folder = mount / path.strip("/")
        yield from (folder, *(parent for parent in folder.parents if parent.is_relative_to(mount)))


def _limit(folder: Path) -> float:
    """The number of processors that a cgroup may use: CPU quota per period. Raises OSError if it is not a cgroup."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()  # v2; "max": no limit
    except FileNotFoundError:
        # v1; -1: no limit
        quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    return int(quota) / int(period) if quota != "max" and int(quota) > 0 else math.inf
