"""The settings and vocabularies of a CTranslate2 folder.

CTranslate2's `src/models/sequence_to_sequence.cc` and `src/vocabulary.cc` define what they mean. Before binary version
6, the settings of config.json were variables of model.bin.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from vtrans.errors import FileError
from vtrans.interop.ctranslate2.binary import Binary
from vtrans.interop.foreign_files import file_in, read_bytes, read_json, read_object
from vtrans.interop.settings import Settings

CONFIG = "config.json"
# Settings that must have this value if they are there.
FIXED = {"add_source_bos": (False, None), "multi_query_attention": (False, None), "quantization_type": (0, None)}


def read_settings(folder: Path, binary: Binary) -> Settings:
    """Returns the settings of a folder. Raises FileError for a value that is wrong or that vtrans cannot express."""
    file = folder / CONFIG
    values = read_object(file_in(folder, CONFIG)) if binary.version >= 6 or file.exists() else {}
    settings = Settings(values if binary.version >= 6 else {**values, **_old_settings(binary)}, str(file))
    settings.check(FIXED)
    for key in ("unk_token", "decoder_start_token", "eos_token"):
        if type(settings.get(key)) is not str:
            raise settings.wrong(key, "a token", "convert the model again")
    return settings


def _old_settings(binary: Binary) -> dict[str, Any]:
    """Returns the settings that are in config.json since version 6."""
    unk, bos, eos = binary.text("unk_token", "<unk>"), binary.text("bos_token", "<s>"), binary.text("eos_token", "</s>")
    start = bos if binary.number("with_target_bos", 1) else eos
    return {
        "unk_token": unk,
        "eos_token": eos,
        "decoder_start_token": None if binary.number("user_decoder_start_tokens", 0) else start,
        "add_source_bos": bool(binary.number("with_source_bos", 0)),
        "add_source_eos": bool(binary.number("with_source_eos", 0)),
    }


def read_vocabularies(folder: Path, unk: str) -> tuple[list[str], list[str]]:
    """Returns the tokens of source and target, the same list if the folder has one vocabulary.

    Raises FileError if there is none, or a token occurs twice.
    """
    src = tgt = _tokens(folder, "shared_vocabulary", unk)
    if src is None:
        src, tgt = (_tokens(folder, f"{side}_vocabulary", unk) for side in ("source", "target"))
    if src is None or tgt is None:
        missing = "source_vocabulary" if src is None else "target_vocabulary"
        raise FileError(
            f"{folder} has neither shared_vocabulary nor {missing}, as .json or .txt; copy the whole folder again."
        )
    return (tgt, tgt) if src == tgt else (src, tgt)


def _tokens(folder: Path, name: str, unk: str) -> list[str] | None:
    """Returns the tokens of a JSON list or of the lines of a text, or None if there is neither file."""
    if (folder / f"{name}.json").exists():
        tokens = read_json(file := file_in(folder, f"{name}.json"))
    elif (folder / f"{name}.txt").exists():
        tokens = _lines(file := file_in(folder, f"{name}.txt"))
    else:
        return None
    if not isinstance(tokens, list) or not all(isinstance(token, str) and token for token in tokens):
        raise FileError(f"{file} must be a list of tokens, none of them empty; convert the model again.")
    if unk not in tokens:  # CTranslate2 adds it, too
        tokens.append(unk)
    ((token, count),) = Counter(tokens).most_common(1)
    if count > 1:
        raise FileError(f"{file} has the token {token!r:.40} {count:,} times; convert the model again.")
    return tokens


def _lines(file: Path) -> list[str]:
    try:
        lines = read_bytes(file).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise FileError(f"{file} must be UTF-8, but byte {error.start:,} is not; copy the folder again.") from None
    # A token may end in a carriage return, but if all lines do, it belongs to the line end.
    return [line[:-1] for line in lines] if all(line.endswith("\r") for line in lines) else lines
