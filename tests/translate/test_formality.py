"""Tests of forms of address: a translation is that of the line after its symbol."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import cache

import pytest
from translators import SEARCH, SMALL, loaded, network, sentences, vocabulary, window

from vtrans.checkpoint import LoadedModel
from vtrans.documents.sentences import PROTECTION
from vtrans.engines.torch_engine import TorchEngine
from vtrans.errors import InputError
from vtrans.lines.line import Line
from vtrans.server.batching import RequestOptions
from vtrans.server.models import workers_for
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import FORMALITY, Formality
from vtrans.translate.division import Division
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator

LINES = [line for line in sentences(12, seed=5) if line.strip()]


@cache
def polite(*tags: str) -> Translator:
    vocab = vocabulary(symbols=tuple(FORMALITY.values()), tags=tags)
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


def test_the_server_asks_the_model_for_the_form_of_a_request() -> None:
    pair, made = Languages("en", "de"), polite(">>de<<", ">>fr<<")
    with workers_for({pair: made}, {}, Division(1, 1, False), print) as workers:
        found = []
        formalities: tuple[Formality | None, ...] = (None, "more", "less")
        for formality in formalities:
            workers[pair].check(options := RequestOptions(formality=formality))
            lines = [Line(number, text) for number, text in enumerate(LINES, 1)]
            nbests = asyncio.run(workers[pair].translate(lines, options))
            found.append([nbest[0].text for nbest in nbests])
        workers[pair].close()
    protected = TranslateOptions(protect=PROTECTION, to="de")
    for formality, texts in zip(formalities, found, strict=True):
        best = made.translate_window(window(LINES), dataclasses.replace(protected, formality=formality))
        assert texts == [translations[0].text for translations in best]
    assert found[1] != found[2]


def test_a_model_with_one_symbol_or_none_refuses_a_form_of_address() -> None:
    one = vocabulary(symbols=("<formal>",))
    body = network(SMALL, len(one), 7)
    for known in (loaded(), dataclasses.replace(loaded(), model=body, src_vocab=one, tgt_vocab=one)):
        assert not known.src_vocab.formality
        with pytest.raises(InputError, match="formality"):
            Translator(TorchEngine([known])).translate(["a dog"], formality="more")
