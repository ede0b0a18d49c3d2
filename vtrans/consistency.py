"""Which values of a recipe go together: keys without effect, and values that contradict each other."""

from __future__ import annotations

import dataclasses

from vtrans.config import TIE_FORMS, ModelConfig, Recipe
from vtrans.errors import InputError, RecipeError
from vtrans.keys import idle_because, toml_value


def idle_keys(recipe: Recipe, section: str) -> dict[str, str]:
    """The keys of a section that are set but have no effect because of another key, each with a message."""
    values = getattr(recipe, section)
    messages = {}
    for spec in dataclasses.fields(values):
        value = getattr(values, spec.name)
        if value != spec.default and (other := idle_because(values, spec.name)):
            messages[spec.name] = (
                f"{section}.{spec.name} = {toml_value(value)} has no effect with "
                f"{section}.{other} = {toml_value(getattr(values, other))}; remove it, or change {section}.{other}."
            )
    return messages


def contradiction(model: ModelConfig) -> str | None:
    """Why these values describe no model, or None if they describe one."""
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
    if model.reach == 1:
        return (
            "model.max_positions must be at least 4 for a decoder-only model, got "
            f"{model.max_positions}: each side has half of them, and needs one for a subword and one for EOS."
        )
    for key, reason in idle_keys(Recipe(model), "model").items():
        if key != "max_positions":  # model files of early versions have a value that their positions do not use
            return reason
    return _sharing_contradiction(model)


def _sharing_contradiction(model: ModelConfig) -> str | None:
    """`contradiction` for the keys that share layers."""
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
    """Returns the form of tying that `auto` stands for with joint or separate vocabularies, or `tie` itself."""
    if tie == "auto":
        return "src-tgt-softmax" if joint else "tgt-softmax"
    return tie


def check_together(recipe: Recipe, where: str) -> Recipe:
    """The recipe. Raises RecipeError, which begins with `where`, if its values contradict each other."""
    idle = idle_keys(recipe, "model").values()
    if reason := contradiction(recipe.model) or next(iter(idle), None) or recipe.search.contradiction():
        raise RecipeError(f"{where}: {reason}")
    if recipe.train.guided_alignment > 0 and recipe.model.architecture == "decoder-only":
        raise RecipeError(
            f"{where}: train.guided_alignment must be 0 for a decoder-only model, which has no cross-attention, got "
            f"{recipe.train.guided_alignment:g}."
        )
    if recipe.train.learning_rate == 0 and recipe.train.scale == 0:
        raise RecipeError(f"{where}: train.learning_rate or train.scale must be above 0, got 0 for both.")
    model, search = recipe.model, recipe.search
    if recipe.train.r_drop > 0 and not model.dropout + model.attention_dropout + model.activation_dropout:
        raise RecipeError(
            f"{where}: train.r_drop must be 0 without dropout, which is what makes its two passes differ, got "
            f"{recipe.train.r_drop}; set model.dropout above 0."
        )
    for name, longest in (("search.max_length", search.max_length), ("model.max_positions", model.reach)):
        if longest and search.min_length >= longest:
            raise RecipeError(
                f"{where}: search.min_length must be less than {longest}, the most tokens with EOS that {name} allows, "
                f"got {search.min_length}; lower it or raise {name}."
            )
    return recipe
