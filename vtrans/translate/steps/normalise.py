"""Second step: normalises lines to the form of the training text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import partial

import regex

from vtrans.text.case import capitalized, in_capitals, lower, upper
from vtrans.text.normalization import source_text
from vtrans.text.vocabulary import Vocabulary
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
        self._vocab, self._raw = vocab, raw
        self._spellings = {vocab.as_source(word): spelling for word, spelling in spellings.items()}

    def __call__(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text, is_read = line.model_input, not self._raw and not self._vocab.names_language(line.text)
            if not (text.isascii() and text.isprintable()):
                text = self._vocab.as_source(text)
                if not self._raw:
                    text = re.sub(r"\S+", lambda word: _CONTROLS.sub(self._kept, word.group()), text)
                if is_read and (unknown := self._vocab.unknown(text)):
                    text = "".join(source_text(c) if c in unknown else c for c in text)
            if is_read and not (line.prefix or line.wording.phrases or line.match):
                text = _APOSTROPHE.sub("'", text)
                text = _WORD.sub(self._spelled, text) if self._spellings else text
            if text != line.model_input:
                line.undo.append(partial(Translation.of_line, line=line.model_input, seen=text))
                line.model_input = text

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
