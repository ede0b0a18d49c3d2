"""Data folders and token stores: reading them, and refusing damaged ones."""

import json
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from corpora import TRAIN, VALID, made, options
from drawn import seeded
from safetensors.torch import load_file, save_file

import vtrans.data.store
from vtrans.data.preparation.store_writer import Ragged, assemble
from vtrans.data.store import DataFolder, TokenStore
from vtrans.system.errors import FileError
from vtrans.text.vocabulary import EOS_ID


def test_a_store_has_the_documented_tensors(tmp_path: Path) -> None:
    made(options(tmp_path))
    data = DataFolder.open(tmp_path / "data")
    for store in (data.train, data.valid):
        src, tgt = [store.src(i) for i in range(len(store))], [store.tgt(i) for i in range(len(store))]
        assert {t.dtype for t in (*src, *tgt, store.src_lengths, store.tgt_lengths)} == {torch.int32}
        assert store.src_lengths.tolist() == [len(t) for t in src]
        assert store.tgt_lengths.tolist() == [len(t) for t in tgt]
        assert min(int(t.min()) for t in (*src, *tgt)) > EOS_ID
        assert store.src(-1).equal(src[-1])
        with pytest.raises(IndexError):
            store.src(len(store))
    with pytest.raises(AssertionError, match="without text"):
        data.train.text("src", 0)
    assert [(data.valid.text("src", i), data.valid.text("tgt", i)) for i in range(len(VALID))] == VALID
    # safetensors itself reads the file.
    tensors = load_file(tmp_path / "data" / "train.safetensors")
    assert {name: t.dtype for name, t in tensors.items()} == {
        "src_ids": torch.uint16, "tgt_ids": torch.uint16, "src_offsets": torch.int64, "tgt_offsets": torch.int64
    }  # fmt: skip
    header = tmp_path / "data" / "train.safetensors"
    length = int.from_bytes(header.read_bytes()[:8], "little")
    assert length % 8 == 0
    assert list(json.loads(header.read_bytes()[8 : 8 + length])["__metadata__"]) == ["vtrans"]


def large_store(path: Path) -> TokenStore:
    """One pair of 2^20 subwords."""
    ids = np.arange(1 << 20, dtype=np.uint16)
    sides = ("src", "tgt")
    ragged = {side: Ragged(path, f"{side}_ids", f"{side}_offsets", "U16") for side in sides}
    for side in ragged.values():
        side.add(ids, np.array([len(ids)]))
    metadata = {"format": vtrans.data.store.STORE_FORMAT, "revision": vtrans.data.store.REVISION}
    assemble(path, [column for side in ragged.values() for column in side.columns()], metadata)
    return TokenStore.open(path)


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("corpora", [(1,), (3, 0), (2000,), (5000, 40, 1), (1000, 1000)])
def test_the_length_limit_holds_for_nearly_all_pairs_of_each_corpus(corpora: tuple[int, ...], tagged: bool) -> None:
    data, random = DataFolder.__new__(DataFolder), np.random.default_rng(len(corpora))
    data.corpora, data.tags = corpora, {"de": ">>de<<"} if tagged else {}
    src_N = random.integers(1, 60, sum(corpora))
    ratio_N = np.repeat(random.uniform(0.3, 3, len(corpora)), corpora)
    tgt_N = random.poisson(ratio_N * src_N) + 1
    columns = {}
    for side, lengths_N in (("src", src_N + tagged), ("tgt", tgt_N)):
        columns[f"{side}_ids"] = np.zeros(lengths_N.sum(), np.uint16)
        columns[f"{side}_offsets"] = np.concatenate([[0], lengths_N.cumsum()])
    data.train = TokenStore(Path("train"), columns)
    fits_N = [count + 1 <= data.length_limit.of(length) for length, count in zip(src_N, tgt_N, strict=True)]
    for part in np.split(fits_N, np.cumsum(corpora)[:-1]):
        assert part.sum() >= 0.99 * len(part) - 1
    assert data.length_limit.ratio == round((tgt_N + 1).sum() / (src_N + 1).sum(), 2)


def test_a_store_stays_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    store = large_store(path)
    assert store.src(0)[-3:].tolist() == [65533, 65534, 65535]
    # A byte changed in the file changes in the store: nothing was copied.
    with path.open("r+b") as file:
        file.seek(-2, 2)
        file.write(b"\x07\x00")
    assert int(store.tgt(0)[-1]) == 7


def test_missing_foreign_and_truncated_folders_are_refused(tmp_path: Path) -> None:
    def fails(message: str) -> None:
        with pytest.raises(FileError, match=message) as caught:
            DataFolder.open(folder)
        assert "\n" not in str(caught.value)

    folder = tmp_path / "data"
    fails("there is no data folder")
    folder.mkdir()
    fails("not a data folder")
    made(options(tmp_path))
    whole = {p.name: p.read_bytes() for p in folder.iterdir()}
    report = json.loads(whole["data.json"])
    for name in ("train.safetensors", "valid.safetensors", "vocab.model"):
        (folder / name).write_bytes(whole[name][:-3])
        fails(f"{name} has .* bytes instead of")
        (folder / name).unlink()
        fails(f"lacks {name}")
        (folder / name).write_bytes(bytes(len(whole[name])))
        fails(f"{name} has changed")
        (folder / name).write_bytes(whole[name])
    other = {"format": "x", "revision": 99, "files": {}, "options": []}
    for change in [{key: value} for key, value in other.items()]:
        (folder / "data.json").write_text(json.dumps(report | change))
        fails(r"data\.json")
    for raw in (b"", b"[]", b"{", whole["data.json"][:50]):
        (folder / "data.json").write_bytes(raw)
        fails(r"data\.json")
    (folder / "data.json").write_bytes(whole["data.json"])
    assert DataFolder.open(folder).report == report


def test_a_store_that_changes_in_place_is_noticed(tmp_path: Path) -> None:
    made(options(tmp_path))
    data = DataFolder.open(tmp_path / "data")
    store = tmp_path / "data" / "train.safetensors"
    raw = store.read_bytes()
    os.utime(store, (1, 1))
    data.check_unchanged()
    with store.open("r+b") as file:
        file.write(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(FileError, match=r"train\.safetensors"):
        data.check_unchanged()
    other = tmp_path / "other"
    other.write_bytes(raw)
    other.replace(store)  # the open file is still there
    data.check_unchanged()
    store.unlink()
    data.check_unchanged()


def test_a_damaged_report_is_refused_or_gives_the_same_data(tmp_path: Path) -> None:
    opts = options(tmp_path)
    made(opts)
    folder, numbers = tmp_path / "data", seeded(1)
    whole = (folder / "data.json").read_bytes()
    opened = []
    for _ in range(300):
        raw = bytearray(whole)
        raw[numbers.randrange(len(raw))] ^= 1 << numbers.randrange(8)
        (folder / "data.json").write_bytes(raw)
        with suppress(FileError):
            opened.append(DataFolder.open(folder))
    assert {data.digest for data in opened} == {opened[0].digest}
    assert {len(data.train) for data in opened} == {len(TRAIN)}
    report = json.loads(whole)
    report["train"]["corpora"] = [len(TRAIN) - 1]
    (folder / "data.json").write_text(json.dumps(report))
    with pytest.raises(FileError, match=r"data\.json"):
        DataFolder.open(folder)
    (folder / "data.json").write_bytes(b"[" * 100_000)
    with pytest.raises(FileError, match=r"data\.json"):
        DataFolder.open(folder)


def test_a_store_with_inconsistent_tensors_is_refused(tmp_path: Path) -> None:
    made(options(tmp_path))
    path = tmp_path / "data" / "valid.safetensors"
    tensors = load_file(path)
    TokenStore.open(path)
    metadata = {"vtrans": json.dumps({"format": "vtrans tokens", "revision": 1})}
    copy = tmp_path / "copy.safetensors"
    save_file(tensors, copy, metadata)
    assert len(TokenStore.open(copy)) == len(VALID)
    with pytest.raises(FileError, match="there is no file"):
        TokenStore.open(tmp_path / "none.safetensors")
    for foreign in (None, {"vtrans": "[]"}, {"vtrans": "{"}, {"vtrans": '{"format": "vtrans model"}'}):
        save_file(tensors, copy, foreign)
        with pytest.raises(FileError, match="not a token store"):
            TokenStore.open(copy)
    backwards = tensors["src_offsets"].clone()
    backwards[1] = backwards[2] + 1
    changes: list[dict[str, torch.Tensor]] = [
        {"src_ids": tensors["src_ids"][:-1]}, {"tgt_offsets": tensors["tgt_offsets"][:-1]},
        {"src_offsets": backwards}, {"src_offsets": tensors["src_offsets"] + 1},
        {"src_offsets": torch.zeros(0, dtype=torch.int64)}, {"src_offsets": torch.tensor(3)},
        {"tgt_text": tensors["tgt_text"][1:]}, {"src_offsets": tensors["src_offsets"].int()},
        {"src_ids": tensors["src_ids"].to(torch.uint8).view(torch.float8_e4m3fn)},
        {"tgt_ids": tensors["tgt_ids"][None]},
    ]  # fmt: skip
    for change in changes:
        save_file({n: t.clone() for n, t in (tensors | change).items()}, copy, metadata)
        with pytest.raises(FileError, match=r"has inconsistent tensors|is not a token store"):
            TokenStore.open(copy)
    for missing in tensors:
        save_file({n: t for n, t in tensors.items() if n != missing}, copy, metadata)
        if missing == "src_text":
            assert len(TokenStore.open(copy)) == len(VALID)  # as without text
        else:
            with pytest.raises(FileError, match="has inconsistent tensors"):
                TokenStore.open(copy)
