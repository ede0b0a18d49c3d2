"""Recipes: reads and writes them, and determines the recipe of a run.

A recipe is a TOML file with the sections [model], [train] and [search]; config/ declares the keys. `load_recipe` reads
one and applies overrides. For a run, `requested_recipe` finds the recipe, `resolved` replaces `auto`, and
`refuse_changes` compares the result with the recipe of the run so far.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vtrans.config import (
    DEFAULT_RECIPE,
    SECTIONS,
    ModelConfig,
    Recipe,
    SearchConfig,
    TrainConfig,
    check_together,
    read_toml,
    resolve_tie,
    section_from,
)
from vtrans.config.keys import keys_of, nearest, toml_value
from vtrans.data.epochs import Mixture
from vtrans.data.store import DataFolder
from vtrans.storage.model_file import section_of
from vtrans.storage.run_folder import RunFolder, choose_model
from vtrans.storage.states import read_progress
from vtrans.storage.tensors import open_tensors
from vtrans.system.errors import InputError, RecipeError
from vtrans.system.files import shipped
from vtrans.training.parts import TrainOptions

Values = Mapping[str, Mapping[str, Any]]
"""The values of a recipe by section and key, as a training state records them; empty for a new run."""


# Reading and writing.


def recipe_names() -> list[str]:
    """Returns the names of the shipped recipes, sorted."""
    return sorted(f.name.removesuffix(".toml") for f in shipped().iterdir() if f.name.endswith(".toml"))


def load_recipe(name: str = DEFAULT_RECIPE, overrides: Iterable[str] = ()) -> Recipe:
    """Returns a shipped recipe, or the one in the file `name` if it ends in .toml or contains a slash, with
    `section.key=value` overrides.

    Raises RecipeError for an unknown name, key or value, and InputError for a file that cannot be read.
    """
    path, where = Path(name), name
    if not (name.endswith(".toml") or "/" in name):
        names = recipe_names()
        if name not in names:
            known = nearest(name, names)
            raise RecipeError(
                f"there is no recipe {name!r}; {known} A recipe of your own is a file that ends in .toml."
            )
        path, where = shipped() / f"{name}.toml", f"recipe {name}"
    return with_overrides(merged(Recipe(), read_toml(path, where), where), overrides, where)


def recipe_toml(recipe: Recipe) -> str:
    """Returns the recipe as TOML, with a comment that explains each value. `load_recipe` reads it back unchanged."""
    lines: list[str] = []
    for name in SECTIONS:
        section = getattr(recipe, name)
        lines.append(f"[{name}]")
        for key, value in vars(section).items():
            described = keys_of(type(section))[key].described
            lines.append(f"{key} = {toml_value(value)}".ljust(36) + f"# {described}")
        lines.append("")
    return "\n".join(lines)


def with_overrides(recipe: Recipe, overrides: Iterable[str], where: str) -> Recipe:
    """Returns the recipe with overrides of the form `section.key=value`. Raises RecipeError for an invalid one."""
    for override in overrides:
        recipe = merged(recipe, _parse_override(override), " ".join(override.split()))
    return check_together(recipe, where)


def merged(recipe: Recipe, table: Mapping[str, Any], where: str) -> Recipe:
    """Returns the recipe with its values replaced by the ones in a TOML table. Does not check values together."""
    for section, values in table.items():
        if section not in SECTIONS:
            raise RecipeError(f"{where}: unknown section [{section}]; {nearest(section, SECTIONS)}")
        if not isinstance(values, dict):
            raise RecipeError(f"{where}: {section} must be a section, written [{section}].")
    return Recipe(
        section_from(ModelConfig, "model", table.get("model", {}), where, recipe.model),
        section_from(TrainConfig, "train", table.get("train", {}), where, recipe.train),
        section_from(SearchConfig, "search", table.get("search", {}), where, recipe.search),
    )


def _parse_override(text: str) -> dict[str, dict[str, Any]]:
    """Returns an override such as `model.d_model=256` as a table. A value that is not TOML is a string."""
    path, equals, raw = text.partition("=")
    section, dot, key = path.strip().partition(".")
    if not equals or not dot:
        raise RecipeError(f"`overrides` must be section.key=value, such as model.d_model=256, got {text!r}.")
    try:
        parsed = tomllib.loads(f"value = {raw}")
    except (ValueError, RecursionError):
        parsed = {}
    # A line break in `raw` could start a second key, which would be dropped silently.
    value = parsed["value"] if len(parsed) == 1 else raw.strip()
    return {section: {key: value}}


# The recipe of a run.


def recipe_of_model(path: Path, *, joint: bool) -> Recipe:
    """Returns the default recipe with the architecture and search settings of a model file to start from. A
    user-defined network is not kept: only a recipe can name its code."""
    with open_tensors(path, "model") as (_, header):
        model, search = section_of(ModelConfig, header, "model", path), section_of(SearchConfig, header, "search", path)
    model = dataclasses.replace(model, network=ModelConfig.network)
    fits = joint or not model.tie.startswith("src-tgt")
    return Recipe(model if fits else dataclasses.replace(model, tie="auto"), TrainConfig(), search)


def recipe_of_run(run: RunFolder) -> Recipe | None:
    """Returns the recipe of a run: its recipe.toml, else the one in its newest training state, else None."""
    if run.recipe.exists():
        return load_recipe(str(run.recipe))
    steps = run.state_steps()
    return merged(Recipe(), read_progress(run.state_file(steps[-1]))["recipe"], str(run.path)) if steps else None


def requested_recipe(run: RunFolder, before: Values, options: TrainOptions, *, joint: bool) -> Recipe:
    """Returns the recipe that the user asks for: the first that exists of the named one, the run's recipe.toml, the one
    in its state `before`, the one of the model to start from, and the default."""
    name, overrides = options.recipe, options.overrides
    if name is None and run.recipe.exists() and not options.fresh:
        name = str(run.recipe)
    if name is None and before:
        return with_overrides(merged(Recipe(), before, str(run.path)), overrides, str(run.path))
    if name is None and options.init_from is not None:
        base = recipe_of_model(choose_model(options.init_from).file, joint=joint)
        return with_overrides(base, overrides, "the recipe of the model")
    return load_recipe(name or DEFAULT_RECIPE, overrides)


def resolved(recipe: Recipe, *, joint: bool, precision: str, metric: str) -> Recipe:
    """Returns the recipe with `auto` resolved for this kind of vocabulary; `precision` and `metric` are its meaning in
    [train]."""
    if recipe.train.precision != "auto":
        precision = recipe.train.precision
    layer = recipe.model.alignment_layer
    if recipe.train.guided_alignment > 0 and layer == 0:
        layer = max(1, recipe.model.decoder_layers - 1)  # Garg et al. 2019
    return dataclasses.replace(
        recipe,
        model=dataclasses.replace(recipe.model, tie=resolve_tie(recipe.model.tie, joint), alignment_layer=layer),
        train=dataclasses.replace(
            recipe.train,
            precision=precision,
            best_metric=metric if recipe.train.best_metric == "auto" else recipe.train.best_metric,
        ),
    )


def changes(before: Values, asked: Recipe) -> dict[tuple[str, str], str]:
    """Returns the (section, key) pairs in which `asked` differs from a run's values `before`, each with a text that
    shows both values. Keys that the run does not record had their defaults."""
    recorded = merged(Recipe(), before, "the recipe of the run")
    return {
        (section, key): f"{section}.{key} {toml_value(old)} -> {toml_value(new)}"
        for section in before
        for key, old in vars(getattr(recorded, section)).items()
        if old != (new := getattr(getattr(asked, section), key))
    }


def refuse_changes(run: RunFolder, before: Values, recipe: Recipe) -> None:
    """Raises InputError if the recipe changes a value that must stay the same on resume; lists every such change."""
    forbidden = [
        text
        for (section, key), text in changes(before, recipe).items()
        if not keys_of(SECTIONS[section])[key].may_change
    ]
    if forbidden:
        raise InputError(
            f"the run in {run.path} cannot resume with another recipe: {', '.join(forbidden)}; "
            "choose another run folder, or start over with `fresh`."
        )


def recipe_to_write(run: RunFolder, before: Values, recipe: Recipe) -> bytes | None:
    """Returns the new content of recipe.toml, or None if the file already has every key with the same value.

    Training replaces only a recipe.toml that it wrote itself, which has every key and no comment lines. Raises
    InputError for any other file.
    """
    text = recipe_toml(recipe).encode()
    try:
        raw = run.recipe.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return text
    except OSError as error:
        raise InputError(f"{run.recipe} cannot be read: {error.strerror}.") from None
    try:
        table = tomllib.loads(raw.decode("utf-8-sig"))
        same = merged(Recipe(), table, str(run.recipe)) == recipe
    except (ValueError, RecursionError, InputError):
        table, same = {}, False
    wanted = before or dataclasses.asdict(recipe)
    complete = all(isinstance(table.get(s), dict) and wanted[s].keys() <= table[s].keys() for s in wanted)
    if complete and same:
        return None
    if not complete or any(line.lstrip().startswith(b"#") for line in raw.split(b"\n")):
        raise InputError(
            f"{run.recipe} is a recipe of your own, and training would replace it; move it out of the run folder and "
            "name it with `recipe`, or choose another run folder."
        )
    return text


# The recipe and the data.


def check_data(data: DataFolder, recipe: Recipe) -> None:
    """Raises InputError or RecipeError if the recipe cannot be trained on this data. Writes nothing."""
    for store, what in ((data.train, "training"), (data.valid, "validation")):
        if not len(store):
            raise InputError(f"{data.path} has no {what} pairs; prepare it again with {what} text.")
    _check_weights(data, recipe.train)
    train, model = recipe.train, recipe.model
    if train.bpe_dropout > 0 and {data.src_vocab.kind, data.tgt_vocab.kind} != {"bpe"}:
        raise RecipeError(
            f"train.bpe_dropout = {train.bpe_dropout} needs a BPE vocabulary, but {data.path} has a "
            f"{data.src_vocab.kind} vocabulary; prepare the text again with BPE, or set train.bpe_dropout to 0."
        )
    longest, valid = (
        max(int(lengths.max()) for lengths in (store.src_lengths, store.tgt_lengths)) + 1  # EOS
        for store in (data.train, data.valid)
    )
    if longest > train.batch_tokens:
        raise RecipeError(
            f"train.batch_tokens must be at least {longest:,}, the longest training sentence with EOS, "
            f"got {train.batch_tokens:,}."
        )
    longest = max(longest, valid)
    if model.max_length is not None and longest > model.max_length:
        needed = longest * (model.max_positions // model.max_length)
        raise InputError(
            f"model.max_positions must be at least {needed:,} for this data, whose longest sentence has {longest:,} "
            f"subwords with EOS, got {model.max_positions:,}."
        )


def _check_weights(data: DataFolder, train: TrainConfig) -> None:
    """Raises RecipeError if train.corpus_weights does not fit the corpora of the data."""
    sizes, weights = data.corpora, train.corpus_weights
    names = [files["src"]["name"] for files in data.report["inputs"]["train"]]
    if not weights:
        return
    if len(weights) != len(sizes):
        corpora = ", ".join(f"{name} {n:,} pairs" for name, n in zip(names, sizes, strict=True))
        raise RecipeError(
            f"train.corpus_weights must have one number per corpus of {data.path} ({corpora}), {len(sizes)} in all, "
            f"got {toml_value(weights)}."
        )
    if not len(Mixture(sizes, weights)):
        raise RecipeError(
            f"train.corpus_weights = {toml_value(weights)} selects no pairs of {data.path}; use larger weights."
        )
