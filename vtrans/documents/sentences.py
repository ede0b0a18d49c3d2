"""Splits text into sentences and what lies between them.

A line ends at each character that some program takes for a line end. Within a line, sentences end where sentencex
(Wikimedia, about 300 languages) ends them; it keeps every character, so that the parts make up the text again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import sentencex

from vtrans.wording.protect import NAMES, PLACEHOLDERS, Protection

# A code, such as A-17, COVID-19 or 4K: a word of capitals and digits.
_CODE = r"(?<![\w-])(?=[A-Z./-]{0,30}\d)(?=[\d./-]{0,30}[A-Z])[A-Z\d]{1,30}(?:[./-][A-Z\d]{1,30}){0,5}(?![\w-]|[@/.]\w)"
MARKS = [chr(code) for code in range(0xE000, 0xF900)]
"""Characters for private use, two of which surround the number of an atom (markup.Item)."""

MARKED = re.compile(r"(?P<mark>[\ue000-\uf8ff])[0-9]+(?P=mark)")
PROTECTION = Protection((_CODE, MARKED.pattern, PLACEHOLDERS, NAMES))
"""What is copied to translations."""

_LINE_END = re.compile("([\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+)")


def has_words(sentence: str) -> bool:
    """Returns whether a sentence has letters besides protected text. A model should not see any other sentence: it
    would invent something."""
    return PROTECTION.masked(sentence).has_letters


@dataclass(frozen=True)
class Split:
    """A text as sentences, and the text before, between and after them: one more than sentences."""

    sentences: list[str]
    between: list[str]

    def joined(self, sentences: list[str]) -> str:
        """Returns the text with these sentences in place of its own."""
        woven = [part for pair in zip(self.between, [*sentences, ""], strict=True) for part in pair]
        return "".join(woven)


def split_sentences(text: str, language: str) -> Split:
    """Returns a text of this language as sentences without the white space around them."""
    sentences, between = [], [""]
    for number, line in enumerate(_LINE_END.split(text)):
        parts = [line] if number % 2 else sentencex.segment(language.partition("-")[0], line)
        for part in parts:
            sentence = part.strip()
            if not sentence:
                between[-1] += part
                continue
            begin = part.index(sentence)
            between[-1] += part[:begin]
            sentences.append(sentence)
            between.append(part[begin + len(sentence) :])
    return Split(sentences, between)
