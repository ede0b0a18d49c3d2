"""Sentences and what lies between them."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from vtrans.server.sentences import split_sentences

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
