"""`vtrans adapt`: how pairs are divided, which model is kept, models with tags, and that a repeated call goes on."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runner import Run
from conftest import TRAIN_PAIRS, make_data, tiny_pairs, tiny_train, write_pairs
from hypothesis import given
from hypothesis import strategies as st

import vtrans
from vtrans.apps.adapting import adapt as module
from vtrans.apps.adapting.adapt import HELD_OUT, SEED, AdaptOptions, OldText, adapt, divided
from vtrans.apps.adapting.commands.adapt import KEPT
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.prepare import prepare
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.score.metrics import corpus_scores
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.text.vocabulary import FORMALITY
from vtrans.training.parts import TrainOptions

NEW = [(f"Often {english}", german.replace("Der ", "Ein ").replace("mich", "uns")) for english, german in tiny_pairs()]
OLD = OldText([src for src, _ in tiny_pairs()], [tgt for _, tgt in tiny_pairs()])
QUICK = ("train.max_steps=120", "train.learning_rate=0.01", "train.checkpoint_every=60", "train.batch_tokens=240")
QUIET = Console(quiet=True)
Bleu = tuple[float, float]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned the tiny corpus."""
    folder = tmp_path_factory.mktemp("adapt")
    return tiny_train(make_data(folder), folder / "run", "train.max_steps=120").last


@pytest.fixture(autouse=True)
def _few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEWEST_PAIRS", 100)


def options(model: Path, out: Path, *overrides: str, guard: float = 100.0) -> AdaptOptions:
    training = TrainOptions(overrides=[*QUICK, *overrides], device="cpu", processes=1)
    return AdaptOptions(model, out, guard, training=training)


def pretend_scores(monkeypatch: pytest.MonkeyPatch, model: Path, tuned: Bleu, halfway: Bleu) -> None:
    """Gives the tuned model and its mean with the given one these scores of new and old text."""
    measured = {model.name: (10.0, 40.0), "averaged.safetensors": tuned, "halfway.safetensors": halfway}
    monkeypatch.setattr(
        "vtrans.apps.adapting.adapt._Adaptation.scores",
        lambda self, file, parts: dict(zip(("new", "old"), measured[file.name], strict=True)),
    )


def test_an_adapted_model_is_kept_if_it_gains_and_a_second_call_changes_nothing(model: Path, tmp_path: Path) -> None:
    chosen = options(model, tmp_path, "train.max_steps=240", "train.checkpoint_every=120")
    made = adapt(chosen, NEW, OLD, QUIET)
    before, after = made.scores["new"]
    assert made.kept == "adapted"
    assert after > before + 3
    assert made.counts["new.train"] == made.counts["old.train"]
    first = made.file.read_bytes()
    assert first != model.read_bytes()
    sources, references = zip(*divided(NEW, HELD_OUT, SEED)["test"], strict=True)
    translations = list(vtrans.load(made.file, device="cpu").translate(sources))
    assert corpus_scores(translations, references)["bleu"] == after

    metrics = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    assert adapt(chosen, NEW, OLD, QUIET) == made
    assert made.file.read_bytes() == first
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == metrics, "no update is made again"


@pytest.mark.parametrize(
    ("tuned", "halfway", "result"),
    [
        ((30.0, 39.5), (20.0, 40.0), "adapted"),
        ((30.0, 38.0), (20.0, 39.5), "mean"),  # the tuned model forgets too much, its mean with the old one does not
        ((30.0, 38.0), (20.0, 38.9), "given"),
        ((9.0, 41.0), (9.5, 41.0), "given"),
    ],
)
def test_the_guard_chooses_between_the_tuned_model_its_mean_with_the_given_one_and_the_given_one(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tuned: Bleu, halfway: Bleu, result: str
) -> None:
    pretend_scores(monkeypatch, model, tuned, halfway)
    made = adapt(options(model, tmp_path, "train.max_steps=1", guard=1.0), NEW, OLD, QUIET)
    files = {"adapted": tmp_path / "run" / "averaged.safetensors", "mean": tmp_path / "halfway.safetensors"}
    assert made.kept == result
    assert made.file.read_bytes() == files.get(result, model).read_bytes()


def test_what_cannot_be_adapted_is_refused_before_anything_is_written(model: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "file", tmp_path / "out"
    file.touch()
    wrong = [
        ("100", options(model, out), NEW[:99]),
        ("learning_rat", options(model, out, "train.learning_rat=1"), NEW),
        ("is not a folder", options(model, file), NEW),
        ("cannot be written", options(model, file / "out"), NEW),
    ]
    for message, asked, pairs in wrong:
        with pytest.raises(VtransError, match=message):
            adapt(asked, pairs, None, QUIET)
    assert not out.exists()


def test_it_prints_its_measurements(run_cli: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    src, tgt = write_pairs(tmp_path, "new", NEW)
    words = ("adapt", model, "--src", src, "--out", tmp_path / "out", "--device", "cpu", "--processes", "1")
    refused = run_cli(*words)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert run_cli("adapt", model).code == 2
    sets = [word for value in (*QUICK, "train.max_steps=1") for word in ("--set", value)]
    done = run_cli(*words, "--tgt", tgt, "--old-src", src, *sets, "--json")
    assert done.code == 0, done.err
    assert "before" in done.err
    assert KEPT[json.loads(done.out)["kept"]] in done.err
    assert (tmp_path / "out" / "model.safetensors").exists()
    repeated = run_cli(*words, "--tgt", tgt, "--old-src", src, *sets)
    for said in (done.err, repeated.err):  # adapt does itself what its steps advise
        assert not re.findall("next:|to continue|weight them|one matrix", said)
    for halfway, advised in ((38.75, True), (39.0, False), (41.0, False)):
        pretend_scores(monkeypatch, model, (9.0, 38.0), (20.0, halfway))
        said = run_cli(*words, "--tgt", tgt, "--old-src", src, *sets).err
        assert ("repeat the command with --guard 1.3\n" in said) == advised, said
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for old in (["--old-src", empty], ["--old-src", empty, "--old-tgt", empty]):
        assert "--old-src" in run_cli(*words, "--tgt", tgt, *old).err
    tgt.write_text("x\n")
    assert run_cli(*words, "--tgt", tgt).code == 2


def test_one_direction_is_adapted_and_the_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    english, german = write_pairs(tmp_path, "train", TRAIN_PAIRS)
    both = PrepareOptions(
        (english, german), (german, english), tags=(">>de<<", ">>en<<"), vocab_size=320, out=tmp_path / "both"
    )
    prepare(both, QUIET)
    given = tiny_train(DataFolder.open(tmp_path / "both"), tmp_path / "given", "train.max_steps=1").last
    asked = options(given, tmp_path / "out", "train.max_steps=1")
    wrong = ((None, None, "neither"), (None, "fr", "`to` fr"), ("fr", "de", "`from` fr and `to` de"))
    for src, tgt, got in wrong:
        with pytest.raises(InputError, match=f"en-de, de-en, got {got}"):
            adapt(replace(asked, from_=src, to=tgt), NEW, None, QUIET)
    gains = {True: 1.0, False: 2.0}  # whether it is the given model
    monkeypatch.setattr(
        "vtrans.apps.adapting.adapt._Adaptation.scores", lambda self, file, *rest: {"new": gains[file == given]}
    )
    made = adapt(replace(asked, to="de"), NEW, None, QUIET)
    assert made.kept == "adapted"
    assert made.file.read_bytes() != given.read_bytes()
    data = DataFolder.open(tmp_path / "out" / "data")
    assert data.src_vocab.piece(int(data.train.src(0)[0])) == ">>de<<"
    before, after = load_model(given), load_model(made.file)
    assert (after.languages, after.tags) == (before.languages, before.tags)


def test_own_translations_keep_both_forms_of_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    english, german = write_pairs(tmp_path, "train", TRAIN_PAIRS)
    symbols = tuple(FORMALITY.values())
    prepare(PrepareOptions((english,), (german,), vocab_size=320, symbols=symbols, out=tmp_path / "symbols"), QUIET)
    given = tiny_train(DataFolder.open(tmp_path / "symbols"), tmp_path / "given", "train.max_steps=1").last

    def translations(self: object, translator: object, sources: list[str], form: str = "") -> list[str]:
        return [f"{form} {src}" if "cat" in src else src for src in sources]

    monkeypatch.setattr("vtrans.apps.adapting.adapt._Adaptation._translations", translations)
    monkeypatch.setattr(module, "FORMS", 1.0)
    adapt(options(given, tmp_path / "out", "train.max_steps=1"), NEW, OLD, QUIET)
    sources, targets = (
        (tmp_path / "out" / "text" / f"formality.train.{side}").read_text().split("\n")[:-1] for side in ("src", "tgt")
    )
    assert {line.partition(" ")[0] for line in sources} == set(symbols)
    for source, target in zip(sources, targets, strict=True):
        symbol, _, text = source.partition(" ")
        assert "cat" in text
        assert target == f"{'more' if symbol == FORMALITY['more'] else 'less'} {text}"
    data = DataFolder.open(tmp_path / "out" / "data")
    ids, symbol_ids = data.train.src(len(data.train) - 1).tolist(), data.src_vocab.formality["less"]
    assert ids[: len(symbol_ids)] == symbol_ids


SHARES = {"test": (0.3, 5), "valid": (0.1, 9)}


@given(st.lists(st.tuples(st.sampled_from("abcdefgh "), st.sampled_from("xyz ")), max_size=80))
def test_no_source_is_in_two_parts_and_no_pair_is_lost(pairs: list[tuple[str, str]]) -> None:
    parts = divided(pairs, SHARES, 1)
    sources = [{src for src, _ in part} for part in parts.values()]
    assert sum(map(len, sources)) == len(set().union(*sources))
    held_out = {src for name in ("test", "valid") for src, _ in parts[name]}
    expected = {pair for pair in pairs if all(side.strip() for side in pair)}
    assert {pair for pair in expected if pair[0] not in held_out} == set(parts["train"])
    assert sources[0] | held_out == {src for src, _ in expected}
