"""Finds pairs that do not translate each other, by IBM model 1 learned from the text itself.

Each pair is judged by a model learned from other pairs. The same models judge pairs damaged on purpose: shuffled pairs,
and pairs with one side cut. A logistic regression separates the text's pairs from the damaged ones. As some of the
text's pairs are damaged too, it is repeated with each pair weighted by the probability that it is sound (learning from
positive and unlabelled examples, Elkan and Noto 2008). The result is a probability of damage, not a score with a
threshold; it depends on the estimated share of damaged pairs in the text.

Legend: P pairs, K features, W weights of the regression.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vtrans.data.aligner import Floats, Ints, Judge
from vtrans.data.logistic import probability, regression
from vtrans.data.store import TokenStore
from vtrans.system.console import Console

IDS = 1 << 18  # word ids; collisions of rare words do little harm
STEM = 5  # leading characters that identify a word
FOLDS = 4  # each quarter of the pairs is judged by a model of the others
NEIGHBOURS = 64  # consecutive pairs kept in one fold: they often translate the same sentence
LEARNED = 10_000_000  # cells that a model learns from; more would take longer than all the rest
SAMPLE = 20_000  # pairs that are damaged
FEWEST_PAIRS = 1000  # minimum for the models
FLOOR = 0.1  # interpolation weight of a word's frequency
FEATURES, RATIO = 12, 10  # the number of features, and the index of the length ratio
DOUBT = 0.25  # pairs are dropped above this probability of damage: bad pairs harm more than good ones help
# Damaged pairs are not used if their length ratio is below this quantile of the text's ratios, or above its mirror
# quantile. It is lower for cuts, which change the ratio: the text's own cut pairs are at the ends.
ODD_RATIOS = {"misaligned": 0.005, "incomplete": 0.0005}
ROUNDS, STEPS = 15, 2  # of reweighting the pairs, and of Newton's method per round
RIDGE = 1e-4
FIRST_SHARE = 0.1  # minimum share of damaged pairs in the first round; halved in each later round
QUANTILES = (0.3, 0.4, 0.5, 0.6)
_BLOCK_PAIRS = 1 << 14  # pairs


@lru_cache(1 << 16)
def id_of(word: str) -> int:
    """Returns the id of a word, a hash of its first STEM characters."""
    return zlib.crc32(word[:STEM].encode()) % IDS


def unsound(store: TokenStore, rows: Ints, seed: int, folder: Path, console: Console) -> Iterator[tuple[str, Ints]]:
    """Yields the rule "misaligned" with the rows that it drops from `rows`, then "incomplete" with further rows, four
    times. `folder` gets a file of 48 bytes per row."""
    rng = np.random.default_rng(seed)
    features_PK = np.memmap(folder / "features", np.float32, "w+", shape=(len(rows), FEATURES))
    folds_P = np.arange(len(rows)) // NEIGHBOURS % FOLDS
    samples, damaged = list[Ints](), [(rule, list[Floats]()) for rule in ("misaligned", *["incomplete"] * 4)]
    for fold in range(FOLDS):
        inside = np.flatnonzero(folds_P == fold)
        with console.progress(f"judging the pairs ({fold + 1} of {FOLDS})", unit="links") as counter:
            judge = Judge(store, IDS, rows[folds_P != fold], LEARNED, counter.update)
        for some in _blocks(inside):
            features_PK[some] = _features(judge, store, rows[some])
        samples.append(inside[:: -(-len(rows) // SAMPLE)])
        for (_, parts), worse in zip(damaged, _damaged(store, rows[samples[-1]], rng), strict=True):
            parts.append(_features(judge, worse, np.arange(len(worse))))
    left_P, ours = np.ones(len(rows), bool), np.concatenate(samples)
    doubts: list[Callable[[Floats], NDArray[np.bool_]]] = []
    for rule, parts in damaged:
        ours_PK = features_PK[ours[left_P[ours]]].astype(np.float64)
        theirs_PK = np.concatenate(parts)
        # Apply the earlier rules to the damaged pairs too: they must resemble the remaining pairs.
        for doubtful in doubts:
            theirs_PK = theirs_PK[~doubtful(theirs_PK)]
        if len(ours_PK):
            low, high = np.quantile(ours_PK[:, RATIO], (rare := ODD_RATIOS[rule], 1 - rare))
            theirs_PK = theirs_PK[(low <= theirs_PK[:, RATIO]) & (theirs_PK[:, RATIO] <= high)]
        doubts.append(doubts_of(ours_PK, theirs_PK))
        before_P = left_P.copy()
        for start in range(0, len(rows), _BLOCK_PAIRS):
            block = slice(start, start + _BLOCK_PAIRS)
            left_P[block] &= ~doubts[-1](features_PK[block].astype(np.float64))
        yield rule, rows[before_P & ~left_P]


def _blocks(rows: Ints) -> Iterator[Ints]:
    return (rows[start : start + _BLOCK_PAIRS] for start in range(0, len(rows), _BLOCK_PAIRS))


def _features(judge: Judge, store: TokenStore, rows: Ints) -> Floats:
    """Returns the features of some pairs [P, K]. Per side: the mean log-ratio of the words' probability given the other
    side to their frequency (over all words, the first and the second half), the share of words that lose, and the
    largest loss of consecutive words. Per pair: the log-ratio of the lengths, and the log of the smaller length."""
    lengths = [np.log(sizes.numpy()[rows]) for sizes in (store.src_lengths, store.tgt_lengths)]
    parts = [np.empty((0, RATIO))]
    for sides in judge.evidence(store, rows):
        size = int(sides[0][0][-1]) + 1
        parts.append(np.stack([means for side in sides for means in _means(*side, size)], 1))
    whole = lengths[0] - lengths[1], np.minimum(*lengths)
    return np.column_stack([np.concatenate(parts), *whole])


def _means(pair_X: Ints, position_X: Floats, ratio_X: Floats, size: int) -> Iterator[Floats]:
    known_X, late_X = ~np.isnan(ratio_X), position_X >= 0.5
    gain_X = np.log(FLOOR + (1 - FLOOR) * ratio_X)
    cases = ((gain_X, known_X), (gain_X, known_X & ~late_X), (gain_X, known_X & late_X), (gain_X < 0, known_X))
    for values_X, chosen_X in cases:
        counts_P = np.bincount(pair_X, chosen_X, size)
        yield np.bincount(pair_X[chosen_X], values_X[chosen_X], size) / counts_P.clip(min=1)
    yield _longest_loss(pair_X, np.nan_to_num(-gain_X), size)


def _longest_loss(pair_X: Ints, loss_X: Floats, size: int) -> Floats:
    """Returns the largest sum of losses over consecutive words, per pair [P]; 0 if no word has a loss."""
    lengths_P = np.bincount(pair_X, minlength=size)
    begins_P = lengths_P.cumsum() - lengths_P
    here_P, largest_P = np.zeros(size), np.zeros(size)  # sums that end here, and the maxima so far
    for k in range(lengths_P.max()):
        longer = np.flatnonzero(lengths_P > k)
        here_P[longer] = (here_P[longer] + loss_X[begins_P[longer] + k]).clip(min=0)
        largest_P = np.maximum(largest_P, here_P)
    return largest_P


def _damaged(store: TokenStore, rows: Ints, rng: np.random.Generator) -> list[TokenStore]:
    """Returns the pairs with shuffled targets, then the pairs of more than three words per side with only the first or
    last 30% to 60% of one side. Each of the five kinds of damage is a separate store, because each has typical features
    that are frequent within its kind but rare among all."""
    joined = (store.joined(side, rows) for side in ("src", "tgt"))
    src, tgt = (np.split(ids, lengths.cumsum()[:-1]) for ids, lengths in joined)
    order = rng.permutation(len(rows))
    stores = [_store([src[i] for i in order], [tgt[i] for i in np.roll(order, 1)])]
    whole = [pair for pair in zip(src, tgt, strict=True) if min(map(len, pair)) > 3]
    for side, last in itertools.product((0, 1), (False, True)):
        cut = [list(pair) for pair in whole]
        for pair, share in zip(cut, rng.uniform(0.3, 0.6, len(cut)), strict=True):
            size = round(share * len(pair[side]))
            pair[side] = pair[side][-size:] if last else pair[side][:size]
        stores.append(_store([src for src, _ in cut], [tgt for _, tgt in cut]))
    return stores


def _store(src: Sequence[NDArray[np.int32]], tgt: Sequence[NDArray[np.int32]]) -> TokenStore:
    columns = {}
    for name, sentences in (("src", src), ("tgt", tgt)):
        columns[f"{name}_ids"] = np.concatenate([np.empty(0, np.int32), *sentences])
        columns[f"{name}_offsets"] = np.cumsum([0, *map(len, sentences)])
    return TokenStore(Path(), columns)


def doubts_of(pairs_PK: Floats, damaged_PK: Floats) -> Callable[[Floats], NDArray[np.bool_]]:
    """Returns a function from features [P, K] to whether each pair's probability of damage exceeds DOUBT [P].

    An unknown share of `pairs_PK` is damaged; all of `damaged_PK` are.
    """
    if not len(pairs_PK) or not len(damaged_PK):
        return lambda features_PK: np.zeros(len(features_PK), bool)
    mean_K, scale_K = pairs_PK.mean(0), pairs_PK.std(0) + 1e-9
    upper = np.triu_indices(pairs_PK.shape[1])

    def expanded(features_PK: Floats) -> Floats:
        standard_PK = ((features_PK - mean_K) / scale_K).clip(-6, 6)
        products = (standard_PK[:, :, None] * standard_PK[:, None, :])[:, upper[0], upper[1]]
        return np.column_stack([np.ones(len(standard_PK)), standard_PK, products])

    inputs_PW = np.concatenate([expanded(pairs_PK), expanded(damaged_PK)])
    is_damaged_P = np.repeat([0.0, 1.0], [len(pairs_PK), len(damaged_PK)])
    sound_P, odds, weights_W = np.ones(len(pairs_PK)), 1.0, np.zeros(inputs_PW.shape[1])
    ridge_W = np.full(len(weights_W), RIDGE)
    for number in range(ROUNDS):
        parts = sound_P / sound_P.sum().clip(min=1e-9), np.full(len(damaged_PK), 1 / len(damaged_PK))
        weights_W = regression(inputs_PW, is_damaged_P, np.concatenate(parts), ridge_W, weights_W, STEPS)
        scores_P = inputs_PW @ weights_W
        ours_P, theirs_P = scores_P[: len(pairs_PK)], scores_P[len(pairs_PK) :]
        # An upper bound: among damaged pairs, a share q scores above the quantile 1 - q (Storey 2002).
        share = min((ours_P > np.quantile(theirs_P, 1 - q)).mean() / q for q in QUANTILES)
        # Doubt more pairs in early rounds, so that the regression does not learn that they are sound.
        share = max(share, FIRST_SHARE / 2**number)
        odds = float(np.clip(share, 1e-4, 0.95)) / (1 - float(np.clip(share, 1e-4, 0.95)))
        sound_P = 1 - probability(ours_P, odds)
    return lambda features_PK: probability(expanded(features_PK) @ weights_W, odds) > DOUBT
