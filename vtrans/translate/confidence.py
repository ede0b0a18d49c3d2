"""Confidence: the probability that a translation, and each of its words, is right.

A sentence counts as right if its chrF is at least 60. A word counts as right if the reference contains it at least as
often as the translation up to there. Both probabilities come from logistic regressions on the subword log-probabilities
of the search, so they cost almost no time. `vtrans calibrate` fits the regressions on a text with references, such as
the validation text, and writes `confidence.json` next to the model.

Legend: N examples (sentences or words), F features, 2 F of them with their squares.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from vtrans.config import DECODING_PRECISIONS, EngineConfig, SearchConfig
from vtrans.config.keys import output_affecting
from vtrans.data.logistic import Floats, probability
from vtrans.system.console import Console
from vtrans.system.errors import FileError
from vtrans.system.files import file_sha256, reason, write_atomically
from vtrans.text.vocabulary import EOS_ID, Vocabulary
from vtrans.text.words import first_words, sharing, words_of_ids
from vtrans.translate.translation import Translation

FILE = "confidence.json"
FEATURES = {"sentence": 8, "word": 11}


@dataclass(frozen=True)
class Logistic:
    """A logistic regression on features and their squares. Features are standardised to mean 0 and deviation 1, and
    clipped at 4."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weights: tuple[float, ...]
    """For a constant, each feature and each square."""

    def expanded(self, x_NF: Floats) -> Floats:
        """Returns the constant, the standardised features and their squares [N, 1 + 2 F]."""
        z_NF = np.clip((x_NF - np.array(self.mean)) / np.array(self.deviation), -4, 4)
        return np.concatenate([np.ones((len(z_NF), 1)), z_NF, z_NF**2], 1)

    def __call__(self, x_NF: Floats) -> Floats:
        """Returns the probabilities [N]."""
        return probability(self.expanded(x_NF) @ np.array(self.weights))


@dataclass(frozen=True)
class Calibration:
    """The regressions for a model or an ensemble."""

    sentence: Logistic
    word: Logistic
    models: tuple[str, ...]
    """The SHA-256 of each model file."""
    settings: dict[str, Any]
    """The result of `made_with`."""

    def __call__(self, source: str, translation: Translation, vocab: Vocabulary) -> tuple[float, tuple[float, ...]]:
        """Returns the probabilities that a translation and its words are right. A blank line's translation is right."""
        if not translation.token_logprobs:
            return float(not source.strip()), ()
        sentence = float(self.sentence(np.array([sentence_features(source, translation)]))[0])
        return sentence, tuple(self.word(word_features(translation, vocab)).tolist())

    def check(self, settings: dict[str, Any], console: Console) -> None:
        """Warns if translations are made with settings that differ from those of the calibration."""
        for name, value in self.settings.items():
            if name in settings and settings[name] != value:
                console.warn(
                    f"the confidence was calibrated with a different {name.replace('_', ' ')} ({value}, not "
                    f"{settings[name]}), and may be too high or too low; run `vtrans calibrate` with the same options."
                )
                return

    def save(self, path: Path) -> None:
        write_atomically(path, json.dumps(dataclasses.asdict(self)).encode())

    @staticmethod
    def path(models: Sequence[Path]) -> Path:
        """Returns the calibration file: next to the first model, or next to its target if that is a link."""
        return models[0].resolve().parent / FILE

    @classmethod
    def load(cls, models: Sequence[Path]) -> Calibration:
        """Returns the calibration next to the first of these model files. Raises FileError if it is missing, damaged,
        or for other models."""
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
            raise FileError(f"{path} belongs to other models; {advice}.")
        return cls(**fields, models=given, settings=settings)


def _numbers(values: dict[str, Any], features: int) -> list[list[float]]:
    """Returns a regression's three lists. Raises ValueError unless they match this number of features."""
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
    """Returns the settings that affect the log-probabilities of translations, as JSON values."""
    run = {"precision": engine.precision or DECODING_PRECISIONS[0], "shortlist": engine.shortlist}
    settings = {"sampling": sampling, **output_affecting(search), **run, "weights": weights}
    return dict(json.loads(json.dumps(settings)))


def sentence_features(source: str, translation: Translation) -> list[float]:
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


def word_features(translation: Translation, vocab: Vocabulary) -> Floats:
    """Returns the features of each word of a translation [words, F]: the sum, minimum and number of its subword
    log-probabilities, those of its neighbours and of the whole sentence, and its position."""
    logprobs = [max(value, -30.0) for value in translation.token_logprobs]
    numbers = _word_numbers(translation, vocab)
    shared = sharing(translation.text, {*numbers})
    words: list[list[float]] = [[] for _ in shared]
    for number, logprob in zip(numbers, logprobs, strict=True):
        if number < len(words):
            words[number].append(logprob)
    words = [words[number] for number in shared]
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


def _word_numbers(translation: Translation, vocab: Vocabulary) -> list[int]:
    """Returns the word number of each subword. EOS, which ends each piece of a line, belongs to no word."""
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
