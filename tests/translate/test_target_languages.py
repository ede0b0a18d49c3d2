"""Tags of target languages and symbols of forms of address, which are put before each source."""

import asyncio
import dataclasses
from functools import cache, partial
from typing import Any

import pytest
from networks import align
from translators import SEARCH, SMALL, VARIANTS, loaded, network, sentences, vocabulary, window

from vtrans.apps.analysis.attention_map import attention_map
from vtrans.apps.documents.sentences import PROTECTION
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.models import Model, workers_for
from vtrans.engines.alignments import NO_WORD
from vtrans.engines.engine import Source
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import LoadedModel
from vtrans.search.options import Sampling
from vtrans.system.errors import InputError
from vtrans.text.languages import Languages
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import EOS_ID, FORMALITY, Formality, Vocabulary
from vtrans.text.words import words_of_ids, words_of_line
from vtrans.translate.steps.line import Line
from vtrans.translate.stream import Division
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator

TAGS = {"de": ">>de<<", "fr": ">>fr<<"}
tagged = partial(vocabulary, tags=tuple(TAGS.values()))
PAIRS = tuple(Languages("en", code) for code in TAGS)
LINES = [*sentences(12, seed=3), ">>fr<< a dog", "a >>de<< dog"]


@cache
def multilingual(name: str = "post-norm, one matrix", seed: int = 1) -> LoadedModel:
    vocab = tagged()
    return LoadedModel(network(VARIANTS[name], len(vocab), seed), vocab, vocab, SEARCH, {"step": 1}, None, PAIRS, TAGS)


def speaking(name: str = "post-norm, one matrix", **search: Any) -> Translator:
    return Translator(TorchEngine([multilingual(name)]), dataclasses.replace(SEARCH, **search), retry=False)


@pytest.mark.parametrize("name", ["post-norm, one matrix", "learned positions, untied"])
def test_translating_to_a_language_equals_prefixing_its_tag(name: str) -> None:
    made, vocab = speaking(name), tagged()
    found = {to: list(made.nbest(LINES, 2, to=to, raw=True)) for to in TAGS}
    for to, tag in TAGS.items():
        for line, best in zip(LINES, found[to], strict=True):
            if not line.strip():
                assert best[0].text == ""
                continue
            tokens = [vocab.id_of(tag) or 0, *vocab.encode(line), EOS_ID]
            source = Source(tokens, made.reader._limit(len(tokens) - 2), "1/0")
            ((_, hyps),) = made.engine.search([source], made.search, rules=(), nbest=made.search.beam)
            logprobs: dict[str, float] = {}  # of the best hypothesis with each text
            for hyp in hyps:
                logprobs.setdefault(vocab.decode(hyp.tokens), hyp.logprob)
            finished = [t for t in best if t.tokens]
            assert [t.logprob for t in finished] == pytest.approx(list(logprobs.values())[:2], abs=1e-9)
            assert not any(tag in t.text for tag in TAGS.values() for t in best)
    assert found["de"] != found["fr"]
    sampled = [list(made.translate(LINES, Sampling(seed=2), to=to)) for to in ("de", "de", "fr")]
    assert sampled[0] == sampled[1] != sampled[2]


def test_links_are_between_words_of_the_line_and_of_its_translation() -> None:
    made, vocab = speaking(), tagged()
    words = 0
    for line, (t,) in zip(LINES, made.nbest(LINES, alignments=True, to="fr", raw=True), strict=True):
        assert t.alignment is not None
        own = [token for token in t.tokens if token != EOS_ID]
        if not line.strip():
            continue
        assert all(0 <= i < len(line.split()) and 0 <= j < len(t.text.split()) for i, j in t.alignment)
        assert {j for _, j in t.alignment} == set(range(len(t.text.split())))
        ids = [vocab.id_of(">>fr<<") or 0, *vocab.encode(line)]
        sides = ([NO_WORD, *words_of_line(line, ids[1:], vocab)], words_of_ids(own, vocab))
        (links,) = align(multilingual().model, [(ids, own)], [sides], 1)
        assert sorted(links) == list(t.alignment)
        words += len(t.text.split())
    assert words > 3


@pytest.mark.parametrize(("to", "named"), [(None, "none"), ("it", "it"), ("", "''"), (">>de<<", ">>de<<")])
def test_a_model_of_several_languages_needs_one_of_them(to: str | None, named: str) -> None:
    made = speaking()
    for call in (
        lambda: made.nbest(["dog"], to=to),
        lambda: made.logprob(["dog"], ["Hund"], to=to),
        lambda: made.translate_window(window(["dog"]), TranslateOptions(to=to)),
        lambda: attention_map(made, "dog", to=to),
    ):
        with pytest.raises(InputError, match=rf"`to`.*de \(German\), fr \(French\).*{named}"):
            call()


def test_lines_for_a_foreign_vocabulary_name_their_language_or_get_its_tag() -> None:
    pieces = [tagged().piece(i) for i in range(4, len(tagged()))]
    vocab = Vocabulary(pack(["</s>", "<unk>", *pieces], {"eos": 0, "unk": 1}, tagged().spm))
    model = LoadedModel(network(SMALL, len(vocab)), vocab, vocab, SEARCH, {}, None, (), TAGS)
    made = Translator(TorchEngine([model]), retry=False)
    own, given = made.translate([">>fr<< a dog runs"]), made.translate(["a dog runs"], to="fr")
    assert list(own) == list(given)
    ids = made.reader.encode(">>de<< a dog", 1, to="fr")
    assert vocab.id_of(">>de<<") not in ids
    assert vocab.decode([vocab.id_of(">>fr<<") or 0, *vocab.encode("a dog")]) == "a dog"


PLAIN_LINES = [line for line in sentences(12, seed=5) if line.strip()]


@cache
def polite(*tags: str) -> Translator:
    vocab = vocabulary(symbols=tuple(FORMALITY.values()), tags=tags)
    languages = [Languages("en", tag.strip("<>")) for tag in tags]
    named = {pair.tgt: tag for pair, tag in zip(languages, tags, strict=True)}
    body = network(SMALL, len(vocab), 7)
    return Translator(TorchEngine([LoadedModel(body, vocab, vocab, SEARCH, {}, None, tuple(languages), named)]))


def test_formality_equals_prefixing_its_symbol() -> None:
    plain, found = list(polite().translate(PLAIN_LINES, raw=True)), {}
    for formality, symbol in FORMALITY.items():
        found[formality] = list(polite().translate(PLAIN_LINES, formality=formality, raw=True))
        marked = [f"{symbol} {line}" for line in PLAIN_LINES]
        assert found[formality] == list(polite().translate(marked, raw=True))
    assert len({tuple(texts) for texts in (plain, *found.values())}) == 3, "the symbols change nothing"


def test_the_server_asks_the_model_for_the_form_of_a_request() -> None:
    pair, made = Languages("en", "de"), polite(">>de<<", ">>fr<<")
    with workers_for({pair: Model(pair, made)}, Division(1, 1), print) as workers:
        found = []
        formalities: tuple[Formality | None, ...] = (None, "more", "less")
        for formality in formalities:
            workers[pair].check(options := RequestOptions(formality=formality))
            lines = [Line(number, text) for number, text in enumerate(PLAIN_LINES, 1)]
            nbests = asyncio.run(workers[pair].translate(lines, options))
            found.append([nbest[0].text for nbest in nbests])
    protected = TranslateOptions(protect=PROTECTION, to="de")
    for formality, texts in zip(formalities, found, strict=True):
        best = made.translate_window(window(PLAIN_LINES), dataclasses.replace(protected, formality=formality))
        assert texts == [translations[0].text for translations in best]
    assert found[1] != found[2]


def test_a_model_with_one_symbol_or_none_refuses_a_form_of_address() -> None:
    one = vocabulary(symbols=("<formal>",))
    body = network(SMALL, len(one), 7)
    for known in (loaded(), dataclasses.replace(loaded(), model=body, src_vocab=one, tgt_vocab=one)):
        assert not known.src_vocab.formality
        with pytest.raises(InputError, match="formality"):
            Translator(TorchEngine([known])).translate(["a dog"], formality="more")
