"""The options of translating (TranslateOptions) and its result (Translation)."""

from __future__ import annotations

import dataclasses
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from vtrans.config import MBR_SAMPLES
from vtrans.data.matches import Known, Match
from vtrans.engines.alignments import Links, pharaoh
from vtrans.search.options import Mbr, Sampling
from vtrans.system.errors import InputError
from vtrans.text.lines import one_line
from vtrans.text.vocabulary import Formality, Vocabulary
from vtrans.text.words import WORD, words_in
from vtrans.translate.wording.glossary import Glossary
from vtrans.translate.wording.protection import Protection

Form = Literal["text", "scores", "tsv", "confidence", "json"]
"""The output format. "text": the text; "scores", "tsv" and "confidence": the score, the log-probability and score, or
the confidence before the text, separated by tabs; "json": everything."""


Rate = Callable[[str, "Translation", Vocabulary], tuple[float, tuple[float, ...]]]
"""Given a line and its translation, returns the probabilities that the translation and each of its words are right."""


@dataclass(frozen=True)
class TranslateOptions:
    """The options of translating, which are the same for all lines of a text."""

    nbest: int = 1
    """Translations per line. Their texts differ unless they are samples."""
    sampling: Sampling | None = None
    """Sample translations instead of searching for the best."""
    mbr: Mbr | None = None
    """Choose translations by their expected utility."""
    alignments: bool = False
    """Link the words of each translation to words of its source."""
    form: Form = "text"
    glossary: Glossary | None = None
    protect: Protection | Literal[False] | None = None
    """Text to copy into translations. None: EVERYDAY if the model has learned codes, otherwise nothing."""
    check_numbers: bool = True
    """Search again for lines whose translation has different numbers, and count lines that still do."""
    raw: bool = False
    """Pass each line to the model unchanged, without the steps for case and unknown characters."""
    calibration: Rate | None = None
    """Rates each translation and its words, such as a Calibration (confidence.py)."""
    min_confidence: float = 0.0
    """Leave a translation blank if its confidence is lower."""
    to: str | None = None
    """The target language, for a model with several."""
    formality: Formality | None = None
    """The form of address, for a model trained with forms of address."""
    known: Known | None = None
    """A translation memory, which replaces the model for lines that it contains."""
    match: Callable[[str], Match | None] | None = None
    """Returns the fuzzy match of a line, for a model trained with fuzzy matches."""
    abandoned: Callable[[], bool] | None = None
    """Called before each step of a search, which ends with AbandonedError once this returns True."""

    def __post_init__(self) -> None:
        if self.nbest < 1:
            raise InputError(f"`nbest` must be at least 1, got {self.nbest}.")
        if self.mbr and self.sampling is None and self.mbr.samples is not None:
            raise InputError(f"`mbr_samples` only applies to sampling, got {self.mbr.samples}; add `sampling`.")

    def candidates(self, beam: int) -> int:
        """Returns the number of candidate hypotheses per source."""
        if self.mbr is None and (self.nbest == 1 or self.sampling is not None):
            return self.nbest
        # All hypotheses of a search, because some may spell the same text in different subwords.
        return beam if self.sampling is None else (self.mbr.samples if self.mbr else None) or MBR_SAMPLES

    def check(self, beam: int) -> None:
        """Raises InputError if a beam of this width, or the number of samples, is too small for `nbest`."""
        if self.sampling is None and self.nbest > beam:
            raise InputError(
                f"`nbest` must be at most `beam` ({beam}), got {self.nbest}; set `beam` to {self.nbest} or more."
            )
        if self.mbr and self.nbest > self.candidates(beam):
            raise InputError(f"`nbest` must be at most `mbr_samples` ({self.candidates(beam)}), got {self.nbest}.")
        if self.mbr and self.sampling is None and beam == 1:
            raise InputError("`beam` must be at least 2 with `mbr`, got 1; choose a wider beam, or add `sampling`.")

    @property
    def lines(self) -> int:
        """Lines of output per line of input."""
        return 1 if self.form == "json" else self.nbest


@dataclass(frozen=True)
class Translation:
    """A translation of one line, either found by a search or given."""

    text: str  # one line
    logprob: float  # natural logarithm, summed over the subwords of all pieces and EOS
    # The log-probability divided by the length penalty, or for a sample by its length; with Mbr, the expected utility
    # from 0 to 100. The mean over all pieces.
    score: float
    finished: bool  # whether it ends with EOS, not at its length limit
    tokens: tuple[int, ...] = ()  # subword ids; EOS ends each finished piece
    subwords: tuple[str, ...] = ()  # the tokens as SentencePiece writes them
    token_logprobs: tuple[float, ...] = ()  # one per token
    alignment: Links | None = None  # between words (text/words.py) of the line and of the text, if requested
    confidence: float | None = None  # probability that the translation is right, if there is a calibration
    word_confidences: tuple[float, ...] | None = None  # the same for each word
    match: float | None = None  # the similarity of the fuzzy match used, from 0 to 1; 1 if from a memory

    def blank(self) -> Translation:
        """Returns the translation without its text."""
        links = None if self.alignment is None else ()
        return dataclasses.replace(self, text="", alignment=links, word_confidences=())

    def copied(self, text: str) -> Translation:
        """Returns the translation of a line that bypasses the model, with this text. Each word has confidence 1 and is
        linked to itself."""
        words = len(words_in(text))
        links = None if self.alignment is None else tuple((i, i) for i in range(words))
        rated = None if self.word_confidences is None else (1.0,) * words
        return dataclasses.replace(self, text=one_line(text), alignment=links, word_confidences=rated)

    def rewritten(self, text: str) -> Translation:
        """Returns the translation with another text, whose words inherit the links and confidence of the words they
        replace."""
        if text == self.text:
            return self
        links, confidences = self.alignment, self.word_confidences
        replaced = _replaced_words(self.text, text) if links or confidences else []
        if links is not None:
            links = tuple(sorted({(i, k) for k, old in enumerate(replaced) for i, j in links if j in old}))
        if confidences is not None:
            confidences = tuple(min((confidences[j] for j in old), default=1.0) for old in replaced)
        return dataclasses.replace(self, text=text, alignment=links, word_confidences=confidences)

    def of_line(self, line: str, seen: str) -> Translation:
        """Returns the translation of `seen`, the form in which the model saw a line, as one of the line: its links are
        to the words of the line."""
        links = self.alignment
        if links:
            runs, seen_runs = re.split(r"\s", line), re.split(r"\s", seen)  # some may be empty
            pairs = list(zip(runs, seen_runs, strict=True)) if len(runs) == len(seen_runs) else [(line, seen)]
            replaced, first = list[set[int]](), 0
            for run, seen_run in pairs:
                replaced += [{first + i for i in words} for words in _replaced_words(run, seen_run)]
                first += len(words_in(run))
            links = tuple(sorted({(word, j) for i, j in links for word in replaced[i]}))
        return dataclasses.replace(self, alignment=links)

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for JSON, with null for infinity and NaN, and an alignment in Pharaoh's format."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields["token_logprobs"] = [_finite(value) for value in self.token_logprobs]
        if self.alignment is not None:
            fields["alignment"] = pharaoh(self.alignment)
        for name in ("alignment", "confidence", "word_confidences", "match"):
            if fields[name] is None:
                del fields[name]
        return fields | {"logprob": _finite(self.logprob), "score": _finite(self.score)}


NO_TRANSLATION = Translation("", -math.inf, -math.inf, False)
"""Fills an n-best place that has no hypothesis."""


def _replaced_words(before: str, after: str) -> list[set[int]]:
    """Returns, for each word of `after`, the numbers of the words of `before` that it replaces.

    Only words that have changed are compared by their characters: for a whole line, this would take seconds.
    """
    old, new, words = words_in(before), words_in(after), list[set[int]]()
    for kind, i, last, j, end in SequenceMatcher(None, old, new).get_opcodes():
        if last - i == end - j:
            words += [{place} for place in range(i, last)]
        elif kind == "replace":
            words += [{i + place for place in places} for places in _by_characters(old[i:last], new[j:end])]
        else:  # inserted words, if any, replace the next one
            words += [{max(0, min(i, len(old) - 1))} for _ in range(j, end)]
    return words


def _by_characters(old: Sequence[str], new: Sequence[str]) -> list[set[int]]:
    """Returns, for each word of `new`, the numbers of the words of `old` whose characters it replaces."""
    before, after = " ".join(old), " ".join(new)
    old_begins, begins = ([word.start() for word in WORD.finditer(text)] for text in (before, after))
    words: list[set[int]] = [set() for _ in begins]
    for _, i, last, j, end in SequenceMatcher(None, before, after).get_opcodes():
        for k in range(j, end):
            if not after[k].isspace():
                place = min(i + (k - j) * (last - i) // (end - j), len(before) - 1)
                words[bisect_right(begins, k) - 1].add(bisect_right(old_begins, place) - 1)
    return words


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
