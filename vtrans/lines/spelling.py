"""Rewrites typed text in the spelling that models know best: straight quotation marks, full names of months, weekdays
and units, and chat abbreviations.

Models that have learned from text with straight double marks take others for rare symbols or for apostrophes. If the
source has single marks, so has the translation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import regex

from vtrans.lines.line import Kept, Line, Stage
from vtrans.lines.unknowns import Characters
from vtrans.text.languages import base
from vtrans.text.sentences import BEGINNING
from vtrans.wording.german_forms import MONTHS, WEEKDAY
from vtrans.wording.protect import Masked, Span

_SINGLE = Kept[bool]()
"""Whether the quotation marks of a line are single."""

_INSIDE = r"(?:[^\"'\u2018\u2019\u201c-\u201f\xab\xbb]|(?<=\w)['\u2019](?=\w))+"
_CURLY = regex.compile(r"(?<!\w)\u201c(?=\S)[^\"\u201c-\u201f]+(?<=\S)\u201d(?!\w)")
# `rock 'n' roll` and `the '80s and '90s` have apostrophes.
_QUOTED = regex.compile(
    rf"(?<![\w'\u2019])['\u2018](?=\p{{L}}[^'\u2019])(?!(?i:em|im|er|cause|cuz|bout|round|til|tis|twas|n)\b){_INSIDE}"
    r"(?<=[^\s\d])['\u2019](?![\w'\u2019])"
)
_MARK = regex.compile(r"(?<!\w)['\u2018\u2019]|['\u2019](?!\w)")  # no apostrophe inside a word
_TO_SINGLE = str.maketrans('„“”«»"', "‚‘’‹›'")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WHOLE = {name[:3]: name for name in (*MONTHS, *_WEEKDAYS)}
_MONTH = r"(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)"
_DAY = r"(?:3[01]|[12]\d|[1-9])(?:st|nd|rd|th)?"
# `I met Jan 2 years ago` has no date.
_NO_UNIT = r"(?!\w)(?! (?!(?:am|and|as|at|but|by|for|from|in|is|of|or|pm|to|until|was|when|will|with)\b)\p{Ll})"
_SHORT = regex.compile(
    r"(?<![\w.,/])(?<!(?<!\d\s?)[\u2013-]\s?)(?<!\b[Tt]he )"
    rf"(?:(?<=\b{_DAY} (?:of )?){_MONTH}(?!\w)(?:\.(?=\s*[\d,]|\s\p{{Ll}}))?"
    rf"|{_MONTH}\.?(?= (?:{_DAY}|\d{{4}}){_NO_UNIT})"
    rf"|{WEEKDAY}\.?(?=[:,]? (?:\d+(?:st|nd|rd|th|[ap]m)?{_NO_UNIT}|{_MONTH}(?!\w)|(?:{'|'.join(MONTHS)}) \d))"
    rf"|{WEEKDAY}\.(?=,?\s\p{{Ll}})|(?<=\b(?i:on|next|last|every|until|by) ){WEEKDAY}(?!\w)(?=[.,!?]?(?:$|\s\p{{Ll}})))"
)
_CHAT = {
    "u": "you", "r": "are", "pls": "please", "plz": "please", "thx": "thanks", "sry": "sorry", "tmrw": "tomorrow",
    "luv": "love", "ppl": "people", "cuz": "because", "tho": "though", "gud": "good", "bday": "birthday",
    "brb": "be right back", "omg": "oh my God", "idk": "I don't know", "np": "no problem", "w/o": "without",
    "im": "I'm", "cant": "can't", "dont": "don't", "doesnt": "doesn't", "didnt": "didn't", "isnt": "isn't",
    "thats": "that's", "whats": "what's", "wanna": "want to", "gonna": "going to", "gotta": "have to",
    "gimme": "give me", "lemme": "let me",
}  # fmt: skip
_CHAT_WORD = regex.compile(
    rf"(?<!\S)(?:{'|'.join(_CHAT)}|(?i:wanna|gimme|lemme|omg|thats|im|dont))(?=[.,!?]*(?:\s|$))"
    r"(?:(?<!\br)|(?<=\b(?:u|you|we|they) r)|(?= (?:u|you|we|they)\b))(?<!\b(?:letters?|the|symbols?|variables?) u)"
)
_UNITS = {
    "hr": "hour", "min": "minute", "sec": "second", "yr": "year", "wk": "week", "tbsp": "tablespoon", "tsp": "teaspoon",
}  # fmt: skip
_UNIT = regex.compile(
    rf"(?<=(?<![\w.,/])(\d++(?:[.,/]\d++)?)\s?)(?<!\d)({'|'.join(_UNITS)})s?+(?!\w)(?:\.(?=\s*[^\s\p{{Lu}}]))?"
)
_APOSTROPHE = regex.compile(r"(?<=\p{L})&(?:#39|#x27|apos|#8217|rsquo);(?=\p{L})")
_FULL = {"Apt": "Apartment", "Capt": "Captain", "Gen": "General", "Gov": "Governor", "Sen": "Senator"}
_ABBREVIATED = regex.compile(r"(?<![\w.])(?:(Capt|Gen|Gov|Sen)\.(?=\s\p{Lu})|(Apt)\.(?=\s?\d))")
# `U.S.`, with the full stop if it ends a sentence there, unless it is the whole line.
_STATE = regex.compile(rf"(?<![\w.])U\.[SK](?=\.)(?:\.(?!\W*$|\s+{BEGINNING.pattern})|(?<=^...)\.)?+(?![\w.]\w)")
_LETTER = regex.compile(r"(?<!\S)[b-hj-qs-tv-z](?!\S)")  # beside which `u` is a letter as well
_TIME = regex.compile(r"(?<![\w.,:/-])(1[0-2]|[1-9])\.(?=[0-5]\d\s?[ap]\.?m(?!\w| I\b))")


class UsualSpelling(Stage):
    """Writes pairs of curly or single quotation marks outside of protected text as straight double ones, and `&#39;` in
    a word as an apostrophe; in English lines also short months, weekdays and units beside a number (`Sat, Dec. 4`, `25
    mins`) and words such as `thx` in full, and `7.30pm` with a colon. A line with a prefix, phrases or a fuzzy match is
    left as it is, and so are single marks beside double ones or beside one without a partner."""

    def __init__(self, characters: Characters, src: str) -> None:
        self._characters, self._is_english = characters, base(src) == "en"
        self._knows_marks = not characters.is_unknown(0, '"')

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.prefix or line.wording.phrases or line.match or not self._characters.may_change(line.text):
                continue
            text = line.seen.text
            apostrophes = {match.span() for match in _APOSTROPHE.finditer(text)}
            line.protected = [span for span in line.protected if span not in apostrophes]
            quoted = [match.span() for match in _CURLY.finditer(text)] if self._knows_marks else []
            if self._knows_marks and not quoted and '"' not in text:
                quoted = [match.span() for match in _QUOTED.finditer(text)]
                if 2 * len(quoted) != sum(1 for _ in _MARK.finditer(text)):
                    quoted = []
                elif quoted:
                    _SINGLE.put(line, True)
            parts = [((place, place + 1), '"') for begin, end in quoted for place in (begin, end - 1)]
            parts += [(span, "'") for span in apostrophes]
            parts += _spelled(text) if self._is_english else ()
            _write(line, sorted(parts))

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if _SINGLE.get(line):
                line.translations = [replace(t, text=t.text.translate(_TO_SINGLE)) for t in line.translations]


def _spelled(text: str) -> Iterator[tuple[Span, str]]:
    """Yields what is spelled differently, and how."""
    for match in () if _LETTER.search(text) else _CHAT_WORD.finditer(text):
        word = _CHAT[match[0].lower()]
        yield match.span(), word[0].upper() + word[1:] if match[0][0].isupper() else word
    for match in _SHORT.finditer(text):
        yield match.span(), _WHOLE[match[0][:3]]
    for match in _ABBREVIATED.finditer(text):
        yield match.span(), _FULL[match[1] or match[2]]
    for match in _STATE.finditer(text) if not text.isupper() or len(text) == 4 else ():
        yield match.span(), match[0].replace(".", "")
    if not any(map(str.isdigit, text)):
        return
    for match in _TIME.finditer(text):
        yield match.span(), f"{match[1]}:"
    for match in _UNIT.finditer(text):
        yield match.span(), _UNITS[match[2]] + "s" * (match[1] != "1")


def _write(line: Line, parts: Sequence[tuple[Span, str]]) -> None:
    """Writes these parts of a line differently, unless they are in protected text."""
    begins = [begin for begin, _ in line.protected]
    parts = [
        (span, new)
        for span, new in parts
        if not (k := bisect_right(begins, span[0])) or line.protected[k - 1][1] <= span[0]
    ]
    if parts:
        text, end = line.seen.text, 0
        written: list[str] = []
        for (begin, stop), new in parts:
            written += [text[end:begin], new]
            end = stop
        ends = [stop for (_, stop), _ in parts]
        shifts = [0, *accumulate(len(new) - (stop - begin) for (begin, stop), new in parts)]
        line.seen = Masked.plain("".join([*written, text[end:]]))
        line.protected = [
            (begin + shifts[bisect_right(ends, begin)], stop + shifts[bisect_right(ends, stop)])
            for begin, stop in line.protected
        ]
