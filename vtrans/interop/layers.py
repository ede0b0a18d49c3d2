"""The weights in the layers of an encoder-decoder model, and which tensors of another program they consist of.

Each program has a table that maps our modules to its tensors. A weight that another program splits, such as the
projections of queries, keys and values, is the concatenation of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from vtrans.config import ModelConfig

STACKS = ("encoder", "decoder")
Names = Mapping[str, tuple[str, ...]]
"""The tensors of another program by our modules, such as "self_attention.qkv"; norms are "self_attention.norm"."""
Named = Callable[[str, int | None, str, str], str]
"""Returns the whole name of a tensor there, given its stack, the number of its layer (None: the final norm of a
stack), its name in the table, and "weight" or "bias"."""


class Weight(NamedTuple):
    """A weight of ours, and the tensors that it consists of, each of this shape ([out, in] or [n]) in our layout."""

    ours: str
    theirs: tuple[str, ...]
    shape: tuple[int, ...]


def layer_weights(config: ModelConfig, names: Names, named: Named) -> Iterator[Weight]:
    """Yields the weights of all layers, and of the final norms of a pre-norm model."""
    D, F = config.d_model, config.d_ff
    modules = {
        "self_attention": {"qkv": (3 * D, D), "out": (D, D)},
        "ssru": {"zf": (2 * D, D)},
        "cross_attention": {"query": (D, D), "kv": (2 * D, D), "out": (D, D)},
        "feed_forward": {"inner": (F, D), "outer": (D, F)},
    }

    def weight(stack: str, layer: int | None, ours: str, module: str, kind: str, *shape: int) -> Weight:
        theirs = tuple(named(stack, layer, name, kind) for name in names[module])
        return Weight(ours, theirs, (shape[0] // len(theirs), *shape[1:]))

    for stack, depth in zip(STACKS, (config.encoder_layers, config.decoder_layers), strict=True):
        sublayers = ["self_attention", "feed_forward"]
        if stack == "decoder":
            sublayers = ["ssru" if config.autoregression == "ssru" else sublayers[0], "cross_attention", "feed_forward"]
        for i in range(depth):
            layer = f"{stack}.layers.{i}"
            for sublayer in sublayers:
                for name, shape in modules[sublayer].items():
                    module = f"{sublayer}.{name}"
                    yield weight(stack, i, f"{layer}.{module}.weight", module, "weight", *shape)
                    if sublayer != "ssru":
                        yield weight(stack, i, f"{layer}.{module}.bias", module, "bias", shape[0])
                if sublayer == "ssru":
                    yield weight(stack, i, f"{layer}.ssru.forget_bias", "ssru.forget_bias", "bias", D)
                for kind in ("weight", "bias"):
                    yield weight(stack, i, f"{layer}.{sublayer}_residual.norm.{kind}", f"{sublayer}.norm", kind, D)
        if config.norm == "pre":
            for kind in ("weight", "bias"):
                yield weight(stack, None, f"{stack}.final_norm.{kind}", "final_norm", kind, D)
