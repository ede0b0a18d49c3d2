"""The values of the [model] and [search] keys that each program can express. Every exporter reads these tables.

Exporters refuse a [model] value that the table does not list. A key that it does not list must have its default, so
all exporters refuse a new key until it is added here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from vtrans.config import TIE_FORMS, ModelConfig, SearchConfig
from vtrans.config.keys import keys_of, toml_value
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.vocabulary import SPECIAL_PIECES, UNK_ID

Values = Mapping[str, Collection[Any] | None]
"""Keys with the values that a program can express; None means all."""

CTRANSLATE2, HUGGING_FACE, BERGAMOT = "CTranslate2", "Hugging Face", "Bergamot"

# Sizes, and keys that every exporter expresses by copying or changing weights. Only training uses an alignment layer.
_COMMON: Values = {
    **dict.fromkeys(("d_model", "d_ff", "heads", "encoder_layers", "decoder_layers", "max_positions")),
    **dict.fromkeys(("share_positions", "share_group", "share_stacks", "scale_embedding", "projection_bias")),
    "alignment_layer": None,
    "norm": ("post", "pre"),
    "tie": TIE_FORMS,
    "share_layers": ("none", "attention", "feed-forward", "all"),
}
MODEL: Mapping[str, Values] = {
    CTRANSLATE2: {
        **_COMMON,
        "activation": ("relu", "gelu", "swish"),
        "positions": ("sinusoidal", "learned", "stored", "rotary", "marian"),
        "norm_eps": None,
        "source_eos": None,
    },
    HUGGING_FACE: {
        **_COMMON,
        "activation": ("relu", "gelu", "swish"),
        "positions": ("sinusoidal", "stored"),
    },
    # With pre-norm, Bergamot's encoder normalises only the queries.
    BERGAMOT: {
        **_COMMON,
        "norm": ("post",),
        "activation": ("relu", "swish"),
        "positions": ("marian",),
        "norm_eps": (1e-6,),
        "scale_embedding": (True,),
        "tie": ("src-tgt-softmax", "tgt-softmax"),
        "autoregression": ("ssru", "self-attention"),
    },
}

# Sizes that must be multiples of the register width of Bergamot's matrix product.
MULTIPLES: Mapping[str, Mapping[str, int]] = {BERGAMOT: {"d_model": 64, "d_ff": 64}}
# The program for each format of `vtrans export`.
PROGRAMS = {
    "ctranslate2": CTRANSLATE2,
    "huggingface": HUGGING_FACE,
    "bergamot": BERGAMOT,
    "web": BERGAMOT,
}
# The options of `vtrans export` for each program.
OPTIONS = {CTRANSLATE2: {"quantization"}, HUGGING_FACE: set[str](), BERGAMOT: {"engine"}}

# The search keys that an export stores, or that its users give, as in CTranslate2. A value that is not listed is
# replaced by the first one that is.
SEARCH: Mapping[str, Values] = {
    CTRANSLATE2: dict.fromkeys(keys_of(SearchConfig).keys() - {"begin"}),
    HUGGING_FACE: {
        **dict.fromkeys(("beam", "alpha", "max_length", "min_length", "no_repeat_ngram", "repetition_penalty")),
        **dict.fromkeys(("diversity", "suppress", "max_source", "batch_tokens")),
        "beam_groups": (1,),
        "length_penalty": ("length",),
        "stop": ("count", "current", "exhaustive"),
        "max_ratio": (0.0,),
    },
    BERGAMOT: {
        **dict.fromkeys(("max_source", "batch_tokens")),
        **dict.fromkeys(("alpha", "diversity")),  # without effect on a beam of 1
        "suppress": ((), (SPECIAL_PIECES[UNK_ID],)),
        "beam": (1,),
        "beam_groups": (1,),
        "length_penalty": ("length", "gnmt"),
        "stop": ("count", "current", "exhaustive", "shrink"),
        "max_ratio": None,
        "max_length": (0,),
        "min_length": (0,),
        "no_repeat_ngram": (0,),
        "repetition_penalty": (1.0,),
    },
}


def check_model(config: ModelConfig, program: str) -> None:
    """Raises InputError, which names the keys to change, for an architecture that a program cannot express."""
    known = MODEL[program]
    wrong: list[tuple[str, str, Any]] = []  # the key, what the program allows, and a value that it allows
    for name, key in keys_of(type(config)).items():
        value, default = getattr(config, name), getattr(type(config), name)
        values = known.get(name, (default,))
        if not key.training_only and values is not None and value not in values:
            wrong.append((name, f"has only {' or '.join(map(toml_value, values))}", next(iter(values))))
    for name, multiple in MULTIPLES.get(program, {}).items():
        value = getattr(config, name)
        if value % multiple:
            wrong.append((name, f"needs a multiple of {multiple}", -(-value // multiple) * multiple))
    if wrong:
        name, allowed, _ = wrong[0]
        settings = " ".join(f"--set model.{key}={toml_value(value)}" for key, _, value in wrong)
        raise InputError(
            f"a model with model.{name} = {toml_value(getattr(config, name))} cannot be exported to {program}, which "
            f"{allowed}; train one with `{settings}`, or translate with the model itself."
        )


def nearest_search(search: SearchConfig, program: str, console: Console, **chosen: Any) -> SearchConfig:
    """Returns the nearest search settings that a program can express. `chosen` overrides some of them.

    Warns about each change that has an effect. Raises InputError for a key that SEARCH does not list for the program,
    unless it has its default.
    """
    nearest = dict(chosen)
    for name, key in keys_of(type(search)).items():
        value = getattr(search, name)
        if name not in SEARCH[program]:
            if value != (default := getattr(type(search), name)):
                raise InputError(
                    f"a model that stores search.{name} = {toml_value(value)} cannot be exported to {program}, which "
                    f"has only {toml_value(default)}; translate with the model itself."
                )
            continue
        values = SEARCH[program][name]
        if name not in nearest and values is not None and value not in values:
            nearest[name] = next(iter(values))
        idle = any(test(getattr(search, other)) for other, test in key.idle_if.items())
        idle = idle or (name == "stop" and search.beam == 1)
        if value != (written := nearest.get(name, value)) and not idle:
            console.warn(
                f"search.{name} = {toml_value(value)} is not expressible for {program}, which searches with "
                f"{toml_value(written)}"
            )
    return dataclasses.replace(search, **nearest)
