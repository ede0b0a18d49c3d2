"""Word alignments: reading them, taking them over to subwords, and making them."""

from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from conftest import TRAIN_PAIRS, tiny_links
from corpora import TRAIN, options, refused
from hypothesis import given
from hypothesis import strategies as st

import vtrans.data.aligner
import vtrans.data.augmentation
from vtrans.data.aligner import aligned
from vtrans.data.augmentation import Augmentation
from vtrans.data.bpe_dropout import Dropout
from vtrans.data.links import between_subwords, read_pharaoh
from vtrans.data.store import DataFolder, TokenStore
from vtrans.storage.tensors import mapped_arrays
from vtrans.system.errors import FileError
from vtrans.text.lines import one_line
from vtrans.text.words import first_words, words_in, words_of_line

Found = set[tuple[int, int]]


def word_links(data: DataFolder, store: TokenStore, i: int, pair: tuple[str, str]) -> Found:
    """The words of a pair whose subwords are linked."""
    src = words_of_line(pair[0], store.src(i).tolist(), data.src_vocab)
    tgt = words_of_line(pair[1], store.tgt(i).tolist(), data.tgt_vocab)
    return {(src[s], tgt[t]) for s, t in store.links(i).tolist()}


PARTS = st.lists(
    st.tuples(st.sampled_from(["", " ", "\t"]), st.sampled_from(["", "a", "b a", "狗。", "a\nb"])), max_size=6
)


@given(PARTS)
def test_a_part_of_a_text_begins_in_the_word_that_contains_its_first_character(parts: list[tuple[str, str]]) -> None:
    text, expected = "", []
    for gap, part in parts:
        text += gap if text and part else ""
        expected.append(len(words_in(text + part[:1])) - 1)
        text += part
    for (_, part), first, number in zip(
        parts, first_words([p for _, p in parts], one_line(text)), expected, strict=True
    ):
        assert first == number or not part


def test_a_line_in_pharaoh_format_is_read() -> None:
    assert read_pharaoh("0-0 12-3\t4-5 ").tolist() == [[0, 0], [12, 3], [4, 5]]
    assert read_pharaoh(" ").shape == (0, 2)


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 3), min_size=1, max_size=6),
            st.lists(st.integers(0, 3), min_size=1, max_size=6),
            st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_all_subwords_of_a_word_have_its_links(pairs: list[tuple[list[int], list[int], list[tuple[int, int]]]]) -> None:
    sides: list[list[int]] = [[], []]
    lengths: list[list[int]] = [[], []]
    links, expected = [], []
    for number, (*words, own) in enumerate(pairs):
        for side, some in enumerate(words):
            sides[side] += [5 * number + word for word in sorted(some)]
            lengths[side].append(len(some))
        links += [(5 * number + i, 5 * number + j) for i, j in own]
        src, tgt = (sorted(some) for some in words)
        expected.append(sorted((s, t) for s, i in enumerate(src) for t, j in enumerate(tgt) if (i, j) in own))
    src_side, tgt_side = ((np.array(sides[k]), np.array(lengths[k])) for k in (0, 1))
    values, counts = between_subwords(np.array(links, np.int64).reshape(-1, 2), src_side, tgt_side)
    parts = np.split(values.reshape(-1, 2), counts.cumsum()[:-1] // 2)
    assert [[tuple(link) for link in part.tolist()] for part in parts] == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [*lines[:4], "0-0 1-x", *lines[5:]], r"line 5 .*1-x"),
        (lambda lines: [*lines[:4], "0-0 5-0", *lines[5:]], r"line 5 links word 5 of a source line that has 5 words"),
        (lambda lines: [*lines[:4], "0-7", *lines[5:]], r"line 5 links word 7 of a target line"),
        (lambda lines: lines[:-1], r"has \d+ lines, but"),
        (lambda lines: [*lines, ""], r"has \d+ lines, but"),
        (lambda lines: [], r"is empty"),
    ],
)
def test_bad_alignments_are_refused(tmp_path: Path, change: Callable[[list[str]], list[str]], message: str) -> None:
    path = tmp_path / "train.align"
    path.write_text("".join(line + "\n" for line in change(["0-0"] * len(TRAIN))))
    refused(options(tmp_path, alignments=(path,)), message)


def test_alignments_that_do_not_fit_the_corpora_are_refused(tmp_path: Path) -> None:
    refused(options(tmp_path, alignments=("a", "b")), "`alignments`")


def test_links_of_another_number_of_pairs_are_refused(linked_data: DataFolder) -> None:
    _, columns = mapped_arrays(linked_data.train.path)
    assert TokenStore(linked_data.train.path, columns).has_links
    with pytest.raises(FileError, match="inconsistent"):
        TokenStore(linked_data.train.path, {name: c for name, c in columns.items() if name != "links_offsets"})
    offsets = columns["links_offsets"][:-1]
    shorter = columns | {"links": columns["links"][: offsets[-1]], "links_offsets": offsets}
    with pytest.raises(FileError, match="inconsistent"):
        TokenStore(linked_data.train.path, shorter)


@pytest.mark.parametrize("longest", [1000, 14])
def test_dropout_links_the_same_words(linked_data: DataFolder, monkeypatch: pytest.MonkeyPatch, longest: int) -> None:
    monkeypatch.setattr(vtrans.data.augmentation, "SHARD", 32)
    data, store = linked_data, linked_data.train
    drawing = Augmentation(store, data.src_vocab, data.tgt_vocab, 1, longest, dropout=0.3, with_links=True)
    plain = Augmentation(store, data.src_vocab, data.tgt_vocab, 1, longest, dropout=0.3)
    dropout = Dropout(data.src_vocab, 0.3, 1)

    def linked_words(store: TokenStore, i: int) -> tuple[tuple[str, str], Found]:
        sides = [store.src(i).numpy(), store.tgt(i).numpy()]
        words = [dropout.words(side, np.array([len(side)])) for side in sides]
        text = tuple(data.src_vocab.decode(side.tolist()) for side in sides)
        return (text[0], text[1]), {(int(words[0][s]), int(words[1][t])) for s, t in store.links(i).tolist()}

    expected = dict(linked_words(store, i) for i in range(len(store)))
    with closing(drawing.windows(1, 0)) as windows, closing(plain.windows(1, 0)) as others:
        ((_, _, window),), ((_, _, other),) = islice(windows, 1), islice(others, 1)
    assert dict(linked_words(window, i) for i in range(len(window))) == expected
    assert all((window.src(i) == other.src(i)).all() for i in range(len(other))), "links change no draw"
    grown = (window.src_lengths.sum() > store.src_lengths.sum()).item()
    assert grown or longest < 1000
    first = window.links(0)
    assert [tuple(link) for link in first.tolist()] == sorted(map(tuple, first.tolist()))


def test_the_aligner_finds_the_words_that_belong_together(
    tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, size = tiny_data.train, len(tiny_data.src_vocab)

    def error_rate(linked: TokenStore, numbers: Iterable[int]) -> float:
        wrong = whole = 0
        for i in numbers:
            found = word_links(tiny_data, linked, i, TRAIN_PAIRS[i])
            gold = {(i, j) for i, j in read_pharaoh(tiny_links(TRAIN_PAIRS[i][0])).tolist()}
            wrong, whole = wrong + len(found ^ gold), whole + len(found) + len(gold)
        return wrong / whole

    links, counts = aligned(store, size, size)
    assert error_rate(store.linked(links, counts), range(len(store))) < 0.3
    assert not store.has_links
    monkeypatch.setattr(vtrans.data.aligner, "CHUNK", 500)
    assert all(map(np.array_equal, aligned(store, size, size), (links, counts)))
    # From a corpus with more cells, every n-th pair is learned, and of one with many more, every n-th is linked.
    cells = int((store.src_lengths.long() * store.tgt_lengths).sum())
    monkeypatch.setattr(vtrans.data.aligner, "ALIGNED", cells // 2 + 1)
    assert error_rate(store.linked(*aligned(store, size, size)), range(1, len(store), 2)) < 0.4
    monkeypatch.setattr(vtrans.data.aligner, "LINKED", cells // 3 + 1)
    part = store.linked(*aligned(store, size, size))
    assert error_rate(part, range(0, len(store), 3)) < 0.4
    assert not any(len(part.links(i)) for i in range(len(store)) if i % 3)
