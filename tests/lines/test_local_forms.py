"""Numbers that a model copied, and German compounds, are written as the target language does."""

from __future__ import annotations

import pytest

from vtrans.lines.line import Line
from vtrans.lines.local_forms import LocalForms
from vtrans.text.languages import Languages
from vtrans.translate.translation import Translation
from vtrans.wording.phrases import wording_of


@pytest.mark.parametrize(
    ("line", "found", "wanted"),
    [
        ("1,234,567 people, 1.5%", "1,234,567 Menschen, 1.5 %", "1.234.567 Menschen, 1,5 %"),
        ("version 3.11 of 1.2.3", "Version 3.11 von 1.2.3", "Version 3.11 von 1.2.3"),
        ("2,000 dogs", "1,500 Hunde", "1,500 Hunde"),  # the check of numbers has failed
        ("PDF files in COVID-19 times", "PDF Dateien in COVID-19 Zeiten", "PDF-Dateien in COVID-19-Zeiten"),
        ("It was on 5/3/2024.", "Es war auf 5/3/2024.", "Es war am 5/3/2024."),
        ("now $59.99, 0.12", "jetzt $59.99, 0.12", "jetzt 59,99 $, 0,12"),
        ("at 12:30", "um 0:30 Uhr", "um 12:30 Uhr"),
        ("at 9 of 25", "um 9 Uhr von 25 Uhr", "um 9 Uhr von 25"),
        ("NASA lands; a 5 MB file", "NASA landet; 5 MB Datei", "NASA landet; 5 MB Datei"),
    ],
)
def test_translations(line: str, found: str, wanted: str) -> None:
    for languages, text in (
        (Languages("en", "de"), wanted),
        (Languages("en", "en"), found),
        (Languages("", ""), found),
    ):
        seen, words = Line(1, line), found.split()
        links, confidences = tuple((j, j) for j in range(len(words))), tuple(1 / (j + 1) for j in range(len(words)))
        seen.translations = [Translation(found, 0.0, 0.0, True, alignment=links, word_confidences=confidences)]
        LocalForms(languages).after([seen])
        (changed,) = seen.translations
        assert changed.text == text
        assert len(changed.word_confidences or ()) == len(text.split())
        assert {k for _, k in changed.alignment or ()} == set(range(len(text.split())))


def test_bytes_that_are_no_character_are_left_out() -> None:
    line = Line(1, "a dog")
    line.translations = [Translation("ein \ufffd \ufffdHund", 0.0, 0.0, True, alignment=((0, 0), (1, 2)))]
    LocalForms(Languages("en", "de")).after([line])
    assert (line.translations[0].text, line.translations[0].alignment) == ("ein Hund", ((0, 0), (1, 1)))


def test_what_is_asked_of_a_translation_stays_as_it_is() -> None:
    line = Line(1, "PDF files")
    line.wording = wording_of({"constraints": ["PDF Dateien"]}, line.text, 1)
    line.translations = [Translation("PDF Dateien", 0.0, 0.0, True)]
    LocalForms(Languages("en", "de")).after([line])
    assert line.translations[0].text == "PDF Dateien"
