"""Guided alignment: a head learns the word alignments of the data."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TRAIN_PAIRS, VALID_PAIRS, tiny_links, tiny_train
from corpora import made, options
from networks import SEQUENCE, SMALL, VARIANTS, align, make
from numpy.typing import NDArray
from torch import Tensor

from vtrans.config import ModelConfig, Recipe, TrainConfig, check_together
from vtrans.data.batches import Batch, BatchLoader, collate
from vtrans.data.matches import SEPARATOR_ID
from vtrans.data.store import DataFolder
from vtrans.engines.forced import cross_attention, mean_attention
from vtrans.model.checkpoint import load_model
from vtrans.model.network import Transformer
from vtrans.system.errors import RecipeError
from vtrans.system.ranks import Ranks
from vtrans.text.vocabulary import EOS_ID
from vtrans.text.words import words_of_line
from vtrans.training.average import average
from vtrans.training.optimization.loss import Objective
from vtrans.training.trainer import Trainer

LAYER = 2
GUIDED = [
    dataclasses.replace(config, alignment_layer=min(LAYER, config.decoder_layers))
    for config in (SMALL, VARIANTS[1], VARIANTS[4], VARIANTS[-1], dataclasses.replace(SMALL, autoregression="ssru"))
]
PAIRS = [([5, 6, 7, 8, 9], [10, 11, 12]), ([13, 14], [15, 16, 17, 18]), ([19], [20])]
LINKS = [[(0, 0), (3, 0), (4, 2)], [(1, 0), (1, 1), (0, 3), (1, 3)], []]


def ids(numbers: list[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def array(links: list[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array(links, np.int64).reshape(-1, 2)


def batch_of(rows: list[int], *, linked: bool = True) -> Batch:
    sources, targets = zip(*(PAIRS[i] for i in rows), strict=True)
    links = [array(LINKS[i]) for i in rows] if linked else None
    return collate([ids(s) for s in sources], [ids(t) for t in targets], links)


def by_hand(model: Transformer, rows: list[int]) -> float:
    """The alignment loss, link by link, from the attention computed for decoding."""
    batch = batch_of(rows)
    with torch.no_grad():
        attention_BTS = cross_attention(model, batch)[model.config.alignment_layer - 1][:, 0]
    total = 0.0
    for b, row in enumerate(rows):
        for target in {t for _, t in LINKS[row]}:
            sources = [s for s, t in LINKS[row] if t == target]
            total -= sum(math.log(float(attention_BTS[b, target + 1, s])) for s in sources) / len(sources)
    return total


@pytest.mark.parametrize("config", GUIDED)
def test_the_loss_adds_the_cross_entropy_between_links_and_attention(config: ModelConfig) -> None:
    model = make(config)
    rows = [0, 1, 2]
    plain, nll = Objective(model, 0.1)(batch_of(rows))
    guided, same_nll = Objective(model, 0.1, guided=0.7)(batch_of(rows))
    assert (guided - plain).item() == pytest.approx(0.7 * by_hand(model, rows), rel=1e-6)
    assert same_nll.item() == nll.item()
    assert Objective(model, 0.1, guided=0.7)(batch_of(rows, linked=False))[0].item() == plain.item()


def test_the_gradient_reaches_only_the_inputs_of_the_guided_head() -> None:
    config = dataclasses.replace(SMALL, tie="none", alignment_layer=LAYER)
    model = make(config)
    batch = batch_of([0, 1])
    (Objective(model, 0.1, guided=1.0)(batch)[0] - Objective(model, 0.1)(batch)[0]).backward()
    reached = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 1e-12}
    after = {f"decoder.layers.{LAYER - 1}.{part}." for part in ("cross_attention.out", "feed_forward")}
    after |= {f"decoder.layers.{LAYER - 1}.{part}_residual." for part in ("cross_attention", "feed_forward")}
    after |= {f"decoder.layers.{LAYER}.", "projection."}
    # A bias of the keys shifts all scores of a row alike.
    expected = {name for name, _ in model.named_parameters() if not name.startswith(tuple(after))}
    cross = model.decoder.get_submodule(f"layers.{LAYER - 1}.cross_attention")
    name = f"decoder.layers.{LAYER - 1}.cross_attention.kv.bias"
    assert reached | {name} == expected | {name}
    d, D = config.d_model // config.heads, config.d_model
    for weight, rows in (("query", D), ("kv", 2 * D)):
        grad = cross.get_submodule(weight).weight.grad
        assert isinstance(grad, Tensor)
        assert grad[:d].abs().min(1).values.max() > 0
        assert grad[d:].abs().max() < 1e-12, weight
        assert len(grad) == rows


def test_alignments_are_read_from_the_head_that_was_guided() -> None:
    model = make(GUIDED[0])
    batch = batch_of([0, 1])
    with torch.no_grad():
        head = cross_attention(model, batch)[LAYER - 1][:, 0].numpy()
        shares = mean_attention(model, batch)
    for b, row in enumerate((0, 1)):
        length = len(PAIRS[row][1])
        np.testing.assert_allclose(shares[b, :length], head[b, 1 : length + 1], rtol=1e-6)
        # No position is fed the last subword, here EOS.
        np.testing.assert_allclose(shares[b, length], head[b, length], rtol=1e-6)


def error_rate(data: DataFolder, model: Transformer) -> float:
    """The alignment error rate on the validation text."""
    wrong = whole = 0
    sides = [(data.src_vocab, [en for en, _ in VALID_PAIRS]), (data.tgt_vocab, [de for _, de in VALID_PAIRS])]
    encoded = [[vocab.encode(line) for line in texts] for vocab, texts in sides]
    words = [
        [words_of_line(line, own, vocab) for line, own in zip(texts, some, strict=True)]
        for (vocab, texts), some in zip(sides, encoded, strict=True)
    ]
    pairs = [(src, [*tgt, EOS_ID]) for src, tgt in zip(*encoded, strict=True)]
    found = align(model.eval(), pairs, list(zip(*words, strict=True)), 1000)
    for links, (english, _) in zip(found, VALID_PAIRS, strict=True):
        gold = {tuple(map(int, link.split("-"))) for link in tiny_links(english).split()}
        wrong, whole = wrong + len(gold ^ set(links)), whole + len(gold) + len(links)
    return wrong / whole


DEEPER = ("model.decoder_layers=3", "train.max_steps=40")


def test_a_guided_model_aligns_words_and_records_the_layer(
    tmp_path: Path, linked_data: DataFolder, tiny_data: DataFolder
) -> None:
    run = tiny_train(linked_data, tmp_path / "guided", *DEEPER, "train.guided_alignment=0.5")
    plain = tiny_train(linked_data, tmp_path / "plain", *DEEPER)
    guided = load_model(run.last).model
    assert guided.config.alignment_layer == 2, "the last layer but one"
    assert load_model(plain.last).model.config.alignment_layer == 0
    assert error_rate(linked_data, guided) < 0.25
    assert error_rate(linked_data, load_model(plain.last).model) > 0.35
    assert not tiny_data.train.has_links
    itself = tiny_train(tiny_data, tmp_path / "itself", *DEEPER, "train.guided_alignment=0.5")
    assert error_rate(tiny_data, load_model(itself.last).model) < 0.35
    average([run.step_file(step) for step in run.steps()], tmp_path / "mean.safetensors")
    assert load_model(tmp_path / "mean.safetensors").model.config.alignment_layer == 2


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (dataclasses.replace(SMALL, alignment_layer=4), r"model\.alignment_layer must be from 0 to 3, .* got 4"),
        (dataclasses.replace(SEQUENCE, alignment_layer=1), r"model\.alignment_layer must be from 0 to 0, .* got 1"),
        (SEQUENCE, r"train\.guided_alignment must be 0"),
    ],
)
def test_a_layer_that_cannot_be_guided_is_refused(model: ModelConfig, named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        check_together(Recipe(model, TrainConfig(guided_alignment=0.1)), "here")


@pytest.mark.parametrize("needs", ["train.guided_alignment=0.5", "train.noise=0.3"])
def test_training_aligns_words_except_tags_and_pairs_with_a_match(tmp_path: Path, needs: str) -> None:
    made(options(tmp_path, TRAIN_PAIRS, VALID_PAIRS, fuzzy=True, tags=("<de>",), valid_tags=("<de>",), vocab_size=320))
    seen = list[DataFolder]()

    class Watched(Trainer):
        @classmethod
        def make_loader(cls, data: DataFolder, recipe: Recipe, ranks: Ranks, device: torch.device) -> BatchLoader:
            seen.append(data)
            return super().make_loader(data, recipe, ranks, device)

    given = DataFolder.open(tmp_path / "data")
    for _ in range(2):
        tiny_train(given, tmp_path / "run", needs, "train.max_steps=1", trainer=Watched)
    data, finished = seen
    assert not finished.train.has_links, "a finished run needs none"
    linked = [data.train.links(i) for i in range(len(data.train))]
    matched = [SEPARATOR_ID in data.train.src(i) for i in range(len(data.train))]
    assert any(matched)
    assert not any(len(links) for links, found in zip(linked, matched, strict=True) if found)
    assert all(len(links) for links, found in zip(linked[:10], matched, strict=False) if not found)
    assert all(links[:, 0].min() > 0 for links in linked if len(links)), "the tag"
