"""The terms of a glossary replace the words that translate them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from translators import SEARCH, FakeEngine, translator, vocabulary, window

from vtrans.engines.alignments import Links
from vtrans.engines.engine import Source
from vtrans.search.decoder import SubwordPair
from vtrans.search.options import Mbr
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator
from vtrans.translate.wording.glossary import Glossary, pair_of
from vtrans.translate.wording.protection import Protection

LINE = "a dog runs"


class Fake(FakeEngine):
    """Translates every line as `draft`, whose hypotheses "|" separates, but as "cat" and the required words if there
    are phrases. It prefers short translations, and those without the word `disliked`. A pair's log-probability grows by
    `noise` with each pair before it, as rounding errors depend on the batch."""

    def __init__(self, draft: str, links: Links, disliked: str = "-", noise: float = 0) -> None:
        super().__init__(vocabulary())
        self.draft, self.links, self.disliked, self.noise = draft, links, disliked, noise

    def answers(self, source: Source) -> list[str]:
        required = [self.tgt_vocab.decode(phrase.variants[0].tokens) for phrase in source.phrases]
        return [" ".join(["cat", *required])] if required else self.draft.split("|")

    def align(self, pairs: Sequence[SubwordPair], words: Any, batch_tokens: int) -> list[Links]:
        return [self.links] * len(pairs)

    def token_logprobs(
        self, pairs: Sequence[SubwordPair], batch_tokens: int, done: Callable[[], None] = lambda: None
    ) -> list[tuple[float, ...]]:
        texts = [self.tgt_vocab.decode(list(target)[:-1]) for _, target in pairs]
        return [
            (self.noise * i - (9 if self.disliked in text else 1),) * len(target)
            for i, (text, (_, target)) in enumerate(zip(texts, pairs, strict=True))
        ]


def translated(engine: Fake, term: str = "dog", target: str = "park", line: str = LINE, **options: Any) -> str:
    glossary = Glossary((pair_of(term, target),))
    (best,) = Translator(engine, SEARCH).translate_window(
        window([line]), TranslateOptions(glossary=glossary, **options)
    )
    return best[0].text


@pytest.mark.parametrize(
    ("draft", "links", "term", "target", "expected"),
    [
        ("ein Hund läuft", ((0, 0), (1, 1), (2, 2)), "dog", "park", "ein park läuft"),
        # Nothing needs to be replaced.
        ("ein Hund läuft", ((0, 0), (1, 1), (2, 2)), "dog", "Hund", "ein Hund läuft"),
        # The term has two words, and so has its translation.
        ("ein Hund läuft", ((1, 0), (2, 1), (0, 2)), "dog runs", "the cat", "the cat läuft"),
        # A word that also translates another word is not replaced, nor one whose term is not linked.
        ("ein Hund läuft", ((0, 0), (1, 1), (2, 1)), "dog", "park", "cat park"),
        ("ein Hund läuft", ((0, 0), (2, 1), (2, 2)), "dog", "park", "cat park"),
        # The words of the run belong together.
        ("ein Hund läuft", ((1, 0), (0, 1), (2, 2)), "dog runs", "park", "cat park"),
    ],
)
def test_a_term_replaces_words_or_is_required(draft: str, links: Links, term: str, target: str, expected: str) -> None:
    assert translated(Fake(draft, links), term, target) == expected


def test_the_model_chooses_the_form_and_the_words_that_go() -> None:
    links = ((1, 1), (1, 0), (2, 2))  # by decreasing attention
    assert translated(Fake("ein Hund läuft", links), target="park|cat") in ("park läuft", "cat läuft")
    assert translated(Fake("ein Hund läuft", links, disliked="park"), target="park|cat") == "cat läuft"


def test_rewritten_and_unchanged_hypotheses_are_ranked_alike() -> None:
    engine = Fake("ein cat läuft|the Hund läuft", ((0, 0), (1, 1), (2, 2)), disliked="ein")
    assert translated(engine, target="cat", nbest=2) == "the cat läuft"


def test_two_terms_and_their_places() -> None:
    engine = Fake("Hund ein läuft", ((0, 1), (1, 0), (2, 2)))
    glossary = Glossary((pair_of("dog", "the cat"), pair_of("a", "in")))
    (best,) = Translator(engine, SEARCH).translate_window(window([LINE]), TranslateOptions(2, glossary=glossary))
    assert best[0].text == "cat in the cat"  # there is one hypothesis, but two translations are wanted
    (best,) = Translator(engine, SEARCH).translate_window(window([LINE]), TranslateOptions(glossary=glossary))
    assert (best[0].text, best[0].finished) == ("the cat in läuft", True)


@pytest.mark.parametrize("options", [{}, {"nbest": 3}, {"alignments": True}, {"mbr": Mbr()}])
@pytest.mark.parametrize("line", ["the dog runs", "a dog {x} sleeps in the park {x}", "cat dog-cat dog"])
def test_every_translation_has_its_terms_and_its_protected_text(line: str, options: Any) -> None:
    glossary = Glossary((pair_of("dog", "Łódź"), pair_of("park", "ein|Hund")))
    wanted = TranslateOptions(glossary=glossary, protect=Protection(), **options)
    (translations,) = translator(max_length=0).translate_window(window([line]), wanted)
    found = [t for t in translations if t.finished]
    assert found
    for translation in found:
        assert translation.text.count("Łódź") >= line.count("dog")
        assert translation.text.count("{x}") == line.count("{x}")
