"""Log-probabilities of translations that are given, not searched (forced decoding): one pass of the whole
network over each batch of pairs, in which every position predicts its subword from those before it.

Legend: B pairs, S source length with EOS, T target length, N real target positions, D model width,
V vocabulary, M models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vtrans.data.vocabulary import BOS_ID, EOS_ID, PAD_ID
from vtrans.errors import VtransError
from vtrans.model import Transformer

# Numbers of a block of logits: 32 MB in float32, whatever the batch; larger blocks are not faster.
BLOCK = 1 << 23

Pair = tuple[Sequence[int], Sequence[int]]
"""Subword ids: a source without EOS, and the target as it is predicted, with EOS if that counts."""


@dataclass(frozen=True)
class ForcedBatch:
    """Pairs of like length: `rows` are their numbers, `src_BS` ends each source with EOS, `keep_BS` is
    True where it is real, `tgt_in_BT` begins with BOS, `targets` are the subwords that follow, and
    `real_N` their places in the flattened B * T, pair after pair."""

    rows: list[int]
    src_BS: Tensor
    keep_BS: Tensor
    tgt_in_BT: Tensor
    targets: list[Sequence[int]]
    real_N: Tensor


def forced_batches(pairs: Sequence[Pair], batch_tokens: int, device: torch.device) -> Iterator[ForcedBatch]:
    """All pairs with a target, the longest first, in batches of at most `batch_tokens` padded subwords of
    the larger side, or of one pair."""
    sizes = [max(len(source) + 1, len(target)) for source, target in pairs]
    order = sorted((i for i, (_, target) in enumerate(pairs) if target), key=lambda i: -sizes[i])
    while order:
        take = max(1, batch_tokens // sizes[order[0]])
        rows, order = order[:take], order[take:]
        src_BS, keep_BS = _padded([[*pairs[i][0], EOS_ID] for i in rows], device)
        tgt_in_BT, real_BT = _padded([[BOS_ID, *pairs[i][1][:-1]] for i in rows], device)
        real_N = real_BT.flatten().nonzero().squeeze(1)
        yield ForcedBatch(rows, src_BS, keep_BS, tgt_in_BT, [pairs[i][1] for i in rows], real_N)


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """The rows as one tensor, and where it is real."""
    longest = max(map(len, rows))
    padded = torch.tensor([[*row] + [PAD_ID] * (longest - len(row)) for row in rows])
    keep = torch.arange(longest) < torch.tensor([len(row) for row in rows])[:, None]
    return padded.to(device), keep.to(device)


def token_logprobs(
    models: Sequence[Transformer],
    weights: Sequence[float],
    pairs: Sequence[Pair],
    batch_tokens: int,
    done: Callable[[], None] = lambda: None,
) -> list[tuple[float, ...]]:
    """For each pair the natural log-probability of each subword of its target, given those before it.

    Of several models the probabilities are averaged by `weights`, which sum to 1. Padded positions are
    never projected, and of the logits no more than BLOCK numbers exist at a time. `done` is called for
    each pair that has a target. Raises VtransError where a model gives NaN.
    """
    found: list[tuple[float, ...]] = [()] * len(pairs)
    shares_M1 = torch.tensor(weights, dtype=torch.float64).log()[:, None]
    for batch in forced_batches(pairs, batch_tokens, models[0].device):
        logprobs_MN = torch.stack([_of_model(model, batch) for model in models])
        # Clamped: rounding may leave a sure subword above 0, as in the search.
        logprobs_N = (logprobs_MN + shares_M1).logsumexp(0).clamp(max=0.0)
        if bool(logprobs_N.isnan().any()):
            raise VtransError(
                "the model's log-probabilities are not numbers; its weights are damaged or too large for its "
                "precision: try another checkpoint."
            )
        numbers = iter(logprobs_N.tolist())
        for row, target in zip(batch.rows, batch.targets, strict=True):
            found[row] = tuple(next(numbers) for _ in target)
            done()
    return found


def hidden(model: Transformer, batch: ForcedBatch) -> Tensor:
    """The decoder's output [N, D] at the real target positions, pair after pair, before the projection."""
    h_BTD = model.decode(batch.tgt_in_BT, model.encode(batch.src_BS, batch.keep_BS), batch.keep_BS)
    return h_BTD.flatten(0, 1).index_select(0, batch.real_N)


def _of_model(model: Transformer, batch: ForcedBatch) -> Tensor:
    """Log-probabilities [N] float64, on the CPU, of the real target positions, pair after pair."""
    h_ND = hidden(model, batch)
    targets_N = torch.tensor([token for target in batch.targets for token in target], device=h_ND.device)
    parts = []
    rows = max(1, BLOCK // len(model.tgt_embedding.weight))
    for i in range(0, len(targets_N), rows):
        logits_nV, targets_n = model.logits(h_ND[i : i + rows]), targets_N[i : i + rows]
        if logits_nV.dtype in (torch.bfloat16, torch.float16):
            logits_nV = logits_nV.float()
        chosen_n = logits_nV.gather(1, targets_n[:, None])[:, 0] - logits_nV.logsumexp(1)
        parts.append(chosen_n.cpu().double())
    return torch.cat(parts)
