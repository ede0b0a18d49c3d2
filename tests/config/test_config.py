"""config: unknown keys, ranges, types, overrides, shipped recipes, file errors."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrans.config import SECTIONS, ModelConfig, Recipe, SearchConfig, TrainConfig, section_from
from vtrans.config.keys import check_value, idle_messages, keys_of
from vtrans.data.options import PrepareOptions
from vtrans.system.errors import RecipeError
from vtrans.training.recipe import changes, load_recipe, recipe_names, recipe_toml

SHIPPED = sorted(path.stem for path in (Path(__file__).parents[2] / "recipes").glob("*.toml"))


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_shipped_recipes() -> None:
    assert recipe_names() == SHIPPED


@pytest.mark.parametrize("name", ["paper-base", "paper-big"])
def test_paper_batches_hold_25000_tokens(name: str) -> None:
    """Vaswani et al. 2017, section 5.1."""
    train = load_recipe(name).train
    assert train.batch_tokens * train.accumulate == 25_000


# Each faulty recipe with the words that its error must contain.
REFUSED = [
    ("[model]\nd_modell = 3", ["model.d_modell", "d_model?"]),
    ("[modle]\nd_model = 8", ["[modle]", "model?"]),
    ("d_model = 8", ["[d_model]"]),
    ("[model]\nd_model = 1", ["model.d_model", "from 2 to 65536", "got 1."]),
    ('[model]\nd_model = "256"', ["model.d_model", "whole", "'256'"]),
    ("[model]\ndropout = 1.0", ["model.dropout", "from 0 to 0.95", "1.0"]),
    ('[model]\nnorm = "Post"', ["model.norm", "post, pre", "'Post'"]),
    ('[model]\nshare_positions = "yes"', ["model.share_positions", "true or false", "'yes'"]),
    ("[model]\nheads = 3", ["model.heads", "model.d_model", "256", "3"]),
    ("[train]\nscale = 0", ["train.learning_rate", "train.scale", "above 0"]),
    ("[model]\ndropout = 0.0\n[train]\nr_drop = 1", ["train.r_drop", "1.0", "model.dropout above 0"]),
    ("[search]\nmax_length = 10\nmin_length = 20", ["search.min_length", "less than 10", "search.max_length", "20"]),
    (
        '[model]\npositions = "learned"\nmax_positions = 64\n[search]\nmin_length = 64',
        ["search.min_length", "less than 64", "model.max_positions"],
    ),
    ("[search]\nbeam = 0", ["search.beam", "from 1 to 1000", "got 0."]),
    ("[model\n", ["TOML"]),
    # What Python cannot read, or cannot print.
    ("[model]\nd_model = " + "[" * 2_000, ["nested"]),
    ("[model]\nd_model = " + "1" * 5000, ["TOML"]),
    ("[model]\nd_model = 0x" + "f" * 5000, ["model.d_model"]),
]


def refused(words: list[str], name: str, *overrides: str) -> None:
    """Asserts that a recipe is refused in one line with these words."""
    with pytest.raises(RecipeError) as caught:
        load_recipe(name, overrides)
    message = str(caught.value)
    assert [word for word in words if word not in message] == []
    assert "\n" not in message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_a_bad_recipe_is_refused_by_name(text: str, words: list[str], tmp_path: Path) -> None:
    path = write(tmp_path, text)
    refused([path, *words], path)


OVERRIDES: list[tuple[str, str, str, object]] = [
    ("model.d_model=512", "model", "d_model", 512),
    ("model.norm=pre", "model", "norm", "pre"),
    ('model.norm="pre"', "model", "norm", "pre"),
    ("model.dropout=0", "model", "dropout", 0.0),
    ("train.learning_rate=5e-4", "train", "learning_rate", 5e-4),
    ("train.corpus_weights=2,1", "train", "corpus_weights", (2.0, 1.0)),
    ('train.corpus_weights="2, 0.50"', "train", "corpus_weights", (2.0, 0.5)),
    ("train.corpus_weights=[2, 0.5, 0]", "train", "corpus_weights", (2.0, 0.5, 0.0)),
    ("train.corpus_weights=10", "train", "corpus_weights", (10.0,)),
    ("train.corpus_weights=", "train", "corpus_weights", ()),
]


@pytest.mark.parametrize(("text", "section", "key", "value"), OVERRIDES)
def test_overrides(text: str, section: str, key: str, value: object) -> None:
    got = getattr(getattr(load_recipe("small", [text]), section), key)
    assert got == value
    assert type(got) is type(value)


def test_the_texts_of_earlier_versions_are_read_as_lists_of_weights(tmp_path: Path) -> None:
    path = write(tmp_path, '[train]\ncorpus_weights = "2,0.125"\n')
    assert load_recipe(path).train.corpus_weights == (2.0, 0.125)
    own = {"train": {"corpus_weights": "2,0.125"}}  # as the states of those versions have it
    assert changes(own, load_recipe(path)) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model.d_modl=3", ["model.d_modl", "d_model?"]),
        ("modell.d_model=3", ["[modell]", "model?"]),
        ("d_model=3", ["`overrides`", "section.key=value", "'d_model=3'"]),
        ("model.d_model=", ["model.d_model", "''"]),
        ("model.heads=7", ["model.heads", "model.d_model", "192", "7"]),
        ("model.d_model=8\nheads=2", ["model.d_model"]),
        ("model.d_model=" + "1" * 5000, ["model.d_model"]),
        ("train.corpus_weights=2,x", ["train.corpus_weights", "numbers from 0 to 1000", "'2,x'"]),
        ("train.corpus_weights=2,-1", ["train.corpus_weights", "'2,-1'"]),
        ("train.corpus_weights=[2, true]", ["train.corpus_weights", "[2, True]"]),
        ("train.corpus_weights=0,0", ["train.corpus_weights", "'0,0'"]),
    ],
)
def test_a_bad_override_is_refused(text: str, words: list[str]) -> None:
    refused(words, "small", text)


@pytest.mark.parametrize(
    ("name", "known"), [("smal", "did you mean small?"), ("multi30k", "multi30k-tiny?"), ("foo", ", ".join(SHIPPED))]
)
def test_an_unknown_recipe_is_refused_with_the_known_ones_and_the_form_of_a_file(name: str, known: str) -> None:
    refused([repr(name), known, ".toml"], name)


@pytest.mark.parametrize("kind", [*SECTIONS.values(), PrepareOptions])
def test_every_default_is_an_allowed_value_with_a_help_text(kind: type[Any]) -> None:
    for spec in dataclasses.fields(kind):
        if key := spec.metadata.get("key"):
            assert key.help[0] + key.help[-1] == key.help[0].upper() + ".", key.help
            assert (
                spec.default in (None, dataclasses.MISSING) or check_value(key, spec.name, spec.default) == spec.default
            )


@pytest.mark.parametrize("kind", SECTIONS.values())
def test_every_recipe_key_declares_its_facts(kind: type[Any]) -> None:
    keys = keys_of(kind)
    assert set(keys) == {spec.name for spec in dataclasses.fields(kind)}
    for key in keys.values():
        assert set(key.idle_if) <= set(keys)


IDLE = [
    ("model", ["model.max_positions=256"], "max_positions", "positions"),
    ("model", ["model.share_positions=true"], "share_positions", "positions"),
    ("train", ["train.scale=2", "train.learning_rate=0.001"], "scale", "learning_rate"),
    ("search", ["search.length_penalty=length", "search.alpha=0"], "length_penalty", "alpha"),
    ("search", ["search.diversity=1"], "diversity", "beam_groups"),
    ("search", ["search.repetition_penalty=2", "search.no_repeat_ngram=1"], "repetition_penalty", "no_repeat_ngram"),
]


@pytest.mark.parametrize(("section", "overrides", "key", "because"), IDLE)
def test_a_key_without_effect_is_explained(section: str, overrides: list[str], key: str, because: str) -> None:
    if section == "model":  # refused: the model would not be the one asked for
        with pytest.raises(RecipeError, match=rf"model\.{key} .*model\.{because}\b"):
            load_recipe("small", overrides)
        return
    recipe = load_recipe("small", overrides)  # a warning only
    assert list(idle_messages(getattr(recipe, section), section)) == [key]
    assert f"{section}.{because} " in idle_messages(getattr(recipe, section), section)[key]


@given(
    st.floats(0, 0.95),
    st.integers(0, 2**63 - 1),
    st.floats(1e-16, 1.0),
    st.sampled_from(("post", "pre")),
    st.booleans(),
)
def test_any_values_survive_toml(dropout: float, seed: int, epsilon: float, norm: str, share: bool) -> None:
    recipe = Recipe(
        ModelConfig(dropout=dropout, norm=norm, share_positions=share, positions="learned"),
        TrainConfig(seed=seed, epsilon=epsilon, corpus_weights=(2.0, 0.125)),
    )
    table = tomllib.loads(recipe_toml(recipe))
    assert set(table) == set(SECTIONS)
    read = Recipe(
        section_from(ModelConfig, "model", table["model"], "x"),
        section_from(TrainConfig, "train", table["train"], "x"),
        section_from(SearchConfig, "search", table["search"], "x"),
    )
    assert read == recipe
