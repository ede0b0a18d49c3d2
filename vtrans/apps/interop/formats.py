"""Imports models from other programs and exports models to them, if both programs give the same results."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import vtrans.apps.interop.bergamot.exporter as bergamot_exporter
import vtrans.apps.interop.ctranslate2.exporter as ctranslate2_exporter
import vtrans.apps.interop.ctranslate2.importer as ctranslate2_importer
import vtrans.apps.interop.huggingface.exporter as huggingface_exporter
import vtrans.apps.interop.huggingface.importer as huggingface_importer
import vtrans.apps.interop.marian.importer as marian_importer
from vtrans.apps.interop.capabilities import BERGAMOT, PROGRAMS
from vtrans.apps.interop.comparison import Comparison, Imported, Program, compare, outputs, scorer
from vtrans.apps.interop.trimming import Keep, trimmed
from vtrans.model.checkpoint import LoadedModel, load_model, save_model
from vtrans.model.network import count_parameters
from vtrans.storage.model_file import training_of
from vtrans.system.console import Console
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import check_path, destination, named_os_errors, no_file, overwritten, replaced, sync_folder
from vtrans.system.process import release_memory

MODEL_SUFFIX = ".safetensors"
T = TypeVar("T")
ADVICE = {"ctranslate2": "choose another `quantization`, or translate with the model itself"}
# Each writes files into an empty folder. It returns the model with the nearest search settings that the files express,
# and a function that loads them into the other program, or raises InputError if the program is not installed.
WRITERS: dict[str, Callable[..., tuple[LoadedModel, Callable[[], Program]]]] = {
    "bergamot": bergamot_exporter.write,
    "web": bergamot_exporter.write_page,
    "ctranslate2": ctranslate2_exporter.write,
    "huggingface": huggingface_exporter.write,
}


def read_model(path: Path, options: Mapping[str, Any] = MappingProxyType({})) -> Imported:
    """Returns the model in a file or folder of another program.

    The options are `src_spm` and `tgt_spm`, SentencePiece models for a CTranslate2 folder, which may lack them, and
    `from` and `to`, the languages for M2M100 or NLLB. Raises InputError for an option that the model does not take, and
    FileError if no reader recognises the path.
    """
    check_path(path)
    if not path.exists():
        raise no_file(path, "model", advice="name its file or folder")
    left = dict(options)  # each reader removes the options that it uses
    if (path / ctranslate2_importer.BINARY).is_file():  # first, because its folder may contain Hugging Face's tokenizer
        imported = ctranslate2_importer.read(path, left)
    elif huggingface_importer.recognises(path):
        imported = huggingface_importer.read(path, left)
    elif path.suffix == MODEL_SUFFIX:
        imported = Imported("a model file of vtrans", (), load_model(path))
    elif marian_importer.recognises(path):
        imported = marian_importer.read(path)
    else:
        raise FileError(
            f"{path} is not a model that vtrans can import: it must be a Hugging Face folder of Marian, M2M100 or "
            "NLLB, a CTranslate2 folder, an .npz model of Marian or its folder, or a model file of vtrans."
        )
    if left:
        raise InputError(f"`{min(left)}` must be left out, because {path} is {imported.kind}, which does not take it.")
    return imported


def import_model(
    path: Path,
    out: Path,
    console: Console,
    samples: Sequence[str] | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
    keep: Keep | None = None,
) -> Comparison | None:
    """Writes another program's model as a model file. Returns the comparison with that program, or None without one.

    `read_model` explains the options. `keep` trims the vocabulary, even of a model file of vtrans. The two programs are
    compared, with the whole vocabulary, if the other one is installed; its model is loaded after ours is released.
    Raises FileError for a model that cannot be imported, and VtransError, leaving `out` unchanged, if the two programs
    differ by more than rounding.
    """
    destination(out, "model")  # fail early
    parts = [file for file in path.iterdir() if training_of(file) is None] if path.is_dir() else [path]
    if any(overwritten(file, [out]) for file in parts):
        raise InputError(f"`out` must not be a file of the model {path}, got {out}.")
    if path.suffix == MODEL_SUFFIX and not keep:
        raise InputError(f"{path} is a model of vtrans already; give `keep_text` to trim its vocabulary.")
    imported = read_model(path, options)
    release_memory()
    loaded = imported.model
    written, notes = trimmed(loaded, keep) if keep else (loaded, [])
    for sentence in (*_described(path, imported), *notes):
        console.info(sentence)
    with named_os_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    program = _unless_refused(imported.original, "original", console) if imported.original else None
    comparison = None
    with replaced(out, "model") as temporary:
        with named_os_errors(out):
            save_model(temporary, written)
        if program:
            vocab = loaded.tgt_vocab
            ours = outputs(loaded, samples, program)
            del imported, loaded, written
            release_memory()
            comparison = _unless_refused(lambda: compare(ours, program, vocab), "original", console)
            if comparison:
                comparison.refuse(out)
    console.info(f"wrote {out}")
    if comparison:
        comparison.show(console)
        console.info(
            "each line was searched once, as the original does; `vtrans translate` searches a line again if its "
            "translation loops or reaches its limit, unless --no-retry is given"
        )
    return comparison


def _described(path: Path, imported: Imported) -> Iterator[str]:
    """Yields sentences about an imported model: its kind and size, vocabularies, the reader's notes, its tags."""
    loaded = imported.model
    size, summary = count_parameters(loaded.model), loaded.model.config.summary
    yield f"{path} is {imported.kind}: {size:,} parameters, {summary}"
    sizes = [f"{len(vocab):,}" for vocab in (loaded.src_vocab, loaded.tgt_vocab)]
    yield f"one vocabulary of {sizes[0]} pieces" if loaded.joint else f"vocabularies of {' and '.join(sizes)}"
    yield from imported.notes
    if loaded.tags:
        yield f"tags of {len(loaded.tags):,} target languages: {', '.join(loaded.tags)}"


def _unless_refused(make: Callable[[], T], what: str, console: Console) -> T | None:
    """Returns the result of `make`, or warns and returns None if it raises InputError."""
    try:
        return make()
    except InputError as error:
        console.warn(f"not compared with the {what}: {error}")
        return None


def export_model(
    loaded: LoadedModel, to: str, out: Path, console: Console, samples: Sequence[str] | None = None, **options: Any
) -> Comparison | None:
    """Exports a model to a folder for another program. Returns their comparison, or None if it is not installed.

    `to` is a key of WRITERS, whose function takes the options. Both programs translate and score `samples`, or the
    built-in sentences. An earlier CTranslate2 export in `out` is replaced. Raises InputError for a model that cannot be
    exported or an `out` that holds something else, and VtransError, leaving `out` unchanged, if the two programs differ
    by more than the tolerance.
    """
    if PROGRAMS[to] == BERGAMOT:  # it calibrates its quantization on the samples
        options["samples"] = samples
    comparison = None
    with atomic_folder(out) as folder:
        with named_os_errors(out):
            expressed, load = WRITERS[to](loaded, folder, console, **options)
        if program := _unless_refused(load, "model", console):
            ours = outputs(expressed, samples, program)
            comparison = compare(ours, program, expressed.tgt_vocab, scorer(expressed))
            comparison.refuse(out, ADVICE.get(to, ""))
    console.info(f"wrote {out}")
    if comparison:
        comparison.show(console)
    return comparison


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder, which is flushed and renamed to the `destination` on exit, or removed on an error.

    An earlier CTranslate2 export or an empty folder there is replaced. Raises InputError if something else is there.
    """
    path = destination(path, "folder")
    is_exported = (path / ctranslate2_exporter.DESCRIPTION).is_file()
    if path.exists() and not is_exported and any(path.iterdir()):
        raise InputError(
            f"{path} exists, and only an earlier export for CTranslate2 is replaced; remove it, or choose another "
            "`out`."
        )
    with named_os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        holder = tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent)
    with holder:
        folder = Path(holder.name) / "new"
        folder.mkdir()
        yield folder
        with named_os_errors(path):
            for file in (path for path in folder.rglob("*") if path.is_file()):
                with file.open("rb") as stream:
                    os.fsync(stream.fileno())
            if path.exists():
                path.rename(Path(holder.name) / "old")
            folder.rename(path)
    sync_folder(path.parent)
