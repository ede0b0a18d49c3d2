"""Long lines in pieces."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from translators import (
    WORDS,
    vocabulary,
)

from vtrans.decoding.sources import cut_long


@given(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join), st.integers(1, 12))
def test_pieces_are_within_the_limit_and_lose_nothing(line: str, limit: int) -> None:
    ids = vocabulary().encode(line)
    pieces = cut_long(ids, limit, vocabulary())
    assert [i for piece in pieces for i in piece] == ids
    assert all(0 < len(piece) <= limit for piece in pieces)
    if limit >= 8:  # no word is longer than half of the limit
        assert all(vocabulary().piece(piece[0]).startswith("\u2581") for piece in pieces)


class CountedList(list[int]):
    """A list that counts the items copied by its slices, and by theirs."""

    copied = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        if not isinstance(at, slice):
            return found
        CountedList.copied += len(found)
        return CountedList(found)


def test_cutting_a_line_copies_each_subword_once() -> None:
    ids = CountedList([vocabulary().encode("dog")[0]] * 4321)
    CountedList.copied = 0
    assert list(map(len, cut_long(ids, 10, vocabulary()))) == [10] * 432 + [1]
    assert CountedList.copied == 4321
