"""BPE-dropout: varying subwords for the same text, repeatable from any point."""

import multiprocessing
from collections import Counter
from contextlib import closing
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from drawn import seeded_tensors

import vtrans.data.augmentation
from vtrans.data.augmentation import Augmentation
from vtrans.data.bpe_dropout import Dropout
from vtrans.data.store import DataFolder, TokenStore
from vtrans.system.errors import VtransError
from vtrans.text.vocabulary import Vocabulary

Window = tuple[int, int, TokenStore]


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtrans.data.augmentation, "SHARD", 16)
    monkeypatch.setattr(vtrans.data.augmentation, "WINDOW", 3)


def segmentations(data: DataFolder, rate: float = 0.2, seed: int = 1, longest: int = 1000) -> Augmentation:
    return Augmentation(data.train, data.src_vocab, data.tgt_vocab, seed, longest, dropout=rate)


def windows(drawing: Augmentation, count: int, epoch: int = 1, window: int = 0) -> list[Window]:
    with closing(drawing.windows(epoch, window)) as stream:
        return list(islice(stream, count))


def all_ids(store: TokenStore, side: str) -> list[int]:
    ids: list[int] = store.joined(side, np.arange(len(store)))[0].tolist()
    return ids


def equal(a: Window, b: Window) -> bool:
    lengths = [(store.src_lengths.tolist(), store.tgt_lengths.tolist()) for *_, store in (a, b)]
    ids = [[all_ids(store, side) for side in ("src", "tgt")] for *_, store in (a, b)]
    return a[:2] == b[:2] and lengths[0] == lengths[1] and ids[0] == ids[1]


def pairs(data: DataFolder, stores: list[TokenStore]) -> list[tuple[str, str]]:
    def text(ids: torch.Tensor) -> str:
        return data.src_vocab.decode(ids.tolist())

    return [(text(store.src(i)), text(store.tgt(i))) for store in stores for i in range(len(store))]


def test_each_epoch_has_every_pair_once_in_different_subwords(tiny_data: DataFolder) -> None:
    count = -(-len(tiny_data.train) // 48)
    assert len(tiny_data.train) % 48 > 16  # the last window is shorter
    drawn = windows(segmentations(tiny_data), 2 * count)
    assert [(epoch, window) for epoch, window, _ in drawn] == [(e, w) for e in (1, 2) for w in range(count)]
    epochs = [[store for _, _, store in drawn[start : start + count]] for start in (0, count)]
    expected = sorted(pairs(tiny_data, [tiny_data.train]))
    first, second = (pairs(tiny_data, epoch) for epoch in epochs)
    assert first != second
    assert sorted(first) == sorted(second) == expected
    stored = int(tiny_data.train.src_lengths.sum())
    lengths = [sum(int(store.src_lengths.sum()) for store in epoch) for epoch in epochs]
    assert min(lengths) > 1.1 * stored
    assert lengths[0] != lengths[1]


def test_a_window_does_not_depend_on_where_drawing_starts(tiny_data: DataFolder) -> None:
    drawn = windows(segmentations(tiny_data), 9)
    for start in (1, 3, 5, 8):
        epoch, window, _ = drawn[start]
        again = windows(segmentations(tiny_data), len(drawn) - start, epoch, window)
        assert all(map(equal, again, drawn[start:]))
    assert not equal(windows(segmentations(tiny_data, seed=2), 1)[0], drawn[0])
    # Equal pairs get other segmentations in another epoch or shard.
    drawing = segmentations(tiny_data)
    _, text = next(drawing._stored(1, 0))
    seeds = [next(drawing._stored(epoch, shard))[0] for epoch, shard in ((1, 0), (2, 0), (1, 1))]
    drawn_ids = [drawing.drawer()((seed, text))[0][0] for seed in seeds]
    assert len({tuple(ids.tolist()) for ids in drawn_ids}) == 3
    # The sides are drawn independently: a copy gets other segmentations than its original.
    store = drawn[0][2]
    copies = Augmentation(_copied(store), tiny_data.src_vocab, tiny_data.src_vocab, 1, 1000, dropout=0.2)
    ((_, _, both),) = windows(copies, 1)
    assert all_ids(both, "src") != all_ids(both, "tgt")


def test_workers_draw_like_one_process_and_a_dead_worker_ends_drawing(tiny_data: DataFolder) -> None:
    store, vocabulary = tiny_data.train, tiny_data.src_vocab
    longest = int(torch.maximum(store.src_lengths, store.tgt_lengths).max())  # some pairs keep their segmentation
    alone = windows(segmentations(tiny_data, longest=longest), 5, 2, 1)
    drawing = Augmentation(store, vocabulary, vocabulary, 1, longest, processes=2, dropout=0.2)
    with closing(drawing.windows(2, 1)) as stream:
        together = list(islice(stream, 5))
        workers = multiprocessing.active_children()
        assert len(workers) == 2
        for worker in workers:
            worker.kill()
        with pytest.raises(VtransError, match="drawing pairs"):
            list(islice(stream, 1000))
    assert all(map(equal, together, alone))
    assert not multiprocessing.active_children()


def _copied(store: TokenStore) -> TokenStore:
    ids, lengths = store.joined("src", torch.arange(len(store)))
    offsets = np.concatenate([[0], lengths]).cumsum()
    return TokenStore(store.path, {"src_ids": ids, "tgt_ids": ids, "src_offsets": offsets, "tgt_offsets": offsets})


def test_a_pair_that_would_become_too_long_keeps_its_segmentation(tiny_data: DataFolder) -> None:
    store = tiny_data.train
    longest = int(torch.maximum(store.src_lengths, store.tgt_lengths).max())
    free, bounded = (
        [store for _, _, store in windows(segmentations(tiny_data, 0.3, longest=n), 4)] for n in (1000, longest)
    )
    assert max(int(store.tgt_lengths.max()) for store in free) > longest
    assert max(int(torch.maximum(s.src_lengths, s.tgt_lengths).max()) for s in bounded) <= longest
    kept = 0
    stored = {(tuple(store.src(i).tolist()), tuple(store.tgt(i).tolist())) for i in range(len(store))}
    for one, other in zip(free, bounded, strict=True):
        for i in range(len(one)):
            fits = max(len(one.src(i)), len(one.tgt(i))) <= longest
            ids = (tuple(other.src(i).tolist()), tuple(other.tgt(i).tolist()))
            assert ids == (tuple(one.src(i).tolist()), tuple(one.tgt(i).tolist())) if fits else ids in stored
            kept += not fits
    assert 0 < kept < len(store)


LINES = (
    "The big dog sees me again today.",
    "Der große Hund sieht mich heute wieder.",
    "nie wiedersehen 😀😀 nothing世nothing",
    "e",
    "",
    "often now never often",
)


def cut(dropout: Dropout, lines: list[list[int]], seed: int = 1) -> list[list[int]]:
    ids = np.array([i for line in lines for i in line], np.int32)
    lengths = np.array([len(line) for line in lines], np.int64)
    new, grown = dropout.cut(ids, lengths, seeded_tensors(seed))
    assert grown.sum() == len(new)
    return [part.tolist() for part in np.split(new, grown.cumsum()[:-1])]


def test_without_dropout_segmentations_equal_sentencepiece(tiny_data: DataFolder) -> None:
    vocabulary, store = tiny_data.src_vocab, tiny_data.train
    lines = [*vocabulary.encode_batch(LINES), *(store.tgt(i).tolist() for i in range(len(store)))]
    assert any(not vocabulary.is_subword(i) for line in lines for i in line)  # the emoji is encoded as bytes
    assert cut(Dropout(vocabulary, 0.0, 1), lines) == lines
    broken = [line[1:] for line in lines if line]  # lines that begin in the middle of a word
    assert cut(Dropout(vocabulary, 0.0, 1), broken) == broken
    other = cut(Dropout(vocabulary, 0.5, 1), lines)
    assert other != lines
    assert [vocabulary.decode(line) for line in other] == [vocabulary.decode(line) for line in lines]
    characters = [i for line in cut(Dropout(vocabulary, 1.0, 1), lines) for i in line]
    assert max(len(vocabulary.piece(i)) for i in characters if vocabulary.is_subword(i)) == 1


def distribution(vocabulary: Vocabulary, symbols: tuple[str, ...], rate: float) -> dict[tuple[str, ...], float]:
    """The probability of each segmentation by Algorithm 1 of the paper."""
    merges = vocabulary.merges()
    pairs = enumerate(pairwise(symbols))
    ordered = sorted((merges[a + b][1], i) for i, (a, b) in pairs if a + b in merges)
    found = {symbols: rate ** len(ordered)}
    for worse, (_, i) in enumerate(ordered):
        merged = (*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :])
        for result, probability in distribution(vocabulary, merged, rate).items():
            found[result] = found.get(result, 0) + rate**worse * (1 - rate) * probability
    return found


def test_segmentations_have_the_frequencies_of_the_papers_algorithm(tiny_data: DataFolder) -> None:
    vocabulary, rate = tiny_data.src_vocab, 0.3
    word = [max(range(len(vocabulary)), key=lambda i: len(vocabulary.piece(i)) if vocabulary.is_subword(i) else 0)]
    expected = distribution(vocabulary, tuple(vocabulary.piece(word[0])), rate)
    assert sum(expected.values()) == pytest.approx(1)
    assert len(expected) > 4
    seen: Counter[tuple[str, ...]] = Counter()
    for seed in range(40):
        for line in cut(Dropout(vocabulary, rate, seed), [word] * 200, seed):
            seen[tuple(map(vocabulary.piece, line))] += 1
    for segmentation, probability in expected.items():
        # 64 variants of each of 40 seeds
        assert seen[segmentation] / seen.total() == pytest.approx(probability, abs=5 * (probability / 40 / 64) ** 0.5)
    assert set(seen) <= set(expected)
