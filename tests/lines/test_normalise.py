"""Curly quotation marks are read as straight ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vtrans.lines.line import Line
from vtrans.lines.spelling import UsualSpelling

KNOWS: Any = SimpleNamespace(
    is_unknown=lambda side, character: character != '"', may_change=lambda line: ">>" not in line
)
TEXT = "run \u201cgit log\u201d now"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\u201cYes,\u201d he said. \u201cNo.\u201d", '"Yes," he said. "No."'),
        ("I don&#39;t know.", "I don't know."),
        ("'s Avonds l\u2019homme \u2018lit\u2019", "'s Avonds l\u2019homme \u2018lit\u2019"),
        (">>de<< a \u201cb\u201d", ">>de<< a \u201cb\u201d"),
        ("She said \u201e Ja\u201c and \u201dno\u201d", "She said \u201e Ja\u201c and \u201dno\u201d"),
    ],
)
def test_the_text_that_the_model_reads(text: str, seen: str) -> None:
    line = Line(1, text)
    UsualSpelling(KNOWS).before([line])
    assert line.seen.text == seen


def test_protected_text_prefixes_and_unknown_marks_stay() -> None:
    line, begun = Line(1, TEXT), Line(2, TEXT, prefix="x")
    line.protected = [(4, 13)]
    UsualSpelling(KNOWS).before([line, begun])
    assert line.seen.text == begun.seen.text == TEXT
    for lacks in (True, False):  # a vocabulary with all marks needs no others
        either: Any = SimpleNamespace(is_unknown=lambda side, character, all=lacks: all, may_change=lambda line: True)
        line = Line(3, TEXT)
        UsualSpelling(either).before([line])
        assert line.seen.text == TEXT


def test_protected_text_moves_with_the_text_before_it() -> None:
    line = Line(1, "Don&#39;t: x.py, \u201ca\u201d {b} l&#39;x")
    line.protected = [(11, 15), (21, 24), (25, 32)]
    UsualSpelling(KNOWS).before([line])
    assert line.seen.text == 'Don\'t: x.py, "a" {b} l&#39;x'
    assert [line.seen.text[begin:end] for begin, end in line.protected] == ["x.py", "{b}", "l&#39;x"]
