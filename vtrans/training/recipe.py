"""The recipe of a run with nothing left open, and what refuses it: the run's own recipe so far, and the data."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vtrans.checkpoint import RunFolder
from vtrans.config import (
    DEFAULT_RECIPE,
    ModelConfig,
    Recipe,
    SearchConfig,
    TrainConfig,
    forbidden_changes,
    load_recipe,
    recipe_toml,
    section_from,
    weights_of,
)
from vtrans.data.batches import Mixture
from vtrans.data.store import DataFolder
from vtrans.errors import InputError, RecipeError
from vtrans.model import resolve_tie


def resolve(
    run: RunFolder,
    own: Mapping[str, Mapping[str, Any]],
    fresh: bool,
    joint: bool,
    device: torch.device,
    name: str | None,
    overrides: Sequence[str],
) -> Recipe:
    """The recipe with nothing left open. Without a `name` it starts from the run's own, if there is one; what
    differs from `own`, of the state that it goes on from, must be among MAY_CHANGE. InputError lists what is not."""
    if name is None and not fresh and run.recipe.exists():
        name = str(run.recipe)
    elif name is None:  # of a run whose recipe.toml is lost, the state knows every value
        values = [f"{s}.{key}={json.dumps(value)}" for s in own for key, value in own[s].items()]
        overrides = [*values, *overrides]
    recipe = load_recipe(name or DEFAULT_RECIPE, overrides)
    tie = resolve_tie(recipe.model.tie, joint)
    precision = recipe.train.precision
    if precision == "auto":
        bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bfloat16" if bfloat16 else "float32"
    recipe = dataclasses.replace(
        recipe,
        model=dataclasses.replace(recipe.model, tie=tie),
        train=dataclasses.replace(recipe.train, precision=precision),
    )
    differences = forbidden_changes(own, recipe)
    if differences:
        raise InputError(
            f"the run in {run.path} can't go on with another recipe: {', '.join(differences)}; "
            "give another --out, or --fresh to start over."
        )
    return recipe


def recorded_recipe(own: Mapping[str, Mapping[str, Any]], where: str) -> Recipe:
    """The recipe that a state records. A key that is younger than the state has its default."""
    return Recipe(
        section_from(ModelConfig, "model", own["model"], where),
        section_from(TrainConfig, "train", own["train"], where),
        section_from(SearchConfig, "search", own["search"], where),
    )


def finished_recipe(recorded: Recipe, asked: Recipe) -> Recipe:
    """The recipe of a run that has nothing left to train: what its models were made with, and of `asked` only what
    says that it is finished, and whether TensorBoard shows it."""
    taken = {key: getattr(asked.train, key) for key in ("max_steps", "patience", "tensorboard")}
    return dataclasses.replace(recorded, train=dataclasses.replace(recorded.train, **taken))


def recipe_to_write(run: RunFolder, own: Mapping[str, Mapping[str, Any]], recipe: Recipe) -> bytes | None:
    """The new content of recipe.toml, or None where the file says the same. InputError where the file is not one that
    training wrote: training names every key and writes no line that is a comment only."""
    try:
        raw = run.recipe.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return recipe_toml(recipe).encode()
    except OSError as error:
        raise InputError(f"{run.recipe} can't be read: {error.strerror}.") from None
    try:
        table = tomllib.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        table = {}
    keys = own or dataclasses.asdict(recipe)
    complete = all(
        isinstance(table.get(section), dict) and keys[section].keys() <= table[section].keys() for section in keys
    )
    if complete and _says(run, recipe):
        return None
    if not complete or any(line.lstrip().startswith(b"#") for line in raw.split(b"\n")):
        raise InputError(
            f"{run.recipe} is a recipe of your own, which training would overwrite with every resolved value; move it "
            "out of the run folder and name it with --recipe, or give another --out."
        )
    return recipe_toml(recipe).encode()


def _says(run: RunFolder, recipe: Recipe) -> bool:
    try:
        return load_recipe(str(run.recipe)) == recipe
    except InputError:
        return False


def check_data(data: DataFolder, recipe: Recipe) -> None:
    """InputError, before anything is written, where the data can't be trained on by this recipe."""
    for store, what in ((data.train, "training"), (data.valid, "validation")):
        if not len(store):
            raise InputError(f"{data.path} holds no {what} pair; prepare it from text that has some.")
    _check_weights(data, recipe.train.corpus_weights)
    kinds = {data.src_vocab.kind, data.tgt_vocab.kind}
    if recipe.train.bpe_dropout > 0 and kinds != {"bpe"}:
        raise RecipeError(
            f"train.bpe_dropout = {recipe.train.bpe_dropout} leaves out merges, which a unigram vocabulary has none "
            f"of, as {data.path} holds; prepare the text with --subword bpe, or set it to 0."
        )
    longest = max(int(lengths.max()) for lengths in (data.train.src_lengths, data.train.tgt_lengths)) + 1
    if longest > recipe.train.batch_tokens:
        raise RecipeError(
            f"train.batch_tokens must be at least {longest}, the longest side of a pair with EOS, "
            f"but is {recipe.train.batch_tokens}."
        )
    valid = max(int(lengths.max()) for lengths in (data.valid.src_lengths, data.valid.tgt_lengths)) + 1
    reach, longest = recipe.model.reach, max(longest, valid)
    if reach is not None and longest > reach:
        needed = longest * (recipe.model.max_positions // reach)
        raise InputError(
            f"model.max_positions = {recipe.model.max_positions} is too small for this data, whose longest side "
            f"has {longest} subwords with EOS; --set model.max_positions={needed} works."
        )


def _check_weights(data: DataFolder, text: str) -> None:
    """RecipeError where the weights of a recipe are not those of the corpora that the data was made of."""
    weights, sizes = weights_of(text), data.corpora
    names = [files["src"]["name"] for files in data.report["inputs"]["train"]]
    if not weights:
        return
    if len(sizes) != len(names):
        raise InputError(
            f"train.corpus_weights is {text}, but {data.path} was made by a version of vtrans that did not record "
            "which pairs are of which corpus; make it anew with `vtrans prepare-bpe --force`."
        )
    if len(weights) != len(sizes):
        kept = ", ".join(f"{name} {n:,} pairs" for name, n in zip(names, sizes, strict=True))
        raise RecipeError(
            f"train.corpus_weights must have a number for each corpus of {data.path} ({kept}), {len(sizes)} in all, "
            f"but is {text}."
        )
    if not len(Mixture(sizes, weights)):
        raise RecipeError(f"train.corpus_weights is {text}, which leaves no pair of {data.path}; give larger ones.")
