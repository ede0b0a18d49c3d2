"""The output folder of prepare-bpe: checks whether it is up to date, and replaces it atomically."""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.parallel_text import FILES
from vtrans.data.preparation.report import shown
from vtrans.data.store import OUR_FILES, REPORT_FILE, read_report
from vtrans.system.console import Console
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import file_sha256, locked, sync_folder, unwritable, write_atomically
from vtrans.text.languages import languages_record

STAGING = ".preparing"


def current_report(
    out: Path, inputs: dict[str, Any], options: PrepareOptions, console: Console
) -> dict[str, Any] | None:
    """Returns the report of the folder if it is up to date; None if the folder must be made.

    Raises FileError if the folder holds foreign files, InputError if it was made from other inputs or options.
    """
    if not out.exists():
        return None
    if not out.is_dir():
        raise FileError(f"{out} is a file, but `out` must be a folder; give another.")
    report = read_report(out)
    if report is None:
        names = sorted(file.name for file in out.iterdir())
        # An interrupted run leaves its staging folder and perhaps some files, but no report.
        if not names or (STAGING in names and REPORT_FILE not in names):
            return None
        raise FileError(
            f"{out} is neither empty nor a data folder of this version of vtrans (it contains {names[0]}); "
            "give a new folder with `out`."
        )
    differing = _differences(report, inputs, options)
    if differing and not options.force:
        raise InputError(
            f"{out} was made from other inputs or options ({'; '.join(differing)}); "
            "give another folder with `out`, or replace this one with `force`."
        )
    if differing:
        return None
    damaged = [name for name, facts in report["files"].items() if file_sha256(out / name) != facts["sha256"]]
    if damaged:
        console.warn(f"{out} is damaged ({', '.join(damaged)}); making it again.")
        return None
    console.info(f"{out} is up to date: it was made from the same files with the same options.")
    return report


def _differences(report: dict[str, Any], inputs: dict[str, Any], options: PrepareOptions) -> list[str]:
    before = report["options"]
    differing = [
        f"`{name}` was {shown(before.get(name))} and is {shown(value)}"
        for name, value in options.identity().items()
        if before.get(name) != value
    ]
    # File names do not matter, unless they indicate other languages than the folder records.
    for name, value in (("languages", languages_record(options.languages())), ("tags", options.tags_by_language())):
        if value and report[name] != value:
            differing.append(f"the {name} were {report[name] or 'unknown'} and are {value}")
    return (["the input files differ"] if _hashes(report["inputs"]) != _hashes(inputs) else []) + differing


def _hashes(inputs: dict[str, Any]) -> list[Any]:
    """Returns the hashes of the input files, which identify them regardless of their names."""
    return [
        [[files[name]["sha256"] for name in FILES if name in files] for files in inputs[part] or ()]
        for part in ("train", "valid")
    ]


@contextmanager
def staging_folder(out: Path, ours: Sequence[str] = OUR_FILES) -> Iterator[Path]:
    """Yields a folder inside `out` to write to. Removes it at the end, and `out` if nothing was published.

    The folder stays if `publish` is interrupted while renaming, to mark the files in `out` as ours. `ours` are the
    names of these files, the report first.
    """
    created = [folder for folder in (out, *out.parents) if not folder.exists()]
    staging = out / STAGING
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove(created)
        raise _no_folder(out, error) from None
    with _alone(out):
        try:
            if staging.exists():
                shutil.rmtree(staging)
            try:
                staging.mkdir()
            except OSError as error:
                raise _no_folder(out, error) from None
            yield staging
        except BaseException as error:
            # Windows cannot remove a memory-mapped file, and the frames of the error may hold one.
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            if (out / ours[0]).exists() or not any((out / name).exists() for name in ours):
                shutil.rmtree(staging, ignore_errors=True)
            _remove(created)


def _no_folder(out: Path, error: OSError) -> Exception:
    return unwritable(f"the folder {out}", error, "; give another with `out`")


def _remove(folders: Sequence[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # not empty
            folder.rmdir()


def _is(folder: int, out: Path) -> bool:
    """Returns whether `out` is still the path of this open folder."""
    try:
        return os.path.samestat(os.fstat(folder), out.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Locks a folder. Raises InputError if another command is writing to it."""
    if sys.platform == "win32":
        yield
        return
    busy = InputError(f"another command is writing to {out}; wait, or give another folder with `out`.")
    try:
        folder = os.open(out, os.O_RDONLY)
    except FileNotFoundError:  # the other command has failed and removed the folder
        raise busy from None
    try:
        if not locked(folder) or not _is(folder, out):
            raise busy
        yield
    finally:
        os.close(folder)


def publish(staging: Path, out: Path, report: dict[str, Any], ours: Sequence[str] = OUR_FILES) -> None:
    """Renames all files into `out`, the report last: a folder without a report is incomplete. `ours` are the possible
    names of the folder's files, the report first."""
    report_file, *others = ours
    text = json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"
    write_atomically(staging / report_file, text)  # before replacing anything, because the disk may be full
    (out / report_file).unlink(missing_ok=True)
    for name in others:
        if (staging / name).exists():
            (staging / name).replace(out / name)
        else:
            (out / name).unlink(missing_ok=True)
    sync_folder(out)
    (staging / report_file).replace(out / report_file)
    sync_folder(out)
