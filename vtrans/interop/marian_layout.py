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
NEW_EPSILON = 1e-5  # of those of `transformer-new`: `LayerNorm` in layers_new/neuralnet.h


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
            if stack == "decoder" and config.autoregression == "ssru":
                yield from _ssru(ours, theirs, D, pre=pre)
                sublayers = []
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


def _ssru(ours: str, theirs: str, D: int, *, pre: bool) -> Iterator[Part]:
    """Yields an SSRU and its norm: `SSRU` of src/rnn/cells.h and `DecoderLayerRNN` of src/models/transformer.h."""
    rnn = f"{theirs}_rnn"
    yield Part(f"{ours}.ssru.zf.weight", (f"{rnn}_W", f"{rnn}_Wf"), (D, D))
    yield Part(f"{ours}.ssru.forget_bias", (f"{rnn}_bf",), (1, D))
    yield from _norm(f"{ours}.ssru_residual.norm", rnn if pre else f"{rnn}_ffn", D, pre=pre)


def _linear(ours: str, theirs: str, letters: str, inputs: int, outputs: int) -> Iterator[Part]:
    yield Part(f"{ours}.weight", tuple(f"{theirs}_W{letter}" for letter in letters), (inputs, outputs))
    yield Part(f"{ours}.bias", tuple(f"{theirs}_b{letter}" for letter in letters), (1, outputs))


def _norm(ours: str, theirs: str, D: int, *, pre: bool) -> Iterator[Part]:
    """Yields scale and bias. Marian marks the norms before a sublayer, not those at the top of a stack."""
    end = "_pre" if pre else ""
    yield Part(f"{ours}.weight", (f"{theirs}_ln_scale{end}",), (1, D))
    yield Part(f"{ours}.bias", (f"{theirs}_ln_bias{end}",), (1, D))


def decodes_as_trained(config: ModelConfig) -> bool:
    """Returns whether Marian's usual network translates with the network that it trains and scores with.

    With pre-norm self-attention, its decoder normalises the keys and values of the first step only:
    `DecoderLayerSelfAttention` and `LayerAttention` of src/models/transformer.h.
    """
    return config.norm == "post" or config.autoregression == "ssru"


def position_table(length: int, D: int) -> Tensor:
    """Returns Marian's sinusoidal positions [length, D]: sines, then cosines, of p * 10000 ** (-i / (D / 2 - 1)).

    The angles are rounded to float32 as in `SinusoidalPositionEmbeddings` (src/tensors/cpu/tensor_operators.cpp).
    """
    step = torch.tensor(math.log(10000.0)) / (D / 2 - 1)
    frequencies = (torch.arange(D // 2) * -step).double().exp().float()
    angles = (torch.arange(length)[:, None].float() * frequencies).double()
    return torch.cat((angles.sin(), angles.cos()), 1).float()


# Marian's `transformer-new` has the same tensors under the names of its C++ objects.
_BLOCKS = {
    ("encoder", "self"): "selfAttentionBlock",
    ("decoder", "self"): "autoRegressiveBlock",
    ("decoder", "context"): "crossAttentionBlock",
    ("encoder", "ffn"): "filterBlock",
    ("decoder", "ffn"): "filterBlock",
}
_LAYERS = {"encoder": "TransformerEncoderLayer", "decoder": "TransformerDecoderLayerWithCrossAttention"}
_KINDS = {"W": "weight", "b": "bias", "scale": "weight", "bias": "bias"}


def new_item(name: str, tensor: Tensor, config: ModelConfig) -> tuple[str, Tensor]:
    """Returns the name and the tensor in `transformer-new` of a tensor of `transformer`, whose vectors are [1, n]."""
    stack, _, rest = name.partition("_")
    if stack not in _LAYERS or rest == "Wemb" or rest.startswith("ff_"):
        return name, tensor
    root = f"TransformerBatch{stack.title()}->{stack}"
    vector = tensor.flatten() if tensor.shape[0] == 1 else tensor
    if rest.startswith("top_ln_"):
        return f"{root}->postprocessor->norm->{_KINDS[rest.removeprefix('top_ln_')]}", vector
    layer, block, what = rest.split("_", 2)
    place = f"{root}->layers->at({int(layer[1:]) - 1})->as<marian::nn::{_LAYERS[stack]}>()->{_BLOCKS[stack, block]}"
    if "_ln_" in what:
        kind = _KINDS[what.removesuffix("_pre").rpartition("_")[2]]
        return f"{place}->{'pre' if config.norm == 'pre' else 'post'}processor->norm->{kind}", vector
    letter, end = what[0], what[1:]
    if block != "ffn":
        attention = "crossAttention" if block == "context" else "selfAttention"
        return f"{place}->{attention}->{end}Proj->{_KINDS[letter]}", vector
    # With relu, the first matrix, the activation and the dropout are one object, else three.
    fused = config.activation == "relu"
    number = 0 if end == "1" else 1 if fused else 3
    linear = "LinearReluDropout" if fused and end == "1" else "Linear"
    return f"{place}->layers->at({number})->as<marian::nn::{linear}>()->{_KINDS[letter]}", vector


def new_positions(stack: str) -> str:
    """Returns the name of the position table of a stack in `transformer-new`."""
    return f"TransformerBatch{stack.title()}->{stack}->positionEmbedding->embeddings"
