"""Second step: normalises lines to the form of the training text."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial

import regex

from vtrans.text.case import capitalized, in_capitals, lower, upper
from vtrans.text.normalization import source_text
from vtrans.text.vocabulary import Vocabulary
from vtrans.text.words import WORD, numbered, words_in
from vtrans.translate.steps.line import Line
from vtrans.translate.translation import Translation

# Control and format characters, except those that join the characters of an emoji.
_CONTROLS = regex.compile(r"(?<![\p{Extended_Pictographic}\ufe0f\U0001f3fb-\U0001f3ff\p{Cf}])[\p{Cc}\p{Cf}]+")
_APOSTROPHE = regex.compile(r"(?<=\p{L})&(?:#39|#x27|apos|#8217|rsquo);(?=\p{L})")
# A word that no mark joins to others, unlike the words of an address.
_WORD = regex.compile(
    r"(?<![^\s\p{Pi}\p{Ps}\"'\u00bf\u00a1])[\p{L}\p{M}\p{N}]+(?:['\u2019][\p{L}\p{M}]+)*(?=[\p{P}--@/\\_&&[^.]]*\.*(?:\s|$))",
    regex.V1,
)


class Normalise:
    """Normalises lines to what the model has learned to read.

    - Characters get the form of `source_text`: all if the training text had this form; otherwise those that the
      vocabulary lacks.
    - Control and format characters that the vocabulary lacks are removed, because models invent words for them. They
      stay in emoji and next to characters that are copied.
    - `&#39;` in a word becomes an apostrophe.
    - Words get the spellings in the file next to the model.

    A line with a prefix, phrases or a fuzzy match keeps its words. With `raw`, only characters change, and only as in
    the training text.
    """

    def __init__(self, vocab: Vocabulary, spellings: Mapping[str, str], *, raw: bool = False) -> None:
        self._vocab, self._raw, self._as_source = vocab, raw, vocab.as_source
        self._spellings = {self._as_source(word): spelling for word, spelling in spellings.items()}

    def __call__(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if self._as_source(line.model_input) != line.model_input:
                _write_characters(line, self._as_source)
            if self._raw:
                continue
            if _CONTROLS.search(line.model_input):
                _rewrite(line, partial(_CONTROLS.sub, self._kept))
            if self._vocab.names_language(line.text):
                continue
            if unknown := self._vocab.unknown(line.model_input):
                _write_characters(line, partial(_simpler, unknown))
            if not (line.prefix or line.wording.phrases or line.match):
                line.model_input = _APOSTROPHE.sub("'", line.model_input)
                if self._spellings:
                    _rewrite(line, partial(_WORD.sub, self._spelled))

    def _spelled(self, match: regex.Match[str]) -> str:
        """Returns the usual spelling of a word, with the word's capitalisation."""
        word: str = match.group()
        spelling = self._spellings.get(lower(word))
        if spelling is None:
            return word
        if word == lower(word):
            return spelling
        return upper(spelling) if len(word) > 1 and in_capitals(word) else capitalized(spelling)

    def _kept(self, run: regex.Match[str]) -> str:
        """Returns the characters to keep from a run of control characters."""
        around = run.string[max(0, run.start() - 1) : run.start()] + run.string[run.end() : run.end() + 1]
        copied, knows = self._vocab.lacking(around), self._vocab.covers
        return "".join(c for c in run.group() if (copied and unicodedata.category(c) == "Cf") or knows(c))


def _rewrite(line: Line, write: Callable[[str], str]) -> None:
    """Rewrites the words of a line; each may become none, one or several."""
    words = line.model_input.split()
    written = list(map(write, words))
    if written == words:
        return
    rest = iter(written)
    line.model_input = re.sub(r"\S+", lambda word: next(rest), line.model_input)
    places = numbered(words, (range(len(words_in(text))) for text in written))
    if places != list(range(len(places))):
        line.undo.append(partial(_with_words, places))


def _simpler(unknown: Container[str], character: str) -> str:
    return source_text(character) if character in unknown else character


def _write_characters(line: Line, write: Callable[[str], str]) -> None:
    """Rewrites the characters of a line; each may become none, one or several."""
    written = list(map(write, line.model_input))
    text = "".join(written)
    begins = [match.start() for match in WORD.finditer(line.model_input)]
    origins = [place for place, characters in enumerate(written) for _ in characters]
    places = [max(0, bisect_right(begins, origins[match.start()]) - 1) for match in WORD.finditer(text)]
    line.model_input = text
    if places != list(range(len(begins))):
        line.undo.append(partial(_with_words, places))


def _with_words(places: Sequence[int], translation: Translation) -> Translation:
    """Returns a translation with links to the original line's words; `places` holds their numbers by those that the
    model saw."""
    links = translation.alignment
    return replace(translation, alignment=links and tuple(sorted({(places[i], j) for i, j in links})))
