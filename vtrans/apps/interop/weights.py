"""The weights of other programs: our names for them, one table per format, the order of rows, and a network made of
them.

If another program splits a weight, such as the query, key and value projections, ours is the concatenation of the
parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from vtrans.apps.interop.foreign_files import ForeignTensors
from vtrans.config import ModelConfig
from vtrans.model.checkpoint import Unfilled, weights_of
from vtrans.model.network import Transformer
from vtrans.model.positions import tensor_of
from vtrans.model.rotary import marian
from vtrans.storage import layout
from vtrans.storage.model_file import check_finite
from vtrans.system.errors import FileError, InputError
from vtrans.system.process import release_memory
from vtrans.text.vocabulary import BOS_ID, PAD_ID, Vocabulary, have_one_table

_LARGE = 1 << 28  # bytes
Read = Callable[[], Tensor]
STACKS = ("encoder", "decoder")
ABSENT_BIAS = -1e4
"""Projection bias of a subword that the other program lacks. Its probability is exactly 0."""
# Keys: is the target embedding tied to the source embedding, and is it tied to the projection?
TIES = {(True, True): "src-tgt-softmax", (False, True): "tgt-softmax", (True, False): "src-tgt", (False, False): "none"}


class Format(NamedTuple):
    """Name templates of a format. {stack} is encoder or decoder, {layer} counts from 0 and {number} from 1. {kind} is
    weight or bias; {W}, {gamma} and {scale} are a format's own words for weight and bias."""

    layer: str
    """Prefix of the names in a layer."""
    stack: str
    """Prefix of the names of a stack's final norm."""
    modules: Mapping[str, str]
    """The rest of the name by our module. Spaces separate the parts of a weight. Norms precede or follow a
    sublayer."""
    tables: Mapping[str, str]
    """The names of the embeddings, projection and positions that the format stores."""
    shared: str = ""
    """The name of the embedding shared by source and target."""
    transposed: bool = False
    """Are matrices [in, out] and vectors [1, n]?"""

    def of_tables(self, tie: str) -> dict[str, str]:
        """Returns the names of the embeddings and the projection by ours. Tied matrices appear once."""
        second = [] if tie.startswith("src-tgt") else ["tgt_embedding"]
        third = [] if tie.endswith("softmax") else ["projection"]
        names = {f"{name}.weight": self.tables[f"{name}.weight"] for name in ("src_embedding", *second, *third)}
        if self.shared and tie.startswith("src-tgt"):
            names["src_embedding.weight"] = self.shared
        return names


HUGGING_FACE = Format("model.{stack}.layers.{layer}.", "model.{stack}.", {
    "self_attention.qkv": "self_attn.q_proj.{kind} self_attn.k_proj.{kind} self_attn.v_proj.{kind}",
    "self_attention.out": "self_attn.out_proj.{kind}",
    "self_attention.norm": "self_attn_layer_norm.{kind}",
    "cross_attention.query": "encoder_attn.q_proj.{kind}",
    "cross_attention.kv": "encoder_attn.k_proj.{kind} encoder_attn.v_proj.{kind}",
    "cross_attention.out": "encoder_attn.out_proj.{kind}",
    "cross_attention.norm": "encoder_attn_layer_norm.{kind}",
    "feed_forward.inner": "fc1.{kind}",
    "feed_forward.outer": "fc2.{kind}",
    "feed_forward.norm": "final_layer_norm.{kind}",
    "final_norm": "layer_norm.{kind}",
}, {
    "src_embedding.weight": "model.encoder.embed_tokens.weight",
    "tgt_embedding.weight": "model.decoder.embed_tokens.weight",
    "projection.weight": "lm_head.weight",
    "projection.bias": "final_logits_bias",
    "src_positions.weight": "model.encoder.embed_positions.weight",
    "tgt_positions.weight": "model.decoder.embed_positions.weight",
}, "model.shared.weight")  # fmt: skip
CTRANSLATE2 = Format("{stack}/layer_{layer}/", "{stack}/", {
    "self_attention.qkv": "self_attention/linear_0/{kind}",
    "self_attention.out": "self_attention/linear_1/{kind}",
    "self_attention.norm": "self_attention/layer_norm/{gamma}",
    "cross_attention.query": "attention/linear_0/{kind}",
    "cross_attention.kv": "attention/linear_1/{kind}",
    "cross_attention.out": "attention/linear_2/{kind}",
    "cross_attention.norm": "attention/layer_norm/{gamma}",
    "feed_forward.inner": "ffn/linear_0/{kind}",
    "feed_forward.outer": "ffn/linear_1/{kind}",
    "feed_forward.norm": "ffn/layer_norm/{gamma}",
    "final_norm": "layer_norm/{gamma}",
}, {
    "src_embedding.weight": "encoder/embeddings/weight",
    "tgt_embedding.weight": "decoder/embeddings/weight",
    "projection.weight": "decoder/projection/weight",
    "projection.bias": "decoder/projection/bias",
    "src_positions.weight": "encoder/position_encodings/encodings",
    "tgt_positions.weight": "decoder/position_encodings/encodings",
})  # fmt: skip
# See `src/models/transformer.h`, `src/layers/generic.h` and, for the SSRU, `src/rnn/cells.h` in Marian's source. {pre}
# marks the norms before a sublayer.
MARIAN = Format("{stack}_l{number}_", "{stack}_", {
    "self_attention.qkv": "self_{W}q self_{W}k self_{W}v",
    "self_attention.out": "self_{W}o",
    "self_attention.norm": "self_Wo_ln_{scale}{pre}",
    "cross_attention.query": "context_{W}q",
    "cross_attention.kv": "context_{W}k context_{W}v",
    "cross_attention.out": "context_{W}o",
    "cross_attention.norm": "context_Wo_ln_{scale}{pre}",
    "feed_forward.inner": "ffn_{W}1",
    "feed_forward.outer": "ffn_{W}2",
    "feed_forward.norm": "ffn_ffn_ln_{scale}{pre}",
    "final_norm": "top_ln_{scale}",
    "ssru.zf": "rnn_{W} rnn_{W}f",
    "ssru.forget_bias": "rnn_{W}f",
    "ssru.norm": "rnn_{ffn}ln_{scale}{pre}",
}, {
    "src_embedding.weight": "encoder_Wemb",
    "tgt_embedding.weight": "decoder_Wemb",
    "projection.weight": "decoder_ff_logit_out_Wt",
    "projection.bias": "decoder_ff_logit_out_b",
}, "Wemb", transposed=True)  # fmt: skip


Weight = tuple[str, tuple[str, ...], layout.Shape]
"""Our name of a weight, the other program's names of its parts, and the shape of each part: [out, in] or [n]."""


def layer_weights(config: ModelConfig, names: Format) -> Iterator[Weight]:
    """Yields the weights of all layers, and of the final norms of a pre-norm model."""
    pre = config.norm == "pre"

    def weight(beginning: str, module: str, kind: str, ours: str, shape: layout.Shape) -> Weight:
        bias = kind == "bias"
        words = {"kind": kind, "W": "Wb"[bias], "gamma": ("gamma", "beta")[bias], "scale": ("scale", "bias")[bias]}
        words |= {"pre": "_pre" if pre else "", "ffn": "" if pre else "ffn_"}
        theirs = tuple(beginning + name.format(**words) for name in names.modules[module].split())
        return ours, theirs, (shape[0] // len(theirs), *shape[1:])

    for stack, depth in zip(STACKS, (config.encoder_layers, config.decoder_layers), strict=True):
        for i in range(depth):
            beginning = names.layer.format(stack=stack, layer=i, number=i + 1)
            for _, name, shape in layout.layer_weights(config, stack):
                module, _, kind = name.replace("_residual", "").rpartition(".")
                if kind == "forget_bias":  # a parameter of the SSRU itself, not of a submodule
                    module, kind = f"{module}.{kind}", "bias"
                yield weight(beginning, module, kind, f"{stack}.layers.{i}.{name}", shape)
        for kind in ("weight", "bias") if pre else ():
            beginning = names.stack.format(stack=stack)
            yield weight(beginning, "final_norm", kind, f"{stack}.final_norm.{kind}", (config.d_model,))


def rows_of(vocab: Vocabulary, weight_VD: Tensor, start: int | None = None, *, absent: float = 0.0) -> Tensor:
    """Returns another program's embedding [V, D] or bias [V] in the order of our ids.

    `start` is the row that starts a translation there if the table has no BOS row. Other missing rows are filled with
    `absent`.
    """
    rows = weight_VD.index_select(0, torch.tensor([place or 0 for place in vocab.order]))
    for id, place in enumerate(vocab.order):
        if place is None:
            rows[id] = absent if start is None or id != BOS_ID else weight_VD[start]
    return rows


def rows_there(weight_VD: Tensor, order: Sequence[int | None], count: int) -> Tensor:
    """Returns our rows in the order of another program's table of `count` rows. `order` maps our ids to its rows."""
    ids = {place: id for id, place in enumerate(order)}
    return weight_VD.index_select(0, torch.tensor([ids[place] for place in range(count)]))


def marian_positions(length: int, D: int, first: int) -> Tensor:
    """Returns the position table [length, D] of native Marian, M2M100 and CTranslate2 from the position `first`."""
    return tensor_of(marian(first + length, D))[first:]


# The network of an import.


def read_network(
    tensors: ForeignTensors,
    names: Format,
    config: ModelConfig,
    vocabs: tuple[Vocabulary, Vocabulary],
    positions: Mapping[str, Read] = MappingProxyType({}),
    *,
    start: int | None = None,
    ignored: Collection[str] = (),
) -> Transformer:
    """Returns the network with the weights in `tensors`.

    `positions` holds a function for each stored position table, which returns it. `start` is the embedding row that
    starts a translation if the program has no BOS row. All names and shapes are checked before the memory for the
    weights is allocated; then memory holds the network and one further weight. Raises FileError for a missing or
    unknown tensor, except those of the format's tables and the `ignored` ones, for another shape, a value that is not
    finite, or an architecture that vtrans cannot express.
    """
    reads = {**positions, **_layers(tensors, names, config), **_tables(tensors, names, config, vocabs, start)}
    tensors.refuse_others({*names.tables.values(), names.shared, *ignored})
    sizes = [len(vocab) for vocab in vocabs]
    try:
        with Unfilled():
            network = Transformer(config, *sizes, joint=have_one_table(*vocabs), pad_id=PAD_ID)
    except InputError as error:
        raise FileError(f"{tensors.path} describes a model that vtrans cannot express: {error}") from None
    for name, weight in weights_of(network).items():
        value = reads[name]()
        check_finite(tensors.path, name, value.numpy())
        assert value.shape == weight.shape, name  # copy_ would repeat a smaller value
        weight.data.copy_(value)
        del value
        if weight.nbytes > _LARGE:
            release_memory()
    return network.eval()


def _layers(tensors: ForeignTensors, names: Format, config: ModelConfig) -> dict[str, Read]:
    """Returns a function for each weight of the layers that reads it, after checking its parts."""

    def joined(parts: tuple[str, ...], rank: int) -> Tensor:
        read = [tensors.weight(name) for name in parts]
        weight = torch.cat([part.T for part in read] if names.transposed else read)
        return weight.flatten() if rank == 1 else weight

    reads: dict[str, Read] = {}
    for ours, parts, shape in layer_weights(config, names):
        stored = ((1, *shape) if len(shape) == 1 else shape[::-1]) if names.transposed else shape
        for name in parts:
            tensors.check(name, *stored)
        reads[ours] = partial(joined, parts, len(shape))
    return reads


def _tables(
    tensors: ForeignTensors,
    names: Format,
    config: ModelConfig,
    vocabs: tuple[Vocabulary, Vocabulary],
    start: int | None,
) -> dict[str, Read]:
    """Returns a function for each embedding, the projection and its bias that reads it in the order of our ids."""

    def embedding(table: str, vocab: Vocabulary, start: int | None) -> Tensor:
        return rows_of(vocab, tensors.weight(table), start)

    reads: dict[str, Read] = {}
    for ours, table in names.of_tables(config.tie).items():
        is_tgt = not ours.startswith("src")
        vocab = vocabs[is_tgt]
        tensors.check(table, len(vocab.pieces), config.d_model)
        begins = is_tgt or config.tie.startswith("src-tgt")
        reads[ours] = partial(embedding, table, vocab, start if begins else None)
    if config.projection_bias:
        name, size = names.tables["projection.bias"], len(vocabs[1].pieces)
        if name in tensors:  # [V] or [1, V]
            tensors.check(name, *[1] * (len(tensors.shapes[name]) - 1), size)

        def bias() -> Tensor:
            stored = tensors.weight(name).flatten() if name in tensors else torch.zeros(size)
            return rows_of(vocabs[1], stored, absent=ABSENT_BIAS)

        reads["projection.bias"] = bias
    return reads
