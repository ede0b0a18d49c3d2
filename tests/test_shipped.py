"""The model that comes with vtrans."""

import pytest
from cli_runner import Run

import vtrans
from vtrans.storage.run_folder import shipped_models

NAME = "en-de"


def test_the_model_is_small_enough_for_a_repository() -> None:
    assert shipped_models()[NAME].stat().st_size < 10 * 2**20


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("Where is the train station?", ["Bahnhof?"]),
        ("WHERE IS THE TRAIN STATION? 🎉", ["BAHNHOF? 🎉"]),
        ("I know Łukasz.", ["Łukasz."]),
        ("The temperature is -12 degrees.", ["-12"]),
        ("He has 987 books.", ["987"]),
        ("Open https://example.com/a?b=1 and press Ctrl+C.", ["https://example.com/a?b=1", "Ctrl+C"]),
        ("My address is kim@example.org.", ["kim@example.org"]),
        ("{name}, {name}!", ["{name}, {name}"]),
    ],
)
def test_the_model_translates_text_as_people_type_it(line: str, parts: list[str]) -> None:
    made = vtrans.load(NAME)
    (translation,) = made.translate([line])
    assert all(part in translation for part in parts)
    assert made.counts.numbers == 0


@pytest.mark.parametrize(("options", "warned"), [((), False), (("--beam", "2"), True)])
def test_the_model_has_its_calibration(run_cli: Run, options: tuple[str, ...], warned: bool) -> None:
    words = ("--model", NAME, "--confidence", "--threads", "1", *options)
    done = run_cli("translate", *words, stdin=b"Where is the train station?\n")
    assert done.code == 0, done.err
    assert 0 < float(done.out.split(b"\t")[0]) < 1
    assert ("vtrans calibrate" in done.err) == warned
