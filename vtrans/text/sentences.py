"""Where sentences begin and end, without knowing their language."""

from __future__ import annotations

import regex

SENTENCE_ENDS = ".!?:\u2026"
BETWEEN = " \"'\u00ab\u00bb\u201c\u201d\u201e\u2018\u2019\u00bf\u00a1()[]-\u2013\u2014"  # after the end of a sentence

# The white space after a sentence, unless an abbreviation ends there. Quotes and brackets may stand before it.
_END = regex.compile(
    r"(?<=(?<!\.)[.!?][\"'\u00bb\u201c\u201d\u2019)\]]*)\s+(?=[\"'(\[\u00ab\u00bf\u00a1\u2018\u201c\u201e]?[\p{Lu}\p{Lt}\p{Lo}\d])"
    r"|(?<=[\u3002\uff01\uff1f][\u201d\u2019\u300d\u300f\uff09]*)\s*(?![\s\u201d\u2019\u300d\u300f\uff09]|$)"
)
_ABBREVIATION = regex.compile(
    r"(?<!\w)(?:\p{L}|(?:\p{L}\.\s?)+\p{L}|\d{1,2}|M(?:rs?|s|me|lle)|Dr|Prof|St|Sr|Jr|Gen|Sen|Rev|Capt|Lt|Col|Mt|No|Nos|Nr"
    r"|Gov|Rep|Sgt|Ft|max|ext|vs|etc|cf|ca|approx|Fig|Vol|pp?|ed|eds|Inc|Ltd|Co|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|bzw|usw|evtl|ggf"
    r"|inkl|Str|Hr|Fr|Tel|Abs|Art|Bd|Sra|Mio|Mrd)\.$"
)
# Abbreviations that may end a sentence, and English words that then begin another. `P.S. I` and `K. He, X. Li` do not.
_LAST = regex.compile(
    r"(?<!\w|\p{Ll}\.\s?)(?:(?!P\.\s?S|N\.\s?B)(?:\p{Lu}\.\s?)*\p{Lu}|[ap]\.m|No|etc|Inc|Ltd|Co|[JS]r)\.$"
)
BEGINNING = regex.compile(
    r"(?:He|She|It|We|They|You|I|The|This|That|These|There|My|His|Her|Our|Their|And|But|So|Then|If|What|Why|How|Please)"
    r"(?![\w.,-])"
)
_LONGEST_ABBREVIATION = 20  # characters


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text, each with the white space after it."""
    parts, begin = [], 0
    for end in _END.finditer(text):
        before = text[begin : end.start()]
        ends = BEGINNING.match(text, end.end()) and _LAST.search(before[-_LONGEST_ABBREVIATION:])
        if ends or not ends_in_abbreviation(before):
            parts.append(text[begin : end.end()])
            begin = end.end()
    return [*parts, text[begin:]]


def ends_in_abbreviation(text: str) -> bool:
    """Returns whether a text ends in an abbreviation, which does not end its sentence."""
    return _ABBREVIATION.search(text[-_LONGEST_ABBREVIATION:]) is not None


def begins_sentence(before: str) -> bool:
    """Returns whether a sentence begins after this part of a line."""
    rest = before.rstrip(BETWEEN)
    return not rest or rest[-1] in SENTENCE_ENDS
