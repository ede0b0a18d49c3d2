"""Sentences and what lies between them."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from vtrans.apps.documents.document import PlainDocument, Translated, html_document
from vtrans.apps.documents.sentences import PROTECTION, Splitting, split_sentences

TEXTS = st.text(st.sampled_from("ab.?! \n\r\t\u2028\x85\x0c\"'()。Z9Dr") | st.characters(exclude_categories=["Cs"]))


@given(TEXTS, st.sampled_from(["en", "de", "zh-Hans", "xx"]))
def test_the_parts_make_up_the_text_again(text: str, language: str) -> None:
    split = split_sentences(text, language)
    assert split.joined(split.sentences) == text
    assert len(split.between) == len(split.sentences) + 1
    assert all(sentence and sentence == sentence.strip() for sentence in split.sentences)
    assert not any(between.strip() for between in split.between)


@pytest.mark.parametrize(
    ("text", "language", "sentences"),
    [
        ("Mr. Smith sleeps. He is tired.", "en", ["Mr. Smith sleeps.", "He is tired."]),
        ("Das ist z.B. ein Hund. Er läuft.", "de", ["Das ist z.B. ein Hund.", "Er läuft."]),
        ("今日は。元気ですか？", "ja", ["今日は。", "元気ですか？"]),
        ("no end\nanother line", "en", ["no end", "another line"]),
        ("It costs 3.50 euros.", "en", ["It costs 3.50 euros."]),
        ("  \n ", "en", []),
    ],
)
def test_sentences(text: str, language: str, sentences: list[str]) -> None:
    assert split_sentences(text, language).sentences == sentences


@pytest.mark.parametrize(
    ("text", "protected"),
    [
        ("Take A-17, B2 and CVE-19.", ["A-17", "B2", "CVE-19"]),
        ("See [X13X], [X2X].", ["[X13X]", "[X2X]"]),
        ("See 4K, X1/200-B and RFC-2119.3!", ["4K", "X1/200-B", "RFC-2119.3"]),
        ("Write to A-17@a.example or see https://a.example/A-17.", ["A-17@a.example", "https://a.example/A-17"]),
        ("A 17 NATO U.S. 1970 2024-11-23 3.5 T-Shirt F-16s COVID-19", []),
    ],
)
def test_codes_are_protected(text: str, protected: list[str]) -> None:
    assert list(PROTECTION.masked(text).texts.values()) == protected


@pytest.mark.parametrize(
    ("splitting", "sentences"),
    [
        ("lines", ["One.", "Two", "and three."]),
        ("sentences", ["One.", "Two and three."]),
        ("nothing", ["One. Two and three."]),
    ],
)
def test_where_a_text_is_split(splitting: Splitting, sentences: list[str]) -> None:
    text = " One.\nTwo\nand three.\n"
    split = split_sentences(text, "en", splitting)
    assert split.sentences == sentences
    assert split.joined(sentences).replace("\n", " ") == text.replace("\n", " ")


TRANSLATIONS = {
    "A dog.": "狗。",
    "A cat.": "猫。",
    "狗。": "A dog.",
    "猫。": "A cat.",
    "कुत्ता।": "A dog.",
    "Ja!": "はい!",
}


@pytest.mark.parametrize(
    ("text", "language", "written"),
    [
        ("A dog. A cat.\nA dog.", "en", "狗。猫。\n狗。"),
        ("A dog.  A cat.", "en", "狗。  猫。"),
        ("狗。猫。", "zh", "A dog. A cat."),
        ("狗。 x", "zh", "A dog. x"),
        ("कुत्ता।कुत्ता।", "hi", "A dog. A dog."),
        ("Ja! A dog.", "de", "はい!狗。"),
        ("ABC。 犬。", "ja", "ABC。 犬。"),  # it stays as it is
    ],
)
def test_sentences_are_separated_as_in_the_script_of_the_translation(text: str, language: str, written: str) -> None:
    plain = PlainDocument(text, language)
    translations = [Translated(TRANSLATIONS.get(line, line)) for line in plain.lines]
    assert plain.joined(translations) == written
    marked = html_document(f"<p><b>{text}</b></p>", language, splitting="lines")
    assert marked.joined(translations) == f"<p><b>{written}</b></p>"
