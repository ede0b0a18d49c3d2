"""The script of a subword."""

from __future__ import annotations

import pytest

from vtrans.data.preparation.writing_systems import SCRIPTS, script_of


@pytest.mark.parametrize(
    ("piece", "script"),
    [
        ("▁the", "Latin"),
        ("é", "Latin"),
        ("ª", "Latin"),
        ("дом", "Cyrillic"),
        ("▁λόγος", "Greek"),
        ("犬猫", "Han"),
        ("犬ひ", "mixed"),
        ("Aд", "mixed"),
        ("한국", "Hangul"),
        ("नमस्ते", "Devanagari"),
        ("ᐃᓄᒃ", "Canadian Aboriginal"),
        ("𐌰𐌱", "other script"),
        ("a𐌰", "mixed"),
        ("▁12", "digits"),
        ("½", "digits"),
        ("٣", "digits"),
        ("2.", "digits"),
        ("d2", "Latin"),
        ("▁-", "punctuation and symbols"),
        ("€", "punctuation and symbols"),
        ("\u0301", "punctuation and symbols"),
        ("▁", "word start"),
        ("▁▁", "word start"),
    ],
)
def test_the_script_of_a_subword(piece: str, script: str) -> None:
    assert script_of(piece) == script


def test_every_script_has_a_letter_that_belongs_to_it() -> None:
    assert {script_of(letter) for letter in "aαбաაאابסܐއߊአⴰअবਅઅଅதతಕകසกກកကཀᠠꦲ犬あアㄅ한ꀀᎠᐃ"} == {
        script.replace("_", " ") for script in SCRIPTS
    }
