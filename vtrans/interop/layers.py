"""The weights in the layers of an encoder-decoder model, and which tensors of another program they consist of.

Each program has a table that maps our modules to its tensors. A weight that another program splits, such as the
projections of queries, keys and values, is the concatenation of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from vtrans.config import ModelConfig
from vtrans.storage import layout

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

    def weight(stack: str, layer: int | None, module: str, kind: str, ours: str, shape: layout.Shape) -> Weight:
        theirs = tuple(named(stack, layer, name, kind) for name in names[module])
        return Weight(ours, theirs, (shape[0] // len(theirs), *shape[1:]))

    for stack, depth in zip(STACKS, (config.encoder_layers, config.decoder_layers), strict=True):
        for i in range(depth):
            for _, name, shape in layout.layer_weights(config, stack):
                module, _, kind = name.replace("_residual", "").rpartition(".")
                if kind == "forget_bias":  # of an SSRU, which has no module of its own
                    module, kind = f"{module}.{kind}", "bias"
                yield weight(stack, i, module, kind, f"{stack}.layers.{i}.{name}", shape)
        if config.norm == "pre":
            for kind in ("weight", "bias"):
                yield weight(stack, None, "final_norm", kind, f"{stack}.final_norm.{kind}", (config.d_model,))
