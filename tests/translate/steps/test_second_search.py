"""Pieces whose translations have problems are searched once more, with all constraints that they need."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from translators import learned

import vtrans
from vtrans.config import RETRY_NGRAM
from vtrans.engines.engine import Source
from vtrans.search.avoid import VocabularyBytes
from vtrans.search.digits import OnlyCodes, OnlyNumbers
from vtrans.search.lexical import LexicalConstraint, Variant
from vtrans.search.loop import Hypothesis
from vtrans.search.rules import NoRepeatedNgram
from vtrans.text.vocabulary import EOS_ID, Vocabulary
from vtrans.translate.steps.annotate import Annotate
from vtrans.translate.steps.line import Line, Piece
from vtrans.translate.steps.search import Check, CodedNumbers, SearchTwice
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.wording.phrases import Wording, without_space

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


class Twice:
    """Searches twice; the results are the texts and scores of `answer`, in order."""

    def __init__(
        self,
        vocab: Vocabulary,
        answer: Callable[[Piece], tuple[str, float]] | Sequence[tuple[str, float]],
        *,
        numbers: bool = True,
        can_require: bool = True,
        codes: bool = False,
    ) -> None:
        engine: Any = SimpleNamespace(src_vocab=vocab, tgt_vocab=vocab, models=[SimpleNamespace(codes=codes)])
        reader: Any = SimpleNamespace(vocab_bytes=VocabularyBytes(vocab))
        check = Check(engine, reader, retries=True, compares=numbers, requires=numbers and can_require)
        self._step = SearchTwice(self._find, check, None)
        self._vocab, self._answer = vocab, answer
        self.searches: list[list[tuple[str, Source]]] = []
        """The pieces and sources of each search."""

    def _find(self, sources: Mapping[Piece, Source]) -> Iterator[Piece]:
        self.searches.append([(piece.line.text, source) for piece, source in sources.items()])
        for piece, source in sources.items():
            own = Piece(piece.line, source)
            text, score = self._answer(own) if callable(self._answer) else self._answer[len(self.searches) - 1]
            tokens = tuple(self._vocab.encode(text))
            logprobs = tuple(-0.5 - k for k in range(len(tokens) + 1))
            piece.hypotheses = [Hypothesis(tokens, sum(logprobs), score, True, logprobs)]
            yield piece

    @property
    def searched(self) -> list[list[str]]:
        return [[text for text, _ in search] for search in self.searches]

    def __call__(self, *pieces: Piece) -> list[str]:
        """Returns the best translations, in the order in which they are found."""
        return [self._vocab.decode(piece.hypotheses[0].tokens) for piece in self._step(pieces)]


def piece_of(vocab: Vocabulary, text: str) -> Piece:
    return Piece(Line(1, text), Source([*vocab.encode(text), EOS_ID], 50, "1/0"))


def test_the_second_result_is_kept_if_its_numbers_are_better(vocab: Vocabulary) -> None:
    pieces = {text: piece_of(vocab, text) for text in SEARCHES}
    plain = {text: piece.source for text, piece in pieces.items()}

    def answer(piece: Piece) -> tuple[str, float]:
        first, again = SEARCHES[piece.line.text]
        return again if again and piece.source != plain[piece.line.text] else (first, -1.0)

    twice, again = Twice(vocab, answer), [text for text in SEARCHES if SEARCHES[text][1]]
    found = twice(*pieces.values())
    assert twice.searched == [list(SEARCHES), again]
    kept = {"18 dogs", "19 dogs", "22 dogs", "21 dogs and 44 cats"}
    once = [text for text in SEARCHES if text not in again]
    assert found == [
        *(SEARCHES[text][0] for text in once),
        *(first if text in kept or not second else second[0] for text in again for first, second in [SEARCHES[text]]),
    ]
    digits = tuple(i for i in range(len(vocab)) if vocab.decode([i]).strip(".,").isdigit())
    words = NoRepeatedNgram(RETRY_NGRAM, free=VocabularyBytes(vocab).of_numbers)
    assert {*digits} < {*words.free}
    assert not any(map(str.isalpha, vocab.decode(words.free)))
    assert {text: piece.source for text, piece in pieces.items()} == plain
    for text, source in twice.searches[1]:
        wanted = [[vocab.decode(variant.tokens) for variant in phrase.variants] for phrase in source.phrases]
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
        }.get(text, [])
        allowed = [rule.runs for rule in source.rules if isinstance(rule, OnlyNumbers)]
        assert len(allowed) == 1
        assert source.rules[2:] == (words,)
        if text in RUNS:
            assert allowed == [Counter(RUNS[text])]


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
    texts = ["Katzen B7 B7 B7 B7 B7", second]
    twice = Twice(vocab, [*zip(texts, (-1.0, score), strict=True)], codes=True)
    piece = piece_of(vocab, "17 dogs B7")
    piece.line.codes = {"B7": "Ana"}
    code = LexicalConstraint((Variant(tuple(vocab.encode("B7"))),), 1, exactly=True)
    piece.source = replace(piece.source, phrases=(code,))
    assert twice(piece) == [texts[kept == "second"]]
    ((_, first),), ((_, again),) = twice.searches
    assert (first.phrases, piece.source.phrases) == ((), (code,))
    assert [vocab.decode(phrase.variants[0].tokens) for phrase in again.phrases] == ["B7", "17"]
    assert [type(rule) for rule in again.rules] == [OnlyCodes, OnlyNumbers, NoRepeatedNgram]
    assert piece.line.counts.retried == 1


def test_long_numbers_are_codes_in_the_second_search_of_a_model_that_learned_codes(vocab: Vocabulary) -> None:
    piece, texts = piece_of(vocab, "We have $2,750,000 here in A1."), ("Wir haben 2750 $ hier.", "Wir haben B2 in A1.")
    first, twice = piece.source, Twice(vocab, [(text, -1.0) for text in texts], codes=True)
    assert twice(piece) == ["Wir haben $2,750,000 in A1."]
    sources = [vocab.decode(source.tokens[:-1]) for ((_, source),) in twice.searches]
    assert sources == ["We have $2,750,000 here in A1.", "We have B2 here in A1."]
    assert piece.source is first
    (best,) = piece.hypotheses
    assert len(best.token_logprobs) == len(best.tokens) + 1
    assert sum(best.token_logprobs) == pytest.approx(best.logprob)


def second_source(vocab: Vocabulary, piece: Piece, first: str, *, codes: bool = False) -> tuple[Source, str]:
    """Returns the source of the second search, which finds "A1 dogs", and what is kept."""
    twice = Twice(vocab, [(first, -1.0), ("A1 dogs", -1.0)], codes=codes)
    (kept,) = twice(piece)
    return twice.searches[-1][0][1], kept


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
        assert [vocab.decode(variant.tokens) for variant in phrase.variants] == ["\u0661\u0669\u0669\u0660", "1990"]


def test_numbers_that_are_asked_for_are_not_invented(vocab: Vocabulary) -> None:
    piece, term = piece_of(vocab, "17 dogs"), LexicalConstraint((Variant(tuple(vocab.encode("44 Katzen"))),))
    piece.source = replace(piece.source, phrases=(term,))
    piece.line.prefix, piece.line.wording = "12", Wording(terms=(("44 Katzen",),))
    text = "12 17 Hunde und 44 Katzen"
    assert second_source(vocab, piece, text)[0] is piece.source
    assert (piece.line.counts.retried, len(piece.problems)) == (0, 0)


def test_a_code_after_a_mark_is_restored(vocab: Vocabulary) -> None:
    coded = CodedNumbers("500 dogs", ["500"], vocab)
    tokens = (*vocab.encode("Wir"), *without_space(tuple(vocab.encode("A1")), vocab))
    found = coded.restored(Hypothesis(tokens, -1.0, -1.0, True, (-1.0,) * (len(tokens) + 1)))
    assert vocab.decode(found.tokens) == "Wir500"


def test_without_a_second_search_lines_are_counted_only(vocab: Vocabulary) -> None:
    pieces = [piece_of(vocab, text) for text in ("17 dogs", "7 dogs")]
    twice = Twice(vocab, [("Hunde", -1.0)], can_require=False)
    assert twice(*pieces) == ["Hunde"] * 2
    assert twice.searched == [["17 dogs", "7 dogs"]]
    engine: Any = SimpleNamespace(tgt_vocab=vocab)
    rate: Any = lambda *found: (0.9, ())  # noqa: E731
    for piece in pieces:
        piece.line.pieces = [piece]
        Annotate(engine, TranslateOptions(calibration=rate), 1)([piece.line])
    assert [piece.line.counts.numbers for piece in pieces] == [1, 0]
    assert [piece.line.translations[0].confidence for piece in pieces] == [0.0, 0.9]


def test_numbers_are_checked_unless_the_options_say_otherwise() -> None:
    made, line = vtrans.load("en-de"), "The temperature is -12 degrees."
    (unchecked,) = made.translate_window([Line(1, line)], TranslateOptions(check_numbers=False))
    (raw,) = made.nbest([line], raw=True)
    assert unchecked[0].text == raw[0].text


def test_only_lines_with_invented_codes_are_searched_again() -> None:
    texts = {"Raum": "Raum", "Raum A12": "Raum A12", "room A-12": "Raum A1", "a place": "ein Pl4", "B7": "B7 Pl4"}
    vocab = learned([*texts, *texts.values()])
    pieces = [Piece(Line(i, text), Source([EOS_ID], 9, f"{i}/0")) for i, text in enumerate(texts, 1)]
    pieces[-1].line.codes, pieces[-1].line.model_input = {"B7": "Ana"}, "B7 Raum"
    twice = Twice(vocab, lambda piece: ("Raum" if piece.source.rules else texts[piece.line.text], -1.0), numbers=False)
    assert twice(*pieces) == ["Raum", "Raum A12", "ein Pl4", "Raum", "Raum"]
    assert twice.searched == [[*texts], ["room A-12", "B7"]]  # without codes, "Pl4" may be right


FREE = {"A1": "Raum A1", "A1 B2": "B2 und", "A1 A1": "A1 und A1 und A1", "A12": "Raum A1"}
"""The translation of each source by a search without phrases."""


def test_only_pieces_with_lost_or_repeated_codes_are_searched_with_phrases() -> None:
    vocab = learned([*FREE, *FREE.values(), "mit"])

    def answer(piece: Piece) -> tuple[str, float]:
        return f"mit {piece.line.text}" if piece.source.phrases else FREE[piece.line.text], -1.0

    def piece(text: str, *, exactly: bool = True) -> Piece:
        codes = text.split()
        forms = {code: (Variant(tuple(vocab.encode(code))),) for code in codes}
        phrases = tuple(LexicalConstraint(form, codes.count(code), exactly=exactly) for code, form in forms.items())
        return Piece(Line(1, text), Source([*vocab.encode(text), EOS_ID], 20, "line 1", phrases=phrases))

    pieces = [*map(piece, FREE), piece("A1", exactly=False)]
    twice, lost = Twice(vocab, answer, numbers=False, codes=True), [*FREE][1:]
    assert twice(*pieces) == ["Raum A1", "mit A1", *(f"mit {text}" for text in lost)]  # a term is always required
    with_phrases = [[(text, bool(source.phrases)) for text, source in search] for search in twice.searches]
    assert with_phrases == [[*((text, False) for text in FREE), ("A1", True)], [(text, True) for text in lost]]
    assert all(piece.source.phrases for piece in pieces)
