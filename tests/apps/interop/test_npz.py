"""The reader of `.npz` files, which trusts nothing in them."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vtrans.apps.interop.marian.importer import open_npz
from vtrans.system.errors import FileError

ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "special:b": np.frombuffer(b"text\0", np.int8),
    "half": np.ones((1, 4), np.float16),
    "empty": np.zeros((0, 2), np.float32),
    "scalar": np.array(3, np.float32),
}


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_arrays_are_read_as_numpy_writes_them(tmp_path: Path, write: Callable[..., None]) -> None:
    write(tmp_path / "x.npz", **ARRAYS)
    file = open_npz(tmp_path / "x.npz")
    arrays = {name: file.read(name).numpy() for name in file.shapes}
    assert arrays.keys() == ARRAYS.keys()
    for name, values in ARRAYS.items():
        assert (arrays[name] == values).all()
        assert (arrays[name].dtype, arrays[name].shape) == (values.dtype, values.shape)


def saved(values: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=True)
    return stream.getvalue()


WHOLE = saved(np.ones(2, np.float32))
ENTRIES = {
    "a pickle": (saved(np.array([{"a": 1}], dtype=object)), "damaged"),
    "a shape that is too large": (WHOLE.replace(b"(2,)", b"(9999999999999999, 9)"), "damaged"),
    "too few numbers": (WHOLE[:-1], "damaged"),
    "text": (saved(np.array(["a"])), "damaged"),
    "code in the header": (WHOLE.replace(b"{'descr'", b"[print()"), "damaged"),
    "nothing": (b"", "damaged"),
    "zeros that would fill the memory": (saved(np.zeros(1_000_000)), "20 times"),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_hostile_array_is_refused(tmp_path: Path, name: str) -> None:
    content, said = ENTRIES[name]
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", content)
    with pytest.raises(FileError, match=rf"x\.npz.*{said}"):
        open_npz(tmp_path / "x.npz")


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: data.replace(b"\0\0\x80?", b"\0\0\x81?")]
)
def test_damage_is_found(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, v=np.ones(5000, np.float32))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileError, match=r"x\.npz is damaged"):
        open_npz(path)
