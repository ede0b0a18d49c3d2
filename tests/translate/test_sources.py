"""Long lines in pieces, and the limits of translations."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st
from translators import WORDS, FakeEngine, learned, translator, vocabulary
from typed_lines import passed

from vtrans.config import SearchConfig
from vtrans.engines.engine import Engine
from vtrans.search.loop import Hypothesis
from vtrans.text.sentences import sentences
from vtrans.text.vocabulary import BOS_ID, Vocabulary
from vtrans.translate.steps.annotate import Annotate
from vtrans.translate.steps.line import Line
from vtrans.translate.steps.split import SourceReader, Split, cut_long
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.wording.phrases import NO_WORDING


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


def split(line: str, usual: int, prefix: str = "", **options: Any) -> Line:
    """Returns a line with its pieces."""
    step = Split(translator().reader, vocabulary(), TranslateOptions(**options), usual, "th")
    return passed(line, step, prefix=prefix)


def texts_of(line: Line, vocab: Vocabulary) -> list[str]:
    return [vocab.decode(piece.source.tokens[:-1]) for piece in line.pieces]


def joined(line: Line, texts: Sequence[str], engine: Engine, **options: Any) -> str:
    """Returns the translation of a line whose pieces have these."""
    for piece, text in zip(line.pieces, texts, strict=True):
        piece.hypotheses = [Hypothesis(tuple(engine.tgt_vocab.encode(text)), -1.0, -1.0, True, ())]
    Annotate(engine, TranslateOptions(**options), 100)([line])
    return line.translations[0].text


def test_scripts_without_marks_are_cut_at_blanks() -> None:
    parts, latin = ["กกกก", "ขขขข", "คคคค"], "a dog runs in the park"
    size, whole = len(vocabulary().encode(parts[0])), " ".join(parts)
    for line, usual, pieces in (
        (whole, 4 * size, [whole]),
        (whole, size + 2, parts),
        (whole, size // 2, parts),  # a word is only divided if it has more than `max_source` subwords
        ("".join(parts), size, ["".join(parts)]),
        (latin, 3, [latin]),
    ):
        assert texts_of(split(line, usual), vocabulary()) == pieces


@pytest.mark.parametrize(
    ("line", "translations", "written"),
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
def test_blanks_between_pieces_follow_the_target(line: str, translations: list[str], written: str) -> None:
    assert joined(split(line, 2), translations, translator().engine) == written


def test_marks_of_a_row_stay_and_their_words_have_no_links() -> None:
    words = list[tuple[list[int], list[int]]]()
    vocab = learned(["a dog | cat | runs |", "ein Hund"])

    class Rows(FakeEngine):
        def align(self, pairs: Any, given: Any, batch_tokens: int) -> Any:
            words.extend(given)
            return super().align(pairs, given, batch_tokens)

    engine: Any = Rows(vocab)
    line = passed("a dog | cat | runs |", Split(SourceReader(engine, SearchConfig()), vocab, TranslateOptions()))
    assert joined(line, ["ein Hund"] * 3, engine, alignments=True) == "ein Hund | ein Hund | ein Hund |"
    assert [({*src}, {*tgt}) for src, tgt in words] == [({0, 1}, {0, 1}), ({3}, {3, 4}), ({5}, {6, 7})]


def test_subwords_without_text_have_no_links() -> None:
    vocab = learned(["a dog | cat | runs |", "ein Hund"])

    class Linked(FakeEngine):
        def align(self, pairs: Any, given: Any, batch_tokens: int) -> Any:
            return [tuple((i, j) for i in {*src} for j in {*tgt}) for src, tgt in given]

    engine: Any = Linked(vocab)
    line = passed("a dog\tcat", Split(SourceReader(engine, SearchConfig()), vocab, TranslateOptions()))
    for piece, tokens in zip(line.pieces, (vocab.encode("ein"), [BOS_ID]), strict=True):
        piece.hypotheses = [Hypothesis(tuple(tokens), -1.0, -1.0, True, ())]
    Annotate(engine, TranslateOptions(alignments=True), 100)([line])
    assert (line.translations[0].text, line.translations[0].alignment) == ("ein", ((0, 0), (1, 0)))


def test_a_line_that_is_longer_than_usual_is_translated_sentence_by_sentence() -> None:
    made, text = translator(), "A dog runs.  A cat sleeps in the park.   A dog sleeps."
    vocab, hunde = vocabulary(), ["ein Hund"] * 3
    length, cut = len(vocab.encode(text)), split(text, len(vocab.encode(text)) - 1)
    assert texts_of(cut, vocab) == [vocab.decode(vocab.encode(part)) for part in sentences(text)]
    assert cut.ids == vocab.encode(text)
    assert (cut.counts.cut, cut.warnings) == (0, [])
    for whole in (split(text, length), split(text, 0), split(text, 5, raw=True), split(text, 5, prefix="x")):
        assert len(whole.pieces) == 1
    assert joined(cut, hunde, made.engine) == "ein Hund  ein Hund   ein Hund"
    for first, second in ((" |  ", " | "), ("\t\t", " | |\t")):
        row = split(f"A dog{first}A cat{second}A dog", 0)
        assert texts_of(row, vocab) == ["A dog", "A cat", "A dog"]
        assert [piece.gap for piece in row.pieces] == [first, second, ""]
    row = split("A dog \\| | | A cat \\| |", 0)
    assert texts_of(row, vocab) == [vocab.decode(vocab.encode(f"{x} \\|")) for x in ("A dog", "A cat")]
    assert joined(row, hunde[:2], made.engine) == "ein Hund | | ein Hund |"


@pytest.mark.parametrize(
    ("search", "limit"),
    [
        (SearchConfig(), 4 + 50),
        (SearchConfig(max_ratio=3), 15),
        (SearchConfig(max_ratio=1.5), 8),
        (SearchConfig(max_ratio=0.01), 1),
        (SearchConfig(max_ratio=3, max_length=9), 9),
        (SearchConfig(max_ratio=3, min_length=20), 20 + 50),
        (SearchConfig(max_ratio=1000), 70),
    ],
    ids=str,
)
def test_the_limit_is_above_the_source_or_a_multiple_of_it(search: SearchConfig, limit: int) -> None:
    engine: Any = SimpleNamespace(src_vocab=vocabulary(), tgt_vocab=vocabulary(), max_length=70, tags={}, languages=[])
    for further in (None, 3, 10, 99):
        reader = SourceReader(engine, search, further.__add__ if further else None)
        source = reader.source(Line(1, ""), 0, [4, 5, 6, 7], NO_WORDING)
        assert source.limit == min(limit, max(4 + further, search.min_length + 1) if further else limit)
