"""Lines whose translations lack numbers, or have some that nobody wrote, are searched again, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from translators import learned

import vtrans
from vtrans.config import RETRY_NGRAM, SearchConfig
from vtrans.engines.engine import Source
from vtrans.lines.coded_numbers import CodedNumbers
from vtrans.lines.invented import OnlyNumbers
from vtrans.lines.line import Line, Piece
from vtrans.lines.numbers import FAR_WORSE, KeepNumbers
from vtrans.search.loop import Hypothesis
from vtrans.search.rules import NoRepeatedNgram
from vtrans.text.vocabulary import EOS_ID, Vocabulary
from vtrans.translate.translation import TranslateOptions, Translation
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
    "19 dogs": ("Hunde", ("19 19 19", -1.0 - 2 * FAR_WORSE)),  # far worse
    "A-127 dogs": ("Hunde", ("A-127 Hunde", -1.0)),
    "20 dogs": ("20 Hunde und 20 Hunde", ("20 Hunde", -1.0)),
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


def stage(vocab: Vocabulary, *, again: bool = True, codes: bool = False) -> KeepNumbers:
    engine: Any = SimpleNamespace(src_vocab=vocab, tgt_vocab=vocab, models=[SimpleNamespace(codes=codes)])
    return KeepNumbers(engine, lambda: Spelling(vocab), again=again)


def piece_of(vocab: Vocabulary, text: str) -> Piece:
    return Piece(Line(1, text), Source([*vocab.encode(text), EOS_ID], 50, "1/0"))


def test_the_second_result_is_kept_if_its_numbers_are_better(vocab: Vocabulary) -> None:
    pieces, searched = [piece_of(vocab, text) for text in SEARCHES], list[list[str]]()
    plain, sources = {piece: piece.source for piece in pieces}, dict[Piece, Source]()

    def search(pieces: Sequence[Piece], config: SearchConfig) -> Iterator[Piece]:
        searched.append([piece.line.text for piece in pieces])
        assert config.no_repeat_ngram == 0
        for piece in reversed(pieces):
            first, again = SEARCHES[piece.line.text]
            sources[piece] = piece.source
            text, score = again if again and piece.source != plain[piece] else (first, -1.0)
            piece.hypotheses = [Hypothesis(tuple(vocab.encode(text)), score, score, True, ())]
            yield piece

    found = list(stage(vocab).around(search)(pieces, SearchConfig()))
    assert searched == [list(SEARCHES), [text for text in reversed(SEARCHES) if SEARCHES[text][1]]]
    assert len(found) == len(pieces)
    results = {piece.line.text: vocab.decode(piece.hypotheses[0].tokens) for piece in found}
    kept = {"18 dogs", "19 dogs", "21 dogs and 44 cats"}
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
            "20 dogs": [["20"]],
            "21 dogs and 44 cats": [["21"], ["44"]],
            "1,500 dogs and 3 cats": [["1,500", "1.500"], ["3"]],
            "1,000,000 dogs": [["1,000,000", "1.000.000"]],
            "A-127 dogs": [["A-127"]],
        }.get(piece.line.text, [])
        allowed = [rule.runs for rule in source.rules if isinstance(rule, OnlyNumbers)]
        again = SEARCHES.get(piece.line.text, ("", None))[1]
        assert len(allowed) == (again is not None)
        assert source.rules[1:] == (words,) * len(allowed)
        if piece.line.text in RUNS:
            assert allowed == [Counter(RUNS[piece.line.text])]


def test_long_numbers_are_codes_in_the_second_search_of_a_model_that_learned_codes(vocab: Vocabulary) -> None:
    piece, sources = piece_of(vocab, "We have $2,750,000 here in A1."), list[str]()
    first = piece.source

    def search(pieces: Sequence[Piece], config: SearchConfig) -> Iterator[Piece]:
        for piece in pieces:
            sources.append(vocab.decode(piece.source.tokens[:-1]))
            tokens = tuple(vocab.encode(("Wir haben 2750 $ hier in A1.", "Wir haben B2 hier in A1.")[len(sources) - 1]))
            logprobs = tuple(-0.5 - k for k in range(len(tokens) + 1))
            piece.hypotheses = [Hypothesis(tokens, sum(logprobs), -1.0, True, logprobs)]
            yield piece

    (found,) = stage(vocab, codes=True).around(search)([piece], SearchConfig())
    assert sources == ["We have $2,750,000 here in A1.", "We have B2 here in A1."]
    (best,) = found.hypotheses
    assert found.source is first
    assert vocab.decode(best.tokens) == "Wir haben $2,750,000 hier in A1."
    assert len(best.token_logprobs) == len(best.tokens) + 1
    assert sum(best.token_logprobs) == pytest.approx(best.logprob)


def test_a_code_after_a_mark_is_restored(vocab: Vocabulary) -> None:
    coded = CodedNumbers("500 dogs", ["500"], vocab)
    tokens = (*vocab.encode("Wir"), *without_space(tuple(vocab.encode("A1")), vocab))
    found = coded.restored(Hypothesis(tokens, -1.0, -1.0, True, (-1.0,) * (len(tokens) + 1)))
    assert vocab.decode(found.tokens) == "Wir500"


def test_without_a_second_search_lines_are_counted_only(vocab: Vocabulary) -> None:
    counting, line = stage(vocab, again=False), Line(1, "17 dogs")
    found = list(counting.around(lambda pieces, config: iter(pieces))([piece_of(vocab, "12 dogs")], SearchConfig()))
    assert len(found) == 1
    line.translations = [Translation("18 Hunde", -1, -1, True, confidence=0.9), Translation("17", -2, -2, True)]
    counting.after([line])
    assert (line.counts.numbers, line.translations[0].confidence) == (1, 0.0)
    line = Line(1, "7 dogs")
    line.translations = [Translation("sieben Hunde", -1, -1, True, confidence=0.9)]
    counting.after([line])
    assert (line.counts.numbers, line.translations[0].confidence) == (0, 0.9)


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
