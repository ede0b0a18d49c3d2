"""Curly and single quotation marks are read as straight double ones, and single ones become single ones again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vtrans.lines.line import Line
from vtrans.lines.quotes import StraightQuotes
from vtrans.translate.translation import Translation

KNOWS: Any = SimpleNamespace(is_unknown=lambda side, character: False)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\u201cYes,\u201d he said. \u201cNo.\u201d", '"Yes," he said. "No."'),
        ("He said, 'I don't know.'", 'He said, "I don\'t know."'),
        ("\u2018It\u2019s a dog,\u2019 she said.", '"It\u2019s a dog," she said.'),
        ("The boys' toys and the girls' dolls", "The boys' toys and the girls' dolls"),
        ("Rock 'n' roll of the '80s and '90s", "Rock 'n' roll of the '80s and '90s"),
        ("\"Did you say 'yes'?\"", "\"Did you say 'yes'?\""),
        ("She said \u201e Ja\u201c and \u201dno\u201d", "She said \u201e Ja\u201c and \u201dno\u201d"),
    ],
)
def test_pairs_of_marks_are_read_as_straight_ones(text: str, seen: str) -> None:
    line = Line(1, text)
    StraightQuotes(KNOWS).before([line])
    assert line.seen.text == seen


def test_only_translations_of_single_marks_have_single_marks() -> None:
    single, double = "\u201aJa\u2018, \u2039x\u203a", "\u201eJa\u201c, \xabx\xbb"
    for text, expected in (("'Yes, Tom,' he said.", single), ("He said", double)):
        line, stage = Line(1, text), StraightQuotes(KNOWS)
        stage.before([line])
        line.translations = [Translation(double, 0.0, 0.0, True)]
        stage.after([line])
        assert line.translations[0].text == expected


def test_protected_text_prefixes_and_unknown_marks_stay() -> None:
    text = "run 'git log' now"
    line, begun = Line(1, text), Line(2, text, prefix="x")
    line.protected = [(4, 13)]
    StraightQuotes(KNOWS).before([line, begun])
    assert line.seen.text == begun.seen.text == text
    lacks: Any = SimpleNamespace(is_unknown=lambda side, character: True)
    line = Line(3, text)
    StraightQuotes(lacks).before([line])
    assert line.seen.text == text
