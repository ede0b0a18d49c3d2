"""Where sentences begin and end.

They end where sentencex (Wikimedia, about 300 languages) and Unicode end them. Every character is kept, so that the
sentences make up the text again.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

from vtrans.text.languages import base
from vtrans.text.words import is_wide

# Characters that sentencex sees at a time. It takes quadratic time for quotation marks, and no other thread runs then.
WINDOW = 5000

# Marks that always end a sentence. sentencex lacks some, such as the Khmer full stop, but none in the place of U+3002.
_MARK = regex.compile(r"[\p{SB=STerm}--[!?]]|\u037e", regex.V1)
# One or two digits or a single letter with a full stop are an ordinal, an initial or an item of a list.
_GOES_ON = regex.compile(r"(?<=(?<![\w\p{M}])(?:\p{Nd}{1,2}|\p{L}\p{M}*)\p{SB=ATerm}\s*)")
_QUOTES = regex.compile(r"[\p{Pi}\p{Pf}\"']+")  # they are as wide in all scripts
_BEGIN = regex.compile(r"(?<=(?:^|[\p{STerm}:\u2026])[\s\p{Pd}[\p{P}--\p{SB=SContinue}]]*)", regex.V1)


def sentences(text: str, language: str = "") -> list[str]:
    """Returns the sentences of a text, each with the white space after it. Its language may be unknown, ""."""
    found, begin, end = [], 0, 0
    for part in _parts(_MARK.sub("\u3002", text), base(language)):
        end += len(part)
        if end == len(text) or not _GOES_ON.match(text, end):
            found.append(text[begin:end])
            begin = end
    return found


def _parts(text: str, language: str) -> Iterator[str]:
    """Yields the sentences of sentencex. A window begins where a sentence does, unless one is longer than a window."""
    import sentencex  # when the first text is cut

    begin = place = 0  # of the sentence, and of the window
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
    """Returns what separates two sentences of a translation that `given` separates in the source: the same white space
    after the same mark, else a blank if the script of the translation has blanks. `source` is the first sentence,
    `before` its translation, and `after` the translation of the second one."""
    end, begin = _QUOTES.sub("", before[-9:]), _QUOTES.sub("", after[:9])
    has_blank = not is_wide(end[-1:] + begin[:1])
    is_same = before[-1:] == source[-1:] and (has_blank or is_wide(source[-9:]))
    return given if is_same or given not in ("", " ") else " " * has_blank


def begins_sentence(before: str) -> bool:
    """Returns whether a sentence begins after this part of a line."""
    return _BEGIN.match(before, len(before)) is not None
