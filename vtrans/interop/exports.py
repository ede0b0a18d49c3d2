"""Writes a model as a folder for another program, after checking that both give the same results."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import vtrans.interop.bergamot.exporter as bergamot_exporter
import vtrans.interop.bergamot.web as web
import vtrans.interop.ctranslate2.exporter as ctranslate2_exporter
import vtrans.interop.huggingface.exporter as huggingface_exporter
from vtrans.checkpoint import LoadedModel
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.files import destination, explained, sync_folder
from vtrans.interop.comparison import GENERATED, Comparison, Program, compare, generated_sentences, outputs, scorer
from vtrans.interop.ctranslate2.folder import is_exported
from vtrans.interop.expressible import BERGAMOT, PROGRAMS

ADVICE = {"ctranslate2": "choose another `quantization`, or translate with the model itself"}
FEW = 6  # generated sentences of a comparison whose translations must be equal
# Each writes files into an empty folder, and returns the model with the nearest search that they express and what loads
# them into the other program, which raises InputError if that is not installed.
WRITERS: dict[str, Callable[..., tuple[LoadedModel, Callable[[], Program]]]] = {
    "bergamot": bergamot_exporter.write,
    "web": web.write,
    "ctranslate2": ctranslate2_exporter.write,
    "huggingface": huggingface_exporter.write,
}


def export_model(
    loaded: LoadedModel, to: str, out: Path, console: Console, samples: Sequence[str] | None = None, **options: Any
) -> Comparison | None:
    """Writes a folder for a program. Returns how the program differs from the model, or None if it is not installed.

    `to` is one of WRITERS, whose `write` has the options. Both programs translate and score `samples`, or generated
    sentences. An earlier export for CTranslate2 in `out` is replaced. Raises InputError for a model that cannot be
    exported or an `out` that is something else, and VtransError, leaving `out` as it was, if the two differ by more
    than the program's tolerance.
    """
    destination(out, "folder")  # before the work
    if PROGRAMS[to] == BERGAMOT:  # it is tuned on them
        options["samples"] = samples
    comparison = None
    with folder_aside(out) as folder:
        with explained(out):
            expressed, load = WRITERS[to](loaded, folder, console, **options)
        try:
            program = load()
        except InputError as error:
            console.warn(f"not compared with the model: {error}")
        else:
            exact = program.tolerance.lost is None
            if samples is None:
                samples = generated_sentences(loaded.src_vocab, FEW if exact else GENERATED)
            ours = outputs(expressed, samples, program)
            comparison = compare(ours, program, expressed.tgt_vocab, None if exact else scorer(expressed))
            comparison.refuse(out, ADVICE.get(to, ""))
    console.info(f"wrote {out}")
    if comparison:
        comparison.show(console)
    return comparison


@contextmanager
def folder_aside(path: Path) -> Iterator[Path]:
    """Yields a temporary folder, which is flushed and renamed to `path` on leaving, and removed on an error.

    It goes to the `destination`, where an export or an empty folder is replaced by two renames: a crash between them
    leaves the old folder under another name. Raises InputError if something else is there.
    """
    path = destination(path, "folder")
    if path.exists() and not is_exported(path) and any(path.iterdir()):
        raise InputError(
            f"{path} exists, and only an earlier export for CTranslate2 is replaced; remove it, or choose another "
            "`out`."
        )
    folder, old = (path.with_name(f".{path.name}.{os.getpid()}.{end}") for end in ("tmp", "old"))
    try:
        with explained(path):
            shutil.rmtree(folder, ignore_errors=True)  # left by a killed process with the same id
            folder.mkdir(parents=True)
        yield folder
        with explained(path):
            for file in (path for path in folder.rglob("*") if path.is_file()):
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
