"""The model that comes with vtrans."""

from __future__ import annotations

import pytest

import vtrans
from vtrans.storage.run_folder import shipped_models

NAME = "tatoeba-en-de"


def test_the_model_is_small_enough_for_a_repository() -> None:
    assert shipped_models()[NAME].stat().st_size < 10 * 2**20


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Where is the train station?", {"Bahnhof?"}),
        ("WHERE IS THE TRAIN STATION? 🎉", {"BAHNHOF?", "🎉"}),
        ("I know Łukasz.", {"Łukasz."}),
    ],
)
def test_the_model_translates_text_as_people_type_it(line: str, words: set[str]) -> None:
    (translation,) = vtrans.load(NAME).translate([line])
    assert words <= set(translation.split())
