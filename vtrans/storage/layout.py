"""The names, shapes and aliases of the weights of a `Transformer`, computed without torch.

The equations are in model/; this module only lists the weights of a configuration, for files and compiled code. A test
compares the lists with the networks of random configurations.

Legend: D model width, F feed-forward width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from vtrans.config import ModelConfig, check_tie, contradiction
from vtrans.system.errors import InputError

Shape = tuple[int, ...]


@dataclass
class Layout:
    """The weights of a network: `shapes` by the name of the first owner, and in `aliases` the first owner's name by
    every other name of a shared weight."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, shape: Shape, owner: str = "") -> None:
        """Adds a weight, as an alias if `owner` names an existing one."""
        if owner in self.shapes and owner != name:
            self.aliases[name] = owner
        else:
            self.shapes[name] = shape


def layout_of(config: ModelConfig, src_size: int, tgt_size: int, *, joint: bool) -> Layout:
    """Returns the layout of a network for vocabularies of these sizes. Raises InputError as `Transformer` does."""
    check_tie(config.tie, joint)
    if reason := contradiction(config):
        raise InputError(reason)
    D, made = config.d_model, Layout()
    src, tgt, projection = "src_embedding.weight", "tgt_embedding.weight", "projection.weight"
    made.add(src, (src_size, D))
    made.add(tgt, (tgt_size, D), src if config.tie.startswith("src-tgt") else "")
    made.add(projection, (tgt_size, D), made.aliases.get(tgt, tgt) if config.tie.endswith("softmax") else "")
    if config.projection_bias:
        made.add("projection.bias", (tgt_size,))
    if config.positions in ("learned", "stored"):
        one_table = config.share_positions or config.architecture == "decoder-only"
        made.add("src_positions.weight", (config.max_positions, D))
        made.add("tgt_positions.weight", (config.max_positions, D), "src_positions.weight" if one_table else "")
    for stack, depth in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(depth):
            for part, name, shape in layer_weights(config, stack):
                made.add(f"{stack}.layers.{layer}.{name}", shape, _owner(config, stack, layer, part, name))
        if config.norm == "pre" and depth:
            made.add(f"{stack}.final_norm.weight", (D,))
            made.add(f"{stack}.final_norm.bias", (D,))
    return made


def _owner(config: ModelConfig, stack: str, layer: int, part: str, name: str) -> str:
    """Returns the name, at its first owner, of the weight `name` in a layer's sublayer of kind `part`."""
    first = next(i for i in range(layer + 1) if config.sublayer(part, i) == config.sublayer(part, layer))
    shared = config.share_stacks and not name.startswith("cross_attention")
    return f"{'encoder' if shared else stack}.layers.{first}.{name}"


def layer_weights(config: ModelConfig, stack: str) -> Iterator[tuple[str, str, Shape]]:
    """Yields the weights of a layer in the order in which compiled code reads them, each as its sublayer for sharing
    ("attention" or "feed-forward"), its name within the layer, and its shape."""
    D, F = config.d_model, config.d_ff
    if stack == "decoder" and config.autoregression == "ssru":
        yield "attention", "ssru.zf.weight", (2 * D, D)
        yield "attention", "ssru.forget_bias", (D,)
        yield from _norm("attention", "ssru_residual", D)
    else:
        yield from _linear("attention", "self_attention.qkv", 3 * D, D)
        yield from _linear("attention", "self_attention.out", D, D)
        yield from _norm("attention", "self_attention_residual", D)
    if stack == "decoder" and config.architecture != "decoder-only":
        yield from _linear("attention", "cross_attention.query", D, D)
        yield from _linear("attention", "cross_attention.kv", 2 * D, D)
        yield from _linear("attention", "cross_attention.out", D, D)
        yield from _norm("attention", "cross_attention_residual", D)
    yield from _linear("feed-forward", "feed_forward.inner", F, D)
    yield from _linear("feed-forward", "feed_forward.outer", D, F)
    yield from _norm("feed-forward", "feed_forward_residual", D)


def _linear(part: str, name: str, outputs: int, inputs: int) -> Iterator[tuple[str, str, Shape]]:
    yield part, f"{name}.weight", (outputs, inputs)
    yield part, f"{name}.bias", (outputs,)


def _norm(part: str, residual: str, D: int) -> Iterator[tuple[str, str, Shape]]:
    yield part, f"{residual}.norm.weight", (D,)
    yield part, f"{residual}.norm.bias", (D,)
