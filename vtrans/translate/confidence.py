"""The probability that a translation, and each of its words, is right.

A sentence counts as right if its chrF is at least 60, and a word if the reference has it, as often as the translation
so far. Both probabilities are those of a logistic regression on the log-probabilities that the search gave to the
subwords, which cost no time. `vtrans calibrate` fits it to translations of a text with references, such as the
validation text, and writes `confidence.json` beside the model.

Legend: N examples (sentences or words), F features, 2 F of them with their squares.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vtrans.config import DECODING_PRECISIONS, EngineConfig, SearchConfig
from vtrans.console import Console
from vtrans.data.logistic import Floats, probability, regression
from vtrans.errors import FileError, InputError
from vtrans.files import file_sha256, reason, write_atomically
from vtrans.keys import decisive
from vtrans.text.vocabulary import EOS_ID, Vocabulary
from vtrans.text.words import first_words, words_of_ids

FILE = "confidence.json"
FEATURES = {"sentence": 8, "word": 11}
RIGHT = 60.0  # chrF of a sentence that counts as right
FEWEST_SENTENCES = 200  # sentences to calibrate with
FOLDS = 5
BINS = 10
STEPS = 50  # of Newton's method, which needs about ten


class Found(Protocol):
    """A translation as the search found it."""

    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> tuple[int, ...]: ...
    @property
    def token_logprobs(self) -> tuple[float, ...]: ...


@dataclass(frozen=True)
class Logistic:
    """A logistic regression on features and their squares, which are scaled to mean 0 and deviation 1 and cut at 4."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weights: tuple[float, ...]
    """Of a constant, each feature and each square."""

    @classmethod
    def fitted(cls, x_NF: Floats, right_N: Floats) -> Logistic:
        """Returns the regression with the highest likelihood, less half the squares of its weights."""
        mean_F, deviation_F = x_NF.mean(0), x_NF.std(0) + 1e-6
        z_NG = _expanded(x_NF, mean_F, deviation_F)
        ridge_G, start_G = np.ones(z_NG.shape[1]), np.zeros(z_NG.shape[1])
        ridge_G[0] = 1e-9  # the constant is free
        weights_G = regression(z_NG, right_N, np.ones(len(right_N)), ridge_G, start_G, STEPS)
        return cls(*(tuple(map(float, values)) for values in (mean_F, deviation_F, weights_G)))

    def __call__(self, x_NF: Floats) -> Floats:
        """Returns the probabilities [N]."""
        return probability(_expanded(x_NF, np.array(self.mean), np.array(self.deviation)) @ np.array(self.weights))


def _expanded(x_NF: Floats, mean_F: Floats, deviation_F: Floats) -> Floats:
    z_NF = np.clip((x_NF - mean_F) / deviation_F, -4, 4)
    return np.concatenate([np.ones((len(z_NF), 1)), z_NF, z_NF**2], 1)


@dataclass(frozen=True)
class Calibration:
    """The regressions for the translations of some models."""

    sentence: Logistic
    word: Logistic
    models: tuple[str, ...]
    """The SHA-256 of each model file."""
    settings: dict[str, Any]
    """Those of `made_with`."""

    def __call__(self, source: str, translation: Found, vocab: Vocabulary) -> tuple[float, tuple[float, ...]]:
        """Returns the probabilities of a translation and of its words. The translation of a blank line is right."""
        if not translation.token_logprobs:
            return float(not source.strip()), ()
        sentence = float(self.sentence(np.array([sentence_features(source, translation)]))[0])
        return sentence, tuple(self.word(word_features(translation, vocab)).tolist())

    def check(self, settings: dict[str, Any], console: Console) -> None:
        """Warns if translations are made with other settings than those to which this was fitted."""
        for name, value in self.settings.items():
            if name in settings and settings[name] != value:
                console.warn(
                    f"the confidence was fitted to translations with another {name.replace('_', ' ')} ({value}, not "
                    f"{settings[name]}), and may be too high or too low; run `vtrans calibrate` with the same options."
                )
                return

    def save(self, path: Path) -> None:
        write_atomically(path, json.dumps(dataclasses.asdict(self)).encode())

    @staticmethod
    def path(models: Sequence[Path]) -> Path:
        """Returns the file of the calibration of models: beside the first one, and if that is a link, beside its
        target."""
        return models[0].resolve().parent / FILE

    @classmethod
    def load(cls, models: Sequence[Path]) -> Calibration:
        """Returns the calibration beside the first of these model files. Raises FileError if it is missing, damaged, or
        that of other models."""
        path = cls.path(models)
        advice = "run `vtrans calibrate` with the same models"
        if not path.exists():
            raise FileError(f"there is no {path}; {advice}.")
        try:
            values = json.loads(path.read_bytes())
            fields = {name: Logistic(*map(tuple, _numbers(values[name], n))) for name, n in FEATURES.items()}
            given, settings = tuple(values["models"]), dict(values["settings"])
        except OSError as error:
            raise FileError(f"{path} cannot be read: {reason(error)}; {advice}.") from None
        except (ValueError, TypeError, LookupError, RecursionError):
            raise FileError(f"{path} is damaged; {advice}.") from None
        if given != hashes(models):
            raise FileError(f"{path} is that of other models; {advice}.")
        return cls(**fields, models=given, settings=settings)


def _numbers(values: dict[str, Any], features: int) -> list[list[float]]:
    """Returns the three lists of a regression. Raises ValueError if they are not those of so many features."""
    lists = [list(map(float, values[field.name])) for field in dataclasses.fields(Logistic)]
    if not all(map(math.isfinite, chain(*lists))) or list(map(len, lists)) != [features, features, 2 * features + 1]:
        raise ValueError
    return lists


def hashes(models: Sequence[Path]) -> tuple[str, ...]:
    """Returns the SHA-256 of each file."""
    return tuple(file_sha256(model) or "" for model in models)


def made_with(
    search: SearchConfig, engine: EngineConfig, weights: Sequence[float], *, sampling: bool = False
) -> dict[str, Any]:
    """Returns the settings that change the log-probabilities of translations, as JSON has them."""
    run = {"precision": engine.precision or DECODING_PRECISIONS[0], "shortlist": engine.shortlist}
    settings = {"sampling": sampling, **decisive(search), **run, "weights": weights}
    return dict(json.loads(json.dumps(settings)))


# Features.


def sentence_features(source: str, translation: Found) -> list[float]:
    """Returns the mean and the smallest log-probability, the mean of the three smallest probabilities, the share of
    subwords below one half, and the lengths of both sides."""
    logprobs = np.maximum(translation.token_logprobs, -30)
    probabilities = np.exp(logprobs)
    lengths = len(source) + 1, len(translation.text) + 1
    ratio = math.log(lengths[1] / lengths[0])
    return [
        logprobs.mean(),
        logprobs.min(),
        np.sort(probabilities)[:3].mean(),
        (probabilities < 0.5).mean(),
        math.log(len(logprobs)),
        math.log(lengths[0]),
        ratio,
        abs(ratio),
    ]


def word_features(translation: Found, vocab: Vocabulary) -> Floats:
    """Returns, for each word of a translation, the log-probabilities of its subwords (sum, smallest, number), of what
    is beside it, and of the whole sentence, and where it is."""
    logprobs = [max(value, -30.0) for value in translation.token_logprobs]
    words: list[list[float]] = [[] for _ in translation.text.split()]
    for number, logprob in zip(_word_numbers(translation, vocab), logprobs, strict=True):
        if number < len(words):
            words[number].append(logprob)
    end, all_of_them = logprobs[-1], np.array(logprobs)
    whole = [float(all_of_them.mean()), float(all_of_them.min()), math.log(len(logprobs))]
    rows = []
    for i, own in enumerate(words):
        before = words[i - 1] if i else []
        after = words[i + 1] if i + 1 < len(words) else []
        rows.append(
            [
                *(sum(own), min(own, default=0.0), float(len(own)), sum(before), sum(after)),
                *(before[-1] if before else 0.0, after[0] if after else end, i / len(words), *whole),
            ]
        )
    return np.array(rows).reshape(len(rows), FEATURES["word"])


def _word_numbers(translation: Found, vocab: Vocabulary) -> list[int]:
    """Returns the word of each subword; EOS, which ends each piece of a line, belongs to none."""
    numbers, pieces, none = list[int](), [list[int]()], len(translation.tokens)
    for token in translation.tokens:
        if token == EOS_ID:
            pieces.append([])
        else:
            pieces[-1].append(token)
    firsts = first_words(map(vocab.decode, pieces), translation.text)
    for piece, first in zip(pieces, firsts, strict=True):
        numbers += [*(first + number for number in words_of_ids(piece, vocab)), none]
    return numbers[:none]


# Fitting.


@dataclass(frozen=True)
class Report:
    """How well a regression separates right from wrong, on examples that it was not fitted to."""

    examples: int
    right: float
    """Their share."""
    auroc: float
    """The probability that a right example has a higher confidence than a wrong one."""
    error: float
    """The expected calibration error: how far the mean confidence of a tenth of the scale is from its share of right
    ones, weighted by the number of examples."""


def calibrate(
    sources: Sequence[str],
    translations: Sequence[Found],
    references: Sequence[str],
    models: Sequence[Path],
    vocab: Vocabulary,
    settings: dict[str, Any],
) -> tuple[Calibration, dict[str, Report]]:
    """Returns a calibration for translations as the search found them with these settings, and reports for sentences
    and words, by cross-validation. Raises InputError for too few sentences, or if all or none are right."""
    from sacrebleu.metrics.chrf import CHRF

    chrf, x, right = CHRF(), dict[str, list[Any]](sentence=[], word=[]), dict[str, list[bool]](sentence=[], word=[])
    fold: dict[str, list[int]] = {"sentence": [], "word": []}
    for source, translation, reference in zip(sources, translations, references, strict=True):
        if not translation.token_logprobs or not source.strip():
            continue
        number = len(fold["sentence"]) % FOLDS
        x["sentence"].append(sentence_features(source, translation))
        right["sentence"].append(chrf.sentence_score(translation.text, [reference]).score >= RIGHT)
        x["word"] += word_features(translation, vocab).tolist()
        right["word"] += right_words(translation.text, reference)
        fold["sentence"].append(number)
        fold["word"] += [number] * (len(right["word"]) - len(fold["word"]))
    if len(x["sentence"]) < FEWEST_SENTENCES:
        raise InputError(f"a calibration needs at least {FEWEST_SENTENCES} sentences, got {len(x['sentence'])}.")
    fitted, reports = {}, {}
    for name in x:
        values, truth, folds = np.array(x[name]), np.array(right[name], float), np.array(fold[name])
        if not 0 < truth.sum() < len(truth):
            raise InputError(f"a calibration needs right and wrong {name}s, but all {len(truth):,} are alike.")
        fitted[name] = Logistic.fitted(values, truth)
        held = np.empty(len(truth))
        for k in range(FOLDS):
            held[folds == k] = Logistic.fitted(values[folds != k], truth[folds != k])(values[folds == k])
        reports[name] = Report(len(truth), float(truth.mean()), auroc(held, truth), calibration_error(held, truth))
    return Calibration(**fitted, models=hashes(models), settings=settings), reports


def right_words(translation: str, reference: str) -> list[bool]:
    """Returns which words of a translation its reference has. Each word of the reference counts once."""
    left, right = Counter(reference.split()), []
    for word in translation.split():
        right.append(left[word] > 0)
        left[word] -= 1
    return right


def auroc(confidence_N: Floats, right_N: Floats) -> float:
    """Returns the area under the curve of true over false positives; ties count half."""
    _, inverse, counts = np.unique(confidence_N, return_inverse=True, return_counts=True)
    ranks_N = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    right = right_N.sum()
    return float((ranks_N[right_N == 1].sum() - right * (right + 1) / 2) / (right * (len(right_N) - right)))


def calibration_error(confidence_N: Floats, right_N: Floats) -> float:
    """Returns the expected calibration error with ten bins of equal width (Naeini et al. 2015)."""
    bins_N = np.minimum((confidence_N * BINS).astype(int), BINS - 1)
    gaps = [(confidence_N[bins_N == k] - right_N[bins_N == k]).sum() for k in range(BINS)]
    return float(np.abs(gaps).sum() / len(right_N))
