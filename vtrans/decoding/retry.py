"""Translations that loop or do not end: when a line is searched a second time, and which result is kept.

A search is repeated with the no-repeat rule, `no_repeat_ngram=RETRY_NGRAM`, and otherwise equal settings, when its
best hypothesis reaches its limit without EOS or loops. A hypothesis loops when some n-gram of 1 to LOOP_NGRAM subwords
occurs at least LOOP_TIMES times in a row in it, and the source has no string of up to SOURCE_STRETCH characters at
least half as many times in a row: "ha ha ha ha ha", dot leaders and rows of zeros may be translated as they are.
Subwords of a given prefix do not count.

The second result replaces the first only if its best hypothesis is better: one that ended is better than one that did
not, then one that does not loop is better than one that does. Of equal ones the first is kept.

In 28,998 pairs of Multi30k and 100,000 of Tatoeba (English to German, 8,000 subwords) no n-gram of the true
translations occurs more than 3 times in a row.
"""

from __future__ import annotations

from collections.abc import Sequence

RETRY_NGRAM = 3
LOOP_NGRAM = 4
LOOP_TIMES = 5
SOURCE_STRETCH = 50


def loops(tokens: Sequence[int], source: str) -> bool:
    """Whether these subwords of a translation, prefix and EOS left out, repeat themselves and their source does not."""
    times = times_in_a_row(tokens, LOOP_NGRAM)
    return times >= LOOP_TIMES and 2 * times_in_a_row(source, SOURCE_STRETCH) < times


def times_in_a_row(items: Sequence[object], longest: int) -> int:
    """The most times that an n-gram of 1 to `longest` items occurs in a row; 1 where none is repeated."""
    most = 1
    for n in range(1, min(longest, len(items) // 2) + 1):
        alike = 0  # neighbouring items that equal the one n places before
        for item, before in zip(items[n:], items[:-n], strict=True):
            alike = alike + 1 if item == before else 0
            most = max(most, alike // n + 1)
    return most
