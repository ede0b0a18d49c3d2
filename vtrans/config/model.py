"""The architecture of a model: the section [model] of a recipe."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from vtrans.config.keys import choice, flag, idle_messages, number, text, toml_value
from vtrans.system.errors import InputError

TIE_FORMS = ("src-tgt-softmax", "tgt-softmax", "src-tgt", "none")


def _decoder_only(architecture: str) -> bool:
    return architecture == "decoder-only"


def _without_table(positions: str) -> bool:
    return positions in ("sinusoidal", "rotary", "marian")


@dataclass(frozen=True)
class ModelConfig:
    """The architecture. The defaults follow Vaswani et al. 2017, except for 3+3 layers and D 256."""

    d_model: int = number(256, (2, 65536), "Width of the embeddings and layers, D.", summary="D {}")
    d_ff: int = number(1024, (1, 1 << 20), "Width of the feed-forward layers, F.", summary="F {}")
    heads: int = number(
        4, (1, 1024), "Number of attention heads, H. It must divide `d_model`.", "heads", summary="H {}"
    )
    architecture: str = choice(
        "encoder-decoder",
        {
            "encoder-decoder": "two stacks of layers (paper)",
            "decoder-only": "one stack of decoder_layers layers for source and target (GPT, Radford et al. 2018)",
        },
        "Stacks of the model.",
    )
    source_mask: str = choice(
        "prefix",
        {"prefix": "the whole source (Raffel et al. 2019, section 3.2)", "causal": "the earlier source tokens"},
        "What a source token of a decoder-only model attends to.",
        idle_if={"architecture": lambda value: not _decoder_only(value)},
    )
    encoder_layers: int = number(
        3, (0, 1000), "Number of encoder layers; 0 for a decoder-only model.", "layers", summary="{} encoder layers"
    )
    decoder_layers: int = number(3, (1, 1000), "Number of decoder layers.", "layers", summary="{} decoder layers")
    dropout: float = number(
        0.1,
        (0.0, 0.95),
        "Dropout after the embeddings and the sublayers (paper, section 5.4).",
        training_only=True,
        summary="dropout {}",
    )
    attention_dropout: float = number(0.0, (0.0, 0.95), "Dropout on the attention weights.", training_only=True)
    activation_dropout: float = number(
        0.0, (0.0, 0.95), "Dropout after the feed-forward activation.", training_only=True
    )
    activation: str = choice(
        "relu", {"relu": "", "gelu": "", "swish": "x * sigmoid(x)"}, "Activation of the feed-forward layers."
    )
    norm: str = choice(
        "post",
        {"post": "after the residual sum (paper)", "pre": "before the sublayer"},
        "Place of the layer norms.",
        summary="{}-norm",
    )
    norm_eps: float = number(1e-5, (1e-12, 1.0), "Added to the variance in a layer norm; Marian's is 1e-6.")
    tie: str = choice(
        "auto",
        {"auto": "src-tgt-softmax for a joint vocabulary, else tgt-softmax", **dict.fromkeys(TIE_FORMS, "")},
        "Embeddings and projection that are one matrix.",
        adaptable=True,
        summary="tie {}",
    )
    positions: str = choice(
        "sinusoidal",
        {
            "sinusoidal": "",
            "learned": "",
            "stored": "a fixed table in the model file, for imported models; initialised as sinusoidal",
            "rotary": "rotates the queries and keys of self-attention (Su et al. 2021)",
            "marian": "sinusoidal as in Marian and Bergamot, whose decoder starts from zeros",
        },
        "Position encoding.",
    )
    max_positions: int = number(
        1024,
        (2, 1 << 20),
        "Number of rows of a learned or stored position table; a decoder-only model uses half of them for each side.",
        "rows",
        idle_if={"positions": _without_table},
        adaptable=True,
    )
    share_positions: bool = flag(
        False,
        "Use one learned or stored position table for encoder and decoder.",
        idle_if={"positions": _without_table, "architecture": _decoder_only},
    )
    share_layers: str = choice(
        "none",
        ("none", "attention", "feed-forward", "all"),
        "Sublayers that the layers of a stack share, each with its norm (ALBERT, Lan et al. 2019).",
    )
    share_group: int = number(
        0,
        (0, 1000),
        "Number of consecutive layers that share weights by `share_layers`; 0 means the whole stack.",
        "layers",
        idle_if={"share_layers": lambda value: value == "none"},
    )
    share_stacks: bool = flag(
        False,
        "Encoder layer i is decoder layer i except for its cross-attention (Raffel et al. 2019, section 3.2).",
        idle_if={"architecture": _decoder_only},
    )
    scale_embedding: bool = flag(
        True, "Multiply embeddings by sqrt(D) (paper, section 3.4). Without it, they are initialised at the same size."
    )
    projection_bias: bool = flag(False, "Learn a bias on the logits, as Marian does.")
    source_eos: bool = flag(
        True,
        "Attend to the EOS that ends each source; false for imported models whose sources had none.",
        idle_if={"architecture": _decoder_only},
    )
    autoregression: str = choice(
        "self-attention",
        {"self-attention": "", "ssru": "a recurrence, which is faster step by step (Kim et al. 2019)"},
        "How a decoder layer reads the earlier subwords.",
        idle_if={"architecture": _decoder_only},
    )
    cross_attention_residual: bool = flag(
        True,
        "Use a residual connection around cross-attention; false is an ablation.",
        idle_if={"architecture": _decoder_only},
    )
    alignment_layer: int = number(
        0, (0, 1000), "Decoder layer, counted from 1, whose first head aligns words; 0 means none.", adaptable=True
    )
    network: str = text("transformer", "Network: transformer, or a class of your own, such as mine.py:MyTransformer.")

    @property
    def is_own(self) -> bool:
        """Whether the network is a user-defined class, whose weights are not known without it."""
        return self.network != ModelConfig.network

    @property
    def max_length(self) -> int | None:
        """The maximum length of a source or target, with BOS or EOS, that the positions allow; None: no limit."""
        if _without_table(self.positions):
            return None
        return self.max_positions if self.architecture == "encoder-decoder" else self.max_positions // 2

    @property
    def summary(self) -> str:
        """The keys shown for every model, and other keys that differ from their defaults, as text."""
        said, others = [], []
        for spec in dataclasses.fields(self):
            value, key = getattr(self, spec.name), spec.metadata["key"]
            if key.summary:
                said.append(key.summary.format(value))
            elif value != spec.default:
                others.append(f"{spec.name} {toml_value(value)}")
        return ", ".join(said + others)

    def sublayer(self, part: str, layer: int) -> int:
        """Returns the index of the sublayer that a layer of a stack uses; layers with the same index share it. `part`
        is "attention" or "feed-forward"."""
        if self.share_layers not in (part, "all"):
            return layer
        return layer // self.share_group if self.share_group else 0


def contradiction(model: ModelConfig) -> str | None:
    """Returns why these values do not describe a model, or None if they do."""
    encoder = model.encoder_layers
    if model.d_model % model.heads:
        return f"model.heads must divide model.d_model ({model.d_model}), got {model.heads}."
    if model.positions != "learned" and model.d_model % 2:
        return f"model.d_model must be even for {model.positions} positions, got {model.d_model}."
    if model.positions == "rotary" and model.d_model // model.heads % 2:
        return (
            "model.d_model / model.heads must be even for rotary positions, got "
            f"{model.d_model} / {model.heads} = {model.d_model // model.heads}."
        )
    if model.positions == "marian" and model.d_model < 4:
        return f"model.d_model must be at least 4 for marian positions, got {model.d_model}."
    if model.architecture == "decoder-only" and encoder:
        return (
            f"model.encoder_layers must be 0 for a decoder-only model, got {encoder}; model.decoder_layers is the "
            "depth of its one stack."
        )
    if model.architecture != "decoder-only" and not encoder:
        return "model.encoder_layers must be at least 1, got 0, which is for a decoder-only model."
    if model.alignment_layer > (layers := 0 if model.architecture == "decoder-only" else model.decoder_layers):
        return (
            f"model.alignment_layer must be from 0 to {layers}, the number of decoder layers with cross-attention, "
            f"got {model.alignment_layer}."
        )
    if model.max_length == 1:
        return (
            "model.max_positions must be at least 4 for a decoder-only model, got "
            f"{model.max_positions}: each side has half of them, and needs one for a subword and one for EOS."
        )
    for reason in idle_messages(model, "model").values():
        return reason
    return _sharing_contradiction(model)


def _sharing_contradiction(model: ModelConfig) -> str | None:
    """Returns the `contradiction` of the keys that share layers, or None."""
    encoder, decoder = model.encoder_layers, model.decoder_layers
    parts = ("attention", "feed-forward")
    if model.share_layers != "none" and all(
        model.sublayer(part, depth - 1) == depth - 1 for part in parts for depth in (encoder, decoder) if depth
    ):
        return (
            f"model.share_layers = {toml_value(model.share_layers)} shares nothing, because every group has a single "
            f"layer: there are {encoder}+{decoder} layers and model.share_group is {model.share_group}. "
            "Use deeper stacks or larger groups."
        )
    if model.share_stacks and model.autoregression == "ssru":
        return (
            'model.share_stacks = true needs self-attention in both stacks, got model.autoregression = "ssru"; '
            "remove one of the two."
        )
    for part in parts if model.share_stacks else ():
        depths = [model.sublayer(part, depth - 1) + 1 for depth in (encoder, decoder)]
        if depths[0] != depths[1]:
            return (
                f"model.share_stacks needs equal numbers of different {part} sublayers in both stacks, got "
                f"{depths[0]} and {depths[1]}; make model.encoder_layers equal model.decoder_layers, or set "
                'model.share_layers = "all".'
            )
    return None


def check_tie(tie: str, joint: bool) -> None:
    """Raises InputError unless `tie` is one of the four forms and fits joint or separate vocabularies."""
    if tie not in TIE_FORMS:
        raise InputError(f"model.tie must be one of {', '.join(TIE_FORMS)}, got {tie!r}.")
    if tie.startswith("src-tgt") and not joint:
        raise InputError(
            f"model.tie must be tgt-softmax or none with separate vocabularies, got {tie}; to share one matrix between "
            "source and target, prepare the data with a joint vocabulary."
        )


def resolve_tie(tie: str, joint: bool) -> str:
    """Returns the form of tying that `auto` means for joint or separate vocabularies; any other `tie` unchanged."""
    if tie == "auto":
        return "src-tgt-softmax" if joint else "tgt-softmax"
    return tie
