"""German names have the articles of their gender, in the case that the words around them ask for."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from vtrans.lines.line import Line
from vtrans.lines.names import CopyNames
from vtrans.text.languages import Languages
from vtrans.translate.translation import Translation
from vtrans.wording.german_articles import with_article
from vtrans.wording.names import Names

LINE_VOCAB: Any = SimpleNamespace(encode=lambda text: [7] * len(text))


@pytest.mark.parametrize(
    ("before", "name", "gender", "written"),
    [
        ("Wir waren in ", "Bodensee", "m", "Wir waren im Bodensee"),
        ("Er kam aus dem ", "Schweiz", "f", "Er kam aus der Schweiz"),
        ("Er ging nach ", "Iran", "m", "Er ging in den Iran"),
        ("nach der ", "Kalt~ Krieg", "m", "nach dem Kalten Krieg"),
        ("Im ", "Alpen", "p", "In den Alpen"),
        ("zu dem ", "Donau", "f", "zur Donau"),
        ("Die Küste der ", "Balkan", "m", "Die Küste des Balkan"),
        ("Heute ist der ", "Schwarz~ Meer", "n", "Heute ist das Schwarze Meer"),
        ("Sie sah die ", "Schwarz~ Meer", "n", "Sie sah das Schwarze Meer"),
        ("mit ", "Schweden", "P", "mit Schweden"),
        ("mit der ", "Schweden", "P", "mit den Schweden"),
        ("", "Erst~ Weltkrieg", "m", "Erster Weltkrieg"),
        ("Ich liebe ", "Bodensee", "m", "Ich liebe Bodensee"),
    ],
)
def test_articles(before: str, name: str, gender: str, written: str) -> None:
    assert "".join(with_article(before, name, gender, "")) == written


@pytest.mark.parametrize(
    ("name", "gender", "after", "written"),
    [
        ("Alpen", "p", "verliert Schnee.", "Die Alpen verlieren Schnee."),
        ("Alpen", "p", "hat Schnee", "Alpen hat Schnee"),  # a heading
        ("Alpen", "p", "kam.", "Die Alpen kamen."),
        ("Alpen", "p", "endete.", "Die Alpen endeten."),
        ("Alpen", "p", "findet das.", "Die Alpen finden das."),
        ("Mittelalter", "n", "waren dunkel.", "Das Mittelalter war dunkel."),
    ],
)
def test_verbs(name: str, gender: str, after: str, written: str) -> None:
    assert "".join(with_article("", name, gender, f" {after}", begins=after.endswith("."))) == written


def test_a_translation_with_codes() -> None:
    names = CopyNames(Names(LINE_VOCAB, Languages("en", "de")), None)
    line = Line(1, "I sail from the Black Sea to Henry VIII.")
    names.before([line])
    line.translations = [
        Translation("Ich segle aus der Black Sea zu Henry VIII.", 0.0, 0.0, True, alignment=((4, 4), (5, 5), (7, 7)))
    ]
    names.after([line])
    (made,) = line.translations
    assert (made.text, made.alignment) == (
        "Ich segle aus dem Schwarzen Meer zu Heinrich VIII.",
        ((4, 4), (5, 5), (7, 7)),
    )


def made_of(line: str, translation: str) -> Translation:
    """Returns a translation with its names written."""
    names, seen = CopyNames(Names(LINE_VOCAB, Languages("en", "de")), None), Line(1, line)
    names.before([seen])
    seen.translations = [Translation(translation, 0.0, 0.0, True, alignment=((0, 0),))]
    names.after([seen])
    return seen.translations[0]


def test_a_genitive_has_no_open_ending_and_the_longest_name_counts() -> None:
    assert made_of("the Black Sea's coast", "die Black Sea's K\u00fcste").text == "die Schwarzen Meers K\u00fcste"
    assert made_of("Hungary and Hungary's sun", "Hungary und Hungary's Sonne").text == "Ungarn und Ungarns Sonne"


def test_a_hostile_line_is_written_in_linear_time() -> None:
    began = time.process_time()
    made = made_of("in the Danube and Cologne " * 10_000, "in der Danube und Cologne " * 10_000)
    assert made.text.startswith("in der Donau und K\u00f6ln in der")
    assert time.process_time() - began < 20, "20,000 names take a second, and hours if the time is quadratic"
