"""Splits text into sentences and what lies between them.

A line ends at each character that some program takes for a line end. Within a line, sentences end where sentencex
(Wikimedia, about 300 languages) ends them; it keeps every character, so that the parts make up the text again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import sentencex

_LINE_END = re.compile("([\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+)")


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
