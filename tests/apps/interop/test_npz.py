"""The reader of `.npz` files, which trusts nothing in them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vtrans.apps.interop.marian.importer import open_npz
from vtrans.system.errors import FileError

ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "special:b": np.frombuffer(b"text\0", np.int8),
    "half": np.ones((1, 4), np.float16),
    "double": np.ones(3),
    "empty": np.zeros((0, 2), np.float32),
    "scalar": np.array(3, np.float32),
}


def content(path: Path) -> dict[str, torch.Tensor]:
    file = open_npz(path)
    return {name: file.read(name) for name in file.shapes}


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_arrays_are_read_as_numpy_writes_them(tmp_path: Path, write: Callable[..., None]) -> None:
    write(tmp_path / "x.npz", **ARRAYS)
    arrays = content(tmp_path / "x.npz")
    assert arrays.keys() == ARRAYS.keys()
    for name, values in ARRAYS.items():
        assert (arrays[name].numpy() == values).all()
        assert (arrays[name].numpy().dtype, tuple(arrays[name].shape)) == (values.dtype, values.shape)


def npy(header: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header.encode() + data


def header(kind: str = "<f4", shape: str = "(2,)", order: str = "False") -> str:
    return f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}\n"


def objects() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return stream.getvalue()


HOSTILE_ARRAYS = {
    "a pickle": objects(),
    "a shape that is too large": npy(header(shape="(99999999999999999999, 4)"), bytes(8)),
    "a negative shape": npy(header(shape="(-1, -8)"), bytes(8)),
    "too few numbers": npy(header(), bytes(7)),
    "text": npy(header("<U9"), bytes(72)),
    "big-endian numbers": npy(header(">f4"), bytes(8)),
    "code in the header": npy("__import__('os').system('true')\n", bytes(8)),
    "nested brackets": npy("(" * 4000, bytes(8)),
    "a header that is too long": npy(header() + " " * 60000, bytes(8)),
    "an unknown version": npy(header(), bytes(8), b"\x09\0"),
    "no header": b"\x93NUM",
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE_ARRAYS)
def test_a_hostile_array_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("w.npy", HOSTILE_ARRAYS[name])
    with pytest.raises(FileError, match=r"x\.npz"):
        open_npz(tmp_path / "x.npz")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives_that_would_fill_the_memory_or_hide_an_array_are_refused(tmp_path: Path) -> None:
    small, large = npy(header(), bytes(8)), npy(header(shape="(1000000,)"), bytes(4_000_000))
    for names, content, said in (
        (["v.npy"], large, "20 times"),
        (["v.npy"] * 2, small, "two arrays"),
    ):
        with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(name, content)
        with pytest.raises(FileError, match=rf"x\.npz.*{said}"):
            open_npz(tmp_path / "x.npz")


def test_damage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("v.npy", "w.npy"):
            archive.writestr(name, npy(header(), b"12345678"))
    whole = path.read_bytes()
    second = whole.rindex(b"PK\1\2")
    offset = whole.index(b"w.npy") - 30
    damages: dict[str, Callable[[bytearray], object]] = {
        "truncated": lambda data: data.__delitem__(slice(len(data) // 2, None)),
        "overlapping": lambda data: data.__setitem__(slice(second + 42, second + 46), (0).to_bytes(4, "little")),
        "encrypted": lambda data: data.__setitem__(second + 8, 1),
        "another compression": lambda data: data.__setitem__(second + 10, 12),
        "an entry outside the file": lambda data: data.__setitem__(
            slice(second + 42, second + 46), (2**31).to_bytes(4, "little")
        ),
        "another name inside": lambda data: data.__setitem__(offset + 30, ord("u")),
    }
    for damage in damages.values():
        data = bytearray(whole)
        damage(data)
        path.write_bytes(data)
        with pytest.raises(FileError, match=r"x\.npz"):
            open_npz(path)
    long = np.arange(5000, dtype=np.float32)
    np.savez(path, v=long)
    for damaged in (
        whole.replace(b"12345678", b"12345679"),
        path.read_bytes().replace(long[4000].tobytes(), long[4001].tobytes()),
    ):
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=r"x\.npz is damaged"):
            open_npz(path)
