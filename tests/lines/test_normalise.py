"""Lines are read as the text that models learn from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from typed_lines import passed, undone, vocabulary_of

from vtrans.lines.characters import Characters
from vtrans.lines.normalise import Normalise

VOCAB = vocabulary_of("The quick dog \" ' &#39;")
TEXT = "run \u201cgit log\u201d now"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\u201cYes,\u201d he said. \u201cNo.\u201d", '"Yes," he said. "No."'),
        ("I don&#39;t know.", "I don't know."),
        ("'s Avonds l\u2019homme \u2018lit\u2019", "'s Avonds l\u2019homme \u2018lit\u2019"),
        ("She said \u201e Ja\u201c and \u201dno\u201d", "She said \u201e Ja\u201c and \u201dno\u201d"),
        ("Don&#39;t: x.py, \u201ca\u201d l&#39;x, &#39;x", "Don't: x.py, \"a\" l'x, &#39;x"),
        ("\x00\x80", ""),
        ("a \x00 do\u00adg\u202e", "a  dog"),
        ("a\tdog", "a\tdog"),  # the vocabulary makes it a space
        ("👨\u200d👩\U000e0067 \u200ddog", "👨\u200d👩\U000e0067 dog"),  # they join emoji
        ("क्\u200dया \u2067שלום\u2069 \u2067dog\u2069", "क्\u200dया \u2067שלום\u2069 dog"),  # they are copied
    ],
)
def test_the_text_that_the_model_reads(text: str, seen: str) -> None:
    assert passed(text, Normalise(Characters(VOCAB, VOCAB), {})).model_text == seen


@pytest.mark.parametrize(
    ("unknown", "text", "asked"),
    [
        ('\u201c"', TEXT, {}),
        ("", TEXT, {}),  # a vocabulary with all marks needs no others
        ("\u201c", TEXT, {"prefix": "x"}),
        ("\u201c", f">>de<< {TEXT}", {}),  # a line that names its language is for the model as it is
    ],
)
def test_other_lines_keep_their_quotation_marks(unknown: str, text: str, asked: dict[str, Any]) -> None:
    characters: Any = SimpleNamespace(
        is_unknown=lambda side, character: character in unknown, may_change=lambda line: ">>" not in line
    )
    assert passed(text, Normalise(characters, {}), **asked).model_text == text


def test_links_count_the_words_that_the_model_does_not_see() -> None:
    line = passed("a \x00 dog", Normalise(Characters(VOCAB, VOCAB), {}))
    assert undone(line, "ein Hund", ((0, 0), (1, 1))).alignment == ((0, 0), (2, 1))


def test_a_control_character_beside_a_blank_and_a_copied_symbol() -> None:
    for text in ("\u00ad\t\U0001f98a", "a\u00ad\x00\t\u00ad", "a\x0b\x0cdog"):
        line = passed(text, Normalise(Characters(VOCAB, VOCAB), {}))
        words = len(line.model_text.split())
        links = tuple((i, i) for i in range(words))
        assert all(i < len(text.split()) for i, _ in undone(line, "x " * words, links).alignment or ())
