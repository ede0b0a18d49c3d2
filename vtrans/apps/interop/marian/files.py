"""Reads the files that Marian writes: arrays in `.npz`, and YAML, one mapping of scalars and lists of scalars."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vtrans.apps.interop.foreign_files import ForeignTensors
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import check_path

# Trained weights hardly compress, and zeros compress a thousandfold. A file that grows by more is no model.
MOST_GROWTH = 20
Value = str | list[str]
"""A scalar as text, "" for an empty value, or a list of them."""


def open_npz(path: Path) -> ForeignTensors:
    """Returns the arrays of a file by name, which leave the memory when they are read.

    Raises FileError if the file is missing or damaged, would fill the memory, or holds anything but arrays of numbers.
    """
    check_path(path)
    arrays: dict[str, Tensor] = {}
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file, warnings.catch_warnings():
            warnings.simplefilter("error")  # about a header that NumPy did not write
            size, grown = path.stat().st_size, sum(entry.file_size for entry in file.zip.infolist())
            if grown <= MOST_GROWTH * size:
                arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    except Exception:  # zipfile and NumPy raise many kinds for damaged files
        raise FileError(f"{path} is damaged or not an .npz file of numbers; copy the file again.") from None
    if grown > MOST_GROWTH * size:
        raise FileError(
            f"{path} has {size:,} bytes, but claims to hold {grown:,}; at most {MOST_GROWTH} times its size is allowed."
        )
    return ForeignTensors(path, {name: array.shape for name, array in arrays.items()}, arrays.pop)


def read_mapping(data: bytes, name: str) -> dict[str, Value]:
    """Returns the entries of a mapping in YAML in order. `name` is what errors call the text.

    Scalars stay texts, because YAML would take the piece `no` for false. Raises FileError for tags, anchors, aliases,
    deeper nesting, keys that occur twice and other encodings than UTF-8, and InputError without PyYAML.
    """
    try:
        import yaml
    except ImportError:
        raise InputError("PyYAML, which reads Marian's files, is not installed; run `pip install pyyaml`.") from None
    try:
        return _mapping(yaml, data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise FileError(f"{name} must be UTF-8 text.") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        problem = " ".join(str(error).split()).replace('in "<unicode string>", ', "")
        raise FileError(
            f"{name} must be a mapping of texts, numbers and lists of them, as Marian writes it; {problem[:200]}."
        ) from None


def _mapping(yaml: Any, text: str) -> dict[str, Value]:
    """Returns the entries of a mapping. Raises an error of PyYAML, or ValueError or OverflowError, for other text."""
    # Events of the parser leave scalars as texts, and take no memory for what is refused.
    events = yaml.parse(text, Loader=yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)
    scalar = yaml.ScalarEvent

    def expected(*kinds: type) -> Any:
        event = next(events)
        if not isinstance(event, kinds) or getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise ValueError(f"line {event.start_mark.line + 1} has something else, such as a tag or an anchor")
        return event

    entries: dict[str, Value] = {}
    expected(yaml.StreamStartEvent)
    if isinstance(expected(yaml.DocumentStartEvent, yaml.StreamEndEvent), yaml.StreamEndEvent):
        return entries
    expected(yaml.MappingStartEvent)
    while isinstance(key := expected(scalar, yaml.MappingEndEvent), scalar):
        if key.value in entries:
            raise ValueError(f"the key {key.value[:60]!r} occurs twice")
        value = expected(scalar, yaml.SequenceStartEvent)
        items = []
        while not isinstance(value, scalar) and isinstance(item := expected(scalar, yaml.SequenceEndEvent), scalar):
            items.append(item.value)
        entries[key.value] = value.value if isinstance(value, scalar) else items
    expected(yaml.DocumentEndEvent)
    expected(yaml.StreamEndEvent)
    return entries
