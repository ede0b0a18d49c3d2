"""Rows of E read as similarity: by definition for words, and the search's own numbers for translations."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from test_translator import translator, vocabulary
from torch.nn import functional as F

from vtrans.analysis.neighbours import embeddings, neighbours, steps
from vtrans.checkpoint import LoadedModel, RunFolder, load_model
from vtrans.config import ModelConfig, SearchConfig
from vtrans.decoding.translator import Translator
from vtrans.errors import InputError
from vtrans.model import Transformer

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
def test_each_matrix_is_met_once_with_all_its_places(tie: str, places: list[tuple[str, ...]]) -> None:
    found = embeddings(model(tie))
    assert [names for names, _, _ in found] == places
    assert len({weight.data_ptr() for _, weight, _ in found}) == len(places)


def test_the_nearest_rows_are_those_of_the_largest_cosine() -> None:
    loaded = model("tgt-softmax")
    word = "Hund läuft"
    found = neighbours(loaded, word, 4)
    tokens = loaded.src_vocab.encode(word)
    assert [near.id for near in found] == tokens * 2
    for near in found:
        weight = {names: weight for names, weight, _ in embeddings(loaded)}[near.places]
        cosines = [float(F.cosine_similarity(row, weight[near.id], dim=0)) for row in weight]
        order = sorted((i for i in range(len(weight)) if i != near.id), key=lambda i: -cosines[i])[:4]
        assert [row.id for row in near.rows] == order
        assert [row.cosine for row in near.rows] == pytest.approx([cosines[i] for i in order], abs=1e-5)
        assert [row.dot for row in near.rows] == pytest.approx(
            [float(weight[i] @ weight[near.id]) for i in order], abs=1e-5
        )
        assert [row.piece for row in near.rows] == [loaded.src_vocab.piece(i) for i in order]


def test_more_rows_than_there_are_is_all_but_itself() -> None:
    (near, *_) = neighbours(model("src-tgt-softmax"), "dog", 10**6)
    assert sorted([near.id, *(row.id for row in near.rows)]) == list(range(len(vocabulary())))


def test_a_blank_word_is_refused() -> None:
    with pytest.raises(InputError, match="--word must be a word, but is blank"):
        neighbours(model("none"), "\u3000")


def test_the_steps_are_those_of_the_translation(tiny_run: RunFolder) -> None:
    loaded = load_model(tiny_run.last)
    greedy = Translator([loaded], dataclasses.replace(loaded.search, beam=1))
    sentence = "The old cat hears me today."
    ((best,),) = greedy.translate_window([sentence])
    text, found = steps(greedy, sentence, 5)
    assert text == best.text
    assert [step.chosen.id for step in found] == list(best.tokens)
    assert [step.logprob for step in found] == pytest.approx(best.token_logprobs, abs=1e-4)
    assert {step.rank_by_dot for step in found} == {1}, "beam 1 takes the row of the largest dot product"
    E = loaded.model.projection.weight.detach()
    for step in found:
        assert step.by_dot[0] == step.chosen
        assert [row.dot for row in step.by_dot] == sorted((row.dot for row in step.by_dot), reverse=True)
        assert [row.cosine for row in step.by_cosine] == sorted((r.cosine for r in step.by_cosine), reverse=True)
        # Dot product over cosine is |h| |row|: one |h| for all rows of a step.
        norms = [row.dot / row.cosine / float(E[row.id].norm()) for row in step.by_dot]
        assert norms == pytest.approx([norms[0]] * 5, rel=1e-3)
        assert step.rank_by_cosine >= 1
        assert 0 not in {row.id for row in (*step.by_dot, *step.by_cosine)}, "padding is never predicted"
    _, every = steps(greedy, sentence, 10**6)
    for rows in (every[0].by_dot, every[0].by_cosine):
        assert sorted(row.id for row in rows) == list(range(1, len(loaded.tgt_vocab)))
    assert math.fsum(step.logprob for step in found) == pytest.approx(best.logprob, abs=1e-3)


def test_a_sentence_in_pieces_or_without_words_is_refused() -> None:
    made = translator(max_source=4)
    for sentence, message in (("a dog " * 9, "over the 4 that"), ("  ", "the sentence is blank")):
        with pytest.raises(InputError, match=message):
            steps(made, sentence)
