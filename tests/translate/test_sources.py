"""Long lines in pieces, and the limits of translations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st
from translators import WORDS, FakeEngine, learned, translator, vocabulary

from vtrans.config import SearchConfig
from vtrans.lines.alignments import AlignWords
from vtrans.lines.line import Line
from vtrans.lines.pieces import EXTRA_LENGTH, CutIntoPieces, SourceReader, cut_long
from vtrans.search.loop import Hypothesis
from vtrans.text.sentences import sentences
from vtrans.translate.translation import TranslateOptions


@example("a" + 6 * " catdog", 8)  # of two subwords each, so that a cut at the limit divides one
@given(st.lists(st.sampled_from([*WORDS, "catdog", "dogcat"]), max_size=30).map(" ".join), st.integers(1, 12))
def test_pieces_are_within_the_limit_and_lose_nothing(line: str, limit: int) -> None:
    ids = vocabulary().encode(line)
    pieces = cut_long(ids, limit, vocabulary(), limit)
    assert [i for piece in pieces for i in piece] == ids
    assert all(0 < len(piece) <= limit for piece in pieces)
    if limit >= 8:  # no word is longer than half of the limit
        assert all(vocabulary().piece(piece[0]).startswith("\u2581") for piece in pieces)


@given(st.lists(st.sampled_from(["ก", "กี่", "e\u0301\u0323", "狗", "👩‍🚒", "🇹🇭", "각", "a"]), max_size=40).map("".join))
def test_text_without_blanks_is_cut_between_graphemes(text: str) -> None:
    vocab, limit = vocabulary(), 16  # no grapheme has more subwords
    ids = vocab.encode(text)
    pieces = cut_long(ids, limit, vocab, limit)
    assert [i for piece in pieces for i in piece] == ids
    assert all(len(piece) <= limit for piece in pieces)
    graphemes = [regex.findall(r"\X", vocab.decode(piece)) for piece in pieces]
    assert [grapheme for part in graphemes for grapheme in part] == regex.findall(r"\X", vocab.decode(ids))


def cut(line: str, usual: int, max_source: int) -> list[str]:
    """Returns the pieces of a line."""
    made = translator(max_source=max_source)
    asked = Line(1, line)
    CutIntoPieces(made.reader, vocabulary(), TranslateOptions(), usual, "th").before([asked])
    return [vocabulary().decode(piece.source.tokens[:-1]) for piece in asked.pieces]


def test_scripts_without_marks_are_cut_at_blanks() -> None:
    parts = ["กกกก", "ขขขข", "คคคค"]
    size = len(vocabulary().encode(parts[0]))
    line = " ".join(parts)
    assert cut(line, 4 * size, 1024) == [line]
    assert cut(line, size + 2, 1024) == parts
    assert cut(line, size // 2, 1024) == parts  # a word is only divided if it has more than `max_source` subwords
    assert cut("".join(parts), size, 1024) == ["".join(parts)]
    latin = "a dog runs in the park"
    assert cut(latin, 3, 1024) == [latin]


@pytest.mark.parametrize(
    ("line", "translations", "joined"),
    [
        ("A dog. A cat.", ["ein Hund", "läuft"], "ein Hund läuft"),
        ("A dog. A cat.", ["狗。", "猫。"], "狗。猫。"),
        ("A dog.  A cat.", ["狗。", "猫。"], "狗。  猫。"),
        ("狗。猫。", ["ein Hund", "läuft"], "ein Hund läuft"),
        ("狗。猫。", ["犬。", "5€"], "犬。5€"),
        ("A dog. A cat.", ["개가.", "고양이."], "개가. 고양이."),
        ("A dog. A cat. A dog.", ["狗", "", "猫"], "狗猫"),
        ("狗\t猫\t狗", ["犬", "犬", "犬"], "犬\t犬\t犬"),
        ("狗。 猫。", ["犬。", "猫。"], "犬。 猫。"),  # after the same mark as in the source
        ("A dog! A cat.", ["狗!", "猫。"], "狗!猫。"),  # a mark of both scripts, which normalization may make
        ("狗! 猫。", ["犬!", "猫。"], "犬! 猫。"),
        ("“A dog.” “A cat.”", ["“狗。”", "“猫。”"], "“狗。”“猫。”"),
        ("एक।दो।", ["एक।", "दो।"], "एक।दो।"),
        ("एक।दो।", ["One.", "Two."], "One. Two."),
    ],
)
def test_blanks_between_pieces_are_those_of_the_target(line: str, translations: list[str], joined: str) -> None:
    vocab = vocabulary()
    stage = CutIntoPieces(translator().reader, vocab, TranslateOptions(), 2)
    asked = Line(1, line)
    stage.before([asked])
    for piece, text in zip(asked.pieces, translations, strict=True):
        piece.hypotheses = [Hypothesis(tuple(vocab.encode(text)), -1.0, -1.0, True, ())]
    stage.after([asked])
    assert asked.translations[0].text == joined


def test_marks_of_a_row_stay_and_their_words_have_no_links() -> None:
    line, words = Line(1, "a dog | cat | runs |"), list[tuple[list[int], list[int]]]()
    vocab = learned(["a dog | cat | runs |", "ein Hund"])

    class Rows(FakeEngine):
        def align(self, pairs: Any, given: Any, batch_tokens: int) -> Any:
            words.extend(given)
            return super().align(pairs, given, batch_tokens)

    engine: Any = Rows(vocab)
    stages = [AlignWords(engine, 100), CutIntoPieces(SourceReader(engine, SearchConfig()), vocab, TranslateOptions())]
    stages[1].before([line])
    for piece in line.pieces:
        piece.hypotheses = [Hypothesis(tuple(vocab.encode("ein Hund")), -1.0, -1.0, True, ())]
    for stage in reversed(stages):
        stage.after([line])
    assert line.translations[0].text == "ein Hund | ein Hund | ein Hund |"
    assert [({*src}, {*tgt}) for src, tgt in words] == [({0, 1}, {0, 1}), ({3}, {3, 4}), ({5}, {6, 7})]


def test_a_line_that_is_longer_than_usual_is_translated_sentence_by_sentence() -> None:
    made, line = translator(), "A dog runs.  A cat sleeps in the park.   A dog sleeps."
    parts = [part.strip() for part in sentences(line)]

    def stage(usual: int, **options: Any) -> CutIntoPieces:
        return CutIntoPieces(made.reader, vocabulary(), TranslateOptions(**options), usual)

    def piece_texts(stage: CutIntoPieces, asked: Line) -> list[str]:
        stage.before([asked])
        return [vocabulary().decode(piece.source.tokens[:-1]) for piece in asked.pieces]

    length, cut = len(vocabulary().encode(line)), Line(1, line)
    assert piece_texts(stage(length - 1), cut) == [vocabulary().decode(vocabulary().encode(part)) for part in parts]
    assert cut.ids == vocabulary().encode(line)
    assert (cut.counts.cut, cut.warnings) == (0, [])
    for other in (stage(length), stage(0), stage(5, raw=True)):
        assert len(piece_texts(other, Line(1, line))) == 1
    assert len(piece_texts(stage(5), Line(1, line, prefix="x"))) == 1
    for piece in cut.pieces:
        piece.hypotheses = [Hypothesis(tuple(vocabulary().encode("ein Hund")), -1.0, -1.0, True, ())]
    stage(5).after([cut])
    assert cut.translations[0].text == "ein Hund  ein Hund   ein Hund"
    for first, second in ((" |  ", " | "), ("\t\t", " | |\t")):
        row = Line(1, f"A dog{first}A cat{second}A dog")
        assert piece_texts(stage(0), row) == ["A dog", "A cat", "A dog"]
        assert [piece.gap for piece in row.pieces] == [first, second, ""]
    row = Line(1, "A dog \\| | | A cat \\| |")
    assert piece_texts(stage(0), row) == [
        vocabulary().decode(vocabulary().encode(f"{x} \\|")) for x in ("A dog", "A cat")
    ]
    for piece in row.pieces:
        piece.hypotheses = [Hypothesis(tuple(vocabulary().encode("ein Hund")), -1.0, -1.0, True, ())]
    stage(0).after([row])
    assert row.translations[0].text == "ein Hund | | ein Hund |"


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
    (piece,) = SourceReader(engine, search).pieces(line, 70, None)
    assert piece.source.limit == limit
    for further in (3, 10, 99):
        (piece,) = SourceReader(engine, search, further.__add__).pieces(line, 70, None)
        assert piece.source.limit == min(limit, max(4 + further, search.min_length + 1))
