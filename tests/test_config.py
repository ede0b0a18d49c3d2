"""config: unknown keys, ranges, types, overrides, shipped recipes, file errors."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrans.config import SECTIONS, ModelConfig, Recipe, SearchConfig, TrainConfig, section_from, weights_of
from vtrans.errors import InputError, RecipeError
from vtrans.training.recipe import load_recipe, recipe_names, recipe_toml

SHIPPED = [
    "iwslt14",
    "multi30k-10min",
    "multi30k-20min",
    "multi30k-hour",
    "multi30k-tiny",
    "paper-base",
    "paper-big",
    "phrasebook",
    "small",
    "t2t-base",
    "tatoeba",
    "tatoeba-cpu",
]


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_shipped_recipes() -> None:
    assert recipe_names() == SHIPPED


def test_small_is_the_defaults() -> None:
    assert load_recipe() == load_recipe("small") == Recipe()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_written_recipe_reads_back_equal(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    assert load_recipe(write(tmp_path, recipe_toml(recipe))) == recipe


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_recipe_begins_with_its_source(name: str) -> None:
    text = (Path(__file__).parent.parent / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}: ")


# Facts of the papers and code bases that the recipes name, model and training apart.
FACTS: list[tuple[str, dict[str, object]]] = [
    ("paper-base", {"d_model": 512, "d_ff": 2048, "heads": 8, "encoder_layers": 6, "decoder_layers": 6}),
    ("paper-base", {"dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0, "norm": "post"}),
    ("paper-base", {"max_steps": 100_000, "warmup": 4000, "scale": 1.0, "learning_rate": 0.0, "keep_last": 5}),
    ("paper-base", {"beta1": 0.9, "beta2": 0.98, "epsilon": 1e-9, "label_smoothing": 0.1, "beam": 4, "alpha": 0.6}),
    ("paper-big", {"d_model": 1024, "d_ff": 4096, "heads": 16, "dropout": 0.3, "norm": "post", "keep_last": 20}),
    ("paper-big", {"max_steps": 300_000, "warmup": 4000, "scale": 1.0, "beta2": 0.98, "activation": "relu"}),
    ("t2t-base", {"d_model": 512, "norm": "pre", "warmup": 8000, "scale": 2.0, "beta2": 0.997}),
    ("t2t-base", {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1, "learning_rate": 0.0}),
    ("multi30k-tiny", {"d_model": 128, "d_ff": 256, "heads": 4, "encoder_layers": 4, "decoder_layers": 4}),
    ("multi30k-tiny", {"dropout": 0.3, "learning_rate": 0.005, "warmup": 2000, "batch_tokens": 4096}),
    ("iwslt14", {"d_model": 512, "d_ff": 1024, "heads": 4, "encoder_layers": 6, "decoder_layers": 6}),
    ("iwslt14", {"dropout": 0.3, "learning_rate": 5e-4, "warmup": 4000, "weight_decay": 1e-4}),
]


@pytest.mark.parametrize(("name", "facts"), FACTS)
def test_recipes_say_what_their_sources_say(name: str, facts: dict[str, object]) -> None:
    recipe = load_recipe(name)
    # batch_tokens is a key of two sections: train's is meant.
    values = {
        key: value
        for part in ("search", "model", "train")
        for key, value in dataclasses.asdict(getattr(recipe, part)).items()
    }
    assert {key: values[key] for key in facts} == facts


@pytest.mark.parametrize("name", ["paper-base", "paper-big"])
def test_paper_batches_hold_25000_tokens(name: str) -> None:
    """Vaswani et al. 2017, section 5.1."""
    train = load_recipe(name).train
    assert train.batch_tokens * train.accumulate == 25_000


REFUSED = [
    ("[model]\nd_modell = 3", ["unknown key model.d_modell", "did you mean d_model?"]),
    ("[train]\nlearningrate = 1.0", ["unknown key train.learningrate", "did you mean learning_rate?"]),
    ("[train]\nqqq = 1", ["unknown key train.qqq", "known are max_steps, batch_tokens"]),
    ("[modle]\nd_model = 8", ["unknown section [modle]", "did you mean model?"]),
    ("d_model = 8", ["unknown section [d_model]"]),
    ("model = 8", ["model must be a section, written [model]"]),
    ("[[model]]\nd_model = 8", ["model must be a section, written [model]"]),
    ("[model]\nd_model = 1", ["model.d_model must be a whole number from 2 to 65536, but is 1."]),
    ("[model]\nd_model = 256.0", ["model.d_model must be a whole number", "but is 256.0"]),
    ('[model]\nd_model = "256"', ["model.d_model must be a whole number", "but is '256'"]),
    ("[model]\nd_model = true", ["model.d_model must be a whole number", "but is True"]),
    ("[model]\ndropout = 1.0", ["model.dropout must be a number from 0.0 to 0.95, but is 1.0."]),
    ("[model]\ndropout = nan", ["model.dropout must be a number", "but is nan"]),
    ("[train]\nscale = inf", ["train.scale must be a number", "but is inf"]),
    ("[model]\ndropout = false", ["model.dropout must be a number", "but is False"]),
    ('[model]\nnorm = "Post"', ["model.norm must be one of post, pre, but is 'Post'."]),
    ("[model]\nnorm = 1", ["model.norm must be one of post, pre, but is 1."]),
    ("[model]\nnorm = []", ["model.norm must be one of post, pre, but is []."]),
    ("[model]\ntie = false", ["model.tie must be one of auto, src-tgt-softmax", "but is False"]),
    ('[model]\nshare_positions = "yes"', ["model.share_positions must be true or false, but is 'yes'."]),
    ("[model]\nshare_positions = 1", ["model.share_positions must be true or false, but is 1."]),
    ("[model]\nheads = 3", ["model.heads must divide model.d_model, but 3 does not divide 256."]),
    ("[model]\nd_model = 9\nheads = 3", ["model.d_model must be even for sinusoidal positions, but is 9."]),
    ("[model]\nshare_positions = true", ["model.share_positions", 'set model.positions = "learned"']),
    ("[model]\nmax_positions = 256", ["model.max_positions = 256", "sinusoidal", "leave it out (1024)"]),
    ("[train]\nscale = 0", ["train.learning_rate", "train.scale", "above 0"]),
    ("[search]\nmax_length = 10\nmin_length = 20", ["search.min_length", "less than 10", "search.max_length", "is 20"]),
    ("[search]\nmax_length = 10\nmin_length = 10", ["search.min_length", "less than 10", "search.max_length", "is 10"]),
    (
        '[model]\npositions = "learned"\nmax_positions = 64\n[search]\nmin_length = 64',
        ["search.min_length", "less than 64", "model.max_positions"],
    ),
    ("[search]\nbeam = 0", ["search.beam must be a whole number from 1 to 1000, but is 0."]),
    ("[model\n", ["is not TOML"]),
    ("[model]\nd_model = 8\nd_model = 8\n", ["is not TOML"]),
    # What Python can't read, or can't write out.
    ("[model]\nd_model = " + "[" * 2_000, ["nested too deeply"]),
    ("[model]\nd_model = " + "{a=" * 2_000, ["nested too deeply"]),
    (f"[model]\nd_model.{'a.' * 2000}a = 1", ["model.d_model must be a whole number"]),
    (f"[model]\nnorm.{'a.' * 2000}a = 1", ["model.norm must be one of"]),
    ("[model]\nd_model = " + "1" * 5000, ["is not TOML"]),
    ("[model]\nd_model = 0x" + "f" * 5000, ["model.d_model must be a whole number"]),
    ("[model]\ndropout = 0x" + "f" * 5000, ["model.dropout must be a number"]),
    ("[train]\ncorpus_weights = [0x" + "f" * 5000 + "]", ["train.corpus_weights must be numbers"]),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_a_bad_recipe_is_refused_by_name(text: str, words: list[str], tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    message = str(caught.value)
    assert path in message
    assert "\n" not in message
    for word in words:
        assert word in message
    assert caught.value.exit_code == 2


def test_a_recipe_that_is_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"[model]\n# \xff\n")
    with pytest.raises(RecipeError, match="is not TOML"):
        load_recipe(str(path))


def test_a_bom_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbf[model]\r\nd_model = 64\r\n")
    assert load_recipe(str(path)).model.d_model == 64


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml"):
        load_recipe(str(tmp_path / "nowhere.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match=r"folder\.toml"):
        load_recipe(str(tmp_path / "folder.toml"))


@pytest.mark.parametrize(
    ("name", "hint"), [("smal", "did you mean small?"), ("multi30k", "did you mean multi30k-tiny?"), ("", "small")]
)
def test_an_unknown_name_brings_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(name)
    assert repr(name) in str(caught.value)
    assert hint in str(caught.value)


OVERRIDES: list[tuple[str, str, str, object]] = [
    ("model.d_model=512", "model", "d_model", 512),
    (" model.d_model = 512 ", "model", "d_model", 512),
    ("model.norm=pre", "model", "norm", "pre"),
    ('model.norm="pre"', "model", "norm", "pre"),
    ("model.dropout=0", "model", "dropout", 0.0),
    ("train.learning_rate=5e-4", "train", "learning_rate", 5e-4),
    ("train.max_steps=1_000", "train", "max_steps", 1000),
    ("model.tie=none", "model", "tie", "none"),
    ("search.alpha=-1", "search", "alpha", -1.0),
    ("train.corpus_weights=2,1", "train", "corpus_weights", "2,1"),
    ('train.corpus_weights="2, 0.50"', "train", "corpus_weights", "2,0.5"),
    ("train.corpus_weights=[2, 0.5, 0]", "train", "corpus_weights", "2,0.5,0"),
    ("train.corpus_weights=10", "train", "corpus_weights", "10"),
    ("train.corpus_weights=", "train", "corpus_weights", ""),
    ("train.corpus_weights=[]", "train", "corpus_weights", ""),
]


@pytest.mark.parametrize(("text", "section", "key", "value"), OVERRIDES)
def test_overrides(text: str, section: str, key: str, value: object) -> None:
    got = getattr(getattr(load_recipe("small", [text]), section), key)
    assert got == value
    assert type(got) is type(value)


def test_weights_survive_the_toml(tmp_path: Path) -> None:
    recipe = load_recipe("small", ["train.corpus_weights=2,0.125"])
    path = write(tmp_path, recipe_toml(recipe))
    assert load_recipe(path) == recipe
    assert weights_of(recipe.train.corpus_weights) == (2.0, 0.125)
    assert weights_of("") == ()


def test_the_last_override_wins_and_beats_the_recipe() -> None:
    recipe = load_recipe("paper-base", ["model.d_model=64", "model.d_model=32", "train.warmup=7"])
    assert (recipe.model.d_model, recipe.train.warmup, recipe.model.d_ff) == (32, 7, 2048)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model.d_modl=3", ["model.d_modl=3", "did you mean d_model?"]),
        ("modell.d_model=3", ["unknown section [modell]", "did you mean model?"]),
        ("d_model=3", ["section.key=value", "d_model=3"]),
        ("model.d_model", ["section.key=value"]),
        ("model.d_model=", ["model.d_model must be a whole number", "but is ''"]),
        ("model.norm=middle", ["model.norm=middle", "one of post, pre"]),
        ("model.heads=7", ["model.heads must divide model.d_model, but 7 does not divide 256"]),
        ("model.d_model=8\nheads=2", ["model.d_model"]),
        ("model.d_model=" + "[" * 2_000, ["model.d_model must be a whole number"]),
        ("model.d_model=" + "1" * 5000, ["model.d_model must be a whole number"]),
        ("model.d_model=0x" + "f" * 5000, ["model.d_model must be a whole number"]),
        (
            "train.corpus_weights=2,x",
            ["train.corpus_weights must be numbers from 0 to 1000 with", "but is '2,x'"],
        ),
        ("train.corpus_weights=2,,1", ["train.corpus_weights must be numbers", "but is '2,,1'"]),
        ("train.corpus_weights=2,-1", ["train.corpus_weights must be numbers", "but is '2,-1'"]),
        ("train.corpus_weights=2,nan", ["train.corpus_weights must be numbers"]),
        ("train.corpus_weights=[2, true]", ["train.corpus_weights must be numbers", "but is [2, True]"]),
        ("train.corpus_weights=true", ["train.corpus_weights must be numbers", "but is True"]),
        ("train.corpus_weights=0,0", ["train.corpus_weights must have a number above 0, but is '0,0'"]),
    ],
)
def test_a_bad_override_is_refused(text: str, words: list[str]) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("small", [text])
    for word in words:
        assert word in str(caught.value)


def test_checks_of_several_keys_see_the_overrides() -> None:
    """d_model alone does not fit the heads; with the second override it does."""
    assert load_recipe("small", ["model.d_model=30", "model.heads=5"]).model.heads == 5


def test_the_least_length_may_leave_room_for_eos_alone() -> None:
    assert load_recipe("small", ["search.max_length=10", "search.min_length=9"]).search.min_length == 9
    assert load_recipe("small", ["search.min_length=20"]).search.max_length == 0


def test_section_from_lays_over_a_base() -> None:
    base = SearchConfig(beam=7)
    assert section_from(SearchConfig, "search", {"alpha": 1}, "header", base) == SearchConfig(beam=7, alpha=1.0)
    with pytest.raises(RecipeError, match=r"header: unknown key search\.bean; did you mean beam\?"):
        section_from(SearchConfig, "search", {"bean": 1}, "header", base)


@pytest.mark.parametrize("kind", [ModelConfig, TrainConfig, SearchConfig])
def test_every_key_has_a_meaning_and_a_rule(kind: type[ModelConfig | TrainConfig | SearchConfig]) -> None:
    """Its default lies within the rule, so that a written recipe can be read."""
    for spec in dataclasses.fields(kind):
        assert spec.metadata["doc"]
        if isinstance(spec.default, str) and "values" in spec.metadata:
            assert spec.default in spec.metadata["values"]
        elif isinstance(spec.default, str):
            assert spec.default == ""  # no weights
        elif not isinstance(spec.default, bool):
            assert spec.metadata["low"] <= spec.default <= spec.metadata["high"]


@given(
    st.floats(0, 0.95),
    st.integers(0, 2**63 - 1),
    st.floats(1e-16, 1.0),
    st.sampled_from(("post", "pre")),
    st.booleans(),
)
def test_any_values_survive_the_toml(dropout: float, seed: int, epsilon: float, norm: str, share: bool) -> None:
    recipe = Recipe(
        ModelConfig(dropout=dropout, norm=norm, share_positions=share, positions="learned"),
        TrainConfig(seed=seed, epsilon=epsilon),
    )
    table = tomllib.loads(recipe_toml(recipe))
    assert set(table) == set(SECTIONS)
    read = Recipe(
        section_from(ModelConfig, "model", table["model"], "x"),
        section_from(TrainConfig, "train", table["train"], "x"),
        section_from(SearchConfig, "search", table["search"], "x"),
    )
    assert read == recipe
