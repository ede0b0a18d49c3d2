"""Phrases that translations must contain or avoid: the search equals enumeration and obeys the constraints."""

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from drawn import each_with, seeded, some
from fakes import BOS, EOS, FakeDecoder, Ids, hashed, many_sentences
from translators import SMALL, loaded, sentences, translator, vocabulary

from vtrans.config import SearchConfig
from vtrans.engines.torch_engine import TorchEngine
from vtrans.search.avoid import VocabularyBytes
from vtrans.search.banks import banked_search, width_of
from vtrans.search.lexical import LexicalConstraint, Variant, least_tokens
from vtrans.search.loop import Hypothesis, SearchTask
from vtrans.search.options import Sampling
from vtrans.storage.model_file import Shortlist
from vtrans.system.errors import InputError
from vtrans.translate.translator import Translator
from vtrans.translate.wording.phrases import NO_WORDING, encoded, occurrences, wording_of

SOURCE: Ids = (2, EOS)
WORDS = 5  # of the fakes


def count(tokens: Sequence[int], phrase: LexicalConstraint, continues: set[int]) -> int:
    """Returns how often a phrase occurs without overlap, by definition."""
    ends = []
    for begin, form in itertools.product(range(len(tokens)), phrase.variants):
        end = begin + len(form.tokens)
        goes_on = form.whole and end < len(tokens) and tokens[end] in continues
        if tuple(tokens[begin:end]) == form.tokens and not goes_on:
            ends.append((end, begin))
    place = found = 0
    for end, begin in sorted(ends):
        if begin >= place:
            place, found = end, found + 1
    return found


def obeys(tokens: Sequence[int], phrases: Sequence[LexicalConstraint], continues: set[int]) -> bool:
    counts = [count(tokens, phrase, continues) for phrase in phrases]
    return all(n == p.times if p.exactly else n >= p.times for n, p in zip(counts, phrases, strict=True))


def random_phrases(numbers: random.Random, words: Sequence[int], *, exactly: float = 0.3) -> list[LexicalConstraint]:
    phrases = []
    for _ in range(numbers.randint(1, 2)):
        once = numbers.random() < exactly
        forms = {
            Variant(tuple(numbers.choices(words, k=numbers.randint(1, 3))), not once and numbers.random() < 0.5)
            for _ in range(numbers.randint(1, 2))
        }
        phrases.append(LexicalConstraint(tuple(sorted(forms, key=str)), numbers.choice([1, 1, 2]), once))
    return phrases


def search(
    table: Any,
    phrases: Sequence[Sequence[LexicalConstraint]],
    sources: Sequence[Ids],
    limits: Sequence[int],
    **config: Any,
) -> list[list[Hypothesis]]:
    continues_V = np.array(config.pop("continues"))
    nbest = config.pop("nbest", 1)
    decoder = FakeDecoder(table, limits=dict(zip(sources, limits, strict=True)))
    settings = SearchConfig(**config)
    task = SearchTask(sources, limits, settings, nbest, bos_id=BOS, eos_id=EOS)
    results = banked_search(decoder, task, phrases, continues_V)
    return [hypotheses for _, hypotheses in sorted(results, key=lambda pair: pair[0])]


def test_a_beam_as_wide_as_the_space_finds_the_best_translations_that_contain_the_phrases() -> None:
    met = 0
    for seed in range(48):
        numbers = seeded(seed)
        words, limit = [(2, 6), (3, 5), (4, 4)][seed % 3]
        ids = range(2, 2 + words)
        continues = {w for w in ids if numbers.random() < 0.4}
        phrases = random_phrases(numbers, ids)
        table = hashed(seed, words, holes=0.2 if seed % 4 == 0 else 0.0, eos=-1.0)
        scored = []
        for length in range(limit):
            for tokens in itertools.product(ids, repeat=length):
                logprob = sum(table(SOURCE, tokens[:i])[token] for i, token in enumerate((*tokens, EOS)))
                if logprob > -math.inf and obeys(tokens, phrases, continues):
                    scored.append((logprob / ((6 + length) / 6) ** 0.6, tokens))
        expected = sorted(scored, reverse=True)[:3]
        [found] = search(
            table, [phrases], [SOURCE], [limit], continues=[w in continues for w in range(words + 2)],
            beam=1000, stop="exhaustive", nbest=3,
        )  # fmt: skip
        if expected:
            assert [h.tokens for h in found] == [tokens for _, tokens in expected], (seed, phrases, continues)
            assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-12)
        met += bool(expected)
        assert all(h.finished for h in found) == bool(expected)
    assert met > 24


@pytest.mark.parametrize(("stop", "beam"), each_with(["count", "current", "exhaustive"], [1, 2, 4]))
def test_the_narrowest_beam_leaves_no_phrase_out(beam: int, stop: str) -> None:
    ids = range(2, 2 + WORDS)
    continues = {2, 4}  # never all words: a whole word must be able to end
    for seed in range(30):
        phrases = random_phrases(seeded(seed), ids, exactly=0.0)
        limit = least_tokens(phrases) + 3 * len(phrases) + 2
        [[best]] = search(
            hashed(seed, WORDS, eos=-3.0), [phrases], [SOURCE], [limit], beam=beam, stop=stop,
            continues=[w in continues for w in range(WORDS + 2)],
        )  # fmt: skip
        assert obeys(best.tokens, phrases, continues), (seed, phrases, best)


def test_a_search_with_phrases_does_not_depend_on_its_batch() -> None:
    sources, _ = many_sentences(seed=3)
    numbers = seeded(4)
    phrases = [random_phrases(numbers, range(2, 2 + WORDS), exactly=0.0) for _ in sources]
    kept = [i for i, own in enumerate(phrases) if width_of(own, 2) == 8]
    sources, phrases = [sources[i] for i in kept], [phrases[i] for i in kept]
    limits = [numbers.randint(1, 20) for _ in sources]
    table, settings = hashed(5, WORDS), {"beam": 2, "continues": [w == 3 for w in range(WORDS + 2)], "nbest": 2}
    alone = [
        search(table, [own], [source], [limit], **settings)[0]
        for own, source, limit in zip(phrases, sources, limits, strict=True)
    ]
    assert len(alone) > 20
    for batch_tokens in (60, 5000):
        assert search(table, phrases, sources, limits, batch_tokens=batch_tokens, **settings) == alone


@pytest.mark.parametrize(
    ("phrase", "text", "places", "begun"),
    [
        ("Hund", "Hund", [0], [0]),
        ("Hund", "Hunde im Hundehaus, ein Hund.", [24], [0, 9, 24]),
        ("Hund", "Schäferhund Ahund hund", [], []),
        ("a a", "a a a a", [0, 4], [0, 4]),
        ("%s", "x%s %s%s", [1, 4, 6], [1, 4, 6]),
        ("(x)", "a(x)b", [1], [1]),
        ("été", "l'été, étés", [2], [2, 7]),
        ("東京", "東京都の東京", [0, 4], [0, 4]),
        ("e", "e\u0301", [], [0]),
    ],
)
def test_a_phrase_occurs_as_whole_words(phrase: str, text: str, places: list[int], begun: list[int]) -> None:
    assert list(occurrences(phrase, text)) == places
    assert list(occurrences(phrase, text, whole=False)) == begun


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"constraint": ["x"]}, "constraint"),
        ({"constraints": "x"}, "`constraints`"),
        ({"constraints": [" "]}, "`constraints`"),
        ({"constraints": [[]]}, "`constraints`"),
        ({"constraints": [["a", 3]]}, "`constraints`"),
        ({"avoid": {"x": 1}}, "`avoid`"),
        ({"avoid": [["x"]]}, "`avoid`"),
        ({"avoid": ["x"], "constraints": ["a x b"]}, "`avoid`"),
        ({"text": "other"}, "text"),
    ],
)
def test_constraints_of_another_kind_are_refused(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=rf"{named}.*line 7|line 7.*{named}"):
        wording_of(given, "the line", 7)


def test_a_phrase_that_cannot_be_written_is_refused() -> None:
    vocab = vocabulary()
    for text in ("a\u2581b", "\u2581"):  # the vocabulary writes spaces
        with pytest.raises(InputError, match=rf"line 3.*{text}"):
            encoded(wording_of({"constraints": [text]}, "", 3), vocab, (), 3)
    asked = wording_of({"constraints": [["park", "Hund"]]}, "", 3)
    (phrase,) = encoded(asked, vocab, vocab.encode("park"), 3)
    assert [vocab.decode(variant.tokens) for variant in phrase.variants] == ["Hund"]
    with pytest.raises(InputError, match="`suppress`"):
        encoded(asked, vocab, (*vocab.encode("park"), *vocab.encode("Hund")), 3)
    assert encoded(NO_WORDING, vocab, (), 3) == ()


def test_a_subword_is_impossible_if_it_would_complete_a_phrase() -> None:
    """Compares with the definition, which searches for the phrase in the text including the subword."""
    vocab = vocabulary()
    vocab_bytes = VocabularyBytes(vocab)
    numbers = seeded(1)
    seen = 0
    for _ in range(300):
        ids = [numbers.randrange(4, len(vocab)) for _ in range(numbers.randrange(6))]
        phrase = numbers.choice(["dog", "o", "ein Hund", "läuft", "Łódź", "5€", "€", "g c", "a"])
        if numbers.random() < 0.7:
            ids += vocab.encode(phrase)[: numbers.randrange(4)]
        before = b"".join(vocab_bytes.bytes[i] for i in ids)
        if any(True for _ in occurrences(phrase, before.decode(errors="replace"), whole=False)):
            continue
        found = set(vocab_bytes.completing(phrase, before[-len(phrase.encode()) - 4 :]))
        for i in range(4, len(vocab)):
            text = (before + vocab_bytes.bytes[i]).decode(errors="replace")
            assert (i in found) == any(True for _ in occurrences(phrase, text, whole=False)), (before, phrase, i)
        seen += bool(found)
    assert seen > 100


LINES = sentences(14, seed=8)
PHRASES = ("dog", "Łódź läuft", "ein", "5€", "park", "the cat in the park", "Hun", "x-y {name}", "läu", "東京")


def constraints_of(lines: Sequence[str], seed: int = 1) -> list[dict[str, Any]]:
    numbers = seeded(seed)
    asked: list[dict[str, Any]] = []
    for _ in lines:
        phrases: list[Any] = numbers.sample(PHRASES, numbers.choice([0, 0, 1, 1, 2]))
        if numbers.random() < 0.3:
            phrases.append(numbers.sample(PHRASES, 2))
        avoid = [word for word in ("runs", "a", "Łód", "€") if numbers.random() < 0.3]
        asked.append({"constraints": phrases, "avoid": [word for word in avoid if word not in str(phrases)]})
    return asked


@pytest.mark.parametrize(
    "settings", some([{}, {"beam": 1}, {"min_length": 6, "stop": "current"}, {"beam": 5, "alpha": 0.0}], 2)
)
def test_every_translation_contains_its_phrases_and_none_to_avoid(settings: dict[str, Any]) -> None:
    asked = constraints_of(LINES, 2)
    made = translator(**{"max_length": 0, **settings})
    for line, own, best in zip(LINES, asked, made.nbest(LINES, constraints=asked), strict=True):
        if line:
            assert wording_of(own, line, 1).unmet(best[0].text) == [], (own, best[0].text)
    free = list(translator(**{"max_length": 0, **settings}).translate(LINES))
    assert sum(bool(wording_of(own, "", 1).unmet(text)) for own, text in zip(asked, free, strict=True)) > 6
    blank = [own for line, own in zip(LINES, asked, strict=True) if not line]
    assert made.counts.unmet == sum(bool(own["constraints"]) for own in blank)


def test_prefixes_rules_shortlists_and_ensembles_combine_with_phrases() -> None:
    lines, V = [line for line in LINES if line], len(vocabulary())
    asked = [{"constraints": ["the park"], "avoid": ["dog"]}] * len(lines)
    shortlist = Shortlist(np.full((V, 1), 9, dtype=np.int32), np.array([4, 5, 6], dtype=np.int32))
    short = loaded()
    short = type(short)(**{**vars(short), "shortlist": shortlist})
    engines = {
        "ensemble": TorchEngine([loaded(), loaded(SMALL, 2)]),
        "shortlist": TorchEngine([short], shortlist=True),
    }
    for name, engine in engines.items():
        made = Translator(engine, translator(max_length=0, no_repeat_ngram=2, repetition_penalty=1.2).search)
        begun = ["ein the"] * len(lines)
        for text in made.translate(lines, prefixes=begun, constraints=asked):
            assert text.startswith("ein the"), name
            assert "the park" in text, name
            assert "dog" not in text, name


def test_phrases_refuse_options_they_cannot_combine_with() -> None:
    asked = [{"constraints": ["dog"]}]
    with pytest.raises(InputError, match=r"`stop`.*shrink"):
        translator(stop="shrink").nbest(["dog"], constraints=asked)
    with pytest.raises(InputError, match="`constraints`"):
        translator().nbest(["dog"], 1, Sampling(), constraints=asked)
    with pytest.raises(InputError, match="`avoid` of line 1"):
        list(translator().nbest(["dog"], prefixes=["a dog"], constraints=[{"avoid": ["dog"]}]))
    with pytest.raises(InputError, match="phrases of line 1"):
        list(translator(max_length=5).nbest(["dog"], constraints=[{"constraints": ["park"] * 5}]))
    with pytest.raises(InputError, match="2 constraints"):
        list(translator().nbest(["dog"], constraints=asked * 2))
