"""Sentence splitting.

Sentences end where sentencex (Wikimedia, about 300 languages) and Unicode end them. Every character is kept: joined,
the sentences are the text.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

from vtrans.text.languages import base
from vtrans.text.words import is_wide

# Characters per call of sentencex, which takes quadratic time for quotation marks and blocks all other threads.
WINDOW = 5000

# Marks that always end a sentence. sentencex lacks some, such as the Khmer full stop, so it sees all as U+3002.
_MARK = regex.compile(r"[\p{SB=STerm}--[!?]]|\u037e", regex.V1)
# A full stop after one or two digits or a single letter (an ordinal, an initial, a list item) ends no sentence.
_GOES_ON = regex.compile(r"(?<=(?<![\w\p{M}])(?:\p{Nd}{1,2}|\p{L}\p{M}*)\p{SB=ATerm}\s*)")
_QUOTES = regex.compile(r"[\p{Pi}\p{Pf}\"']+")  # ignored, because they are equally wide in all scripts
_BEGIN = regex.compile(r"(?<=(?:^|[\p{STerm}:\u2026])[\s\p{Pd}[\p{P}--\p{SB=SContinue}]]*)", regex.V1)


def sentences(text: str, language: str = "") -> list[str]:
    """Returns the sentences of a text, each with the white space after it. An empty language means unknown."""
    found, begin, end = [], 0, 0
    for part in _parts(_MARK.sub("\u3002", text), base(language)):
        end += len(part)
        if end == len(text) or not _GOES_ON.match(text, end):
            found.append(text[begin:end])
            begin = end
    return found


def _parts(text: str, language: str) -> Iterator[str]:
    """Yields the sentences of sentencex. A window begins with a sentence, unless the sentence is longer than it."""
    import sentencex  # only when a text is first split

    begin = place = 0  # start of the sentence, and of the window
    while place < len(text):
        parts = sentencex.segment(language, text[place : place + WINDOW])
        if place + WINDOW < len(text):
            del parts[-1]  # the window may cut it
        for part in parts:
            place += len(part)
            yield text[begin:place]
            begin = place
        if not parts:
            place += WINDOW


def gap(given: str, source: str, before: str, after: str) -> str:
    """Returns the white space between two sentences of a translation, given the white space between their sources. It
    stays after the same mark, or if it is more than a space; otherwise it becomes a space, or nothing in a script
    without spaces. `before` translates `source`, the first sentence, and `after` translates the second."""
    end, begin = _QUOTES.sub("", before[-9:]), _QUOTES.sub("", after[:9])
    has_blank = not is_wide(end[-1:] + begin[:1])
    is_same = before[-1:] == source[-1:] and (has_blank or is_wide(source[-9:]))
    return given if is_same or given not in ("", " ") else " " * has_blank


def begins_sentence(before: str) -> bool:
    """Returns whether a sentence begins after this first part of a line."""
    return _BEGIN.match(before, len(before)) is not None
