"""Decides whether a translation loops.

A hypothesis loops if an n-gram of 1 to LOOP_NGRAM subwords occurs at least LOOP_TIMES times in a row, unless a string
of up to SOURCE_STRETCH characters occurs at least half as many times in a row in the source: "ha ha ha ha ha", dot
leaders and rows of zeros may be translated as they are.

In 28,998 pairs of Multi30k and 100,000 of Tatoeba (English to German, 8,000 subwords), no n-gram occurs more than 3
times in a row in a reference translation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

LOOP_NGRAM = 4
LOOP_TIMES = 5
SOURCE_STRETCH = 50


def loops(tokens: Sequence[int], source: Callable[[], str]) -> bool:
    """Returns whether the subwords of a translation, without prefix and EOS, loop although their source does not."""
    if len(tokens) - len(set(tokens)) < LOOP_TIMES - 1:  # the subwords of a loop occur that often
        return False
    times = times_in_a_row(tokens, LOOP_NGRAM)
    return times >= LOOP_TIMES and 2 * times_in_a_row(source(), SOURCE_STRETCH) < times


def times_in_a_row(items: Sequence[object], longest: int) -> int:
    """Returns how often an n-gram of 1 to `longest` items occurs in a row, at most; 1 if none is repeated."""
    most = 1
    for n in range(1, min(longest, len(items) // 2) + 1):
        equal = 0  # consecutive items that equal the item n places before
        for item, before in zip(items[n:], items[:-n], strict=True):
            equal = equal + 1 if item == before else 0
            most = max(most, equal // n + 1)
    return most
