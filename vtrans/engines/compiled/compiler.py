"""Loads C++ libraries from the wheel, or compiles them once on the user's machine and caches them.

A wheel has one library per instruction set. A library's name contains a hash of its code and, if it was compiled here,
of the compiler command, so a library for another version, compiler or processor is never loaded. Libraries depend on
neither torch nor a model. The wheel's build hook imports this module with only the standard library.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import os
import platform
import re
import shlex
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vtrans.config import CACHE_VARIABLE
from vtrans.system.console import Console
from vtrans.system.errors import FileError, VtransError, WriteError
from vtrans.system.files import atomic_path, locked, reason

# No option changes arithmetic results. The second line lets loops with exponentials and minima be vectorised.
OPTIONS = (
    *("-std=c++17", "-O3", "-shared", "-fPIC", "-pthread"),
    *("-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"),
)
# Compiler options for each x86 instruction set. On other processors, the compiler's default has vector instructions.
INSTRUCTIONS = {"avx512": ("-mavx512f", "-mavx512bw", "-mfma"), "avx2": ("-mavx2", "-mfma"), "baseline": ()}
# The first macOS on ARM, which torch's packages also need. Without this option, the compiler targets the macOS on which
# it runs, and an older one cannot load the library, although the wheel's name allows it.
MACOS = "11.0"
ADVICE = "install the package g++ (gcc-c++ on Fedora, the command line tools of Xcode on macOS)"
CAPABILITY_VARIABLE = "ATEN_CPU_CAPABILITY"
SECONDS = 300  # timeout of the compiler, which takes 5 to 20


class CompilerError(VtransError):
    """C++ code cannot be compiled or loaded. The message is the reason, without a full stop."""


def compiled_library(sources: Sequence[Path], console: Console | None) -> ctypes.CDLL:
    """Returns the library for C++ code; `sources` is the file to compile, followed by its headers.

    Prefers the wheel's library, next to the code, if this system can load it. Otherwise the code is compiled with $CXX,
    or else g++, and the library is kept in the cache folder. If this folder is unusable or writable by other users, a
    warning is issued, and the code is compiled for this process only. Raises CompilerError.
    """
    if library := _loaded(sources[0].resolve().parent / _brought_name(sources, instructions()), console):
        return library
    if not hasattr(os, "geteuid"):
        raise CompilerError(
            f"this installation has no compiled code for {sys.platform}; install a wheel with compiled code"
        )
    command = compile_command(instructions(), sys.platform)
    made_by = "\0".join((*command, sys.platform, platform.machine()))
    name = f"{sources[0].stem}-{_hash(sources, made_by)}.so"
    try:
        return _kept(private_folder(cache_folder()) / name, sources[0], command, console)
    except (OSError, FileError, WriteError) as error:
        why = reason(error)
    try:
        with tempfile.TemporaryDirectory(prefix="vtrans-") as made:  # accessible only to this user
            _compile(Path(made) / name, sources[0], command, console, "not kept")
            library = ctypes.CDLL(str(Path(made) / name))
    except OSError as error:
        raise CompilerError(f"the compiled code cannot be stored or loaded: {reason(error)}") from None
    if console:
        console.warn(
            f"{cache_folder()} cannot keep compiled code ({why}), so each process compiles it; set {CACHE_VARIABLE} to "
            "another folder"
        )
    return library


def compile_for_wheel(sources: Sequence[Path], folder: Path, machine: str) -> list[Path]:
    """Compiles the code for each instruction set of a machine, such as x86_64. Returns the libraries, under the names
    by which `compiled_library` finds them. Raises CompilerError."""
    paths = []
    for name in INSTRUCTIONS if machine in ("x86_64", "amd64") else ("baseline",):
        paths.append(folder / _brought_name(sources, name))
        _compile(paths[-1], sources[0], compile_command(name, sys.platform))
    return paths


def compile_command(instructions: str, system: str) -> list[str]:
    """Returns the compiler command, without file names, for an instruction set and a system named as in `sys.platform`.
    Raises CompilerError."""
    oldest = [f"-mmacosx-version-min={MACOS}"] if system == "darwin" else []
    return [*_compiler(), *OPTIONS, *oldest, *INSTRUCTIONS[instructions]]


def wheel_machine(platform_of_python: str) -> str:
    """Returns the machine of a wheel: the one named in `platform_of_python`, such as linux-x86_64, or this machine if
    Python supports several, as on macOS."""
    named = re.search("-(x86_64|amd64|aarch64|arm64)$", platform_of_python)
    return named[1] if named else platform.machine().lower()


def wheel_platform(platform_of_python: str) -> str:
    """Returns the platform of a wheel with libraries, such as linux_x86_64."""
    machine = wheel_machine(platform_of_python)
    if platform_of_python.startswith("macosx"):
        platform_of_python = f"macosx-{MACOS}-{machine}"
    return re.sub(r"[-.]", "_", platform_of_python)


def instructions() -> str:
    """Returns the best instruction set of this processor, a key of INSTRUCTIONS. $ATEN_CPU_CAPABILITY lowers it, as it
    does for torch."""
    has = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__  # builders of wheels lack numpy

    limit = os.environ.get(CAPABILITY_VARIABLE, "avx512").lower()
    if limit == "avx512" and has.get("AVX512_SKX") and has.get("FMA3"):
        return "avx512"
    return "avx2" if limit in ("avx512", "avx2") and has.get("AVX2") and has.get("FMA3") else "baseline"


def cache_folder() -> Path:
    """Returns $VTRANS_CACHE, or else the folder vtrans in $XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else _home() / ".cache") / "vtrans"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without a name, as in some containers
        return Path("/")


def private_folder(path: Path) -> Path:
    """Creates a folder that only this user can access, and returns its real path. Raises OSError if the folder belongs
    to another user or gives others access, because they could then plant code in it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    real = path.resolve()
    status = real.stat()
    if status.st_uid != os.geteuid():
        raise PermissionError(f"it belongs to the user {status.st_uid}")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(f"other users have access to it: its mode is {stat.S_IMODE(status.st_mode):o}, not 700")
    return real


def _compiler() -> list[str]:
    chosen = os.environ.get("CXX", "")
    try:
        return shlex.split(chosen) or ["g++"]
    except ValueError as error:
        raise CompilerError(f"CXX must be a command, got {chosen!r}: {reason(error)}") from None


def _brought_name(sources: Sequence[Path], instructions: str) -> str:
    return f"{sources[0].stem}-{instructions}-{_hash(sources)}.so"


def _hash(sources: Sequence[Path], made_by: str = "") -> str:
    parts = (made_by.encode(), *(source.read_bytes() for source in sources))
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:20]


def _loaded(path: Path, console: Console | None) -> ctypes.CDLL | None:
    """Returns a library, or None if it is missing, damaged or for another system."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    if console:
        console.info(f"compiled code: {path}")
    return library


def _kept(path: Path, source: Path, command: Sequence[str], console: Console | None) -> ctypes.CDLL:
    """Returns the library at `path`, compiling it first if this user has none. Other processes that would compile into
    the same folder wait meanwhile. Raises OSError, FileError or WriteError."""
    if library := _own(path, console):
        return library
    with _alone(path.parent):
        if library := _own(path, console):  # another process has compiled it meanwhile
            return library
        with atomic_path(path) as temporary:
            _compile(temporary, source, command, console, f"kept as {path}")
    return ctypes.CDLL(str(path))


def _own(path: Path, console: Console | None) -> ctypes.CDLL | None:
    """Like `_loaded`, but also returns None if the library belongs to another user, who may have put it there while the
    folder was open to others."""
    return _loaded(path, console) if path.exists() and path.stat().st_uid == os.geteuid() else None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds a lock on a folder during the block."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        while not locked(descriptor):
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _compile(path: Path, source: Path, command: Sequence[str], console: Console | None = None, fate: str = "") -> None:
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*command, "-o", str(path), str(source)], capture_output=True, text=True, errors="replace", timeout=SECONDS
        )
    except FileNotFoundError:
        raise CompilerError(f"there is no C++ compiler {command[0]}; {ADVICE}, or name it in CXX") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError(f"the C++ compiler {command[0]} cannot be run: {reason(error)}") from None
    if done.returncode:
        said = [line for line in done.stderr.split("\n") if "error" in line] or done.stderr.split("\n")
        raise CompilerError(f"the C++ compiler {command[0]} failed: {said[0].strip().rstrip('.') or done.returncode}")
    if console:
        console.info(f"compiled code: made in {time.monotonic() - began:.1f} s, {fate}")
