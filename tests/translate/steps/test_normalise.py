"""Lines are normalised to the form of the training text."""

from types import SimpleNamespace
from typing import Any

import pytest
from translators import learned
from typed_lines import passed, undone, vocabulary_of

from vtrans.text.vocabulary import Vocabulary
from vtrans.text.words import words_in
from vtrans.translate.steps.normalise import Normalise

VOCAB = vocabulary_of("The quick dog \" ' &#39;")
OTHER = learned(["The quick dog"] * 20, normalization="nmt_nfkc")
TEXT = "run \u201cgit log\u201d now"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\u201cYes,\u201d he said. \u201cNo.\u201d", '"Yes," he said. "No."'),
        ("I don&#39;t know.", "I don't know."),
        ("'s Avonds l\u2019homme \u2018lit\u2019", "'s Avonds l'homme 'lit'"),
        ("She said \u201e Ja\u201c and \u201dno\u201d", 'She said " Ja" and "no"'),
        ("\uff27\uff4f\u3000\ufb01nd\uff0c m\u00b2\u00a0\u2026", "Go find, m\u00b2 ..."),
        ("Don&#39;t: x.py, \u201ca\u201d l&#39;x, &#39;x", "Don't: x.py, \"a\" l'x, &#39;x"),
        ("\x00\x80", ""),
        ("a \x00 do\u00adg\u202e", "a  dog"),
        ("a\tdog", "a\tdog"),  # the vocabulary makes it a space
        ("👨\u200d👩\U000e0067 \u200ddog", "👨\u200d👩\U000e0067 dog"),  # they join emoji
        ("क्\u200dया \u2067שלום\u2069 \u2067dog\u2069", "क्\u200dया \u2067שלום\u2069 dog"),  # they are copied
    ],
)
def test_lines_are_normalised_for_the_model(text: str, seen: str) -> None:
    assert passed(text, Normalise(VOCAB, {})).model_input == seen


@pytest.mark.parametrize(
    ("unknown", "seen"), [("", TEXT), ("\u201c", 'run "git log\u201d now'), ("\u201c\u201d", 'run "git log" now')]
)
@pytest.mark.parametrize("tag", ["", ">>de<< "])  # a line that names its language is for the model as it is
def test_characters_that_a_vocabulary_lacks_get_simpler_forms(unknown: str, seen: str, tag: str) -> None:
    vocab: Any = SimpleNamespace(
        as_source=str,
        unknown=lambda text: set(unknown) & set(text),
        names_language=lambda line: ">>" in line,
    )
    assert passed(tag + TEXT, Normalise(vocab, {})).model_input == tag + (TEXT if tag else seen)
    assert passed(TEXT, Normalise(vocab, {}, raw=True)).model_input == TEXT


def test_links_survive_characters_that_become_several() -> None:
    line = passed("\uff76\uff9e\u3060 \u200b \u337f\u3060", Normalise(VOCAB, {}))
    assert words_in(line.model_input) == [*("\u30ab\u3099", "\u3060"), *"\u682a\u5f0f\u4f1a\u793e\u3060"]
    links = tuple((i, i) for i in range(7))
    assert undone(line, "a b c d e f g", links).alignment == ((0, 0), (1, 1), (3, 2), (3, 3), (3, 4), (3, 5), (4, 6))
    line = passed("\u200b\u6211\u4eec", Normalise(VOCAB, {}))
    assert undone(line, "a b", ((0, 0), (1, 1))).alignment == ((1, 0), (2, 1))


def test_links_of_a_long_line() -> None:
    quotes = set("\u201c\u201d")
    vocab: Any = SimpleNamespace(as_source=str, unknown=quotes.intersection, names_language=lambda line: False)
    line = passed("ha \u201cha\u201d " * 1000, Normalise(vocab, {}))
    links = tuple((i, i) for i in range(2000))
    assert "\u201c" not in line.model_input
    assert undone(line, "ha " * 2000, links).alignment == links


def test_links_count_the_words_that_the_model_does_not_see() -> None:
    line = passed("a \x00 dog", Normalise(VOCAB, {}))
    assert undone(line, "ein Hund", ((0, 0), (1, 1))).alignment == ((0, 0), (2, 1))


@pytest.mark.parametrize("vocab", [VOCAB, OTHER], ids=["nfc", "nmt_nfkc"])
def test_a_control_character_between_a_blank_and_a_copied_symbol(vocab: Vocabulary) -> None:
    for text in ("\u00ad\t\U0001f98a", "a\u00ad\x00\t\u00ad", "a\x0b\x0cdog"):
        line = passed(text, Normalise(vocab, {}))
        words = len(line.model_input.split())
        links = tuple((i, i) for i in range(words))
        assert all(i < len(text.split()) for i, _ in undone(line, "x " * words, links).alignment or ())
    assert len(passed("a\x85dog", Normalise(vocab, {})).model_input.split()) == 2
