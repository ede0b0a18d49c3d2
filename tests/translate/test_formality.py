"""Tests of forms of address: a translation is that of the line after its symbol."""

from __future__ import annotations

import dataclasses
import itertools
from functools import cache

import pytest
from translators import SEARCH, SMALL, WORDS, loaded, network, sentences

from vtrans.checkpoint import LoadedModel
from vtrans.data.preparation.learn_vocabulary import learn
from vtrans.engines.torch_engine import TorchEngine
from vtrans.errors import InputError
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import FORMALITY, Vocabulary
from vtrans.translate.translator import Translator

LINES = [line for line in sentences(12, seed=5) if line.strip()]


def vocabulary(symbols: list[str], tags: list[str]) -> Vocabulary:
    text = [" ".join(order) for order in itertools.permutations(WORDS, 2)]
    return learn(text, size=None, kind="bpe", coverage=1.0, normalization="nmt_nfkc", symbols=symbols, tags=tags)


@cache
def polite(*tags: str) -> Translator:
    vocab = vocabulary([*FORMALITY.values()], list(tags))
    languages = [Languages("en", tag.strip("<>")) for tag in tags]
    named = {pair.tgt: tag for pair, tag in zip(languages, tags, strict=True)}
    body = network(SMALL, len(vocab), 7)
    return Translator(TorchEngine([LoadedModel(body, vocab, vocab, SEARCH, {}, None, tuple(languages), named)]))


def test_a_translation_with_a_form_of_address_is_that_of_the_line_after_its_symbol() -> None:
    plain, found = list(polite().translate(LINES, raw=True)), {}
    for formality, symbol in FORMALITY.items():
        found[formality] = list(polite().translate(LINES, formality=formality, raw=True))
        marked = [f"{symbol} {line}" for line in LINES]
        assert found[formality] == list(polite().translate(marked, raw=True))
    assert len({tuple(texts) for texts in (plain, *found.values())}) == 3, "the symbols change nothing"


def test_the_symbol_stands_after_the_tag() -> None:
    made = polite(">>de<<", ">>fr<<")
    vocab = made.engine.src_vocab
    assert made.reader.beginning("fr", "less") == [vocab.id_of(">>fr<<"), *vocab.encode("<informal>")]
    assert made.reader.beginning("de") == [vocab.id_of(">>de<<")]


def test_a_model_with_one_symbol_or_none_refuses_a_form_of_address() -> None:
    one = vocabulary(["<formal>"], [])
    body = network(SMALL, len(one), 7)
    for known in (loaded(), dataclasses.replace(loaded(), model=body, src_vocab=one, tgt_vocab=one)):
        assert not known.src_vocab.formality
        with pytest.raises(InputError, match="formality"):
            Translator(TorchEngine([known])).translate(["a dog"], formality="more")
