"""The base class of user-defined losses, computed from log-probabilities and differentiated by autograd.

Legend: N target positions, n positions of a chunk, D model width, V vocabulary.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vtrans.model.network import Transformer
from vtrans.model.products import bfloat16_products, in_bfloat16
from vtrans.system.errors import InputError
from vtrans.training.optimization.loss import CHUNK, CHUNK_ELSEWHERE, Objective


class LogprobLoss(Objective):
    """A loss whose subclass defines `losses`. A focal loss (Lin et al. 2017), for example:

    >>> class FocalLoss(vtrans.LogprobLoss):
    ...     def losses(self, logprobs_NV, targets_N):
    ...         logprobs_N = logprobs_NV.gather(1, targets_N[:, None])[:, 0]
    ...         return -((1 - logprobs_N.exp()) ** 2) * logprobs_N

    The logits of only one chunk of positions are in memory at a time; the backward pass recomputes each chunk.
    `smoothing` is `train.label_smoothing`, which a subclass may use. `train.r_drop` must be 0.
    """

    chunk = 0  # maximum number of logits per chunk; 0 chooses one for the device

    def __init__(self, model: Transformer, smoothing: float, r_drop: float = 0.0, guided: float = 0.0) -> None:
        if r_drop > 0:
            raise InputError(f"train.r_drop must be 0 with the loss {type(self).__name__}, got {r_drop:g}.")
        super().__init__(model, smoothing, r_drop, guided)

    def losses(self, logprobs_NV: Tensor, targets_N: Tensor) -> Tensor:
        """Returns the loss [N] of each position, in nats. `logprobs_NV` are the log-probabilities of all subwords, in
        at least float32, and `targets_N` the subwords to predict. The log-probability of padding, subword 0, is -inf;
        to sum over the vocabulary, use `logprobs_NV[:, 1:]`."""
        raise NotImplementedError(f"{type(self).__name__} must define `losses`")

    def summed(self, h_ND: Tensor, targets_N: Tensor, agreement: float) -> tuple[Tensor, Tensor]:
        assert agreement == 0, "it belongs to train.r_drop"
        logits = self.chunk or CHUNK.get(h_ND.device.type, CHUNK_ELSEWHERE)
        vocab, rounded = len(self.model.projection.weight), in_bfloat16(h_ND.device)
        rows, padding_V = max(1, logits // vocab), torch.arange(vocab, device=h_ND.device) == self.model.pad_id

        def of_chunk(h_nD: Tensor, targets_n: Tensor) -> Tensor:
            with bfloat16_products() if rounded else nullcontext():  # also in the backward pass
                logits_nV = self.model.projection(h_nD)
            exact = torch.promote_types(logits_nV.dtype, torch.float32)
            logprobs_nV = logits_nV.to(exact).masked_fill(padding_V, -torch.inf).log_softmax(-1)
            nll_n = -logprobs_nV.detach().gather(1, targets_n[:, None])[:, 0]
            loss_n = self.losses(logprobs_nV, targets_n)
            if loss_n.shape != nll_n.shape:
                kind, shapes = type(self).__name__, f"{list(nll_n.shape)}, got {list(loss_n.shape)}"
                raise InputError(f"{kind}.losses must return the loss of each position, with the shape {shapes}.")
            return torch.stack((loss_n.sum(), nll_n.sum()))

        chunks = zip(torch.split(h_ND, rows), torch.split(targets_N, rows), strict=True)
        sums_2 = torch.stack([cast(Tensor, checkpoint(of_chunk, *each, use_reentrant=False)) for each in chunks]).sum(0)
        return sums_2[0], sums_2[1].detach()
