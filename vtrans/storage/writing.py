"""Writes files of tensors with a header and checksums."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from vtrans.files import explained, replaced
from vtrans.storage.tensors import CHECKSUMS, checksum, header_checksum, header_text


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Writes a file of tensors with this header and checksums. Raises what `files.unwritable` returns."""
    sums = {name: checksum(tensor) for name, tensor in tensors.items()}
    text = header_text({**header, CHECKSUMS: {"header": header_checksum(header), "tensors": sums}})
    with replaced(path, "model") as temporary, explained(path):
        save_tensors(temporary, tensors, {"vtrans": text})


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Writes a safetensors file. Raises OSError if that fails."""
    try:
        save_file(dict(tensors), path, metadata=metadata)
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        raise OSError(*((int(number[1]), os.strerror(int(number[1]))) if number else (str(error),))) from None
