"""prepare-bpe from end to end: what the data folder holds, what is dropped, and what the report says."""

import dataclasses
import gzip
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import TRAIN, VALID, Pairs, decoded, heard, made, options, refused, snapshot, write

import vtrans.data.preparation.encode
import vtrans.data.preparation.parallel_text
import vtrans.data.preparation.prepare
import vtrans.data.preparation.store_writer
from vtrans.data.preparation.encode import RATIO_FREE_TOKENS, reason_to_drop
from vtrans.data.store import DataFolder


def test_the_files_do_not_depend_on_how_the_corpus_is_divided_and_compressed(tmp_path: Path) -> None:
    whole = options(tmp_path)
    undivided = made(whole)
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
    assert report["files"] == undivided["files"]
    # The pairs per corpus belong to the data too.
    assert DataFolder.open(tmp_path / "parts").digest != DataFolder.open(tmp_path / "data").digest
    assert [pair["src"]["lines"] for pair in report["inputs"]["train"]] == [100, len(TRAIN) - 100]


def test_pairs_are_dropped_and_counted_by_reason(tmp_path: Path) -> None:
    long = " ".join(["dog"] * 40)
    bad = [
        ("", "Hund"), ("dog", " \t"), ("\u200b", "Hund"), ("", ""),  # an empty side, after normalization
        (long, long), ("dog " * 31, "Hund " * 29),
        ("dog " * 14, "Hund"), ("cat", "Kater " * 14),
    ]  # fmt: skip
    good = [("dog " * 10, "Hund"), ("dog " * 20, "Hund " * 10)]
    opts = options(tmp_path, [*TRAIN, *bad, *good], max_tokens=30, max_ratio=4.0)
    report, said = heard(opts)
    assert report["train"]["dropped"] == {"empty": 4, "too_long": 2, "odd_ratio": 2}
    assert report["train"]["read"] == len(TRAIN) + 10
    assert report["train"]["kept"] == len(TRAIN) + 2
    line = next(line for line in said.split("\n") if line.startswith("training: "))
    assert re.findall(r"\d+", line) == [str(n) for n in (len(TRAIN) + 2, len(TRAIN) + 10, 4, 2, 30, 2, 4, 12)]
    data = DataFolder.open(tmp_path / "data")
    assert decoded(data, data.train)[:-2] == TRAIN
    assert report["ratio_free_tokens"] == RATIO_FREE_TOKENS == 12


def test_only_empty_validation_pairs_are_dropped(tmp_path: Path) -> None:
    valid = [*VALID, ("dog", ""), ("cat", "Kater " * 50)]
    report, said = heard(options(tmp_path, valid=valid, max_tokens=30))
    assert report["valid"]["kept"] == len(VALID) + 1
    assert report["valid"]["dropped"] == {"empty": 1}
    assert "warning: the longest validation sentence has" in said


@pytest.mark.parametrize("mark", ["\uff01", "\u200c", "\u0e33", "\u00b2", "\u2026"])
def test_characters_that_translations_cannot_have_are_counted_and_named(tmp_path: Path, mark: str) -> None:
    train, named = [*TRAIN, ("dog", f"Hund {mark}{mark}"), ("dog\uff01", "Hu\u0308nd")], f"U+{ord(mark):04X} (2)"
    found = {}
    for rule in ("nfc", "identity", "nmt_nfkc", "nmt_nfkc_cf"):
        folder = tmp_path / rule
        folder.mkdir()
        report, said = heard(options(folder, train, normalization=rule))
        facts = found[rule] = report["train"]["coverage"]["tgt"]
        assert (f"{mark if mark.isprintable() else ''} {named}".strip() in said) == (mark in facts["most_changed"])
        assert ("Prepare with --normalization nfc" in said) == (rule == "nmt_nfkc")
        data = DataFolder.open(folder / "data")
        decoded_targets = {target for _, target in decoded(data, data.train)}
        assert (f"Hund {mark}{mark}" in decoded_targets) == (mark not in facts["most_changed"])
    assert not any(found[rule]["changed_lines"] or found[rule]["most_changed"] for rule in ("nfc", "identity"))
    assert found["nmt_nfkc"]["changed_lines"] == 1
    assert found["nmt_nfkc"]["most_changed"] == {mark: 2}
    assert found["nmt_nfkc_cf"]["changed_lines"] > 100  # capitals


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
    assert "warning: train src: 2 characters" in said
    assert "warning: train src: 1 U+FFFD" in said
    refused(
        dataclasses.replace(opts, on_bad_utf8="error", out=tmp_path / "other"),
        rf"train\.en: line 4 is not UTF-8: byte 0xff at byte offset {len(b'x'.join(raw[:3])) + 1 + len(raw[3]) - 1};",
    )


def test_the_vocabulary_is_not_learned_from_validation_text(tmp_path: Path) -> None:
    """The vocabulary is the same for any validation text."""
    vocabularies = set()
    corpora: list[Pairs] = [VALID, [("zyx wvu", "qwertz")] * 50]
    for i, valid in enumerate(corpora):
        folder = tmp_path / str(i)
        folder.mkdir()
        made(options(folder, valid=valid))
        vocabularies.add(DataFolder.open(folder / "data").src_vocab.digest)
    assert len(vocabularies) == 1
    # Nor from held-out text: its characters have no piece.
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
    assert re.search(rf"^warning: .* 4 of the {len(valid)} validation pairs, 3 of them", said, re.MULTILINE)
    assert d != f


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures the memory of Python and NumPy; `sample` bounds SentencePiece's."""
    monkeypatch.setattr(vtrans.data.preparation.parallel_text, "_BATCH_PAIRS", 64)
    monkeypatch.setattr(vtrans.data.preparation.parallel_text, "_LINES", 64)
    monkeypatch.setattr(vtrans.data.preparation.store_writer, "_COPIED_BYTES", 1 << 12)
    monkeypatch.setattr("vtrans.text.lines._CHUNK", 1 << 12)
    peaks = []
    for n in (1, 2, 30):
        folder = tmp_path / str(n)
        folder.mkdir()
        opts = options(folder, TRAIN * n, sample=100)
        tracemalloc.start()
        made(opts)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # The first run fills caches. The last corpus is 15 times as large as the second.
    assert (folder / "train.en").stat().st_size > 150_000
    assert peaks[2] < peaks[1] + 50_000


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"src": (), "tgt": ()}, "`src` and `tgt`"),
        ({"valid_tgt": ()}, "`valid_src` and `valid_tgt` .* 1 and 0"),
        ({"vocab_size": 0}, "`vocab_size` must be .* 5 .* 0"),
        ({"vocab_size": 100_000}, "`vocab_size` must be at most .* 100000"),
        ({"vocab_size": 262, "separate": True}, "`vocab_size` must be at least .* 262"),
        ({"character_coverage": 1.5}, r"`character_coverage` must be .* 1\.5"),
        ({"max_tokens": 0}, "`max_tokens` must be .* 0"),
        ({"max_tokens": 1}, f"no training pair .*{len(TRAIN)} longer than 1 token.*`max_tokens`"),
        ({"max_ratio": float("nan")}, "`max_ratio` must be .* nan"),
        ({"symbols": ("",)}, "`symbols`.* ''"),
        ({"symbols": ("<B T>",)}, "`symbols`.*'<B T>'"),
        ({"symbols": ("\u2581x",)}, "`symbols`.*'\u2581x'"),
        ({"symbols": ("<BT>", "</s>")}, "`symbols`.*</s>"),
        ({"symbols": ("<0x0A>",)}, "`symbols`.*<0x0A>"),
        ({"symbols": ("<BT>", "<BT>")}, "`symbols`.*<BT>"),
        ({"subword": "wordpiece"}, "`subword` must be .*bpe, unigram, .*'wordpiece'"),
        ({"normalization": "nfd"}, "`normalization` must be .*identity, .*'nfd'"),
        ({"on_bad_utf8": "ignore"}, "`on_bad_utf8` must be .*error, replace"),
    ],
)  # fmt: skip
def test_bad_options_are_refused(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    refused(options(tmp_path, **{"src": (tmp_path / "train.en",), **values}), message)


PAIRS = [(f"a dog sees {i} cats", f"ein Hund sieht {i} Katzen" if i % 9 else " ") for i in range(200)]


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        (0, 0, "empty"), (0, 5, "empty"), (5, 0, "empty"), (1, 12, None), (12, 1, None), (1, 13, "odd_ratio"),
        (4, 16, None), (17, 4, "odd_ratio"), (30, 30, None), (30, 31, "too_long"), (1, 31, "too_long"),
    ],
)  # fmt: skip
def test_pairs_are_dropped_by_length_and_ratio(src: int, tgt: int, reason: str | None) -> None:
    assert reason_to_drop(src, tgt, 30, 4.0) == reason


def test_the_number_of_workers_changes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtrans.data.preparation.encode, "PAIRS_PER_WORKER", 1)
    monkeypatch.setattr(vtrans.data.preparation.parallel_text, "_LINES", 16)
    monkeypatch.setattr(vtrans.data.preparation.parallel_text, "_BATCH_PAIRS", 16)
    for threads in (1, 3):
        report = made(options(tmp_path, PAIRS, None, threads=threads, out=tmp_path / str(threads), max_tokens=20))
        assert report["train"]["dropped"]["empty"] > 0
    assert snapshot(tmp_path / "1") == snapshot(tmp_path / "3")


def test_the_ids_of_long_words_are_not_kept(tiny_data: DataFolder) -> None:
    vocabulary = tiny_data.src_vocab
    lines = vtrans.data.preparation.encode._Lines(vocabulary.proto, np.dtype(np.int32))
    encoded = lines.encoded([f"a {'b' * 1000} a"])
    assert list(lines) == ["a"]
    assert np.frombuffer(encoded[0], np.int32).tolist() == vocabulary.encode(f"a {'b' * 1000} a")
