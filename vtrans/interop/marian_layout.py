"""Which tensors of Marian's Transformer a weight of ours consists of, for reading and writing.

Marian's matrices are [in, out], ours [out, in]; its vectors are [1, n]. We fuse the projections of queries, keys and
values; Marian has one matrix each. The names are those of `src/models/transformer.h` and `src/layers/generic.h` in
Marian's source.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vtrans.config import ModelConfig
from vtrans.interop.foreign_files import Read

EPSILON = 1e-6  # of layer norms: `layerNorm` in layers/generic.h


class Part(NamedTuple):
    """A weight of ours, and the tensors of Marian that it consists of, of the shape [in, out] or [1, n] each."""

    ours: str
    theirs: tuple[str, ...]
    shape: tuple[int, int]

    def join(self, tensors: list[Read]) -> Tensor:
        """Returns our weight: a matrix [out, in], or a vector."""
        joined = torch.cat([read().T for read in tensors])
        return joined.flatten() if self.shape[0] == 1 else joined

    def split(self, weight: Tensor) -> dict[str, Tensor]:
        """Returns Marian's tensors."""
        parts = weight.reshape(len(self.theirs) * self.shape[1], -1).chunk(len(self.theirs))
        return {name: part.T for name, part in zip(self.theirs, parts, strict=True)}


def layer_parts(config: ModelConfig) -> Iterator[Part]:
    """Yields all parts of the layers, and the final norms of a pre-norm model."""
    D, F, pre = config.d_model, config.d_ff, config.norm == "pre"
    for stack, depth in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for i in range(depth):
            ours, theirs = f"{stack}.layers.{i}", f"{stack}_l{i + 1}"
            sublayers = [("self_attention", "self", "Wo", [("qkv", "qkv"), ("out", "o")])]
            if stack == "decoder":
                cross = [("query", "q"), ("kv", "kv"), ("out", "o")]
                sublayers.append(("cross_attention", "context", "Wo", cross))
            for sublayer, name, norm, linears in sublayers:
                for linear, letters in linears:
                    yield from _linear(f"{ours}.{sublayer}.{linear}", f"{theirs}_{name}", letters, D, D)
                yield from _norm(f"{ours}.{sublayer}_residual.norm", f"{theirs}_{name}_{norm}", D, pre=pre)
            yield from _linear(f"{ours}.feed_forward.inner", f"{theirs}_ffn", "1", D, F)
            yield from _linear(f"{ours}.feed_forward.outer", f"{theirs}_ffn", "2", F, D)
            yield from _norm(f"{ours}.feed_forward_residual.norm", f"{theirs}_ffn_ffn", D, pre=pre)
        if pre:
            yield from _norm(f"{stack}.final_norm", f"{stack}_top", D, pre=False)


def _linear(ours: str, theirs: str, letters: str, inputs: int, outputs: int) -> Iterator[Part]:
    yield Part(f"{ours}.weight", tuple(f"{theirs}_W{letter}" for letter in letters), (inputs, outputs))
    yield Part(f"{ours}.bias", tuple(f"{theirs}_b{letter}" for letter in letters), (1, outputs))


def _norm(ours: str, theirs: str, D: int, *, pre: bool) -> Iterator[Part]:
    """Yields scale and bias. Marian marks the norms before a sublayer, not those at the top of a stack."""
    end = "_pre" if pre else ""
    yield Part(f"{ours}.weight", (f"{theirs}_ln_scale{end}",), (1, D))
    yield Part(f"{ours}.bias", (f"{theirs}_ln_bias{end}",), (1, D))


def position_table(length: int, D: int) -> Tensor:
    """Returns Marian's sinusoidal positions [length, D]: sines, then cosines, of p * 10000 ** (-i / (D / 2 - 1)).

    The angles are rounded to float32 as in `SinusoidalPositionEmbeddings` (src/tensors/cpu/tensor_operators.cpp).
    """
    step = torch.tensor(math.log(10000.0)) / (D / 2 - 1)
    frequencies = (torch.arange(D // 2) * -step).double().exp().float()
    angles = (torch.arange(length)[:, None].float() * frequencies).double()
    return torch.cat((angles.sin(), angles.cos()), 1).float()
