"""Word alignment of training pairs, between their subwords: what `prepare-bpe --align` makes for guided alignment.

Two models, one per direction, say how likely each subword of one side generates a subword of the other: IBM model 1
(Brown et al. 1993) times a weight for the relative distance of the two positions, as in fast_align (Dyer et al. 2013),
but a table instead of a formula. In both, an empty word generates what has no translation. The models are trained to
agree (Liang et al. 2006): the expected count of a link is the product of its two posteriors.

Legend: P pairs, C cells (a target and a source position of a pair), E entries (distinct pairs of ids), X subwords of
one side of all pairs of a chunk, V vocabulary of a side, b bins of distances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vtrans.data.store import TokenStore

CELLS = 50_000_000  # the most cells to learn from; of a larger corpus, every n-th pair is read
CHUNK = 1_000_000  # cells per chunk of work
ITERATIONS = (3, 3)  # of EM, without and with distances; five of each gave no better links
EMPTY = 0.08  # prior probability that a subword has no translation, as in fast_align
BINS = 21  # of relative distances, from -1 to 1
ENOUGH = 0.3  # the least geometric mean of a link's two posteriors
SMALL = 1e-3  # a count that nothing lacks

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass
class _Side:
    """One side of the pairs of a chunk."""

    ids_X: Ints
    local_C: Ints  # the position of each cell in its sentence
    at_C: Ints  # the same, counted through all sentences
    even_C: Floats  # 1 / length of the sentence


@dataclass
class _Chunk:
    """The cells of some pairs, ordered by pair, target position and source position."""

    pair_C: Ints
    bin_C: Ints  # of the distance
    src: _Side
    tgt: _Side


@dataclass
class _Model:
    """What has been learned. `entry` stands for the last entry where a pair of ids is unknown; it has probability 0."""

    forward_E: Floats  # probability of the target subword, given the source subword
    backward_E: Floats
    distance_b: Floats
    src_empty_V: Floats  # distribution of the source subwords without a translation
    tgt_empty_V: Floats

    def posteriors(self, chunk: _Chunk, entry_C: Ints) -> tuple[Floats, Floats]:
        """Returns the probability of each cell that its source subword generates its target subword, and that the
        target subword generates the source subword."""
        prior_C = self.distance_b[chunk.bin_C]
        return (
            _posterior(prior_C, self.forward_E[entry_C], chunk.tgt, self.tgt_empty_V),
            _posterior(prior_C, self.backward_E[entry_C], chunk.src, self.src_empty_V),
        )


def _posterior(prior_C: Floats, probability_C: Floats, side: _Side, empty_V: Floats) -> Floats:
    """Returns the posterior of each cell among those that share a subword of `side`, and the empty word."""
    size = len(side.ids_X)
    joint_C = (1 - EMPTY) * prior_C / np.bincount(side.at_C, prior_C, size)[side.at_C] * probability_C
    total_X = np.bincount(side.at_C, joint_C, size) + EMPTY * empty_V[side.ids_X]
    posterior_C: Floats = joint_C / total_X[side.at_C]
    return posterior_C


def aligned(
    store: TokenStore,
    src_size: int,
    tgt_size: int,
    progress: Callable[[int, float], None] = lambda cells, share: None,
    *,
    tags: Sequence[int] = (),
) -> Iterator[tuple[Ints, Ints]]:
    """Yields the links of all pairs of a store in order, in parts: the positions of linked subwords in the source and
    the target, in turns, and how many of these numbers each pair has. Source ids that are `tags` have no links.

    `progress` is called with the cells read so far, in all passes over the store, and their share of the whole.
    """
    cells_P = store.src_lengths.numpy().astype(np.int64) * store.tgt_lengths.numpy()
    every = np.arange(len(store))
    chosen = every[:: max(1, -(-int(cells_P.sum()) // CELLS))]
    whole, read = int(cells_P[chosen].sum()) * (1 + sum(ITERATIONS)) + int(cells_P.sum()), 0

    def chunks(pairs: Ints) -> Iterator[tuple[_Chunk, Ints]]:
        nonlocal read
        run = cells_P[pairs].cumsum() // CHUNK
        for some in np.split(pairs, np.flatnonzero(np.diff(run)) + 1):
            chunk = _chunk(store, some)
            yield chunk, chunk.src.ids_X[chunk.src.at_C] * tgt_size + chunk.tgt.ids_X[chunk.tgt.at_C]
            read += len(chunk.pair_C)
            progress(read, read / whole)

    keys_E = np.unique(np.concatenate([np.unique(keys_C) for _, keys_C in chunks(chosen)]))
    src_E, tgt_E = np.divmod(keys_E, tgt_size)
    ones_E = np.append(np.ones(len(keys_E)), 0)
    model = _Model(ones_E, ones_E, np.ones(BINS), np.full(src_size, 1 / src_size), np.full(tgt_size, 1 / tgt_size))
    for iteration in range(sum(ITERATIONS)):
        counts = _Model(*(np.zeros_like(part) for part in vars(model).values()))
        even_b = np.zeros(BINS)
        for chunk, keys_C in chunks(chosen):
            _count(model, chunk, _entries(keys_E, keys_C), counts)
            even_b += np.bincount(chunk.bin_C, chunk.src.even_C, BINS)
        both_E = counts.forward_E[:-1] + 1e-12  # an entry that is never likely must not divide by 0
        model.forward_E = np.append(both_E / np.bincount(src_E, both_E)[src_E], 0)
        model.backward_E = np.append(both_E / np.bincount(tgt_E, both_E)[tgt_E], 0)
        model.src_empty_V, model.tgt_empty_V = _distribution(counts.src_empty_V), _distribution(counts.tgt_empty_V)
        if iteration >= ITERATIONS[0] - 1:
            model.distance_b = (counts.distance_b + SMALL) / (even_b + SMALL)
    for chunk, keys_C in chunks(every):
        forward_C, backward_C = model.posteriors(chunk, _entries(keys_E, keys_C))
        known_C = ~np.isin(chunk.src.ids_X, tags)[chunk.src.at_C]
        linked = np.flatnonzero((forward_C * backward_C >= ENOUGH**2) & known_C)
        pair, src, tgt = chunk.pair_C[linked], chunk.src.local_C[linked], chunk.tgt.local_C[linked]
        order = np.lexsort((tgt, src, pair))
        pairs = int(chunk.pair_C[-1]) + 1
        yield np.stack((src[order], tgt[order]), 1).flatten(), 2 * np.bincount(pair, minlength=pairs)


def _count(model: _Model, chunk: _Chunk, entry_C: Ints, counts: _Model) -> None:
    """Adds what the model expects of a chunk to the counts."""
    forward_C, backward_C = model.posteriors(chunk, entry_C)
    both_C = forward_C * backward_C
    counts.forward_E += np.bincount(entry_C, both_C, len(counts.forward_E))
    counts.distance_b += np.bincount(chunk.bin_C, both_C, BINS)
    for side, posterior_C, empty_V in (
        (chunk.src, backward_C, counts.src_empty_V),
        (chunk.tgt, forward_C, counts.tgt_empty_V),
    ):
        left_X = 1 - np.bincount(side.at_C, posterior_C, len(side.ids_X))
        empty_V += np.bincount(side.ids_X, left_X.clip(0), len(empty_V))


def _distribution(counts: Floats) -> Floats:
    shares: Floats = (counts + SMALL) / (counts + SMALL).sum()
    return shares


def _entries(keys_E: Ints, keys_C: Ints) -> Ints:
    """Returns the entry of each key, or the number of entries for a key that is not among them."""
    entry_C = np.searchsorted(keys_E, keys_C).clip(max=len(keys_E) - 1)
    return np.where(keys_E[entry_C] == keys_C, entry_C, len(keys_E))


def _chunk(store: TokenStore, pairs: Ints) -> _Chunk:
    S_P, T_P = (lengths.numpy()[pairs].astype(np.int64) for lengths in (store.src_lengths, store.tgt_lengths))
    pair_C = np.repeat(np.arange(len(pairs)), S_P * T_P)
    place_C = np.arange(len(pair_C)) - ((S_P * T_P).cumsum() - S_P * T_P)[pair_C]
    tgt_C, src_C = np.divmod(place_C, S_P[pair_C])
    sides = []
    for side, local_C, lengths_P in (("src", src_C, S_P), ("tgt", tgt_C, T_P)):
        ids_X = store.joined(side, pairs)[0].astype(np.int64)
        sides.append(_Side(ids_X, local_C, (lengths_P.cumsum() - lengths_P)[pair_C] + local_C, 1 / lengths_P[pair_C]))
    src, tgt = sides
    distance_C = (src.local_C + 0.5) * src.even_C - (tgt.local_C + 0.5) * tgt.even_C
    return _Chunk(pair_C, np.rint((distance_C + 1) / 2 * (BINS - 1)).astype(np.int64), src, tgt)
