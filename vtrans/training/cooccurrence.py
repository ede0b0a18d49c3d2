"""Initial embeddings from the subwords that occur together in the training pairs.

A subword is described by the pairs in which it occurs, on either side, so that translations of each other begin close
together (Levy, Søgaard and Goldberg 2017). The vectors are the truncated factors of the matrix of positive pointwise
mutual information (Levy and Goldberg 2014).

Legend: K counted subwords, D model width.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vtrans.data.store import DataFolder, TokenStore
from vtrans.model.network import Transformer
from vtrans.text.vocabulary import SPECIAL_PIECES

PAIRS = 100_000  # at most so many are counted, evenly spaced: more take longer and change little
COUNTED = 8192  # the most frequent subwords are counted, in 256 MiB
SEEN = 2  # two subwords that share fewer pairs than this count as unrelated
SHARE = 0.9  # of an embedding's length that comes from its vector; the rest is random and tells synonyms apart
POWER_ITERATIONS = 3


@torch.no_grad()
def initialise_embeddings(model: Transformer, data: DataFolder, seed: int) -> None:
    """Replaces the initial embeddings of the subwords that the training pairs relate to others. Their variance stays,
    and so do the embeddings of other subwords. `seed` draws the start of the factorisation and a rotation."""
    weights = {"src": model.src_embedding.weight, "tgt": model.tgt_embedding.weight}
    first_of_target = 0 if data.joint else len(data.src_vocab)
    size = first_of_target + len(data.tgt_vocab)
    ids = frequent(data.train, first_of_target, size)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        vectors_KD = factors(information(*together(data.train, ids, first_of_target, size)), model.config.d_model)
    related = vectors_KD.norm(dim=1) > 0
    for side, first, rows in (("src", 0, len(data.src_vocab)), ("tgt", first_of_target, len(data.tgt_vocab))):
        if side == "tgt" and weights["tgt"] is weights["src"]:
            continue
        chosen = related & (ids >= first) & (ids < first + rows)
        weight, places = weights[side], ids[chosen] - first
        vectors = vectors_KD[chosen].to(weight) * SHARE
        weight[places] = vectors + (1 - SHARE**2) ** 0.5 * weight[places]


def frequent(store: TokenStore, first_of_target: int, size: int) -> Tensor:
    """Returns the ids of the counted subwords [K], in order. Those of the target begin at `first_of_target`."""
    counts = store.counts("src", size)
    counts[first_of_target:] += store.counts("tgt", size - first_of_target)
    for first in (0, first_of_target):
        counts[first : first + len(SPECIAL_PIECES)] = 0
    most = np.argsort(-counts, kind="stable")[:COUNTED]
    return torch.from_numpy(np.sort(most[counts[most] > 0]))


def together(store: TokenStore, ids: Tensor, first_of_target: int, size: int) -> tuple[Tensor, int]:
    """Returns the number of pairs that contain two subwords [K, K], and on the diagonal that contain one; and the
    number of pairs."""
    K, places = len(ids), np.full(size, -1, np.int64)
    places[ids.numpy()] = np.arange(K)
    counts_KK = np.zeros((K, K), np.float32)
    numbers = np.unique(np.linspace(0, len(store) - 1, min(len(store), PAIRS)).astype(np.int64))
    for i in numbers.tolist():
        pair = np.concatenate((store.src(i).numpy(), store.tgt(i).numpy() + first_of_target))
        here = np.unique(places[pair])
        here = here[here >= 0]
        counts_KK[here[:, None], here] += 1
    return torch.from_numpy(counts_KK), len(numbers)


def information(counts_KK: Tensor, pairs: int) -> Tensor:
    """Returns the pointwise mutual information [K, K], in nats, of the subwords of a pair; 0 where it is negative. Uses
    the memory of `counts_KK`."""
    counts_K, unrelated_KK = counts_KK.diagonal().clone(), counts_KK < SEEN
    counts_KK /= torch.outer(counts_K, counts_K / pairs)
    return counts_KK.masked_fill_(unrelated_KK, 1.0).log_().clamp_(min=0)


def factors(symmetric_KK: Tensor, D: int) -> Tensor:
    """Returns unit vectors [K, D] of the rows, by a randomised singular value decomposition; 0 for rows of zeros. They
    are rotated at random, so that no dimension is special."""
    used = min(D, len(symmetric_KK))
    left_KD, values_D, _ = torch.svd_lowrank(symmetric_KK, q=used, niter=POWER_ITERATIONS)
    rotation_DD = torch.linalg.qr(torch.randn(D, D)).Q[:used]
    vectors_KD = (left_KD * values_D.sqrt()) @ rotation_DD
    lengths_K1 = vectors_KD.norm(dim=1, keepdim=True)
    return torch.where(lengths_K1 > 1e-6, vectors_KD / lengths_K1, 0.0)
