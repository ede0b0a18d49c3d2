"""Embeddings that begin from co-occurrence: translations are close, and everything else stays as it was drawn."""

import random
from pathlib import Path

import pytest
import torch
from conftest import make_data, tiny_train
from drawn import seed_of
from torch import Tensor

from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.model.network import Transformer
from vtrans.training import cooccurrence
from vtrans.training.cooccurrence import factors, information, initialise_embeddings
from vtrans.training.recipe import load_recipe

GREEK, CYRILLIC = "αβγδεζηθικλμνξοπρστυφχψω", "абвгдежзийклмнопрстуфхцч"
PMI = "train.embeddings=pmi"


def translated_letters(count: int) -> list[tuple[str, str]]:
    """Returns pairs in which each Greek letter is translated by one Cyrillic letter, in another order."""
    drawn, translations = random.Random(seed_of(1)), dict(zip(GREEK, CYRILLIC, strict=True))
    pairs = []
    for _ in range(count):
        source = drawn.sample(GREEK, 5)
        pairs.append((" ".join(source), " ".join(translations[letter] for letter in reversed(source))))
    return pairs


@pytest.fixture(scope="module", params=[False, True], ids=["joint", "separate"])
def letters(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    pairs = translated_letters(600)
    return make_data(tmp_path_factory.mktemp("letters"), train=pairs, vocab_size=None, separate=request.param)


def network(data: DataFolder, *overrides: str) -> Transformer:
    torch.manual_seed(seed_of(2))
    tie = "src-tgt-softmax" if data.joint else "tgt-softmax"
    config = load_recipe(overrides=(f"model.tie={tie}", "model.d_model=64", "model.heads=2", *overrides)).model
    return Transformer(config, len(data.src_vocab), len(data.tgt_vocab), joint=data.joint, pad_id=0)


def rows(weight: Tensor, data: DataFolder, side: str, letters: str) -> Tensor:
    vocabulary = data.src_vocab if side == "src" else data.tgt_vocab
    return weight[[vocabulary.encode(letter)[-1] for letter in letters]]


def test_the_nearest_embedding_is_that_of_the_translation(letters: DataFolder) -> None:
    model = network(letters)
    initialise_embeddings(model, letters, seed_of(3))
    source = rows(model.src_embedding.weight, letters, "src", GREEK)
    target = rows(model.tgt_embedding.weight, letters, "tgt", CYRILLIC)
    assert (source @ target.T).argmax(1).tolist() == list(range(len(GREEK)))
    assert (model.tgt_embedding.weight is model.src_embedding.weight) == letters.joint
    assert model.projection.weight is model.tgt_embedding.weight


def test_other_embeddings_and_the_variance_stay(letters: DataFolder) -> None:
    before, model = network(letters), network(letters)
    initialise_embeddings(model, letters, seed_of(3))
    seen = set(letters.train.counts("src", len(letters.src_vocab)).nonzero()[0].tolist())
    if letters.joint:
        seen |= set(letters.train.counts("tgt", len(letters.tgt_vocab)).nonzero()[0].tolist())
    changed = (before.src_embedding.weight != model.src_embedding.weight).any(1)
    assert changed[list(seen - {1})].all()
    assert not changed[[i for i in range(len(changed)) if i not in seen]].any()
    assert model.src_embedding.weight[changed].var().item() == pytest.approx(1 / 64, rel=0.13)
    layers = {name: value for name, value in model.state_dict().items() if "embedding" not in name}
    assert all(torch.equal(before.state_dict()[name], layers[name]) for name in layers if "projection" not in name)


def test_the_same_seed_gives_the_same_embeddings_and_draws_nothing_else(letters: DataFolder) -> None:
    first, second, third = (network(letters) for _ in range(3))
    state = torch.get_rng_state()
    initialise_embeddings(first, letters, seed_of(3))
    initialise_embeddings(second, letters, seed_of(3))
    assert torch.equal(torch.get_rng_state(), state)
    initialise_embeddings(third, letters, seed_of(4))
    assert torch.equal(first.src_embedding.weight, second.src_embedding.weight)
    assert not torch.equal(first.src_embedding.weight, third.src_embedding.weight)


def test_only_the_most_frequent_subwords_are_counted(letters: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "COUNTED", 10)
    before, model = network(letters), network(letters)
    initialise_embeddings(model, letters, seed_of(3))
    pairs = [(before.src_embedding, model.src_embedding)]
    pairs += [] if letters.joint else [(before.tgt_embedding, model.tgt_embedding)]
    changed = sum(int((old.weight != new.weight).any(1).sum()) for old, new in pairs)
    assert 0 < changed <= 10


def test_information_is_that_of_the_definition() -> None:
    counts = torch.tensor([[4.0, 2.0, 1.0], [2.0, 3.0, 0.0], [1.0, 0.0, 5.0]])
    found = information(counts, 10)
    assert found[0, 1] == pytest.approx(torch.tensor(2 / 10 / (4 / 10 * 3 / 10)).log().item())
    assert found[0, 2] == found[2, 0] == 0  # seen together once only
    assert found[1, 2] == 0
    assert torch.equal(found, found.T)


@pytest.mark.parametrize("D", [2, 3, 8])
def test_factors_are_unit_vectors_of_any_width(D: int) -> None:
    torch.manual_seed(seed_of(5))
    symmetric = torch.tensor([[2.0, 1.0, 0.0, 0.0], [1.0, 2.0, 0.5, 0.0], [0.0, 0.5, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    vectors = factors(symmetric, D)
    assert vectors.shape == (4, D)
    assert vectors.norm(dim=1).tolist() == pytest.approx([1.0, 1.0, 1.0, 0.0], abs=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


def test_a_run_begins_with_them_and_a_resumed_one_does_not_begin_again(tmp_path: Path, tiny_data: DataFolder) -> None:
    random_run = tiny_train(tiny_data, tmp_path / "random", "train.max_steps=1")
    run = tiny_train(tiny_data, tmp_path / "pmi", "train.max_steps=1", PMI)
    one, other = (load_model(each.last).model.src_embedding.weight for each in (random_run, run))
    assert (one - other).abs().max() > 0.2  # an update changes less
    tiny_train(tiny_data, tmp_path / "pmi", "train.max_steps=3", PMI)
    whole = tiny_train(tiny_data, tmp_path / "whole", "train.max_steps=3", PMI)
    assert run.last.read_bytes() == whole.last.read_bytes()
