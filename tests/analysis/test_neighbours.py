"""Nearest embeddings: by definition for words, and consistent with the search for the steps of a translation."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch.nn import functional as F
from translators import vocabulary, window

from vtrans.analysis.neighbours import matrices, neighbours, steps
from vtrans.checkpoint import LoadedModel, load_model
from vtrans.config import ModelConfig, SearchConfig
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model import Transformer
from vtrans.storage.run_folder import RunFolder
from vtrans.translate.translator import Translator

SMALL = ModelConfig(d_model=16, d_ff=24, heads=2, encoder_layers=1, decoder_layers=1, tie="src-tgt-softmax")
EVERY = ("src_embedding", "tgt_embedding", "projection")


def model(tie: str) -> LoadedModel:
    torch.manual_seed(5)
    vocab = vocabulary()
    network = Transformer(dataclasses.replace(SMALL, tie=tie), len(vocab), len(vocab), joint=True, pad_id=0).eval()
    return LoadedModel(network, vocab, vocab, SearchConfig(), {})


@pytest.mark.parametrize(
    ("tie", "places"),
    [
        ("src-tgt-softmax", [EVERY]),
        ("tgt-softmax", [EVERY[:1], EVERY[1:]]),
        ("src-tgt", [EVERY[:2], EVERY[2:]]),
        ("none", [EVERY[:1], EVERY[1:2], EVERY[2:]]),
    ],
)
def test_a_shared_matrix_is_listed_once_with_all_its_places(tie: str, places: list[tuple[str, ...]]) -> None:
    listed = matrices(model(tie))
    assert [names for names, _, _ in listed] == places
    assert len({weight.data_ptr() for _, weight, _ in listed}) == len(places)


def test_the_nearest_rows_have_the_largest_cosine() -> None:
    loaded = model("tgt-softmax")
    word = "Hund läuft"
    nearest = neighbours(loaded, word, 4)
    tokens = loaded.src_vocab.encode(word)
    assert [subword.id for subword in nearest] == tokens * 2
    for subword in nearest:
        weight = {names: weight for names, weight, _ in matrices(loaded)}[subword.places]
        cosines = [float(F.cosine_similarity(row, weight[subword.id], dim=0)) for row in weight]
        order = sorted((i for i in range(len(weight)) if i != subword.id), key=lambda i: -cosines[i])[:4]
        assert [row.id for row in subword.rows] == order
        assert [row.cosine for row in subword.rows] == pytest.approx([cosines[i] for i in order], abs=1e-5)
        assert [row.dot for row in subword.rows] == pytest.approx(
            [float(weight[i] @ weight[subword.id]) for i in order], abs=1e-5
        )
        assert [row.piece for row in subword.rows] == [loaded.src_vocab.piece(i) for i in order]


def test_the_steps_agree_with_the_search(tiny_run: RunFolder) -> None:
    loaded = load_model(tiny_run.last)
    greedy = Translator(TorchEngine([loaded]), dataclasses.replace(loaded.search, beam=1), retry=False)
    sentence = "The old cat hears me today."
    ((best,),) = greedy.translate_window(window([sentence]))
    text, found = steps(greedy, sentence, 5)
    assert text == best.text
    assert [step.chosen.id for step in found] == list(best.tokens)
    assert [step.logprob for step in found] == pytest.approx(best.token_logprobs, abs=1e-4)
    assert {step.rank_by_dot for step in found} == {1}, "beam 1 chooses the row with the largest dot product"
    E = loaded.model.projection.weight.detach()
    for step in found:
        assert step.by_dot[0] == step.chosen
        assert [row.dot for row in step.by_dot] == sorted((row.dot for row in step.by_dot), reverse=True)
        assert [row.cosine for row in step.by_cosine] == sorted((r.cosine for r in step.by_cosine), reverse=True)
        # The dot product over the cosine is |h| |row|, and |h| is the same for all rows of a step.
        norms = [row.dot / row.cosine / float(E[row.id].norm()) for row in step.by_dot]
        assert norms == pytest.approx([norms[0]] * 5, rel=1e-3)
        assert step.rank_by_cosine >= 1
        assert 0 not in {row.id for row in (*step.by_dot, *step.by_cosine)}, "padding is never predicted"
    _, every = steps(greedy, sentence, 10**6)
    for rows in (every[0].by_dot, every[0].by_cosine):
        assert sorted(row.id for row in rows) == list(range(1, len(loaded.tgt_vocab)))
    assert math.fsum(step.logprob for step in found) == pytest.approx(best.logprob, abs=1e-3)
