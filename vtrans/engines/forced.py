"""Log-probabilities and cross-attention of existing translations (forced decoding) in torch: one forward pass per batch
of pairs, in which every position predicts its subword from the preceding ones.

Legend: B pairs, S source length with EOS, T target length, N target positions that are not padding, n positions of a
block, or S + T in attention, H heads, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from vtrans.data.batches import Batch, collate
from vtrans.model.attention import Recorder
from vtrans.model.network import Transformer
from vtrans.search.decoder import SubwordPair
from vtrans.text.vocabulary import PAD_ID

Attention = NDArray[np.floating]

# Logits in memory at a time: 32 MB in float32. Larger blocks are not faster.
LOGITS = 1 << 23


def forced_batches(
    pairs: Sequence[SubwordPair], batch_tokens: int, device: torch.device
) -> Iterator[tuple[list[int], Batch]]:
    """Yields batches of pairs of similar length, longest first, each with the indices of its pairs. Skips pairs without
    a target.

    A batch has at most `batch_tokens` subwords on its larger side, including padding, unless it is a single pair.
    `targets_N` holds the targets unchanged, without an additional EOS.
    """
    sizes = [max(len(source) + 1, len(target)) for source, target in pairs]
    order = sorted((i for i, (_, target) in enumerate(pairs) if target), key=lambda i: -sizes[i])
    while order:
        take = max(1, batch_tokens // sizes[order[0]])
        rows, order = order[:take], order[take:]
        sources, targets = zip(*(pairs[i] for i in rows), strict=True)
        batch = collate([_ids(source) for source in sources], [_ids(target[:-1]) for target in targets])
        yield rows, replace(batch, targets_N=torch.cat([_ids(target) for target in targets])).to(device)


def _ids(tokens: Sequence[int]) -> Tensor:
    return torch.tensor(tokens, dtype=torch.long)


def token_logprobs(
    model: Transformer, pairs: Sequence[SubwordPair], batch_tokens: int
) -> Iterator[tuple[int, Sequence[float]]]:
    """Yields the index of each pair that has a target, and the natural log-probability of each target subword given the
    preceding ones. Padding is not projected, and at most LOGITS logits are in memory at a time."""
    for rows, batch in forced_batches(pairs, batch_tokens, model.device):
        numbers = iter(_logprobs(model, batch).tolist())
        for row in rows:
            yield row, [next(numbers) for _ in pairs[row][1]]


def _logprobs(model: Transformer, batch: Batch) -> Tensor:
    """Returns the log-probabilities of `batch.targets_N` [N], in float64 on the CPU."""
    h_ND = model.hidden(*batch.inputs)
    parts = []
    rows = max(1, LOGITS // len(model.projection.weight))
    for i in range(0, len(h_ND), rows):
        logits_nV, targets_n = model.logits(h_ND[i : i + rows]), batch.targets_N[i : i + rows]
        if logits_nV.dtype in (torch.bfloat16, torch.float16):
            logits_nV = logits_nV.float()
        chosen_n = logits_nV.gather(1, targets_n[:, None])[:, 0] - logits_nV.logsumexp(1)
        parts.append(chosen_n)
    return torch.cat(parts).cpu().double()


def attention(model: Transformer, pairs: Sequence[SubwordPair], batch_tokens: int) -> Iterator[tuple[int, Attention]]:
    """Yields the index of each pair that has a target, and the attention [T, S] that aligns its subwords. T and S
    include the padding of its batch."""
    for rows, batch in forced_batches(pairs, batch_tokens, model.device):
        yield from zip(rows, mean_attention(model, batch), strict=True)


# For models without guided alignment, three choices had the lowest alignment error rate: the upper half of the
# decoder's layers, the mean of their heads, and the position that predicts a subword, not the one that is fed it.
def mean_attention(model: Transformer, batch: Batch) -> NDArray[np.float64]:
    """Returns the attention [B, T, S] that aligns each target subword.

    If a head of the model is trained to align words, this is its attention at the position that is fed the subword, or,
    for the last subword, at the position that predicts it. Otherwise it is the mean attention of all heads in the upper
    half of the layers, without the middle layer, at the position that predicts the subword.
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

    In a decoder-only model, a position also attends to earlier target positions, so its row sums to less than 1. A head
    that attends mostly to the target thus has little weight in a mean.
    """
    recorder = Recorder(range(first, model.config.decoder_layers))
    model.decode(batch.tgt_in_BT, model.encode(batch.src_BS, batch.keep_BS), batch.keep_BS, recorder)
    T, S = batch.tgt_in_BT.shape[1], batch.src_BS.shape[1]
    return [logprobs_BHQn[:, :, -T:, :S].exp() for logprobs_BHQn in recorder.logprobs]


def upper_half(model: Transformer) -> int:
    """Returns the number of the lowest layer in the upper half, which excludes the middle layer; 0 is the lowest."""
    layers = model.config.decoder_layers
    return layers - max(1, layers // 2)
