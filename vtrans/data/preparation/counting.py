"""Counts number marks, quotation marks, titles and copied text in sentence pairs, for storage/pair_counts.py.

Only Unicode properties are used. Marks are counted in unambiguous numbers: `1,234,567`, `12,500`, `0.25` and `3.7`, but
not in `1.234`, nor in `3.11` after a capitalised word, which may be a version.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

import regex

from vtrans.storage.pair_counts import CASED, IDENTIFIER, NAME, PairCounts

MOST_PAIRS = 100_000  # maximum number of pairs in which words are counted
RARE = 3  # maximum occurrences of a rare name; models learn the translations of others
LONGEST_HEADING, FEWEST_WORDS, SHORT_WORD = 60, 2, 3  # characters; long words after the first; letters of a short one
MOST_QUOTED = 3  # maximum number of quoted words that may be a name
_INSIDE = regex.compile(r"[\p{Ll}\p{N},;]$")  # the end of a word inside a sentence
_END = regex.compile(r"[\p{STerm}:;,\u2026][\p{Quotation_Mark}\p{Pe}]*$")
_QUOTES = '"\u00ab\u00bb\u2018\u201a-\u201f\u2039\u203a\u300c-\u300f\uff02\uff62\uff63'  # but for apostrophes
# Where a number or a quotation may begin; no apostrophe after a letter, as in "don't". A set of characters without \d,
# which would make the search twice as slow; beyond the Basic Multilingual Plane, all characters count as digits.
_DIGITS = "".join(filter(str.isdecimal, map(chr, range(1 << 16)))) + "\U00010000-\U0010ffff"
_BEGINS = re.compile(rf"[{_DIGITS}{_QUOTES}'\u2019](?<![^\W_]['\u2019])")
_QUOTED = regex.compile(
    rf"((?:[{_QUOTES}]|(?<![\p{{L}}\p{{N}}])['\u2019])\s?)"
    rf"(\S(?:[^'\u2019{_QUOTES}]|(?<=\p{{L}})['\u2019](?=\p{{L}})){{0,300}}?)(\s?['\u2019{_QUOTES}])(?!\p{{Ll}})"
)
_GROUP, _DECIMAL = "(?P<group>[.,'\u2019\u060c\u066c \u00a0\u2009\u202f])", "(?P<decimal>[.,\u066b])"
_NUMBER = regex.compile(
    rf"(?<![{CASED}\p{{N}}_.,/:'\u2019#+-])(?<!\p{{N}}\s)(?P<label>(?<=\p{{Lu}}\S* ))?"
    rf"(?>\d+(?:[.,'\u2019\u060c\u066b\u066c \u00a0\u2009\u202f]\d+)*)(?![{CASED}\p{{N}}_/:-]|[.,]\w)"
)
_FORM = regex.compile(
    rf"(?P<plain>[3-9]\d00)|(?P<grouped>[3-9]{_GROUP}\d00)|[1-9]\d{{0,2}}{_GROUP}\d00"
    rf"|[1-9]\d{{0,2}}{_GROUP}\d{{3}}(?:(?P=group)\d{{3}})*(?:(?P=group)\d{{3}}|(?!(?P=group)){_DECIMAL}\d+)"
    rf"|[1-9]\d?{_GROUP}(?:\d\d(?P=group))+\d{{3}}|0{_DECIMAL}\d+|\d+{_DECIMAL}(?:\d|[6-9]\d|\d{{4,}})"
)
_Rows = defaultdict[str, Counter[str]]


class Counting:
    """Counts pairs. Their order and division into batches do not matter.

    Names and identifiers are counted in a sample of at most about MOST_PAIRS pairs, chosen by a hash of each source. If
    the sample is one half of the pairs, half as many occurrences count as rare.
    """

    def __init__(self, pairs: int) -> None:
        self._one_of = max(1, -(-pairs // MOST_PAIRS))
        self._words = set[str]()
        self._rows = self._names, self._copied, self._src, self._tgt = [_Rows(Counter) for _ in range(4)]

    def add(self, pairs: Iterable[tuple[str, ...]]) -> None:
        for src, tgt, *_ in pairs:
            for text in _count_forms(src, self._src):
                if len(text.split()) <= MOST_QUOTED and not _END.search(text):
                    self._copied["quoted"][_fate(text, tgt)] += 1
            _count_forms(tgt, self._tgt)
            if self._one_of == 1 or crc32(src.encode()) % self._one_of == 0:
                self._count_words(src, tgt)

    def merge(self, other: Counting) -> None:
        """Adds the counts of other pairs of the same text."""
        self._words |= other._words
        for ours, theirs in zip(self._rows, other._rows, strict=True):
            for name, row in theirs.items():
                ours[name].update(row)

    def counts(self) -> PairCounts:
        """Returns the counts of all pairs so far."""
        most = max(1, RARE // self._one_of)
        rare = [row for name, row in self._names.items() if row.total() <= most and name.lower() not in self._words]
        copied = self._copied | ({"names": sum(rare, Counter[str]())} if rare else {})
        return PairCounts(*({name: dict(row) for name, row in part.items()} for part in (copied, self._src, self._tgt)))

    def _count_words(self, src: str, tgt: str) -> None:
        self._words.update(words := src.split())
        if src[1:].islower() and "_" not in src:
            return
        is_sentence = _is_end(src[-3:])
        for before, word in pairwise(("", *words)):
            if not (rest := word[1:]):
                continue
            if not rest.islower() or "_" in rest:
                for identifier in IDENTIFIER.findall(word):
                    self._copied["identifiers"][_fate(identifier, tgt)] += 1
            if is_sentence and word[0].isupper() and _INSIDE.search(before) and (name := NAME.match(word)):
                self._names[name[0]][_fate(name[0], tgt)] += 1


def _fate(text: str, tgt: str) -> str:
    """Returns `verbatim` if a text occurs in the translation without an adjacent cased letter, digit or `_`; otherwise
    `changed`."""
    at = tgt.find(text)
    while at >= 0:
        around = tgt[max(at - 1, 0) : at] + tgt[at + len(text) : at + len(text) + 1]
        if around.lower() == around.upper() and not any(c == "_" or c.isdecimal() for c in around):
            return "verbatim"
        at = tgt.find(text, at + 1)
    return "changed"


@lru_cache(1 << 12)
def _is_end(text: str) -> bool:  # the last characters of a line
    return _END.search(text) is not None


def _count_forms(text: str, side: _Rows) -> list[str]:
    """Counts the quotation marks, numbers and heading of a line. Returns the quoted texts."""
    quotes = []
    if _BEGINS.search(text):
        quotes = _QUOTED.findall(text)
        for number in _NUMBER.finditer(text):
            _count_number(number[0], number["label"] is not None, side)
    for opening, _, closing in quotes:
        if len(opening) == len(closing):
            side["quotes"][opening + closing] += 1
    if len(text) <= LONGEST_HEADING and text.count(" ") >= FEWEST_WORDS and not _is_end(text[-3:]):
        words = text.split()[1:]
        initials = "".join(word[0] for word in words if len(word) > SHORT_WORD and word[0].isalpha())
        if len(initials) >= FEWEST_WORDS and initials.lower() != initials.upper():
            side["headings"]["titles" if initials.isupper() else "others"] += 1
    return [quoted for _, quoted, _ in quotes]


def _count_number(number: str, may_be_version: bool, side: _Rows) -> None:
    """Counts the digits and marks of a number, and whether thousands from 3,000 to 9,900 have a mark, which excludes
    years."""
    side["digits"][chr(ord(number[0]) - int(number[0]))] += 1
    form = _FORM.fullmatch("".join(str(int(c)) if c.isdecimal() else c for c in number))
    if not form:
        return
    if form["group"]:
        side["group"][form["group"]] += 1
    if form["decimal"] and (form["group"] or not may_be_version):
        side["decimal"][form["decimal"]] += 1
    if form["grouped"] or (form["plain"] and not may_be_version):
        side["thousands"]["grouped" if form["grouped"] else "plain"] += 1
