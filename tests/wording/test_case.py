"""Lines in capitals and in title case, and words in the case of a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from typed_lines import LATIN, READ, Reader, translated, vocabulary_of

from vtrans.lines.case import Case, LowerCase, initial, title
from vtrans.lines.line import Line, Stage
from vtrans.lines.terms import FindTerms
from vtrans.lines.unknowns import Characters, CopyUnknown
from vtrans.text.case import SentenceCase, upper
from vtrans.translate.translation import Translation
from vtrans.wording.glossary import Glossary, pair_of
from vtrans.wording.phrases import Wording
from vtrans.wording.protect import Masked, Protection

EMPHASIS = vocabulary_of("the quick fox dog is i I am not happy please stop now, {A} NOT NOW NASA NASA")
CAPITALS, TITLE, HEADING, WORD = Case(upper), Case(title), Case(initial), Case(initial, is_word=True)


@pytest.mark.parametrize(
    ("line", "case"),
    [
        ("A DOG RUNS.", CAPITALS),
        ("DON'T!", CAPITALS),
        ("NASA", None),  # it has a piece of its own
        ("ÄÖ 12 - ÖÄ", CAPITALS),
        ("A DOG runs.", None),
        ("A", None),
        ("犬 DOG FOX", CAPITALS),
        ("The Quick Brown Fox!", HEADING),
        ("Don't Stop The Fox", HEADING),
        ("The Brown Fox", HEADING),
        ("Brown NASA", None),
        ("Fox Nasa", None),  # it may be a name, as the vocabulary has no piece for it
        ("The", WORD),
        ("The!", None),
        ("Dog 4", WORD),
        ("The Quick brown Fox Jumps", None),
        ("NASA Jumps Over The Fox", HEADING),
        ("NASA 978-3", None),  # a number is no word
        ("NASA FBI", None),  # both are acronyms
        ("FOX OVER DOG (see fox)", None),
        ("FOX OVER THE LAZY DOG (fox)", CAPITALS),
        ("FOX Over The Dog", HEADING),
        ("Dogs: ÄÖ-ÖÄ 10 PM", None),  # acronyms
        ("The Fox.", None),  # a sentence
    ],
)
def test_the_case_of_a_line(line: str, case: Any) -> None:
    found = READ.case.case_of(Masked.plain(line))
    assert (found and (found.write, found.is_word)) == (case and (case.write, case.is_word))


@pytest.mark.parametrize(
    ("line", "tgt", "given", "begun"),
    [
        ("- Dog 4", "de", "hund 4", "Hund 4"),
        ("The Quick Brown Fox", "de", "kater", "kater"),  # a constraint
        ("The dog", "ka", "ძაღლი", "ძაღლი"),  # only whole words have capitals
        ("The dog", "nl", "ijs", "IJs"),
        ("The dog", "nl", "'s ochtends", "'s ochtends"),
        ("Set myfox", "de", "myfox setzen", "myfox setzen"),
    ],
)
def test_a_translation_begins_with_a_capital_if_its_line_does(line: str, tgt: str, given: str, begun: str) -> None:
    read, characters = Line(1, line), Characters(LATIN, LATIN)
    read.wording, stage = Wording((("kater",),)), LowerCase(characters, Stage(), "en", tgt)
    CopyUnknown(characters).before([read])
    stage.before([read])
    read.translations = [Translation(given, -1.0, -1.0, True)]
    stage.after([read])
    assert read.translations[0].text == begun


def test_protected_text_has_no_case_and_keeps_it() -> None:
    line = "{Name} DOG %s OVER FOX"
    read, case = READ(line)
    assert read.text == "{Name} dog %s over fox"
    assert case
    assert case.write is upper
    assert CAPITALS.restore(read.masked) == Protection().masked(line).masked
    assert READ(line, prefix="x")[1] is None


@pytest.mark.parametrize(
    ("text", "capitals", "title"),
    [
        ("Der große A1 „hund“.", "DER GROSSE A1 „HUND“.", "Der Große A1 „Hund“."),
        ("- 'n x-y", "- 'N X-Y", "- 'N X-y"),
    ],
)
def test_a_text_is_given_a_case(text: str, capitals: str, title: str) -> None:
    assert (CAPITALS.restore(text), TITLE.restore(text)) == (capitals, title)


def test_a_translation_has_the_case_of_its_line() -> None:
    assert translated("A DOG RUNS").text == "EIN A DOG RUNS"
    assert translated("The Dog Runs In The Park").text == "Ein The Dog Runs In The Park"
    assert translated("a dog RUNS").text == "ein a dog RUNS"


@pytest.mark.parametrize("asked", [{"raw": True}, {"prefix": "ein"}])
def test_a_line_is_left_as_it_is_if_the_user_says_so_or_how_it_begins(asked: dict[str, Any]) -> None:
    assert translated("A DOG", **asked).text.endswith("A DOG")
    assert not translated("A DOG", **asked).text.isupper()


def test_words_of_mixed_case_keep_it_in_both_directions() -> None:
    vocab = vocabulary_of("the fox or dog The FOX OR myFox Dog")
    read, case = Reader(vocab, vocab)("THE FOX, myFox OR Dog.")
    assert case
    assert read.text == "The fox, myFox or Dog."
    assert case.restore("ein myFox-Hund, Dog, dog myFoxy.") == "EIN myFox-HUND, Dog, DOG MYFOXY."
    assert Case(title, kept=("myFox",)).restore("ein myFox und fox") == "Ein myFox Und Fox"


@pytest.mark.parametrize(
    ("word", "before", "written"),
    [
        ("QUICK", "", "quick"),
        ("Quick", "", "quick"),
        ("BERLIN", "", "Berlin"),  # it has fewer subwords with a capital
        ("MONDAY'S", "", "Monday's"),
        ("DFGH", "", "DFGH"),  # it has no vowel
        ("NASA", "", "NASA"),
        ("I'M", "", "I'm"),
        ("US", "tell", "us"),
        ("US", "The", "US"),
        ("U.S.", "", "U.S."),
        ("XIV", "", "XIV"),
        ("Zorgu", "", "Zorgu"),  # no form is known, so it stays a name
        ("ZORGU", "", "zorgu"),
    ],
)
def test_a_word_is_written_as_in_a_sentence(word: str, before: str, written: str) -> None:
    vocab = vocabulary_of("the quick fox i us 's m Berlin Berlin Monday Monday")
    assert SentenceCase(vocab, "en")(word, before) == written


def test_a_word_that_is_much_more_frequent_with_a_capital_is_a_name() -> None:
    class Known:
        def encode_batch(self, texts: Sequence[str], **options: Any) -> list[list[int]]:
            return [[{"Tom": 300, "tom": 1000, "What": 300, "what": 600}.get(text, 5000), 7] for text in texts]

    vocab: Any = Known()
    write = SentenceCase(vocab, None)
    assert [write(word, "") for word in ("TOM", "WHAT", "DOG")] == ["Tom", "what", "dog"]


def test_each_sentence_of_a_line_begins_with_a_capital() -> None:
    assert [READ(line)[0].text for line in ("Dog 4", "THE Dog Jumps Over")] == ["dog 4", "The dog jumps over"]
    assert READ("THE FOX! THE {DOG}. {DOG}'S FOX (THE DOG).")[0].text == "The fox! The {DOG}. {DOG}'s fox (the dog)."


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("I am NOT happy.", {"NOT"}),
        ("PLEASE, STOP it", {"PLEASE", "STOP"}),
        ("I saw the FOX.", set()),  # it may be an acronym
        ("NOT, FOX JUMPS. Quick DOG", {"NOT", "FOX"}),  # "jumps" has several subwords
        ("a FOX and NOT", {"NOT"}),
        ("I am NOT. FOX is", {"NOT"}),
        ("NASA is NOT NASA", {"NOT"}),
    ],
)
def test_words_in_capitals_for_emphasis(line: str, words: set[str]) -> None:
    assert SentenceCase(EMPHASIS, "en").emphasized(line) == words
    assert SentenceCase(EMPHASIS, "fr").emphasized(line) == set()


def test_what_translates_an_emphasized_word_is_in_capitals() -> None:
    class Linked(Stage):
        """Links each word of a translation to the word in the same place, and the last one also to the second."""

        def after(self, lines: Sequence[Line]) -> None:
            for line in lines:
                words = [len(t.text.split()) for t in line.translations]
                links = [tuple((i, i) for i in range(n)) for n in words]
                line.translations = [
                    replace(t, alignment=((1, n - 1), *link))
                    for t, n, link in zip(line.translations, words, links, strict=True)
                ]

    characters = Characters(EMPHASIS, EMPHASIS)
    line, stage = Line(1, "the NOT dog is {A} not, NOW"), LowerCase(characters, Linked(), "en", "de")
    stage.before([line])
    assert line.seen.text == "the not dog is {A} not, now"
    first, second = (Translation(text, -1.0, -1.0, True) for text in ("der nicht\u00a0groß", "a b c d e f g h"))
    line.translations = [first, second]
    stage.after([line])
    assert [t.text for t in line.translations] == ["der NICHT\u00a0groß", "a B c d e f G h"]
    assert [t.alignment for t in line.translations] == [None, None]


def test_a_constraint_in_the_case_of_the_line_may_be_searched_in_another() -> None:
    line, stage = Line(1, "THE DOG"), LowerCase(Characters(LATIN, LATIN), Stage(), "en", "de")
    line.wording = asked = Wording((("DER HUND",), ("Dackel",)), ("KATZE",))
    stage.before([line])
    capitals, as_given = line.wording.phrases
    assert {"der hund", "Der hund", "Der Hund"} <= set(capitals)
    assert as_given == ("Dackel",)
    assert {"KATZE", "Katze", "katze"} <= set(line.wording.avoid)
    stage.after([line])
    assert line.wording == asked


@pytest.mark.parametrize(
    ("line", "forms"),
    [
        ("THE DOG", ["HUND"]),
        ("NASA RUNS IN THE PARK", ["BEHÖRDE", "STADTPARK"]),
        ("NASA Runs In The Park", ["Behörde", "Stadtpark"]),
        ("nasa runs", []),  # only a line that has a case has its terms in any case
        ("THE US AND us", ["USA", "WIR"]),
    ],
)
def test_terms_are_found_in_the_line_as_it_was_written(line: str, forms: list[str]) -> None:
    pairs = {"dog": "Hund", "NASA": "Behörde", "the Park": "Stadtpark", "US": "USA", "us": "wir"}
    made = Glossary(tuple(pair_of(*pair) for pair in pairs.items()))
    read = Line(1, line)
    stages = LowerCase(Characters(LATIN, LATIN), Stage(), "en", "de"), FindTerms(made)
    for stage in stages:
        stage.before([read])
    for stage in reversed(stages):
        stage.after([read])
    assert [form for (form,) in read.wording.terms] == forms
