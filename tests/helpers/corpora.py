"""Small corpora and their data folders."""

import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.prepare import prepare
from vtrans.data.store import DataFolder, TokenStore
from vtrans.system.console import Console
from vtrans.system.errors import InputError

ENGLISH = {"n": ("dog", "cat", "horse", "bird"), "v": ("sees", "hears"), "a": ("red", "big", "old")}
GERMAN = {"n": ("Hund", "Kater", "Esel", "Vogel"), "v": ("sieht", "hört"), "a": ("rote", "große", "alte")}


def sentence(words: dict[str, tuple[str, ...]], i: int, j: int, k: int, m: int, n: int) -> str:
    return f"{words['a'][i]} {words['n'][j]} {words['v'][k]} {words['a'][m]} {words['n'][n]}."


CHOICES = itertools.product(range(3), range(4), range(2), range(3), range(4))
ALL = [(sentence(ENGLISH, *c), sentence(GERMAN, *c)) for c in CHOICES]
VALID = ALL[::29]
TRAIN = [pair for pair in ALL if pair not in VALID]
Pairs = Sequence[Sequence[str]]


def write(folder: Path, name: str, pairs: Pairs) -> tuple[Path, Path]:
    """Writes these pairs to two files, `name`.en and `name`.de."""
    paths = (folder / f"{name}.en", folder / f"{name}.de")
    for side, path in enumerate(paths):
        path.write_bytes("".join(pair[side] + "\n" for pair in pairs).encode())
    return paths


def options(folder: Path, train: Pairs = TRAIN, valid: Pairs | None = VALID, **values: Any) -> PrepareOptions:
    """Writes a corpus to `folder` and returns the options that prepare it."""
    src, tgt = write(folder, "train", train)
    base: dict[str, Any] = {"src": (src,), "tgt": (tgt,), "out": folder / "data", "threads": 1}
    if valid is not None:
        valid_src, valid_tgt = write(folder, "valid", valid)
        base |= {"valid_src": (valid_src,), "valid_tgt": (valid_tgt,)}
    return PrepareOptions(**base | values)


def made(opts: PrepareOptions) -> dict[str, Any]:
    """Makes the data folder and returns its report."""
    return prepare(opts, Console(quiet=True))


def heard(opts: PrepareOptions) -> tuple[dict[str, Any], str]:
    """The report, and everything printed."""
    stream = io.StringIO()
    return prepare(opts, Console(stream=stream)), stream.getvalue()


def refused(opts: PrepareOptions, message: str) -> None:
    """The error is one sentence with exit code 2, and no file changes."""
    folder = Path(opts.out).parent
    before = snapshot(folder)
    with pytest.raises(InputError, match=message) as caught:
        made(opts)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith((".", "?"))  # it may ask whether another file is meant
    assert snapshot(folder) == before


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """The content of each file below `folder`; None for a folder."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
        if p.is_file() or p.is_dir()
    }


def decoded(data: DataFolder, store: TokenStore) -> list[tuple[str, str]]:
    return [
        (data.src_vocab.decode(store.src(i).tolist()), data.tgt_vocab.decode(store.tgt(i).tolist()))
        for i in range(len(store))
    ]


def two_corpora(folder: Path, **values: Any) -> PrepareOptions:
    """TRAIN as two corpora: its first 50 pairs with two more that are dropped, and the rest."""
    first = write(folder, "first", [*TRAIN[:30], ("dog", ""), *TRAIN[30:50], ("cat", "Kater " * 40)])
    second = write(folder, "second", TRAIN[50:])
    return options(folder, src=(first[0], second[0]), tgt=(first[1], second[1]), max_tokens=30, **values)


TAGS = (">>de<<", ">>fr<<")
FRENCH = [(src, tgt.upper()) for src, tgt in TRAIN]


def two_languages(folder: Path, valid: bool = True, **values: Any) -> PrepareOptions:
    """TRAIN as English to German, and a part of it as English to French, which is German in capitals here."""
    first, second = write(folder, "first", TRAIN), write(folder, "second", FRENCH[::3])
    french = second[1].rename(folder / "second.fr")
    base: dict[str, Any] = {"src": (first[0], second[0]), "tgt": (first[1], french), "tags": TAGS}
    if valid:
        names = [write(folder, name, VALID) for name in ("valid", "other")]
        other = names[1][1].rename(folder / "other.fr")
        base |= {"valid_src": (names[0][0], names[1][0]), "valid_tgt": (names[0][1], other)}
    return options(folder, valid=None, **base | values)
