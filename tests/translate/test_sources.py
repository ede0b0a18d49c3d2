"""Long lines in pieces, and the limits of translations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from translators import (
    WORDS,
    translator,
    vocabulary,
)

from vtrans.config import SearchConfig
from vtrans.data.preparation.learn_vocabulary import learn
from vtrans.engines.engine import Source
from vtrans.errors import InputError
from vtrans.lines.line import MOST_PHRASES, Line, Piece
from vtrans.lines.pieces import EXTRA_LENGTH, CutIntoPieces, SourceReader, cut_long
from vtrans.search.loop import Hypothesis
from vtrans.translate.translation import TranslateOptions
from vtrans.wording.phrases import Wording


@example("a" + 6 * " catdog", 8)  # of two subwords each, so that a cut at the limit divides one
@given(st.lists(st.sampled_from([*WORDS, "catdog", "dogcat"]), max_size=30).map(" ".join), st.integers(1, 12))
def test_pieces_are_within_the_limit_and_lose_nothing(line: str, limit: int) -> None:
    ids = vocabulary().encode(line)
    pieces = cut_long(ids, limit, vocabulary())
    assert [i for piece in pieces for i in piece] == ids
    assert all(0 < len(piece) <= limit for piece in pieces)
    if limit >= 8:  # no word is longer than half of the limit
        assert all(vocabulary().piece(piece[0]).startswith("\u2581") for piece in pieces)


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. dog runs in the park.", "a dog. a cat sleeps in the park?", "in the park a dog"],
        ['a dog runs a cat sleeps a dog runs.")', '"in the park a cat runs a cat sleeps!"', "a dog"],
        ["a dog runs in the park a cat sleeps 。", "a dog runs."],
        ["a 5.5 a dog runs in the park a cat: a", "dog"],  # no sentence ends, so it is cut before the last word
    ],
)
def test_a_long_line_is_cut_at_the_ends_of_sentences(sentences: list[str]) -> None:
    line = " ".join(sentences)
    vocab = learn([line] * 20, size=None, kind="bpe", coverage=1.0, normalization="nmt_nfkc")
    ids = vocab.encode(line.replace(" 。 ", "。"))
    pieces = [vocab.decode(piece).strip() for piece in cut_long(ids, len(ids) - 1, vocab)]
    assert pieces == [sentence.replace(" 。", "。") for sentence in sentences]
    assert cut_long(ids, len(ids), vocab) == [ids]


@pytest.mark.parametrize(
    ("src", "tgt", "before", "short"),
    [(40, 9, 0, True), (40, 10, 0, False), (39, 1, 0, False), (45, 9, 10, False), (40, 0, 0, False)],
)
def test_a_translation_that_is_far_shorter_is_counted(src: int, tgt: int, before: int, short: bool) -> None:
    line = Line(1, "x")
    line.before = [7] * before
    line.pieces = [
        Piece(line, Source([7] * length, 99, "1/0"), [Hypothesis((7,) * found, -1.0, -1.0, True, ())])
        for length, found in ((5, 5), (src, tgt))
    ]
    CutIntoPieces(translator().reader, vocabulary(), TranslateOptions()).after([line])
    assert line.counts.short == short


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


@pytest.mark.parametrize(
    ("search", "limit"),
    [
        (SearchConfig(), 4 + EXTRA_LENGTH),
        (SearchConfig(max_ratio=3), 15),
        (SearchConfig(max_ratio=1.5), 8),
        (SearchConfig(max_ratio=0.01), 1),
        (SearchConfig(max_ratio=3, max_length=9), 9),
        (SearchConfig(max_ratio=3, min_length=20), 20 + EXTRA_LENGTH),
        (SearchConfig(max_ratio=1000), 70),
    ],
    ids=str,
)
def test_the_limit_is_above_the_source_or_a_multiple_of_it(search: SearchConfig, limit: int) -> None:
    engine: Any = SimpleNamespace(src_vocab=vocabulary(), tgt_vocab=vocabulary(), max_length=70, tags={}, languages=[])
    line = Line(1, "")
    line.ids = [4, 5, 6, 7]
    (source,) = SourceReader(engine, search).sources(line)
    assert source.limit == limit


@pytest.mark.parametrize(("times", "required"), [(MOST_PHRASES, True), (MOST_PHRASES + 1, False)])
def test_the_search_must_not_require_one_code_too_often(times: int, required: bool) -> None:
    both = vocabulary()
    engine: Any = SimpleNamespace(src_vocab=both, tgt_vocab=both, max_length=None, tags={}, languages=[])
    line = Line(1, "")
    line.ids = vocabulary().encode("dog " * times)
    line.wording = Wording(terms=(("cat",),), codes={"dog": times})
    (source,) = SourceReader(engine, SearchConfig(max_source=999)).sources(line)
    assert len(source.phrases) == 1 + required
    assert not required or source.phrases[1].times == times


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (SearchConfig(max_length=1, min_length=1), r"`max_length`.*`min_length`.*1"),
        (SearchConfig(max_length=99, min_length=70), r"`min_length`.*70"),
    ],
    ids=str,
)
def test_the_limit_that_leaves_no_room_is_named(search: SearchConfig, message: str) -> None:
    engine: Any = SimpleNamespace(src_vocab=vocabulary(), tgt_vocab=vocabulary(), max_length=70, tags={}, languages=[])
    with pytest.raises(InputError, match=message):
        SourceReader(engine, search)
