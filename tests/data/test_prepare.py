"""prepare-bpe from end to end on small corpora made here, and the token store."""

from __future__ import annotations

import dataclasses
import gzip
import io
import itertools
import json
import os
import random
import re
import shutil
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import vtrans.data.parallel_text
import vtrans.data.prepare
import vtrans.data.store
import vtrans.data.store_writer
from vtrans.config import PrepareOptions
from vtrans.console import Console
from vtrans.data.encode import RATIO_FREE_TOKENS, Encoder, Task, hash_of, reason_to_drop
from vtrans.data.learn_vocabulary import learn
from vtrans.data.overlap import OVERLAP_DEFINITION
from vtrans.data.parallel_text import HELD_OUT_SHARE, Corpus, HeldOut, Sample, TrainingText
from vtrans.data.prepare import prepare
from vtrans.data.store import DataFolder, TokenStore
from vtrans.data.store_writer import Ragged, StoreWriter, assemble
from vtrans.data.vocabulary import EOS_ID
from vtrans.errors import FileError, InputError, VtransError

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
    """Two files of these pairs."""
    paths = (folder / f"{name}.en", folder / f"{name}.de")
    for side, path in enumerate(paths):
        path.write_bytes("".join(pair[side] + "\n" for pair in pairs).encode())
    return paths


def options(folder: Path, train: Pairs = TRAIN, valid: Pairs | None = VALID, **values: Any) -> PrepareOptions:
    """Options for a corpus written into `folder`."""
    src, tgt = write(folder, "train", train)
    base: dict[str, Any] = {"src": (src,), "tgt": (tgt,), "out": folder / "data", "threads": 1}
    if valid is not None:
        valid_src, valid_tgt = write(folder, "valid", valid)
        base |= {"valid_src": (valid_src,), "valid_tgt": (valid_tgt,)}
    return PrepareOptions(**base | values)


def made(opts: PrepareOptions) -> dict[str, Any]:
    return prepare(opts, Console(quiet=True))


def heard(opts: PrepareOptions) -> tuple[dict[str, Any], str]:
    """The report, and all that was said."""
    stream = io.StringIO()
    return prepare(opts, Console(stream=stream)), stream.getvalue()


def refused(opts: PrepareOptions, message: str) -> None:
    """One sentence, exit code 2, and nothing in the file system but what was there."""
    folder = Path(opts.out).parent
    before = snapshot(folder)
    with pytest.raises(InputError, match=message) as caught:
        made(opts)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
    assert snapshot(folder) == before


def snapshot(folder: Path) -> dict[str, bytes | None]:
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


# ---------------------------------------------------------------------------------- the whole


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("subword", ["bpe", "unigram"])
def test_the_store_holds_the_corpus(tmp_path: Path, separate: bool, subword: str) -> None:
    report = made(options(tmp_path, separate=separate, subword=subword))
    data = DataFolder.open(tmp_path / "data")
    assert decoded(data, data.train) == TRAIN
    assert decoded(data, data.valid) == VALID
    assert data.joint is not separate
    assert (data.src_vocab is data.tgt_vocab) is not separate
    assert data.report == report == json.loads((tmp_path / "data" / "data.json").read_bytes())
    files = {"data.json", "train.safetensors", "valid.safetensors"}
    files |= {"src.model", "tgt.model"} if separate else {"vocab.model"}
    assert {p.name for p in (tmp_path / "data").iterdir()} == files


def test_the_store_in_detail(tmp_path: Path) -> None:
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
        data.train.src_text(0)
    assert [(data.valid.src_text(i), data.valid.tgt_text(i)) for i in range(len(VALID))] == VALID
    # The file is what safetensors itself reads and, values for values, writes.
    tensors = load_file(tmp_path / "data" / "train.safetensors")
    assert {name: t.dtype for name, t in tensors.items()} == {
        "src_ids": torch.uint16, "tgt_ids": torch.uint16, "src_offsets": torch.int64, "tgt_offsets": torch.int64
    }  # fmt: skip
    header = tmp_path / "data" / "train.safetensors"
    length = int.from_bytes(header.read_bytes()[:8], "little")
    assert length % 8 == 0
    assert list(json.loads(header.read_bytes()[8 : 8 + length])["__metadata__"]) == ["vtrans"]


def test_raw_validation_lines_are_kept_as_they_were_read(tmp_path: Path) -> None:
    valid = [("the  Ｄog 🙂", "der\tHund"), ("a", "b\u00a0c ")]
    made(options(tmp_path, valid=valid))
    store = DataFolder.open(tmp_path / "data").valid
    assert [(store.src_text(i), store.tgt_text(i)) for i in range(2)] == valid


def test_a_large_vocabulary_gets_wider_ids(tmp_path: Path) -> None:
    opened = []
    for largest, dtype in ((65_536, torch.uint16), (65_537, torch.int32)):
        folder = tmp_path / str(largest)
        folder.mkdir()
        made(options(folder))
        vocabulary = DataFolder.open(folder / "data").src_vocab
        task = Task(vocabulary.proto, vocabulary.proto, largest)
        made_part = StoreWriter(folder / "x.safetensors", task, len(vocabulary), len(vocabulary))
        made_part.add(Encoder(task)(VALID))
        made_part.finish()
        assert load_file(folder / "x.safetensors")["src_ids"].dtype == dtype
        store = TokenStore.open(folder / "x.safetensors")
        opened.append([store.src(i).tolist() for i in range(len(store))])
    assert opened[0] == opened[1]


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    """Whatever the threads, the folder's name, or how the input is packed into memory."""
    folders = []
    for name, threads in (("one", 1), ("two", 3)):
        folder = tmp_path / name
        folder.mkdir()
        made(options(folder, valid=None, threads=threads, out=folder / f"data-{name}"))
        folders.append(snapshot(folder / f"data-{name}"))
    assert folders[0] == folders[1]
    assert str(tmp_path).encode() not in folders[0]["data.json"]  # type: ignore[operator]  # a file, so bytes


def test_several_corpora_and_compressions_are_one_corpus(tmp_path: Path) -> None:
    whole = options(tmp_path)
    made(whole)
    halves: list[tuple[Path, Path]] = []
    for i, part in enumerate((TRAIN[:100], TRAIN[100:])):
        src, tgt = write(tmp_path, f"part{i}", part)
        packed = src.with_suffix(".en.gz")
        packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + src.read_bytes().replace(b"\n", b"\r\n")))
        halves.append((packed, tgt))
    parts = dataclasses.replace(
        whole, src=tuple(h[0] for h in halves), tgt=tuple(h[1] for h in halves), out=tmp_path / "parts"
    )
    report = made(parts)
    first, second = DataFolder.open(tmp_path / "data"), DataFolder.open(tmp_path / "parts")
    assert first.digest == second.digest
    assert [pair["src"]["lines"] for pair in report["inputs"]["train"]] == [100, len(TRAIN) - 100]


# ---------------------------------------------------------------------------------- what is kept


def two_corpora(folder: Path, **values: Any) -> PrepareOptions:
    """TRAIN as a corpus of 50 pairs, two of them dropped, and one of the rest."""
    first = write(folder, "first", [*TRAIN[:30], ("dog", ""), *TRAIN[30:50], ("cat", "Kater " * 40)])
    second = write(folder, "second", TRAIN[50:])
    return options(folder, src=(first[0], second[0]), tgt=(first[1], second[1]), max_tokens=30, **values)


def test_the_store_knows_which_pairs_are_of_which_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, said = heard(two_corpora(tmp_path))
    expected = [50, len(TRAIN) - 50]
    assert report["train"]["corpora"] == expected
    assert f"training pairs by corpus: first.en 50, second.en {len(TRAIN) - 50}" in said
    data = DataFolder.open(tmp_path / "data")
    assert list(data.corpora) == expected
    assert decoded(data, data.train) == TRAIN
    (tmp_path / "data" / "data.json").write_text(json.dumps(report | {"train": {"corpora": [50, 7]}}))
    with pytest.raises(FileError, match=r"data\.json does not fit train\.safetensors"):
        DataFolder.open(tmp_path / "data")
    # Whatever the batches, and where sentences are held out of both.
    monkeypatch.setattr(vtrans.data.prepare, "_BATCH_PAIRS", 7)
    small = made(two_corpora(tmp_path, out=tmp_path / "small"))
    assert small["files"] == report["files"]
    held_out = made(two_corpora(tmp_path, valid_src=(), valid_tgt=(), out=tmp_path / "held out"))
    kept = held_out["train"]["corpora"]
    assert sum(kept) == len(DataFolder.open(tmp_path / "held out").train) == held_out["train"]["kept"]
    assert kept[0] < 50 or kept[1] < len(TRAIN) - 50


def test_a_folder_from_before_corpora_were_recorded_is_made_anew_with_force(tmp_path: Path) -> None:
    opts = two_corpora(tmp_path)
    report = made(opts)
    digest = DataFolder.open(tmp_path / "data").digest
    del report["train"]["corpora"]
    (tmp_path / "data" / "data.json").write_text(json.dumps(report))
    assert "is up to date" in heard(opts)[1]
    assert DataFolder.open(tmp_path / "data").corpora == (len(TRAIN),)
    assert "corpora" in made(dataclasses.replace(opts, force=True))["train"]
    assert DataFolder.open(tmp_path / "data").digest == digest  # a run that knows the old one goes on
    assert "is up to date" in heard(dataclasses.replace(opts, force=True))[1]


def test_pairs_are_dropped_and_counted_by_reason(tmp_path: Path) -> None:
    long = " ".join(["dog"] * 40)
    bad = [
        ("", "Hund"), ("dog", " \t"), ("\u200b", "Hund"), ("", ""),  # nothing on a side, once normalised
        (long, long), ("dog " * 31, "Hund " * 29),
        ("dog " * 14, "Hund"), ("cat", "Kater " * 14),
    ]  # fmt: skip
    good = [("dog " * 10, "Hund"), ("dog " * 20, "Hund " * 10)]
    opts = options(tmp_path, [*TRAIN, *bad, *good], max_tokens=30, max_ratio=4.0)
    report, said = heard(opts)
    assert report["train"]["dropped"] == {"empty": 4, "too_long": 2, "odd_ratio": 2}
    assert report["train"]["read"] == len(TRAIN) + 10
    assert report["train"]["kept"] == len(TRAIN) + 2
    assert (
        "302 of 310 pairs kept; dropped 4 with an empty side, 2 longer than 30 tokens, 2 with a length ratio above 4 "
        "(where the longer side has more than 12 tokens)."
    ).replace("302 of 310", f"{len(TRAIN) + 2} of {len(TRAIN) + 10}") in said
    data = DataFolder.open(tmp_path / "data")
    assert decoded(data, data.train)[:-2] == TRAIN
    assert report["ratio_free_tokens"] == RATIO_FREE_TOKENS == 12


@pytest.mark.parametrize("sample", [10**6, 7])
def test_it_says_when_all_is_read_and_the_vocabulary_is_being_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: int
) -> None:
    stream = io.StringIO()
    said: list[str] = []

    def spy(sentences: Any, **how: Any) -> Any:
        drawn = []
        for text in sentences:
            assert stream.getvalue().count("learning the") == len(said)
            drawn.append(text)
        said.append(stream.getvalue())
        return learn(drawn, **how)

    monkeypatch.setattr("vtrans.data.learn_vocabulary.learn", spy)
    prepare(options(tmp_path, separate=True, sample=sample), Console(stream=stream))
    pairs = min(sample, len(TRAIN))
    for text, side in zip(said, ("source", "target"), strict=True):
        assert text.endswith(f"learning the vocabulary of the {side} side from {pairs} pairs ...\n")


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        (0, 0, "empty"), (0, 5, "empty"), (5, 0, "empty"), (1, 12, None), (12, 1, None), (1, 13, "odd_ratio"),
        (4, 16, None), (17, 4, "odd_ratio"), (30, 30, None), (30, 31, "too_long"), (1, 31, "too_long"),
    ],
)  # fmt: skip
def test_the_thresholds(src: int, tgt: int, reason: str | None) -> None:
    assert reason_to_drop(src, tgt, 30, 4.0) == reason


def test_validation_pairs_are_kept_but_for_empty_ones(tmp_path: Path) -> None:
    valid = [*VALID, ("dog", ""), ("cat", "Kater " * 50)]
    report, said = heard(options(tmp_path, valid=valid, max_tokens=30))
    assert report["valid"]["kept"] == len(VALID) + 1
    assert report["valid"]["dropped"] == {"empty": 1}
    assert "warning: the longest validation sentence has" in said


def test_the_counts_add_up(tmp_path: Path) -> None:
    report, said = heard(options(tmp_path))
    data = DataFolder.open(tmp_path / "data")
    facts = report["train"]
    assert facts["tokens"] == {
        "src": int(data.train.src_lengths.sum()), "tgt": int(data.train.tgt_lengths.sum())
    }  # fmt: skip
    assert facts["characters"]["tgt"] == sum(len(pair[1]) for pair in TRAIN)
    assert facts["characters_a_token"]["tgt"] == round(facts["characters"]["tgt"] / facts["tokens"]["tgt"], 3)
    assert OVERLAP_DEFINITION in said
    assert "normalization nmt_nfkc" in said
    assert report["vocabulary"]["normalization"] == "nmt_nfkc"


def test_odd_characters_and_bad_bytes_are_counted(tmp_path: Path) -> None:
    opts = options(tmp_path, on_bad_utf8="replace")
    path = Path(opts.src[0])
    raw = path.read_bytes().split(b"\n")
    raw[1] += b" a\x0bb\xe2\x80\xa8"
    raw[3] += b"\xff"
    path.write_bytes(b"\n".join(raw))
    report, said = heard(opts)
    assert report["characters"]["train"] == {
        "odd_line_ends": {"src": 2, "tgt": 0}, "replacements": {"src": 1, "tgt": 0}
    }  # fmt: skip
    assert report["train"]["read"] == len(TRAIN)
    assert "training src: 2 characters that other tools take for line ends" in said.replace("train src", "training src")
    refused(
        dataclasses.replace(opts, on_bad_utf8="error", out=tmp_path / "other"),
        rf"train\.en: line 4 is not UTF-8: byte 0xff at byte offset {len(b'x'.join(raw[:3])) + 1 + len(raw[3]) - 1};",
    )


def test_overlap_is_counted_by_surface_piece(tmp_path: Path) -> None:
    same = [("Anna sees Berta.", "Anna sees Berta.")] * 25
    for separate in (False, True):
        folder = tmp_path / str(separate)
        folder.mkdir()
        report = made(options(folder, same, VALID, separate=separate))
        rows = report["overlap"]["rows"]
        assert [row["threshold"] for row in rows] == [1, 5, 20]
        assert all(row["both"] == row["either"] > 0 for row in rows)
        assert all(row["share"] == row["token_share"] == 1.0 for row in rows)
    folder = tmp_path / "foreign"
    folder.mkdir()
    report = made(options(folder, [("abc def", "жзи клм")] * 25, VALID))
    # Only the mark of a word's start can be common.
    assert report["overlap"]["rows"][0]["both"] <= 1


def test_symbols_are_counted_and_one_that_is_nowhere_is_named(tmp_path: Path) -> None:
    pairs = [("<BT> " + src if i % 3 == 0 else src, tgt) for i, (src, tgt) in enumerate(TRAIN)]
    report, said = heard(options(tmp_path, pairs, symbols=("<BT>", "<FT>")))
    tagged = len(range(0, len(TRAIN), 3))
    assert report["vocabulary"]["symbols"] == {"<BT>": {"src": tagged, "tgt": 0}, "<FT>": {"src": 0, "tgt": 0}}
    assert f"symbol <BT>: {tagged} in the source and 0 in the target" in said
    assert "symbol <FT> is nowhere in the training text" in said
    data = DataFolder.open(tmp_path / "data")
    assert data.src_vocab.symbols == ("<BT>", "<FT>")
    assert decoded(data, data.train) == pairs


def test_every_character_survives_the_trained_vocabulary(tmp_path: Path) -> None:
    made(options(tmp_path))
    vocabulary = DataFolder.open(tmp_path / "data").src_vocab
    hard = "Łódź 東京 costs 5€ 🙂"
    assert vocabulary.decode(vocabulary.encode(hard)) == hard


# ---------------------------------------------------------------------------------- validation


def many(sources: int, seed: int = 0) -> list[tuple[str, str]]:
    """Source sentences with one to four translations, in no order."""
    dice = random.Random(seed)
    pairs = [(f"dog {i}", f"Hund {i} {j}") for i in range(sources) for j in range(dice.choice((1, 1, 2, 4)))]
    dice.shuffle(pairs)
    return pairs


def test_held_out_are_whole_sources_at_most_a_twentieth(tmp_path: Path) -> None:
    pairs = many(800)
    report, said = heard(options(tmp_path, pairs, None))
    data = DataFolder.open(tmp_path / "data")
    train, valid = decoded(data, data.train), decoded(data, data.valid)
    assert sorted(train + valid) == sorted(pairs)
    assert not {src for src, _ in train} & {src for src, _ in valid}
    assert 0.9 * HELD_OUT_SHARE * len(pairs) < len(valid) <= HELD_OUT_SHARE * len(pairs)
    held_out = {"sources": len({src for src, _ in valid}), "pairs": len(valid)}
    assert report["held_out"] == held_out
    assert f"{held_out['sources']} random source sentences with all their {len(valid)} pairs are held out" in said
    assert (report["valid"]["pairs_in_train"], report["valid"]["sources_in_train"]) == (0, 0)
    # Both the corpus order and what is random: the held-out ones are spread, and another seed draws others.
    places = [i for i, pair in enumerate(pairs) if pair in set(valid)]
    assert places[0] < len(pairs) / 4
    assert places[-1] > len(pairs) * 3 / 4
    folder = tmp_path / "other"
    folder.mkdir()
    made(options(folder, pairs, None, seed=2))
    other = DataFolder.open(folder / "data")
    assert set(decoded(other, other.valid)) != set(valid)


def test_blank_pairs_of_held_out_sources_are_dropped_as_blank(tmp_path: Path) -> None:
    pairs = [pair for i in range(100) for pair in ((f"dog {i}", f"Hund {i}"), (f"dog {i}", " "), ("", "Hund"))]
    report = made(options(tmp_path, pairs, None))
    assert report["held_out"] == {"sources": 5, "pairs": 5}
    assert (report["valid"]["read"], report["valid"]["kept"]) == (5, 5)
    assert (report["train"]["read"], report["train"]["kept"]) == (300, 95)
    assert report["train"]["dropped"]["empty"] == 200


def test_no_more_than_the_wanted_number_is_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtrans.data.parallel_text, "HELD_OUT_SOURCES", 7)
    report = made(options(tmp_path, many(800), None))
    assert report["held_out"]["sources"] == 7


@given(st.lists(st.integers(0, 30), min_size=1), st.integers(1, 10))
def test_held_out_counts_are_complete(sources: list[int], wanted: int) -> None:
    """One pass with a bounded heap finds the same as sorting all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vtrans.data.parallel_text, "HELD_OUT_SOURCES", wanted)
        candidates = HeldOut(3)
        for n in sources:
            candidates.show(str(n))
        hashes = sorted((hash_of(str(n), seed=3), sources.count(n)) for n in set(sources))
        assert candidates._pairs == dict(hashes[:wanted])


def test_a_tiny_corpus_gives_up_one_sentence(tmp_path: Path) -> None:
    report = made(options(tmp_path, [("dog", "Hund"), ("dog", "Rüde"), ("cat", "Katze")], None))
    assert report["held_out"] == {"sources": 1, "pairs": 1}
    assert report["train"]["kept"] == 2
    folder = tmp_path / "single"
    folder.mkdir()
    refused(options(folder, [("dog", "Hund")] * 40, None), "single source sentence.* give --valid-src")


def test_validation_text_is_not_learnt_from(tmp_path: Path) -> None:
    """The vocabulary is the same whatever the validation text."""
    vocabularies = set()
    corpora: list[Pairs] = [VALID, [("zyx wvu", "qwertz")] * 50]
    for i, valid in enumerate(corpora):
        folder = tmp_path / str(i)
        folder.mkdir()
        made(options(folder, valid=valid))
        vocabularies.add(DataFolder.open(folder / "data").src_vocab.digest)
    assert len(vocabularies) == 1
    # Held-out text neither: its characters have no piece.
    made(options(tmp_path, [(f"dog {chr(0x4E00 + i)}", "Hund") for i in range(100)], None))
    data = DataFolder.open(tmp_path / "data")
    pieces = {data.src_vocab.piece(i) for i in range(len(data.src_vocab))}
    for store, known in ((data.train, True), (data.valid, False)):
        for src, _ in decoded(data, store):
            assert (src[-1] in pieces) is known


def test_validation_pairs_in_the_training_text_are_reported(tmp_path: Path) -> None:
    (a, b), (c, d), (e, f), *_ = TRAIN
    valid = [*VALID, (a, b), (a, b), (c, f), (f" {e}", f"{f} ")]
    report, said = heard(options(tmp_path, valid=valid))
    assert report["valid"]["pairs_in_train"] == 3
    assert report["valid"]["sources_in_train"] == 4
    assert f"warning: of {len(valid)} validation pairs 3 are in the training text" in said
    assert d != f


# ---------------------------------------------------------------------------------- the sample


def test_the_vocabulary_is_learnt_from_a_sample(tmp_path: Path) -> None:
    pairs = [(f"w{i}x", f"y{i}z") for i in range(2000)]
    src, tgt = write(tmp_path, "train", pairs)
    corpus = Corpus((src,), (tgt,), "error")
    source = TrainingText(corpus, frozenset(), seed=1)

    def drawn(side: str, size: int) -> list[str]:
        return list(Sample(source, side, size, len(pairs), lambda: None))

    both = drawn("both", 100)
    assert len(both) == 200
    assert [line[1:-1] for line in both[::2]] == [line[1:-1] for line in both[1::2]]
    assert both == drawn("both", 100)  # the same at every iteration
    assert both[::2] == drawn("src", 100)
    assert both[1::2] == drawn("tgt", 100)
    places = [int(line[1:-1]) for line in both[::2]]
    assert places == sorted(set(places))
    assert places[0] < 500
    assert places[-1] > 1500
    assert drawn("src", 10**6) == [pair[0] for pair in pairs]
    # And the option arrives: three pairs hold fewer pieces than two thousand.
    small, large = (
        made(options(tmp_path, pairs, sample=n, out=tmp_path / str(n)))["vocabulary"]["src_pieces"] for n in (3, 2000)
    )
    assert small < large


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python and numpy memory; what SentencePiece holds is bounded by --sample."""
    monkeypatch.setattr(vtrans.data.prepare, "_BATCH_PAIRS", 64)
    for module in (vtrans.data.parallel_text, vtrans.data.store_writer):
        monkeypatch.setattr(module, "_BLOCK", 1 << 12)
    monkeypatch.setattr("vtrans.text._CHUNK", 1 << 12)
    peaks = []
    for n in (1, 2, 30):
        folder = tmp_path / str(n)
        folder.mkdir()
        opts = options(folder, TRAIN * n, sample=100)
        tracemalloc.start()
        made(opts)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # The first run pays for caches. The corpus of the last is 15 times as large as that of the second.
    assert (folder / "train.en").stat().st_size > 150_000
    assert peaks[2] < peaks[1] + 50_000


def test_the_store_is_mapped_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    ids = np.arange(1 << 20, dtype=np.uint16)
    sides = ("src", "tgt")
    ragged = {side: Ragged(path, f"{side}_ids", f"{side}_offsets", "U16") for side in sides}
    for column in ragged.values():
        column.add(ids, np.array([len(ids)]))
    metadata = {"format": vtrans.data.store.STORE_FORMAT, "revision": vtrans.data.store.REVISION}
    assemble(path, [p for c in ragged.values() for p in c.parts()], metadata)
    store = TokenStore.open(path)
    assert store.src(0)[-3:].tolist() == [65533, 65534, 65535]
    # A byte changed in the file is changed in the store: nothing was copied.
    with path.open("r+b") as file:
        file.seek(-2, 2)
        file.write(b"\x07\x00")
    assert int(store.tgt(0)[-1]) == 7


# ---------------------------------------------------------------------------------- a dry run


def rehearsed(opts: PrepareOptions) -> tuple[dict[str, Any], str]:
    """What a dry run returns and says; it leaves everything as it was."""
    folder, stream = Path(opts.out).parent, io.StringIO()
    before = snapshot(folder)
    estimate = prepare(opts, Console(stream=stream), dry_run=True)
    assert snapshot(folder) == before
    return estimate, stream.getvalue()


@pytest.mark.parametrize("separate", [False, True])
def test_a_dry_run_of_a_small_text_is_exact_and_writes_nothing(tmp_path: Path, separate: bool) -> None:
    opts = two_corpora(tmp_path, separate=separate, symbols=("<BT>",))
    estimate, said = rehearsed(opts)
    assert not (tmp_path / "data").exists()
    report = made(opts)
    assert estimate["pairs"] == report["train"]["read"] == sum(estimate["corpora"])
    assert estimate["corpora"] == [52, len(TRAIN) - 50]
    assert estimate["blank"] == 1
    assert estimate["kept"] == report["train"]["kept"] == len(TRAIN)
    assert estimate["tokens"] == report["train"]["tokens"]
    size = sum(facts["bytes"] for facts in report["files"].values())
    assert estimate["bytes"] == pytest.approx(size, rel=0.1)
    assert estimate["bytes_meanwhile"] > estimate["bytes"]
    assert 0 < estimate["seconds"] < 600
    for words in (
        "first.en: 52 pairs", f"second.en: {len(TRAIN) - 50} pairs", "--symbol <BT>", "8,000 pieces are asked (fewer",
        "one a side" if separate else "one for both sides", f"tokens: {report['train']['tokens']['src']:,} source",
        "dry run: nothing was written",
    ):  # fmt: skip
        assert words in said


def test_a_dry_run_of_a_long_text_estimates_from_some_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtrans.data.dry_run.REHEARSED", 90)
    opts = options(tmp_path, vocab_size=300, valid=None)
    estimate, said = rehearsed(opts)
    report = made(opts)
    assert estimate["held_out"] == report["held_out"]["pairs"]
    assert (estimate["measured_on"], estimate["vocab_size"]) == (90, 300)
    for side in ("src", "tgt"):
        assert estimate["tokens"][side] == pytest.approx(report["train"]["tokens"][side], rel=0.1)
    assert "tokens: about " in said
    assert "300 pieces are asked, learnt" in said
    # Some pairs may be too few for a size that the text allows.
    monkeypatch.setattr("vtrans.data.dry_run.REHEARSED", 2)
    assert rehearsed(options(tmp_path, vocab_size=300, valid=None, out=tmp_path / "b"))[0]["vocab_size"] == 300


def test_a_dry_run_meets_the_same_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opts = options(tmp_path)
    made(opts)
    assert "is up to date" in rehearsed(opts)[1]
    with pytest.raises(InputError, match="--max-tokens was 250 and is 9"):
        rehearsed(dataclasses.replace(opts, max_tokens=9))
    assert "nothing was written" in rehearsed(dataclasses.replace(opts, max_tokens=9, force=True))[1]
    with pytest.raises(InputError, match="--vocab-size 5000 is too large"):
        rehearsed(dataclasses.replace(opts, vocab_size=5000, out=tmp_path / "new"))
    Path(opts.src[0]).write_bytes(b"one line\n")
    with pytest.raises(InputError, match="has 1 lines, but"):
        rehearsed(dataclasses.replace(opts, out=tmp_path / "new"))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    said = rehearsed(options(tmp_path, out=tmp_path / "deep" / "new"))[1]
    assert "warning: there is too little room for" in said


# ---------------------------------------------------------------------------------- up to date


def test_the_same_again_is_up_to_date(tmp_path: Path) -> None:
    opts = options(tmp_path)
    report = made(opts)
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "data").iterdir()}
    # Names, threads and --force do not make another input.
    moved = tmp_path / "moved.en"
    Path(opts.src[0]).rename(moved)
    again, said = heard(dataclasses.replace(opts, src=(moved,), threads=2, force=True))
    assert again == report
    assert "is up to date" in said
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "data").iterdir()} == files


def test_other_inputs_or_options_want_force(tmp_path: Path) -> None:
    opts = options(tmp_path)
    made(opts)
    refused(dataclasses.replace(opts, max_tokens=9), "--max-tokens was 250 and is 9.*--out.*--force")
    assert opts.vocab_size is None
    refused(dataclasses.replace(opts, vocab_size=300), r"--vocab-size was unset and is 300\)")
    refused(dataclasses.replace(opts, valid_src=(), valid_tgt=()), "the input files differ")
    other = options(tmp_path, TRAIN[:100])
    refused(other, "the input files differ")
    (tmp_path / "data" / "notes.txt").write_bytes(b"mine")
    made(dataclasses.replace(other, force=True, separate=True))
    data = DataFolder.open(tmp_path / "data")
    assert len(data.train) == 100
    assert not (tmp_path / "data" / "vocab.model").exists()  # ours, and of no use any more
    assert (tmp_path / "data" / "notes.txt").read_bytes() == b"mine"


def test_a_folder_from_before_an_option_was_made_with_its_default(tmp_path: Path) -> None:
    opts = options(tmp_path)
    report = made(opts)
    del report["options"]["symbols"]
    (tmp_path / "data" / "data.json").write_text(json.dumps(report))
    assert "is up to date" in heard(opts)[1]
    refused(dataclasses.replace(opts, symbols=("<BT>", "<FT>")), r"--symbol was none and is <BT>, <FT>\)")


def test_a_damaged_folder_is_made_anew(tmp_path: Path) -> None:
    opts = options(tmp_path)
    made(opts)
    whole = snapshot(tmp_path / "data")
    for damage in ("train.safetensors", "vocab.model"):
        path = tmp_path / "data" / damage
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        _, said = heard(opts)
        assert f"was damaged ({damage}) and is made anew" in said
        assert snapshot(tmp_path / "data") == whole
        path.unlink()
        made(opts)
        assert snapshot(tmp_path / "data") == whole


def test_foreign_files_are_never_touched(tmp_path: Path) -> None:
    opts = options(tmp_path)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "valid.safetensors").write_bytes(b"mine")
    for force in (False, True):
        refused(dataclasses.replace(opts, force=force), r"no data folder .*valid\.safetensors.*--out")
    (folder / "valid.safetensors").rename(folder / "data.json")
    refused(dataclasses.replace(opts, force=True), "no data folder")
    refused(dataclasses.replace(opts, out=opts.src[0]), "is a file; --out names a folder")


class Interrupted(BaseException):
    """As KeyboardInterrupt, but nobody else raises it."""


STEPS = [
    "vtrans.data.learn_vocabulary.learn",
    "vtrans.data.prepare.batches_of",
    "vtrans.data.store_writer.assemble",
    "vtrans.data.prepare._put_in_place",
    "vtrans.data.prepare.sync_folder",
    "vtrans.data.prepare.write_atomically",
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("old", [False, True])
def test_an_interrupted_run_leaves_no_folder_that_looks_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, old: bool
) -> None:
    opts = options(tmp_path, force=True)
    if old:
        made(dataclasses.replace(opts, max_tokens=77))
    before = snapshot(tmp_path / "data")

    def interrupt(*_: Any, **__: Any) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(step, interrupt)
        with pytest.raises(Interrupted):
            made(opts)
    if step != "vtrans.data.prepare.sync_folder":  # until then all of the old folder stands, and no trace of the new
        assert snapshot(tmp_path / "data") == before
        assert (tmp_path / "data").exists() == old
    else:
        with pytest.raises(FileError, match="no data folder"):
            DataFolder.open(tmp_path / "data")
    made(opts)
    assert len(DataFolder.open(tmp_path / "data").train) == len(TRAIN)


def test_a_killed_run_is_cleared_away(tmp_path: Path) -> None:
    """What SIGKILL leaves in the middle of the renames: no report, the staging folder, some files."""
    opts = options(tmp_path)
    made(opts)
    whole = snapshot(tmp_path / "data")
    (tmp_path / "data" / "data.json").unlink()
    (tmp_path / "data" / "train.safetensors").unlink()
    (tmp_path / "data" / ".preparing").mkdir()
    (tmp_path / "data" / ".preparing" / "train.src_ids").write_bytes(b"half")
    with pytest.raises(FileError, match="no data folder"):
        DataFolder.open(tmp_path / "data")
    made(opts)
    assert snapshot(tmp_path / "data") == whole


def test_a_disk_that_fails_is_no_fault_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    opts = options(tmp_path)
    monkeypatch.setattr(vtrans.data.store_writer.Ragged, "add", full)
    with pytest.raises(VtransError, match="data can't be written: No space left on device") as caught:
        made(opts)
    assert caught.value.exit_code == 1
    assert not (tmp_path / "data").exists()


# ---------------------------------------------------------------------------------- bad input


def test_unequal_counts_are_refused_with_both_numbers(tmp_path: Path) -> None:
    opts = options(tmp_path)
    for side, path in ((0, opts.src[0]), (1, opts.tgt[0])):
        write(tmp_path, "train", TRAIN)
        with Path(path).open("ab") as file:
            file.write(b"one more\nand one\n")
        counts = [len(TRAIN) + 2 * (side == i) for i in (0, 1)]
        refused(opts, rf"train\.en has {counts[0]} lines, but .*train\.de has {counts[1]};")
    write(tmp_path, "train", TRAIN)
    Path(opts.valid_tgt[0]).write_bytes(b"nur eine\n")
    refused(opts, rf"valid\.en has {len(VALID)} lines, but .*valid\.de has 1;")


BAD_FILES: list[tuple[Callable[[Path], int | Path | None], str]] = [
    (lambda path: path.unlink(), "there is no file .*{name}"),
    (lambda path: path.write_bytes(b""), "{name} is empty"),
    (lambda path: path.write_bytes(b"\xef\xbb\xbf"), "{name} is empty"),
    (lambda path: path.write_bytes(b"PK\x03\x04\n\0\0\n"), "{name}: line 2 holds a NUL byte"),
    (lambda path: path.write_bytes("dog\n".encode("utf-16-le")), "{name}: line 1 holds a NUL byte"),
    (lambda path: path.write_bytes(b"dog\n\x89PNG\n"), "{name}: line 2 is not UTF-8: byte 0x89 at byte offset 4"),
    (lambda path: path.rename(path.with_suffix(".gone")).parent.joinpath(path.name).mkdir(), "{name} is a folder"),
    (lambda path: path.write_bytes(b"\n \n\n"), "lines, but|has an empty side"),
]


@pytest.mark.parametrize("name", ["train.en", "train.de", "valid.en", "valid.de"])
@pytest.mark.parametrize(("damage", "message"), BAD_FILES)
def test_bad_files_are_named(tmp_path: Path, name: str, damage: Callable[[Path], object], message: str) -> None:
    opts = options(tmp_path)
    damage(tmp_path / name)
    refused(opts, message.format(name=name.replace(".", r"\.")))


def test_a_pipe_is_refused_since_it_reads_once(tmp_path: Path) -> None:
    opts = options(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    refused(dataclasses.replace(opts, src=(tmp_path / "pipe",)), "pipe or device; prepare-bpe reads .* several")


def test_a_truncated_gzip_file_is_named(tmp_path: Path) -> None:
    opts = options(tmp_path)
    packed = tmp_path / "train.en.gz"
    packed.write_bytes(gzip.compress(Path(opts.src[0]).read_bytes())[:-20])
    refused(dataclasses.replace(opts, src=(packed,)), r"train\.en\.gz can't be read to its end")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"src": (), "tgt": ()}, "`src`"),
        ({"tgt": ()}, "`src` and `tgt` .* 1 and 0"),
        ({"valid_tgt": ()}, "`valid_src` and `valid_tgt` .* 1 and 0"),
        ({"valid_src": ()}, "`valid_src` and `valid_tgt` .* 0 and 1"),
        ({"vocab_size": 0}, "`vocab_size` must be .*from 5 to"),
        ({"vocab_size": 100_000}, "--vocab-size 100000 is too large .* allows at most"),
        ({"vocab_size": 262, "separate": True}, "--vocab-size 262 is too small for the pair of sides"),
        ({"character_coverage": 1.5}, "`character_coverage` must be .*1.5"),
        ({"sample": 0}, "`sample` must be"),
        ({"max_tokens": 0}, "`max_tokens` must be"),
        ({"max_tokens": 1}, "no training pair is left of .* longer than 1 tokens"),
        ({"max_ratio": 0.5}, "`max_ratio` must be"),
        ({"max_ratio": float("nan")}, "`max_ratio` must be"),
        ({"seed": -1}, "`seed` must be"),
        ({"threads": -1}, "`threads` must be"),
        ({"symbols": ("",)}, "--symbol must be printable characters without a space, such as <BT>, but is ''"),
        ({"symbols": ("<B T>",)}, "--symbol must be printable"),
        ({"symbols": ("\u2581x",)}, "--symbol must be printable"),
        ({"symbols": ("<BT>", "</s>")}, "--symbol </s> is a piece of every vocabulary already"),
        ({"symbols": ("<0x0A>",)}, "--symbol <0x0A> is a piece of every vocabulary already"),
        ({"symbols": ("<BT>", "<BT>")}, "--symbol <BT> is given twice"),
        ({"subword": "wordpiece"}, "`subword` must be .*bpe, unigram, .*'wordpiece'"),
        ({"normalization": "nfd"}, "`normalization` must be .*identity, .*'nfd'"),
        ({"on_bad_utf8": "ignore"}, "`on_bad_utf8` must be .*error, replace"),
    ],
)  # fmt: skip
def test_bad_options_are_refused(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    # "x" pairs are so short that --max-tokens 1 drops all: every sentence has several words.
    refused(options(tmp_path, **{"src": (tmp_path / "train.en",), **values}), message)


def test_only_empty_pairs_are_refused(tmp_path: Path) -> None:
    refused(options(tmp_path, [("dog", ""), ("", "Hund")]), "has an empty side")
    refused(options(tmp_path, valid=[("dog", ""), ("", "Hund")]), "empty side")
    # Nothing is left once SentencePiece has normalised: found only after encoding.
    refused(options(tmp_path, [("\u200b", "\u200b")] * 3), "holds no text")
    refused(options(tmp_path, valid=[("\u200b", "Hund")] * 3), "every validation pair has an empty side")


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opts = options(tmp_path)
    path = Path(opts.tgt[0])

    def meddle(*args: Any, **kwargs: Any) -> Any:
        path.write_bytes(change(path.read_bytes()))
        return learn(*args, **kwargs)

    monkeypatch.setattr("vtrans.data.learn_vocabulary.learn", meddle)
    changes: list[Callable[[bytes], bytes]] = [
        lambda raw: raw.replace(b"Esel", b"Maus"), lambda raw: raw + b"mehr\n"
    ]  # fmt: skip
    for change in changes:  # noqa: B007  # `meddle` reads it
        write(tmp_path, "train", TRAIN)
        with pytest.raises(InputError, match="has changed while being read"):
            made(opts)
        assert not (tmp_path / "data").exists()


# ---------------------------------------------------------------------------------- opening


def test_what_is_no_data_folder_is_refused(tmp_path: Path) -> None:
    def fails(message: str) -> None:
        with pytest.raises(FileError, match=message) as caught:
            DataFolder.open(folder)
        assert "\n" not in str(caught.value)

    folder = tmp_path / "data"
    fails("there is no data folder")
    folder.mkdir()
    fails("no data folder")
    made(options(tmp_path))
    whole = {p.name: p.read_bytes() for p in folder.iterdir()}
    report = json.loads(whole["data.json"])
    for name in ("train.safetensors", "valid.safetensors", "vocab.model"):
        (folder / name).write_bytes(whole[name][:-3])
        fails(f"{name} has .* bytes instead of")
        (folder / name).unlink()
        fails(f"lacks {name}")
        (folder / name).write_bytes(bytes(len(whole[name])))
        fails(f"{name} has been changed")
        (folder / name).write_bytes(whole[name])
    other = {"format": "x", "revision": 99, "files": {}, "options": []}
    for change in [{key: value} for key, value in other.items()]:
        (folder / "data.json").write_text(json.dumps(report | change))
        fails("no data folder of this version")
    for raw in (b"", b"[]", b"{", whole["data.json"][:50]):
        (folder / "data.json").write_bytes(raw)
        fails("no data folder of this version")
    (folder / "data.json").write_bytes(whole["data.json"])
    assert DataFolder.open(folder).report == report


def test_damage_that_leaves_the_size_of_a_file_is_noticed(tmp_path: Path) -> None:
    made(options(tmp_path))
    folder, numbers = tmp_path / "data", random.Random(1)
    for name in ("train.safetensors", "valid.safetensors", "vocab.model"):
        whole = (folder / name).read_bytes()
        for place in (0, len(whole) - 1, *(numbers.randrange(len(whole)) for _ in range(30))):
            raw = bytearray(whole)
            raw[place] ^= 1 << numbers.randrange(8)
            (folder / name).write_bytes(raw)
            with pytest.raises(FileError, match=re.escape(name)) as caught:
                DataFolder.open(folder)
            assert caught.value.exit_code == 2
        (folder / name).write_bytes(whole)
    DataFolder.open(folder)


def test_a_damaged_report_is_refused_or_says_the_same(tmp_path: Path) -> None:
    opts = options(tmp_path)
    made(opts)
    folder, numbers = tmp_path / "data", random.Random(1)
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
    (folder / "data.json").write_bytes(b"[" * 100_000)
    with pytest.raises(FileError, match=r"data\.json"):
        DataFolder.open(folder)


def test_another_vocabulary_of_the_same_size_is_noticed(tmp_path: Path) -> None:
    made(options(tmp_path))
    path = tmp_path / "data" / "vocab.model"
    raw = path.read_bytes()
    assert b"Hund" in raw
    path.write_bytes(raw.replace(b"Hund", b"Mund"))
    with pytest.raises(FileError, match=r"vocab\.model has been changed"):
        DataFolder.open(tmp_path / "data")


def test_a_store_that_does_not_fit_together_is_refused(tmp_path: Path) -> None:
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
        with pytest.raises(FileError, match="no token store"):
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
        with pytest.raises(FileError, match="does not fit together"):
            TokenStore.open(copy)
    for missing in tensors:
        save_file({n: t for n, t in tensors.items() if n != missing}, copy, metadata)
        if missing == "src_text":
            assert len(TokenStore.open(copy)) == len(VALID)  # as one that was made without text
        else:
            with pytest.raises(FileError, match="does not fit together"):
                TokenStore.open(copy)
