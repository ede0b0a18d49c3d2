"""The model that comes with vtrans."""

from collections.abc import Callable

import pytest
from cli_runner import Done

import vtrans
from vtrans.storage.run_folder import shipped_models

NAME = "en-de"


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


@pytest.mark.parametrize(("options", "warned"), [((), False), (("--beam", "2"), True)])
def test_the_model_has_its_calibration(run_cli: Callable[..., Done], options: tuple[str, ...], warned: bool) -> None:
    words = ("--model", NAME, "--confidence", "--threads", "1", *options)
    done = run_cli("translate", *words, stdin=b"Where is the train station?\n")
    assert done.code == 0, done.err
    assert 0 < float(done.out.split(b"\t")[0]) < 1
    assert ("vtrans calibrate" in done.err) == warned
