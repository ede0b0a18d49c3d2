"""Exporting a model to a folder for CTranslate2.

The folder holds what CTranslate2 reads (model.bin, config.json, the subwords as JSON), so that any program with
CTranslate2 can use it, the SentencePiece model(s), and vtrans.json. It is written under a temporary name and compared
with the original before it gets its own.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vtrans.checkpoint import LoadedModel
from vtrans.console import Console
from vtrans.data.vocabulary import JOINT_FILE, SRC_FILE, TGT_FILE
from vtrans.engines.ctranslate2_folder import (
    DESCRIPTION,
    FOLDER,
    FORMAT,
    ctranslate2,
    is_exported,
    load_exported,
)
from vtrans.engines.engine import suppressed_ids
from vtrans.errors import InputError, VtransError
from vtrans.files import check_path, explained, file_sha256, sync_folder
from vtrans.interop.comparison import TOLERANCES, Comparison, compare, made_up
from vtrans.interop.ctranslate2_spec import PAD_BIAS, specification
from vtrans.interop.expressible import CTRANSLATE2, check_model, nearest_search
from vtrans.languages import languages_record
from vtrans.translate.sources import EXTRA_LENGTH

QUANTIZATIONS = tuple(TOLERANCES)


def export(
    loaded: LoadedModel,
    out: Path,
    console: Console,
    *,
    quantization: str = QUANTIZATIONS[0],
    samples: Sequence[str] | None = None,
    source: Path | None = None,
) -> Comparison:
    """Writes `loaded` as a folder for CTranslate2, if it translates `samples` as the original does.

    `source` is the model file of `loaded`; its SHA-256 tells later whether the export is up to date. Without `samples`,
    sentences are generated from the vocabulary. An earlier export in `out` is replaced. Warns of stored search settings
    that the engine does not support. Raises InputError for a model that cannot be exported or an `out` that is
    something else, and VtransError, leaving `out` as it was, if the two differ by more than TOLERANCES.
    """
    check_path(out)
    check_model(loaded.model.config, CTRANSLATE2)
    nearest_search(loaded.search, CTRANSLATE2, console)
    loaded = without_suppressed(loaded, console)
    if quantization not in QUANTIZATIONS:
        raise InputError(f"`quantization` must be one of {', '.join(QUANTIZATIONS)}, got {quantization!r}.")
    lines = [line for line in (made_up(loaded.src_vocab) if samples is None else samples) if line.strip()]
    if not lines:
        raise InputError("all sample sentences are blank; give some text to compare the export with the original on.")
    ctranslate2()
    with folder_aside(out) as folder:
        with explained(out):
            write(loaded, folder, quantization, source)
        exported = load_exported(folder, "cpu")
        with console.progress("comparing with the model", 2 * len(lines), "translations") as counter:
            comparison = compare(loaded, exported, lines, counter.advance)
        if problem := comparison.problem():
            raise VtransError(
                f"{out} was not written, because the {quantization} export differs from the model: {problem}; "
                "choose another `quantization`, or translate with the model itself."
            )
    console.info(f"wrote {out}")
    comparison.show(console)
    for setting in exported.unsupported(loaded.search):
        console.warn(
            f"the model stores search.{setting.name} = {setting.value}, which the engine ctranslate2 does not support: "
            f"{setting.reason}; translate with {setting.name} {setting.nearest}, or with the engine torch"
        )
    return comparison


def without_suppressed(loaded: LoadedModel, console: Console) -> LoadedModel:
    """Returns the model with the subwords of `search.suppress` left out of its softmax, by the projection's bias.

    With a beam, CTranslate2 has no other way to suppress subwords that would not change the sums of the others from
    step to step. The weights are shared with `loaded`, which stays as it is.
    """
    suppressed = suppressed_ids(loaded.search, loaded.tgt_vocab)
    if not suppressed:
        return loaded
    own = loaded.model.projection.bias
    bias = torch.zeros(len(loaded.tgt_vocab)) if own is None else own.detach().clone()
    bias[list(suppressed)] = PAD_BIAS
    projection, model = copy.copy(loaded.model.projection), copy.copy(loaded.model)
    projection._parameters = {**projection._parameters, "bias": nn.Parameter(bias, requires_grad=False)}
    model._modules = {**model._modules, "projection": projection}
    model.config = dataclasses.replace(model.config, projection_bias=True)
    pieces = ", ".join(loaded.search.suppress)
    console.info(f"left out of the softmax, because the search suppresses them: {pieces}")
    return dataclasses.replace(loaded, model=model, search=dataclasses.replace(loaded.search, suppress=()))


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


def write(loaded: LoadedModel, folder: Path, quantization: str, source: Path | None = None) -> None:
    """Writes the files of an export into an empty folder. Raises OSError if that fails."""
    # Sinusoidal positions reach as far as the longest source that is translated in one piece, and its translation.
    positions = loaded.model.max_length or loaded.search.max_source + EXTRA_LENGTH
    spec = specification(loaded, positions)
    spec.validate()
    spec.optimize(quantization)
    if loaded.src_vocab is loaded.tgt_vocab:
        vocabularies = {JOINT_FILE: loaded.src_vocab}
    else:
        vocabularies = {SRC_FILE: loaded.src_vocab, TGT_FILE: loaded.tgt_vocab}
    description: dict[str, Any] = {
        "format": FORMAT,
        "kind": FOLDER,
        "model": dataclasses.asdict(loaded.model.config),
        "search": dataclasses.asdict(loaded.search),
        "training": dict(loaded.training),
        "languages": languages_record(loaded.languages),
        "positions": positions,
        "quantization": quantization,
        "vocabularies": sorted(vocabularies),
    }
    if loaded.tags:
        description["tags"] = dict(loaded.tags)
    if source is not None:
        description["source"] = file_sha256(source)
    spec.save(str(folder))
    for name, vocabulary in vocabularies.items():
        (folder / name).write_bytes(vocabulary.proto)
    description["files"] = {file.name: file_sha256(file) for file in sorted(folder.iterdir())}
    text = json.dumps(description, sort_keys=True, ensure_ascii=False, indent=2)
    (folder / DESCRIPTION).write_bytes(text.encode() + b"\n")
