"""IBM model 1 (Brown et al. 1993) between the subwords of training pairs: aligns words for training, learns shortlists
(`vtrans shortlist`), and judges pairs (`vtrans clean`).

Two models, one per direction, give the probability that a subword of one side generates a subword of the other: model 1
times a weight for the relative distance of the two positions, as in fast_align (Dyer et al. 2013), but from a table
instead of a formula. In both, an empty word generates subwords without a translation. The models are trained to agree
(Liang et al. 2006): the expected count of a link is the product of its two posteriors.

Legend: P pairs, C cells (a target and a source position of a pair), E entries (distinct pairs of ids), X subwords of
one side of all pairs of a chunk, V vocabulary of a side, b bins of distances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vtrans.data.store import TokenStore
from vtrans.storage.model_file import Shortlist
from vtrans.text.vocabulary import EOS_ID

# The maximum number of cells to learn from; their entries take 200 MB. From a larger corpus, only every n-th pair is
# read.
CELLS = 50_000_000
ALIGNED = 20_000_000  # the same when training begins: half a minute
LINKED = 100_000_000  # maximum number of cells to link when training begins
CHUNK = 1_000_000  # cells per chunk of work
ITERATIONS = (3, 3)  # without and with distances; five of each gave no better links
EMPTY = 0.08  # prior probability of the empty word, as in fast_align
BINS = 21  # of relative distances, from -1 to 1
ENOUGH = 0.3  # minimum geometric mean of a link's two posteriors
TINY_COUNT = 1e-3  # additive smoothing

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass
class _Side:
    """One side of the pairs of a chunk."""

    ids_X: Ints
    local_C: Ints  # the position of each cell within its sentence
    at_C: Ints  # the position of each cell, counted across all sentences
    even_C: Floats  # 1 / length of the sentence


@dataclass
class _Chunk:
    """The cells of some pairs, ordered by pair, target position and source position."""

    pair_C: Ints
    src: _Side
    tgt: _Side

    @property
    def bin_C(self) -> Ints:
        """The bin of each cell's distance."""
        src, tgt = self.src, self.tgt
        distance_C = (src.local_C + 0.5) * src.even_C - (tgt.local_C + 0.5) * tgt.even_C
        return np.rint((distance_C + 1) / 2 * (BINS - 1)).astype(np.int64)


class _Cells:
    """The cells of a corpus in chunks, and their entries. Entry i is the pair of the source id `src_E[i]` and the
    target id `tgt_E[i]`, sorted; entry E represents pairs of ids that never co-occur in the chosen pairs.

    `progress` is called with the cells read so far, in the passes of `_learned` and in one over the pairs `also`, and
    their share of all. The chosen pairs are `pairs` (default: all), or some of them if they have more than `most` cells
    (default: CELLS).
    """

    def __init__(
        self,
        store: TokenStore,
        tgt_size: int,
        progress: Callable[[int, float], None],
        *,
        pairs: Ints | None = None,
        most: int | None = None,
        also: Ints | None = None,
    ) -> None:
        self.store, self.tgt_size, self.progress = store, tgt_size, progress
        self.chosen = _some(store, pairs, most or CELLS)
        self.read = 0
        self.whole = (1 + sum(ITERATIONS)) * int(_cells(store, self.chosen).sum())
        if also is not None:
            self.whole += int(_cells(store, also).sum())
        parts = [_distinct(self._keys(chunk)) for chunk in self.chunks()]
        self._keys_E = _distinct(np.concatenate([np.empty(0, dtype=np.int64), *parts]))
        self.src_E, self.tgt_E = np.divmod(self._keys_E, tgt_size)
        self._learned: list[NDArray[np.int32]] = []

    def chunks(self, pairs: Ints | None = None) -> Iterator[_Chunk]:
        """Yields the chunks of these pairs (default: the chosen ones)."""
        for chunk in _chunks(self.store, self.chosen if pairs is None else pairs):
            yield chunk
            self.read += len(chunk.pair_C)
            self.progress(self.read, self.read / max(1, self.whole))

    def _keys(self, chunk: _Chunk) -> Ints:
        return chunk.src.ids_X[chunk.src.at_C] * self.tgt_size + chunk.tgt.ids_X[chunk.tgt.at_C]

    def entries(self, chunk: _Chunk) -> Ints:
        """Returns the entry of each cell."""
        keys_C = self._keys(chunk)
        entry_C = np.searchsorted(self._keys_E, keys_C).clip(max=len(self._keys_E) - 1)
        return np.where(self._keys_E[entry_C] == keys_C, entry_C, len(self._keys_E))

    def learned(self) -> Iterator[tuple[_Chunk, NDArray[np.int32]]]:
        """Yields the chunks of the chosen pairs with their entries, which are computed once."""
        for i, chunk in enumerate(self.chunks()):
            if i == len(self._learned):
                self._learned.append(self.entries(chunk).astype(np.int32))
            yield chunk, self._learned[i]


def _distinct(keys: Ints) -> Ints:
    """Returns the distinct keys in increasing order. numpy.unique hashes them, which takes ten times as long."""
    keys = np.sort(keys)
    new = np.ones(len(keys), dtype=bool)
    new[1:] = keys[1:] != keys[:-1]
    return keys[new]


def _posterior(joint_C: Floats, side: _Side, empty_X: Floats) -> tuple[Floats, Floats]:
    """Returns the posterior of each cell [C] and of the empty word [X]. The cells of one subword of `side` and its
    empty word sum to 1."""
    total_X = np.bincount(side.at_C, joint_C, len(side.ids_X)) + empty_X
    return joint_C / total_X[side.at_C], empty_X / total_X


def _shares(counts_E: Floats, ids_E: Ints) -> Floats:
    """Returns each count's share of all counts with the same id; 0 where these are all 0."""
    shares_E: Floats = counts_E / np.bincount(ids_E, counts_E).clip(min=1e-300)[ids_E]
    return shares_E


@dataclass
class _Model:
    """The learned probabilities. The last entry represents ids that never co-occurred, with probability 0."""

    forward_E: Floats  # probability of the target subword given the source subword
    backward_E: Floats
    distance_b: Floats
    src_empty_V: Floats  # distribution of the source subwords without a translation
    tgt_empty_V: Floats

    def posteriors(self, chunk: _Chunk, entry_C: NDArray[np.integer]) -> list[tuple[Floats, Floats]]:
        """Returns the two results of `_posterior`: for source subwords generating target subwords, and the reverse."""
        prior_C = self.distance_b[chunk.bin_C]
        posteriors = []
        for side, probability_E, empty_V in (
            (chunk.tgt, self.forward_E, self.tgt_empty_V),
            (chunk.src, self.backward_E, self.src_empty_V),
        ):
            whole_X = np.bincount(side.at_C, prior_C, len(side.ids_X))
            joint_C = (1 - EMPTY) * prior_C / whole_X[side.at_C] * probability_E[entry_C]
            posteriors.append(_posterior(joint_C, side, EMPTY * empty_V[side.ids_X]))
        return posteriors


def aligned(
    store: TokenStore,
    src_size: int,
    tgt_size: int,
    progress: Callable[[int, float], None] = lambda cells, share: None,
    *,
    pairs: Ints | None = None,
    tags: Sequence[int] = (),
) -> tuple[Ints, Ints]:
    """Returns the links of the pairs of a store, in order: alternating source and target positions of linked subwords,
    and the count of these numbers per pair. Only `pairs` (default: all) get links, and only every n-th of them if they
    have more than LINKED cells. Source ids in `tags` get no links.

    `progress` is called with the cells read so far, in all passes over the corpus, and their share of the whole.
    """
    pairs = _some(store, pairs, LINKED)
    cells = _Cells(store, tgt_size, progress, pairs=pairs, most=ALIGNED, also=pairs)
    model = _learned(cells, src_size, tgt_size)
    links, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    every = len(cells.chosen) == len(pairs)
    for chunk, entry_C in cells.learned() if every else ((each, cells.entries(each)) for each in cells.chunks(pairs)):
        (forward_C, _), (backward_C, _) = model.posteriors(chunk, entry_C)
        known_C = ~np.isin(chunk.src.ids_X, tags)[chunk.src.at_C]
        linked = np.flatnonzero((forward_C * backward_C >= ENOUGH**2) & known_C)
        pair, src, tgt = chunk.pair_C[linked], chunk.src.local_C[linked], chunk.tgt.local_C[linked]
        order = np.lexsort((tgt, src, pair))
        links.append(np.stack((src[order], tgt[order]), 1).flatten())
        counts.append(2 * np.bincount(pair, minlength=int(chunk.pair_C[-1]) + 1))
    counts_P = np.zeros(len(store), np.int64)
    counts_P[pairs] = np.concatenate(counts)
    return np.concatenate(links), counts_P


def _learned(cells: _Cells, src_size: int, tgt_size: int) -> _Model:
    """Returns the two models of a corpus, trained to agree."""
    ones_E = np.append(np.ones(len(cells.src_E)), 0)
    model = _Model(ones_E, ones_E, np.ones(BINS), np.full(src_size, 1 / src_size), np.full(tgt_size, 1 / tgt_size))
    for iteration in range(sum(ITERATIONS)):
        counts = _Model(*(np.zeros_like(part) for part in vars(model).values()))
        even_b = np.zeros(BINS)
        for chunk, entry_C in cells.learned():
            _count(model, chunk, entry_C, counts)
            even_b += np.bincount(chunk.bin_C, chunk.src.even_C, BINS)
        both_E = counts.forward_E[:-1] + 1e-12  # avoids dividing by 0 for an entry without counts
        model.forward_E = np.append(_shares(both_E, cells.src_E), 0)
        model.backward_E = np.append(_shares(both_E, cells.tgt_E), 0)
        model.src_empty_V, model.tgt_empty_V = _distribution(counts.src_empty_V), _distribution(counts.tgt_empty_V)
        if iteration >= ITERATIONS[0] - 1:
            model.distance_b = (counts.distance_b + TINY_COUNT) / (even_b + TINY_COUNT)
    return model


def _count(model: _Model, chunk: _Chunk, entry_C: NDArray[np.integer], counts: _Model) -> None:
    """Adds the expected counts of a chunk."""
    (forward_C, tgt_left_X), (backward_C, src_left_X) = model.posteriors(chunk, entry_C)
    both_C = forward_C * backward_C
    counts.forward_E += np.bincount(entry_C, both_C, len(counts.forward_E))
    counts.distance_b += np.bincount(chunk.bin_C, both_C, BINS)
    counts.src_empty_V += np.bincount(chunk.src.ids_X, src_left_X, len(counts.src_empty_V))
    counts.tgt_empty_V += np.bincount(chunk.tgt.ids_X, tgt_left_X, len(counts.tgt_empty_V))


class Judge:
    """Learns models from some pairs of a store, at most `most` cells, and judges other pairs. It must not judge the
    pairs from which it learned, because the rare words of a pair would then explain each other. `size` is the
    vocabulary size of both sides; see `aligned` for `progress`."""

    def __init__(
        self, store: TokenStore, size: int, pairs: Ints, most: int, progress: Callable[[int, float], None]
    ) -> None:
        self._cells = _Cells(store, size, progress, pairs=pairs, most=most)
        self._model = _learned(self._cells, size, size)
        self._shares_V = []
        for side in ("tgt", "src"):
            blocks = np.array_split(self._cells.chosen, 1 + len(self._cells.chosen) // CHUNK)
            counts_V = np.sum([np.bincount(store.joined(side, some)[0], minlength=size) for some in blocks], axis=0)
            self._shares_V.append(counts_V / counts_V.sum())

    def evidence(self, store: TokenStore, pairs: Ints) -> Iterator[list[tuple[Ints, Floats, Floats]]]:
        """Yields the evidence for the target and for the source subwords of these pairs, in order and in parts: for
        each subword, its pair [X]; its position, as a share of the sentence [X]; and its probability given the other
        side divided by its relative frequency [X], nan for unknown subwords."""
        empties_V = self._model.tgt_empty_V, self._model.src_empty_V
        for chunk in _chunks(store, pairs):
            posteriors = self._model.posteriors(chunk, self._cells.entries(chunk))
            sides, parts = (chunk.tgt, chunk.src), []
            for side, shares_V, empty_V, (_, left_X) in zip(sides, self._shares_V, empties_V, posteriors, strict=True):
                pair_X, position_X = np.empty(len(side.ids_X), np.int64), np.empty(len(side.ids_X))
                pair_X[side.at_C], position_X[side.at_C] = chunk.pair_C, side.local_C * side.even_C
                frequency_X = shares_V[side.ids_X]
                frequency_X[frequency_X == 0] = np.nan
                # The probability without the empty word, computed from the empty word's posterior.
                likelihood_X = EMPTY * empty_V[side.ids_X] * (1 / left_X - 1) / (1 - EMPTY)
                parts.append((pair_X, position_X, likelihood_X / frequency_X))
            yield parts


def _distribution(counts: Floats) -> Floats:
    shares: Floats = (counts + TINY_COUNT) / (counts + TINY_COUNT).sum()
    return shares


def _cells(store: TokenStore, pairs: Ints) -> Ints:
    """Returns the number of cells of each pair."""
    counts_P: Ints = store.src_lengths.numpy()[pairs].astype(np.int64) * store.tgt_lengths.numpy()[pairs]
    return counts_P


def _some(store: TokenStore, pairs: Ints | None, most: int) -> Ints:
    """Returns these pairs (default: all), or every n-th of them if they have more than `most` cells."""
    pairs = np.arange(len(store)) if pairs is None else pairs
    return pairs[:: max(1, -(-int(_cells(store, pairs).sum()) // most))]


def _chunks(store: TokenStore, pairs: Ints) -> Iterator[_Chunk]:
    """Yields the cells of some pairs in chunks."""
    cuts = np.flatnonzero(np.diff(_cells(store, pairs).cumsum() // CHUNK)) + 1
    for some in np.split(pairs, cuts) if len(pairs) else ():
        yield _chunk(store, some)


def _chunk(store: TokenStore, pairs: Ints) -> _Chunk:
    S_P, T_P = (lengths.numpy()[pairs].astype(np.int64) for lengths in (store.src_lengths, store.tgt_lengths))
    pair_C = np.repeat(np.arange(len(pairs)), S_P * T_P)
    place_C = np.arange(len(pair_C)) - ((S_P * T_P).cumsum() - S_P * T_P)[pair_C]
    tgt_C, src_C = np.divmod(place_C, S_P[pair_C])
    sides = []
    for side, local_C, lengths_P in (("src", src_C, S_P), ("tgt", tgt_C, T_P)):
        ids_X = store.joined(side, pairs)[0].astype(np.int64)
        sides.append(_Side(ids_X, local_C, (lengths_P.cumsum() - lengths_P)[pair_C] + local_C, 1 / lengths_P[pair_C]))
    return _Chunk(pair_C, *sides)


def learn_shortlist(
    store: TokenStore,
    src_size: int,
    tgt_size: int,
    translations: int,
    frequent: int,
    progress: Callable[[int, float], None] = lambda cells, share: None,
    *,
    tags: Sequence[int] = (),
) -> Shortlist:
    """Returns the lexical shortlist of a corpus: the `translations` most probable target subwords per source subword,
    and the `frequent` most frequent target subwords, which all sentences allow and which are therefore excluded from
    the translations.

    A sentence allows the translations of its subwords and the most frequent target subwords, and the decoder projects
    only to allowed subwords (Jean et al. 2015, section 3.3; L'Hostis et al. 2016): candidates.py and incremental.py
    of engines/. Source ids that are `tags` have no translations; see `aligned` for `progress`.
    """
    often = np.argsort(-store.counts("tgt", tgt_size), kind="stable")[:frequent].astype(np.int32)
    cells = _Cells(store, tgt_size, progress)
    order = np.lexsort((cells.tgt_E, -_learned(cells, src_size, tgt_size).forward_E[:-1], cells.src_E))
    order = order[~np.isin(cells.src_E[order], tags) & ~np.isin(cells.tgt_E[order], often)]
    src, tgt = cells.src_E[order], cells.tgt_E[order]
    rank = np.arange(len(src)) - np.searchsorted(src, src)
    kept = rank < translations
    table = np.full((src_size, translations), EOS_ID, dtype=np.int32)
    table[src[kept], rank[kept]] = tgt[kept]
    return Shortlist(table, often)
