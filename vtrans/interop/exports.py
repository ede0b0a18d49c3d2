"""Writes a model as a folder for another program, if that program gives what the model gives."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from vtrans.checkpoint import LoadedModel
from vtrans.console import Console
from vtrans.engines.ctranslate2_folder import is_exported
from vtrans.errors import InputError
from vtrans.files import check_path, explained, sync_folder
from vtrans.interop import ctranslate2_export, huggingface_export, marian_export
from vtrans.interop.verification import Program, Verified, outputs, progress, refuse_different, scorer, verify

Write = Callable[[LoadedModel, Path, Console], tuple[LoadedModel, Callable[[], Program]]]
"""Writes the files of an export into an empty folder. Returns the model with the nearest search that they express, and
what loads them into the other program, which raises InputError if the program is not installed."""


def export_to_ctranslate2(
    loaded: LoadedModel,
    out: Path,
    console: Console,
    samples: Sequence[str] | None = None,
    *,
    quantization: str = "float32",
    source: Path | None = None,
) -> Verified | None:
    """Writes a folder that CTranslate2 loads, as `_export` does. `ctranslate2_export.write` has the parameters."""
    write = partial(ctranslate2_export.write, quantization=quantization, source=source)
    return _export(loaded, out, console, samples, write, "choose another `quantization`, or translate with the model")


def export_to_huggingface(
    loaded: LoadedModel, out: Path, console: Console, samples: Sequence[str] | None = None
) -> Verified | None:
    """Writes a folder that transformers loads, as `_export` does."""
    return _export(loaded, out, console, samples, huggingface_export.write)


def export_to_marian(
    loaded: LoadedModel, out: Path, console: Console, samples: Sequence[str] | None = None
) -> Verified | None:
    """Writes a folder that Marian loads, as `_export` does."""
    return _export(loaded, out, console, samples, marian_export.write)


def _export(
    loaded: LoadedModel, out: Path, console: Console, samples: Sequence[str] | None, write: Write, advice: str = ""
) -> Verified | None:
    """Writes a folder, and returns how the program that it is for differs from the model, if it is installed.

    Both translate and score `samples`, or generated sentences. An earlier export for CTranslate2 in `out` is replaced.
    Raises InputError for a model that cannot be exported or an `out` that is something else, and VtransError, which
    ends with `advice`, leaving `out` as it was, if the two differ by more than the program's tolerance.
    """
    check_path(out)
    verified = None
    with folder_aside(out) as folder:
        with explained(out):
            expressed, load = write(loaded, folder, console)
        try:
            program = load()
        except InputError as error:
            console.warn(f"not compared with the model: {error}")
        else:
            thorough = program.tolerance.lost is not None
            with progress(console, thorough=thorough) as done:
                ours = outputs(expressed, samples, done, thorough=thorough)
                verified = verify(ours, program, done, scorer(expressed) if thorough else None)
            refuse_different(verified, out, advice)
    console.info(f"wrote {out}")
    if verified:
        verified.show(console)
    return verified


@contextmanager
def folder_aside(path: Path) -> Iterator[Path]:
    """Yields a temporary folder, which is flushed and renamed to `path` on leaving, and removed on an error.

    An export or an empty folder of that name is replaced, by two renames: a crash between them leaves the old folder
    under another name. Raises InputError if `path` is something else.
    """
    if path.exists() and not (path.is_dir() and (is_exported(path) or not any(path.iterdir()))):
        raise InputError(f"{path} exists and is not an export of vtrans; choose another `out`, or remove it.")
    folder, old = (path.with_name(f".{path.name}.{os.getpid()}.{end}") for end in ("tmp", "old"))
    try:
        with explained(path):
            shutil.rmtree(folder, ignore_errors=True)  # left by a killed process with the same id
            folder.mkdir(parents=True)
        yield folder
        with explained(path):
            for file in folder.iterdir():
                with file.open("rb") as stream:
                    os.fsync(stream.fileno())
            if path.exists():
                path.rename(old)
            folder.rename(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if old.exists() and not path.exists():
            old.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    sync_folder(path.parent)
