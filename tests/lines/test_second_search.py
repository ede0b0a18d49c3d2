"""Pieces whose translations have problems are searched again, once, with everything that they need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from translators import learned

import vtrans
from vtrans.config import RETRY_NGRAM
from vtrans.engines.engine import Source
from vtrans.lines.invented import OnlyCodes, OnlyNumbers
from vtrans.lines.line import Line, Piece
from vtrans.lines.requirements import CodedNumbers
from vtrans.lines.search import Find, SearchTwice
from vtrans.search.lexical import Form, Phrase
from vtrans.search.loop import Hypothesis
from vtrans.search.rules import NoRepeatedNgram
from vtrans.text.vocabulary import EOS_ID, Vocabulary
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator
from vtrans.wording.avoid import Spelling
from vtrans.wording.phrases import without_space
from vtrans.wording.protect import Protection

SEARCHES = {  # the translation of the first search, and that of the second one with its score
    "12 dogs": ("12 Hunde", None),
    "17 dogs": ("Hunde", ("17 Hunde", -1.0)),
    "1,500 dogs and 3 cats": ("150 Hunde und 3 Katzen", ("1.500 Hunde und 3 Katzen", -1.0)),
    "1,000,000 dogs": ("1.000 Hunde", ("1.000.000 Hunde", -1.0)),
    "dogs": ("77 Hunde", ("Hunde", -1.0)),
    "18 dogs": ("Hunde", ("Katzen", -1.0)),  # no better
    "19 dogs": ("Hunde", ("19 19 19", -2.0)),  # as many problems, and a lower score
    "A-127 dogs": ("Hunde", ("A-127 Hunde", -1.0)),
    "25 dogs": ("25 Hunde und 25 Hunde", ("25 Hunde", -1.0)),
    "22 dogs": ("Hunde", ("22", -6.5)),  # the number is there, but the score is far lower
    "21 dogs and 44 cats": ("21 Hunde 21 und 44 Katzen", ("21 Hunde", -1.0)),  # one is lost, which is worse
}

RUNS = {  # of digits that the second search may write
    "dogs": [],
    "17 dogs": ["17", "5"],
    "1,500 dogs and 3 cats": ["1", "500", "1500", "3", "15"],
    "2:30 dogs": ["2", "14", "30"],
    "1,000,000 dogs": ["1", "000", "000", "1000000"],
}


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    text = [*SEARCHES, *(text for first, again in SEARCHES.values() for text in (first, *(again or ())[:1]))]
    text += ["We have $1,500,000 here in A1 B2 C3.", "Wir haben 1.500.000 $ hier"]
    return learned(text)


def stage(
    vocab: Vocabulary, find: Find, *, numbers: bool = True, can_require: bool = True, codes: bool = False
) -> SearchTwice:
    engine: Any = SimpleNamespace(src_vocab=vocab, tgt_vocab=vocab, models=[SimpleNamespace(codes=codes)])
    reader: Any = SimpleNamespace(spelling=Spelling(vocab))
    return SearchTwice(
        find, engine, reader, None, retries=True, compares=numbers, requires=numbers and can_require
    )


def piece_of(vocab: Vocabulary, text: str) -> Piece:
    return Piece(Line(1, text), Source([*vocab.encode(text), EOS_ID], 50, "1/0"))


def test_the_second_result_is_kept_if_its_numbers_are_better(vocab: Vocabulary) -> None:
    pieces, searched = [piece_of(vocab, text) for text in SEARCHES], list[list[str]]()
    plain, sources = {piece: piece.source for piece in pieces}, dict[Piece, Source]()

    def search(pieces: Sequence[Piece]) -> Iterator[Piece]:
        searched.append([piece.line.text for piece in pieces])
        for piece in reversed(pieces):
            first, again = SEARCHES[piece.line.text]
            sources[piece] = piece.source
            text, score = again if again and piece.source != plain[piece] else (first, -1.0)
            piece.hypotheses = [Hypothesis(tuple(vocab.encode(text)), score, score, True, ())]
            yield piece

    found = list(stage(vocab, search)(pieces))
    assert searched == [list(SEARCHES), [text for text in reversed(SEARCHES) if SEARCHES[text][1]]]
    assert len(found) == len(pieces)
    results = {piece.line.text: vocab.decode(piece.hypotheses[0].tokens) for piece in found}
    kept = {"18 dogs", "19 dogs", "22 dogs", "21 dogs and 44 cats"}
    assert results == {
        text: again[0] if again and text not in kept else first for text, (first, again) in SEARCHES.items()
    }
    digits = tuple(i for i in range(len(vocab)) if vocab.decode([i]).strip(".,").isdigit())
    words = NoRepeatedNgram(RETRY_NGRAM, free=Spelling(vocab).of_numbers)
    assert {*digits} < {*words.free}
    assert not any(map(str.isalpha, vocab.decode(words.free)))
    assert {piece: piece.source for piece in pieces} == plain
    for piece, source in sources.items():
        wanted = [[vocab.decode(form.tokens) for form in phrase.forms] for phrase in source.phrases]
        assert wanted == {
            "17 dogs": [["17"]],
            "18 dogs": [["18"]],
            "19 dogs": [["19"]],
            "25 dogs": [["25"]],
            "22 dogs": [["22"]],
            "21 dogs and 44 cats": [["21"], ["44"]],
            "1,500 dogs and 3 cats": [["1,500", "1.500"], ["3"]],
            "1,000,000 dogs": [["1,000,000", "1.000.000"]],
            "A-127 dogs": [["A-127"]],
        }.get(piece.line.text, [])
        allowed = [rule.runs for rule in source.rules if isinstance(rule, OnlyNumbers)]
        again = SEARCHES.get(piece.line.text, ("", None))[1]
        assert len(allowed) == (again is not None)
        assert source.rules[2:] == (words,) * len(allowed)
        if piece.line.text in RUNS:
            assert allowed == [Counter(RUNS[piece.line.text])]


@pytest.mark.parametrize(
    ("second", "score", "kept"),
    [
        ("17 Hunde B7", -9.0, "second"),  # fewer problems
        ("Hunde B7 B7 B7 B7 B7", -0.5, "second"),  # as many, and a better score
        ("Hunde B7 B7 B7 B7 B7", -1.0, "first"),
        ("Hunde A1 A1 A1 A1 A1", -0.5, "first"),
    ],
)
def test_one_second_search_has_all_problems(vocab: Vocabulary, second: str, score: float, kept: str) -> None:
    texts, sources = ["Katzen B7 B7 B7 B7 B7", second], list[Source]()

    def search(pieces: Sequence[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            sources.append(piece.source)
            found = score if len(sources) > 1 else -1.0
            piece.hypotheses = [Hypothesis(tuple(vocab.encode(texts[len(sources) - 1])), found, found, True, ())]
            yield piece

    piece = piece_of(vocab, "17 dogs B7")
    piece.line.codes = {"B7": "Ana"}
    code = Phrase((Form(tuple(vocab.encode("B7"))),), 1, exactly=True)
    piece.source = replace(piece.source, phrases=(code,))
    (found,) = stage(vocab, search, codes=True)([piece])
    first, again = sources
    assert (first.phrases, found.source.phrases) == ((), (code,))
    assert [vocab.decode(phrase.forms[0].tokens) for phrase in again.phrases] == ["B7", "17"]
    assert [type(rule) for rule in again.rules] == [OnlyCodes, OnlyNumbers, NoRepeatedNgram]
    assert vocab.decode(found.hypotheses[0].tokens) == texts[kept == "second"]
    assert found.line.counts.retried == 1


@pytest.mark.parametrize(("score", "kept"), [(-0.9, "Katzen"), (-1.0, "Hunde"), (-1.1, "Hunde")])
def test_the_score_decides_between_two_readings(vocab: Vocabulary, score: float, kept: str) -> None:
    piece = piece_of(vocab, "dogs")
    piece.other = [*vocab.encode("cats"), EOS_ID]
    results = {tuple(piece.source.tokens): ("Hunde", -1.0), tuple(piece.other): ("Katzen", score)}

    def search(pieces: Sequence[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            text, found = results[tuple(piece.source.tokens)]
            piece.hypotheses = [Hypothesis(tuple(vocab.encode(text)), found, found, True, ())]
            yield piece

    (found,) = stage(vocab, search)([piece])
    assert vocab.decode(found.hypotheses[0].tokens) == kept
    assert (vocab.decode(found.source.tokens[:-1]), found.line.counts.retried) == ("dogs", 0)


def test_long_numbers_are_codes_in_the_second_search_of_a_model_that_learned_codes(vocab: Vocabulary) -> None:
    piece, sources = piece_of(vocab, "We have $2,750,000 here in A1."), list[str]()
    first = piece.source

    def search(pieces: Sequence[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            sources.append(vocab.decode(piece.source.tokens[:-1]))
            tokens = tuple(vocab.encode(("Wir haben 2750 $ hier in A1.", "Wir haben B2 hier in A1.")[len(sources) - 1]))
            logprobs = tuple(-0.5 - k for k in range(len(tokens) + 1))
            piece.hypotheses = [Hypothesis(tokens, sum(logprobs), -1.0, True, logprobs)]
            yield piece

    (found,) = stage(vocab, search, codes=True)([piece])
    assert sources == ["We have $2,750,000 here in A1.", "We have B2 here in A1."]
    (best,) = found.hypotheses
    assert found.source is first
    assert vocab.decode(best.tokens) == "Wir haben $2,750,000 hier in A1."
    assert len(best.token_logprobs) == len(best.tokens) + 1
    assert sum(best.token_logprobs) == pytest.approx(best.logprob)


def second_source(vocab: Vocabulary, piece: Piece, first: str, *, codes: bool = False) -> tuple[Source, str]:
    """Returns the source of the second search, which finds "A1 dogs", and what is kept."""
    sources = list[Source]()

    def search(pieces: Sequence[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            sources.append(piece.source)
            tokens = tuple(vocab.encode(first if len(sources) == 1 else "A1 dogs"))
            piece.hypotheses = [Hypothesis(tokens, -1.0, -1.0, True, (-1.0,) * (len(tokens) + 1))]
            yield piece

    (found,) = stage(vocab, search, codes=codes)([piece])
    return sources[-1], vocab.decode(found.hypotheses[0].tokens)


def test_codes_are_numbers_only_if_the_source_has_them(vocab: Vocabulary) -> None:
    """Otherwise a code that the model invents would become the number."""
    piece = piece_of(vocab, "1,500 dogs")
    piece.source = replace(piece.source, limit=3)  # too short for the phrases
    source, kept = second_source(vocab, piece, "Hunde", codes=True)
    assert not source.phrases
    assert kept == "Hunde"


def test_digits_of_another_script_may_become_ascii() -> None:
    vocab = learned(["\u0661\u0669\u0669\u0660 dogs", "1990 Hunde", "A1 dogs"])
    for codes in (False, True):
        source, _ = second_source(vocab, piece_of(vocab, "\u0661\u0669\u0669\u0660 dogs"), "Hunde", codes=codes)
        (phrase,) = source.phrases
        assert [vocab.decode(form.tokens) for form in phrase.forms] == ["\u0661\u0669\u0669\u0660", "1990"]


def test_numbers_that_are_asked_for_are_not_invented(vocab: Vocabulary) -> None:
    piece, term = piece_of(vocab, "17 dogs"), Phrase((Form(tuple(vocab.encode("44 Katzen"))),))
    piece.source = replace(piece.source, prefix=tuple(vocab.encode("12")), phrases=(term,))
    piece.line.pieces = [piece]
    text = "12 17 Hunde und 44 Katzen"
    assert second_source(vocab, piece, text)[0] is piece.source
    assert (piece.line.counts.retried, len(piece.problems)) == (0, 0)


def test_a_code_after_a_mark_is_restored(vocab: Vocabulary) -> None:
    coded = CodedNumbers("500 dogs", ["500"], vocab)
    tokens = (*vocab.encode("Wir"), *without_space(tuple(vocab.encode("A1")), vocab))
    found = coded.restored(Hypothesis(tokens, -1.0, -1.0, True, (-1.0,) * (len(tokens) + 1)))
    assert vocab.decode(found.tokens) == "Wir500"


def test_without_a_second_search_lines_are_counted_only(vocab: Vocabulary) -> None:
    pieces, searched = [piece_of(vocab, text) for text in ("17 dogs", "7 dogs")], list[str]()

    def search(pieces: Sequence[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            searched.append(piece.line.text)
            piece.hypotheses = [Hypothesis(tuple(vocab.encode("Hunde")), -1.0, -1.0, True, ())]
            yield piece

    found = list(stage(vocab, search, can_require=False)(pieces))
    assert searched == ["17 dogs", "7 dogs"]
    assert [bool(piece.problems.numbers) for piece in found] == [True, False]


def test_the_shipped_model_keeps_numbers() -> None:
    made, lines = vtrans.load("en-de"), ["The temperature is -12 degrees.", "He has 987 books."]
    (cold,), (books,) = made.nbest(lines)
    assert "-12" in cold.text
    assert "987" in books.text
    assert made.counts.numbers == 0
    options = TranslateOptions(check_numbers=False)
    assert options != TranslateOptions()
    (unchecked,) = made.translate_window([Line(1, lines[0])], options)
    (raw,) = made.nbest(lines[:1], raw=True)
    assert unchecked[0].text == raw[0].text


def test_codes_of_protected_text_are_no_numbers() -> None:
    made = vtrans.load("en-de")
    made.translate_window([Line(1, "See https://example.com/12?a=34 today.")], TranslateOptions(protect=Protection()))
    assert isinstance(made, Translator)
    assert made.counts.numbers == 0


def test_only_lines_with_invented_codes_are_searched_again() -> None:
    texts = {"Raum": "Raum", "Raum A12": "Raum A12", "room A-12": "Raum A1", "a place": "ein Pl4", "B7": "B7 Pl4"}
    vocab, searched = learned([*texts, *texts.values()]), list[list[str]]()

    def search(pieces: Sequence[Piece]) -> Iterator[Piece]:
        searched.append([piece.line.text for piece in pieces])
        for piece in pieces:
            text = "Raum" if piece.source.rules else texts[piece.line.text]
            piece.hypotheses = [Hypothesis(tuple(vocab.encode(text)), -1.0, -1.0, True, ())]
            yield piece

    pieces = [Piece(Line(i, text), Source([EOS_ID], 9, f"{i}/0")) for i, text in enumerate(texts, 1)]
    pieces[-1].line.codes, pieces[-1].line.model_text = {"B7": "Ana"}, "B7 Raum"
    found = list(stage(vocab, search, numbers=False)(pieces))
    assert searched == [[*texts], ["room A-12", "B7"]]  # without codes, "Pl4" may be right
    assert [vocab.decode(piece.hypotheses[0].tokens) for piece in found] == [
        "Raum",
        "Raum A12",
        "ein Pl4",
        "Raum",
        "Raum",
    ]


FREE = {"A1": "Raum A1", "A1 B2": "B2 und", "A1 A1": "A1 und A1 und A1", "A12": "Raum A1"}
"""What the search finds without phrases."""


def test_only_pieces_whose_codes_are_lost_or_repeated_are_searched_with_phrases() -> None:
    vocab = learned([*FREE, *FREE.values(), "mit"])
    searches: list[list[tuple[str, bool]]] = []

    def search(pieces: Sequence[Piece]) -> Iterator[Piece]:
        searches.append([(piece.line.text, bool(piece.source.phrases)) for piece in pieces])
        for piece in pieces:
            text = f"mit {piece.line.text}" if piece.source.phrases else FREE[piece.line.text]
            tokens = tuple(vocab.encode(text))
            piece.hypotheses = [Hypothesis(tokens, -1.0, -1.0, finished=True, token_logprobs=(-1.0,) * len(tokens))]
            yield piece

    def piece(text: str, *, exactly: bool = True) -> Piece:
        codes = text.split()
        forms = {code: (Form(tuple(vocab.encode(code))),) for code in codes}
        phrases = tuple(Phrase(form, codes.count(code), exactly=exactly) for code, form in forms.items())
        return Piece(Line(1, text), Source([*vocab.encode(text), EOS_ID], 20, "line 1", phrases=phrases))

    pieces = [*map(piece, FREE), piece("A1", exactly=False)]
    found = list(stage(vocab, search, numbers=False, codes=True)(pieces))
    assert searches == [[*((text, False) for text in FREE), ("A1", True)], [(text, True) for text in [*FREE][1:]]]
    assert (
        [vocab.decode(piece.hypotheses[0].tokens) for piece in found]
        == [
            "Raum A1",
            "mit A1",  # a term, which is always required
            *(f"mit {text}" for text in [*FREE][1:]),
        ]
    )
    assert all(piece.source.phrases for piece in found)


def test_a_model_that_has_learned_codes_keeps_them() -> None:
    lines = ["Open https://example.com/a?b=1 and press Ctrl+C.", "My address is kim@example.org.", "{name}, {name}!"]
    for line, translation in zip(lines, vtrans.load("en-de").translate(lines), strict=True):
        for copied in ("https://example.com/a?b=1", "Ctrl+C", "kim@example.org", "{name}"):
            assert translation.count(copied) == line.count(copied)
