"""Log-probabilities of existing translations (forced decoding): one forward pass per batch of pairs, in which every
position predicts its subword from the preceding ones.

Legend: B pairs, S source length with EOS, T target length, N target positions that are not padding, n positions of a
block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vtrans.data.batches import Batch, collate
from vtrans.model.network import Transformer
from vtrans.search.decoder import SubwordPair

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
