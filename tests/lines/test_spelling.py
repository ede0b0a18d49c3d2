"""Curly and single quotation marks are read as straight double ones, and short months and weekdays in full."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vtrans.lines.line import Line
from vtrans.lines.spelling import UsualSpelling
from vtrans.translate.translation import Translation

KNOWS: Any = SimpleNamespace(is_unknown=lambda side, character: False, may_change=lambda line: ">>" not in line)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\u201cYes,\u201d he said. \u201cNo.\u201d", '"Yes," he said. "No."'),
        ("He said, 'I don&#39;t know.'", 'He said, "I don\'t know."'),
        ("\u2018It\u2019s a dog,\u2019 she said.", '"It\u2019s a dog," she said.'),
        ("The boys' toys and the girls' dolls", "The boys' toys and the girls' dolls"),
        ("Rock 'n' roll of the '80s and '90s", "Rock 'n' roll of the '80s and '90s"),
        ("\"Did you say 'yes'?\"", "\"Did you say 'yes'?\""),
        ("On Sat, Dec. 4th or 5 Jan 2024", "On Saturday, December 4th or 5 January 2024"),
        ("Sept 3, 2 Feb., Apr 2020, Mon 9:00", "September 3, 2 February, April 2020, Monday 9:00"),
        ("Mon\u2013Sat: 8am, Tue - Thu 5, Fri 5 at 9", "Mon\u2013Sat: 8am, Tue - Thu 5, Friday 5 at 9"),
        ("thx, r u ok? u r late, plz! r or u-u", "thanks, are you ok? you are late, please! r or u-u"),
        ("the letter u, vectors u and v", "the letter u, vectors u and v"),
        ("Get 'em at James' place.", "Get 'em at James' place."),
        ("'The boys' room is dirty,' she said.", "'The boys' room is dirty,' she said."),
        ("On Tues. we met Gov. Sun. It was next Sat.", "On Tuesday we met Governor Sun. It was next Saturday."),
        ("The U.S. and U.K. army in the U.S. He", "The US and UK army in the US. He"),
        ("I met Jan 2 years ago, the Sun 4 times", "I met Jan 2 years ago, the Sun 4 times"),
        ("Jan 5 - Feb 10, Mon 9:00 - Fri 17:00", "January 5 - February 10, Monday 9:00 - Friday 17:00"),
        (">>de<< the u 'x y' 5 Jan", ">>de<< the u 'x y' 5 Jan"),
        ("At 7.30pm or 11.15 a.m. it was 7.30 or 7.95m", "At 7:30pm or 11:15 a.m. it was 7.30 or 7.95m"),
        ("Mar, Jan and Sun sat on May 5, Marc 5 or 7/Jan 5", "Mar, Jan and Sun sat on May 5, Marc 5 or 7/Jan 5"),
        ("She said \u201e Ja\u201c and \u201dno\u201d", "She said \u201e Ja\u201c and \u201dno\u201d"),
    ],
)
def test_what_the_model_sees(text: str, seen: str) -> None:
    line = Line(1, text)
    UsualSpelling(KNOWS, "en").before([line])
    assert line.seen.text == seen


def test_only_translations_of_single_marks_have_single_marks() -> None:
    single, double = "\u201aJa\u2018, \u2039x\u203a", "\u201eJa\u201c, \xabx\xbb"
    for text, expected in (("'Yes, Tom,' he said.", single), ("He said", double)):
        line, stage = Line(1, text), UsualSpelling(KNOWS, "en")
        stage.before([line])
        line.translations = [Translation(double, 0.0, 0.0, True)]
        stage.after([line])
        assert line.translations[0].text == expected


def test_protected_text_prefixes_and_unknown_marks_stay() -> None:
    text = "run 'git log' now"
    line, begun = Line(1, text), Line(2, text, prefix="x")
    line.protected = [(4, 13)]
    UsualSpelling(KNOWS, "en").before([line, begun])
    assert line.seen.text == begun.seen.text == text
    lacks: Any = SimpleNamespace(is_unknown=lambda side, character: True, may_change=lambda line: True)
    line = Line(3, text)
    UsualSpelling(lacks, "en").before([line])
    assert line.seen.text == text


def test_protected_text_stays_where_it_is() -> None:
    line = Line(1, "Sat 5: x.py, Jan 5 {a} Sat 5")
    line.protected = [(7, 11), (19, 22), (23, 28)]
    UsualSpelling(KNOWS, "en").before([line])
    assert line.seen.text == "Saturday 5: x.py, January 5 {a} Sat 5"
    assert [line.seen.text[begin:end] for begin, end in line.protected] == ["x.py", "{a}", "Sat 5"]
    line = Line(2, "Sat 5")
    UsualSpelling(KNOWS, "de").before([line])
    assert line.seen.text == "Sat 5"
