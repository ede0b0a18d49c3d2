"""Numbers of translations get the marks of their language, and words that a pair copies become codes."""

import pytest
from typed_lines import undone, vocabulary_of

from vtrans.storage.pair_counts import PairCounts
from vtrans.text.languages import Languages
from vtrans.translate.steps.line import Line
from vtrans.translate.steps.protect import CopiedText, Protect, both_marks, with_marks
from vtrans.translate.translation import Translation

SWISS = PairCounts({}, {}, {"decimal": {".": 50}, "group": {"’": 50}})
COPIES = PairCounts({"names": {"verbatim": 70, "changed": 30}, "identifiers": {"verbatim": 30, "changed": 70}}, {}, {})


def written(src: str, tgt: str, languages: str, pair: PairCounts | None = None) -> str:
    marks = both_marks(Languages(*languages.split("-", 1)), pair)
    return with_marks(src, *marks, Translation(tgt, 0, 0, True)).text if marks else tgt


@pytest.mark.parametrize(
    ("src", "tgt", "languages", "expected"),
    [
        ("It costs 1,234.50 now", "Es kostet 1,234.50", "en-de", "Es kostet 1.234,50"),
        ("It costs 1,234.50 now", "Ça coûte 1,234.50", "en-fr", "Ça coûte 1\u202f234,50"),
        ("Es sind 0,5 km", "It is 0,5 km", "de-en", "It is 0.5 km"),
        ("It costs 1,234.50 now", "Es kostet 1.234,50", "en-de", "Es kostet 1.234,50"),
        ("3/4 of 12:30", "3/4 von 12:30", "en-de", "3/4 von 12:30"),
        ("1,234.50", "1,234.50", "en-xx", "1,234.50"),  # no language
        ("1,234.50", "1,234.50", "-de", "1,234.50"),
    ],
)
def test_numbers_get_the_marks_of_the_target(src: str, tgt: str, languages: str, expected: str) -> None:
    assert written(src, tgt, languages) == expected


def test_number_marks_of_the_training_text_override_cldr() -> None:
    assert written("It is 1,234.50", "Es ist 1,234.50", "en-de", SWISS) == "Es ist 1’234.50"
    assert written("It is 1,234.50", "Es ist 1,234.50", "en-xx", SWISS) == "Es ist 1’234.50"


def test_links_follow_a_number_that_becomes_several_words() -> None:
    marks = both_marks(Languages("en", "fr"), None)
    assert marks
    given = Translation(
        "a 1,234,567 b", 0, 0, True, alignment=((0, 0), (1, 1), (2, 2)), word_confidences=(0.1, 0.2, 0.3)
    )
    made = with_marks("a 1,234,567 b", *marks, given)
    assert made.text.split() == ["a", "1", "234", "567", "b"]
    assert made.alignment == ((0, 0), (1, 1), (1, 2), (1, 3), (2, 4))
    assert made.word_confidences == (0.1, 0.2, 0.2, 0.2, 0.3)


def test_links_of_words_that_become_one_are_joined() -> None:
    given = Translation("a b", 0, 0, True, alignment=((0, 0), (0, 1)), word_confidences=(0.1, 0.2))
    made = given.rewritten("ab")
    assert (made.alignment, made.word_confidences) == (((0, 0),), (0.1,))


def test_codes_keep_their_marks() -> None:
    line = Line(1, "See 1,234.5 and 🦊1,234.5")
    vocab = vocabulary_of("See and 1 2 3 4 5 . , A B")
    Protect(None, CopiedText(vocab, vocab), marks=both_marks(Languages("en", "de"), None))([line])
    (code,) = line.codes
    assert undone(line, f"Siehe 1,234.5 und {code}1,234.5").text == "Siehe 1.234,5 und 🦊1,234.5"


@pytest.mark.parametrize(
    ("line", "copied"),
    [
        ("the fox Zoltan runs", ["Zoltan"]),
        ("the fox. Zoltan runs", []),  # it begins a sentence
        ("Zoltan runs", []),
        ("the Quick fox", []),  # it is not rare
        ("the fox iPhone x_y", []),  # the pair changes identifiers
    ],
)
def test_text_is_copied_as_in_the_training_text(line: str, copied: list[str]) -> None:
    vocab = vocabulary_of("the Quick fox runs. Z o l t a n P h e x y _ i")
    words, whole = CopiedText(vocab, vocab, COPIES), (0, len(line))
    assert [line[begin:end] for begin, end in words.added_to([], line, whole)] == copied
    assert words.added_to([whole], line, whole) == [whole]
    assert words.added_to([(0, 3)], line, whole) == [(0, 3), *words.added_to([], line, whole)]
    assert CopiedText(vocab, vocab, SWISS).added_to([], line, whole) == []
