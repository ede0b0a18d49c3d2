"""The probability that a translation and its words are right."""

from __future__ import annotations

import dataclasses
import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from translators import sentences, translator, window

from vtrans.errors import FileError, InputError
from vtrans.lines.line import lines_of
from vtrans.translate.confidence import (
    FEWEST_SENTENCES,
    FILE,
    Calibration,
    Logistic,
    auroc,
    calibrate,
    calibration_error,
    right_words,
)
from vtrans.translate.stream import translate_stream
from vtrans.translate.translation import TranslateOptions
from vtrans.wording.protect import Protection


def calibration_of(files: list[Path], **search: Any) -> Calibration:
    """Returns a calibration for `translator`, by references that have some words of its translations."""
    made, lines, numbers = translator(**search), sentences(FEWEST_SENTENCES * 2, seed=9), random.Random(1)
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
    numbers = np.random.default_rng(1)
    x = numbers.normal(size=(20_000, 3)) * [1, 5, 0.1] + [0, 9, 0]
    x[:, 2] = 1  # a feature that is always the same tells nothing
    truth = 1 / (1 + np.exp(-(0.5 + x[:, 0] - 0.1 * (x[:, 1] - 9) ** 2)))
    right = (numbers.random(len(x)) < truth).astype(float)
    found = Logistic.fitted(x[::2], right[::2])(x[1::2])
    assert abs(found - truth[1::2]).mean() < 0.02
    assert calibration_error(found, right[1::2]) < 0.03
    assert calibration_error(found**3, right[1::2]) > 0.1


def test_a_regression_of_separable_examples_has_finite_weights() -> None:
    x = np.arange(100.0)[:, None]
    found = Logistic.fitted(x, (x[:, 0] >= 50).astype(float))
    assert np.isfinite(found.weights).all()
    assert ((found(x) > 0.5) == (x[:, 0] >= 50)).all()
    assert np.isfinite(found(np.array([[-1e300], [1e300]]))).all()


@pytest.mark.parametrize("seed", range(5))
def test_auroc_is_the_probability_that_a_right_example_is_above_a_wrong_one(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    confidence, right = numbers.integers(0, 8, 60) / 8, numbers.integers(0, 2, 60).astype(float)
    pairs = [(a > b) + (a == b) / 2 for a in confidence[right == 1] for b in confidence[right == 0]]
    assert auroc(confidence, right) == pytest.approx(np.mean(pairs))


def test_calibration_error_is_the_mean_gap_of_the_bins() -> None:
    assert calibration_error(np.array([0.25, 0.25, 0.25, 0.25, 1.0]), np.array([1, 0, 0, 0, 1.0])) == 0
    assert calibration_error(np.array([0.0, 1.0]), np.array([1.0, 0.0])) == 1


def test_each_word_of_a_reference_counts_once() -> None:
    assert right_words("a dog a dog", "the dog a") == [True, True, False, False]
    assert right_words("", "a") == []


@pytest.mark.parametrize("options", [{}, {"nbest": 3}, {"alignments": True}, {"protect": Protection()}])
def test_every_translation_and_each_of_its_words_has_a_confidence(
    calibration: Calibration, options: dict[str, Any]
) -> None:
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


def test_words_that_the_search_was_less_sure_of_have_a_lower_confidence(calibration: Calibration) -> None:
    made = translator()
    (t,) = made.translate_window(window(["a dog runs in the park"]))[0]
    unsure = dataclasses.replace(t, token_logprobs=tuple(value - 3 for value in t.token_logprobs))
    (a, _), (b, _) = (calibration("a dog runs in the park", one, made.tgt_vocab) for one in (t, unsure))
    assert a > b


def test_a_translation_below_the_limit_is_left_blank_and_counted(calibration: Calibration) -> None:
    lines, made = [*sentences(30), ""], translator()
    values = sorted(best[0].confidence or 0 for best in made.nbest(lines, calibration=calibration))
    limit = values[10]
    found = made.translate_window(window(lines), TranslateOptions(calibration=calibration, min_confidence=limit))
    doubtful = [(best[0].confidence or 0) < limit for best in found]
    assert sum(doubtful) == made.counts.doubtful == sum(value < limit for value in values)
    assert not any(best[0].text for best, doubt in zip(found, doubtful, strict=True) if doubt)
    assert any(best[0].text for best in found)


def test_a_stream_writes_the_confidence(calibration: Calibration) -> None:
    lines = sentences(8)
    written = {}
    for form in ("text", "confidence", "json"):
        out = io.BytesIO()
        translate_stream(translator(), lines_of(lines), out, TranslateOptions(form=form, calibration=calibration))
        written[form] = out.getvalue().decode().split("\n")[:-1]
    columns = [line.split("\t") for line in written["confidence"]]
    assert [text for _, text in columns] == written["text"]
    details = [json.loads(line)["translations"][0] for line in written["json"]]
    assert [f"{t['confidence']:.6f}" for t in details] == [number for number, _ in columns]


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
    for wrong in ([float("nan")], ["x"], [], None):
        changed = {**values, "word": {**values["word"], "weights": wrong}}
        (tmp_path / FILE).write_text(json.dumps(changed))
        with pytest.raises(FileError, match="damaged"):
            Calibration.load([copy])
    for sizes in ((10, 10, 21), (0, 0, 1), (11, 11, 22)):  # of other features
        lists = zip(("mean", "deviation", "weights"), sizes, strict=True)
        changed = {**values, "word": {name: values["word"][name][:size] for name, size in lists}}
        (tmp_path / FILE).write_text(json.dumps(changed))
        with pytest.raises(FileError, match="damaged"):
            Calibration.load([copy])
    (tmp_path / FILE).write_text(json.dumps(values))
    assert Calibration.load([copy]) == Calibration.load([model])
    for others in ([copy, copy], [model.parent / FILE]):
        with pytest.raises(FileError, match="other models"):
            Calibration.load(others)


def test_too_few_sentences_and_those_that_are_all_alike_are_refused() -> None:
    made, lines = translator(), sentences(FEWEST_SENTENCES * 2)
    translations = [best[0] for best in made.nbest(lines)]
    for n, references, words in (
        (FEWEST_SENTENCES // 2, ["a"] * FEWEST_SENTENCES, f"at least {FEWEST_SENTENCES}"),
        (len(lines), [t.text for t in translations], "alike"),
    ):
        with pytest.raises(InputError, match=words):
            calibrate(lines[:n], translations[:n], references[:n], [], made.tgt_vocab, {})
