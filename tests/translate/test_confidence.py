"""The probability that a translation and its words are right."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import seeded, seeded_arrays
from translators import sentences, translator, window

from vtrans.apps.analysis.calibration import FEWEST_SENTENCES, auroc, calibrate, calibration_error, fitted
from vtrans.system.errors import FileError
from vtrans.translate.confidence import FILE, Calibration
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.wording.protection import Protection


def calibration_of(files: list[Path], **search: Any) -> Calibration:
    """Returns a calibration for `translator`, by references that have some words of its translations."""
    made, lines, numbers = translator(**search), sentences(FEWEST_SENTENCES * 2, seed=9), seeded(1)
    translations = [best[0] for best in made.nbest(lines, raw=True)]
    references = [t.text if numbers.random() < np.exp(t.logprob / 9) else "none of it" for t in translations]
    return calibrate(lines, translations, references, files, made.tgt_vocab, {})[0]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("confidence") / "model.safetensors"
    path.write_bytes(b"weights")
    calibration_of([path]).save(path.parent / FILE)
    return path


@pytest.fixture(scope="module")
def calibration(model: Path) -> Calibration:
    return Calibration.load([model])


def test_a_regression_finds_the_probabilities_of_its_examples() -> None:
    numbers = seeded_arrays(1)
    x = numbers.normal(size=(20_000, 3)) * [1, 5, 0.1] + [0, 9, 0]
    x[:, 2] = 1  # a feature that is always the same tells nothing
    truth = 1 / (1 + np.exp(-(0.5 + x[:, 0] - 0.1 * (x[:, 1] - 9) ** 2)))
    right = (numbers.random(len(x)) < truth).astype(float)
    found = fitted(x[::2], right[::2])(x[1::2])
    assert abs(found - truth[1::2]).mean() < 0.02
    assert calibration_error(found, right[1::2]) < 0.03
    assert calibration_error(found**3, right[1::2]) > 0.1


@pytest.mark.parametrize("seed", range(5))
def test_auroc_is_the_probability_that_a_right_example_is_above_a_wrong_one(seed: int) -> None:
    numbers = seeded_arrays(seed)
    confidence, right = numbers.integers(0, 8, 60) / 8, numbers.integers(0, 2, 60).astype(float)
    pairs = [(a > b) + (a == b) / 2 for a in confidence[right == 1] for b in confidence[right == 0]]
    assert auroc(confidence, right) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("options", [{}, {"nbest": 3}, {"alignments": True}, {"protect": Protection()}])
def test_every_translation_and_word_has_a_confidence(calibration: Calibration, options: dict[str, Any]) -> None:
    lines = [*sentences(20), "A DOG RUNS", "a dog 😀 {x} 🎉", "%s", "", " ".join(["a dog runs"] * 20)]
    made = translator(max_source=20, beam=3)
    plain = made.translate_window(window(lines), TranslateOptions(**options))
    rated = made.translate_window(window(lines), TranslateOptions(**options, calibration=calibration))
    assert made.counts.cut == 2
    for line, given, best in zip(lines, plain, rated, strict=True):
        for before, t in zip(given, best, strict=True):
            assert t.confidence is not None
            assert t.word_confidences is not None
            assert len(t.word_confidences) == len(t.text.split())
            assert all(0 <= value <= 1 for value in (t.confidence, *t.word_confidences))
            assert dataclasses.replace(t, confidence=None, word_confidences=None) == before
        if not line:
            assert best[0].confidence == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"sentence": 1}', "\xff", "[" * 100_000])
def test_a_damaged_calibration_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "m").write_bytes(b"weights")
    with pytest.raises(FileError, match=r"confidence\.json; run `vtrans calibrate`"):
        Calibration.load([tmp_path / "m"])
    (tmp_path / FILE).write_text(text, encoding="latin-1")
    with pytest.raises(FileError, match="damaged; run `vtrans calibrate`"):
        Calibration.load([tmp_path / "m"])
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    with pytest.raises(FileError, match="read"):
        Calibration.load([tmp_path / "m"])


def test_a_calibration_with_wrong_numbers_or_of_other_models_is_refused(model: Path, tmp_path: Path) -> None:
    values = json.loads((model.parent / FILE).read_text())
    copy = tmp_path / "model.safetensors"
    copy.write_bytes(model.read_bytes())
    wrong: list[dict[str, Any]] = [{"weights": weights} for weights in ([float("nan")], ["x"], [], None)]
    for sizes in ((10, 10, 21), (0, 0, 1), (11, 11, 22)):  # of other features
        lists = zip(("mean", "deviation", "weights"), sizes, strict=True)
        wrong.append({name: values["word"][name][:size] for name, size in lists})
    for changes in wrong:
        (tmp_path / FILE).write_text(json.dumps({**values, "word": values["word"] | changes}))
        with pytest.raises(FileError, match="damaged"):
            Calibration.load([copy])
    (tmp_path / FILE).write_text(json.dumps(values))
    assert Calibration.load([copy]) == Calibration.load([model])
    for others in ([copy, copy], [model.parent / FILE]):
        with pytest.raises(FileError, match="other models"):
            Calibration.load(others)
