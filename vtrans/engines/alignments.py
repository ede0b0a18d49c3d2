"""Word alignments of translations, read from the cross-attention of the decoder.

After the search, one forced pass over the translation shows where every position attends; nothing is recorded during
the search. Words are what `split()` returns for the source line and for the translation.

Legend: B pairs, S source length with EOS, T target length, n = S + T, H heads, I source words, J target words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from vtrans.data.batches import Batch
from vtrans.engines.forced import Pair, forced_batches
from vtrans.model import Recorder, Transformer
from vtrans.text.vocabulary import PAD_ID

Links = tuple[tuple[int, int], ...]
"""Pairs of a source word and a target word, counted from 0."""

NO_WORD = -1
"""The word of a source subword that belongs to none, such as the tag of a target language."""

# Chosen by alignment error rate on the gold alignments of the phrasebook (tests/bench/alignments.py), for models
# without guided alignment: the upper half of the decoder's layers, the mean of their heads, and the position that
# predicts a subword, not the one that is fed it. Each target word is linked to the source word that it attends to most.
# Each source word is linked to the target word that attends to it most, if this attention is at least ENOUGH: a
# translation need not render every word.
ENOUGH = 0.1


def align(
    models: Sequence[Transformer],
    weights: Sequence[float],
    pairs: Sequence[Pair],
    words: Sequence[tuple[Sequence[int], Sequence[int]]],
    batch_tokens: int,
) -> list[Links]:
    """Returns the links of each pair, by decreasing attention. The attention of several models is averaged by
    `weights`. `words` holds, for both sides of each pair, the number of each subword's word, without EOS."""
    alignments: list[Links] = [()] * len(pairs)
    for rows, batch in forced_batches(pairs, batch_tokens, models[0].device):
        attention_BTS = np.sum(
            [weight * mean_attention(model, batch) for model, weight in zip(models, weights, strict=True)], axis=0
        )
        for row, attention_TS in zip(rows, attention_BTS, strict=True):
            alignments[row] = links(attention_TS, *words[row])
    return alignments


def mean_attention(model: Transformer, batch: Batch) -> NDArray[np.float64]:
    """Returns the attention [B, T, S] that aligns each target subword.

    If the model has a head that aligns words, it is that of this head, at the position that is fed the subword. No
    position is fed the last subword, so the one that predicts it stands in. In other models it is that of the position
    that predicts the subword, the mean over the heads of the upper half of the layers. With an odd number of layers,
    the middle one is left out.
    """
    if layer := model.config.alignment_layer:
        predicting_BTS = cross_attention(model, batch, layer - 1)[0][:, 0]
        fed_BT1 = F.pad(batch.tgt_in_BT[:, 1:] != PAD_ID, (0, 1))[:, :, None]
        aligning_BTS = torch.where(fed_BT1, predicting_BTS.roll(-1, 1), predicting_BTS)
    else:
        aligning_BTS = torch.cat(cross_attention(model, batch, upper_half(model)), 1).mean(1)
    attention_BTS: NDArray[np.float64] = aligning_BTS.float().cpu().double().numpy()
    return attention_BTS


def cross_attention(model: Transformer, batch: Batch, first: int = 0) -> list[Tensor]:
    """Returns the attention of each target position to the source [B, H, T, S], for each decoder layer from `first`
    on; 0 is the lowest layer.

    In a decoder-only model, a position also attends to earlier target positions, so its row sums to less than 1. A
    head that attends mostly to the target says little about the source, and has little weight in a mean.
    """
    recorder = Recorder(range(first, model.config.decoder_layers))
    model.decode(batch.tgt_in_BT, model.encode(batch.src_BS, batch.keep_BS), batch.keep_BS, recorder)
    T, S = batch.tgt_in_BT.shape[1], batch.src_BS.shape[1]
    return [logprobs_BHQn[:, :, -T:, :S].exp() for logprobs_BHQn in recorder.logprobs]


def upper_half(model: Transformer) -> int:
    """Returns the lowest layer of the upper half."""
    layers = model.config.decoder_layers
    return layers - max(1, layers // 2)


def links(attention_TS: NDArray[np.float64], src_words: Sequence[int], tgt_words: Sequence[int]) -> Links:
    """Returns the links between words by decreasing attention, from the attention between their subwords.

    Attention is summed over the subwords of a source word and averaged over the subwords of a target word. Attention
    to EOS, and to subwords at the start that belong to no word, is ignored.
    """
    begin = src_words.count(NO_WORD)
    if len(src_words) == begin or not tgt_words:
        return ()
    sources, src_starts = np.unique(src_words[begin:], return_index=True)
    targets, tgt_starts, sizes = np.unique(tgt_words, return_index=True, return_counts=True)
    real_TS = attention_TS[: len(tgt_words), begin : len(src_words)]
    shared_JI = np.add.reduceat(np.add.reduceat(real_TS, src_starts, 1), tgt_starts, 0) / sizes[:, None]
    chosen = {(int(i), j) for j, i in enumerate(shared_JI.argmax(1))}
    chosen |= {(i, int(j)) for i, j in enumerate(shared_JI.argmax(0)) if shared_JI[j, i] >= ENOUGH}
    by_attention = sorted(chosen, key=lambda link: (-shared_JI[link[1], link[0]], link))
    return tuple((int(sources[i]), int(targets[j])) for i, j in by_attention)


def pharaoh(links: Links) -> str:
    """Returns the links in Pharaoh format and in order: `0-0 1-2`, source word and target word."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))
