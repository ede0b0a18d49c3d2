"""Reads models of Bergamot, such as Firefox's: Marian's usual network with matrices in 8 bits."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from vtrans.errors import InputError
from vtrans.interop.bergamot.binary import open_model, read_shortlist
from vtrans.interop.bergamot.folder import ALPHA, FIREFOX, SETTINGS
from vtrans.interop.foreign_files import file_in, read_bytes
from vtrans.interop.imported import Imported, Original
from vtrans.interop.marian.importer import CONFIG, LONGEST_CONFIG, imported_from, named_file, typed_settings
from vtrans.interop.marian.yaml import Value, read_mapping
from vtrans.interop.settings import Settings, wrong
from vtrans.text.languages import Languages

_MODELS, _SETTINGS = "*intgemm*.bin", "config*.yml"
_PAIR = re.compile(r"model\.([a-z]{2})([a-z]{2})\.")


def recognises(path: Path) -> bool:
    """Returns whether a path looks like a model of Bergamot, or a folder with one."""
    return path.suffix == ".bin" if not path.is_dir() else any(path.glob(_MODELS))


def read(path: Path) -> Imported:
    """Returns the model of a folder, or of a model file with the others beside it.

    Raises FileError if something is missing or damaged, or if vtrans does not support the network.
    """
    folder, models = (path, sorted(path.glob(_MODELS))) if path.is_dir() else (path.parent, [path])
    if len(models) != 1:
        raise wrong(folder, "the number of models", "1", len(models), "give the path of the model file")
    model = file_in(folder, models[0].name)
    tensors, settings = open_model(model), _settings(folder, model.name)
    alphas = [name for name in tensors.facts if name.endswith(ALPHA)]
    imported = imported_from(path, tensors, settings, [CONFIG, *alphas])
    if imported.model.norm == "pre":
        raise wrong(model, "model.norm", "post, because Bergamot leaves out norms of pre-norm models", "pre")
    notes = [*imported.notes, "the weights are those of 8 bits, in float32, and activations are no longer rounded"]
    lexica = settings.texts("shortlist")[:1]
    if not all(name.endswith(".bin") for name in lexica):
        notes.append(f"the shortlist {lexica.pop()} is not imported, because only those in .bin files are")
    files = [named_file(folder, settings, name) for name in lexica]
    pair = _PAIR.match(model.name)
    return replace(
        imported,
        kind="a Bergamot model",
        notes=tuple(notes),
        original=Original(_refuse, _refuse),
        training={"imported": "Bergamot"},
        languages=[Languages(pair[1], pair[2])] if pair else [],
        shortlist=read_shortlist(files[0], imported.src_vocab, imported.tgt_vocab) if files else None,
    )


def _settings(folder: Path, model: str) -> Settings:
    """Returns the settings for translating: those of the file that names the model, and otherwise those of Firefox."""
    values: dict[str, Value] = {"relative-paths": "true", "allow-special": "true", **FIREFOX}
    vocabs, values["shortlist"] = (sorted(file.name for file in folder.glob(end)) for end in ("*.spm", "lex*.bin"))
    # Of two, such as srcvocab.enzh.spm and trgvocab.enzh.spm, the names must say which is which.
    if len(vocabs) == 1 or [name[0] for name in vocabs] == ["s", "t"]:
        values["vocabs"] = vocabs
    for file in sorted(folder.glob(_SETTINGS)):
        if file.is_file():
            given = read_mapping(read_bytes(file, LONGEST_CONFIG), str(file))
            settings = typed_settings(values | given, str(file))
            if any(name.endswith(model) for name in settings.texts("models")):
                return settings
    return typed_settings(values, str(folder / SETTINGS))


def _refuse() -> NoReturn:
    raise InputError("Bergamot rounds activations to 8 bits, so that its translations are near those of the import")
