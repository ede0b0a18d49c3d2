"""Lines in capitals, in any language."""

from collections.abc import Sequence
from typing import Any

import pytest
from translators import learned
from typed_lines import LATIN, Reader, passed, translated, undone, vocabulary_of

from vtrans.text.case import SentenceCase, capitalized, in_capitals, lower, upper
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import Vocabulary
from vtrans.translate.steps.line import Line
from vtrans.translate.steps.protect import Protect
from vtrans.translate.steps.recase import Recase
from vtrans.translate.wording.glossary import Glossary, pair_of
from vtrans.translate.wording.phrases import Wording
from vtrans.translate.wording.protection import Protection

SENTENCES = {
    "az": ("Qız işıqda oxuyur. İndi isti.", "QIZ İŞIQDA OXUYUR. İNDİ İSTİ."),
    "de": ("Die Frau geht über die Straße nach Köln.", "DIE FRAU GEHT ÜBER DIE STRASSE NACH KÖLN."),
    "el": ("Ο σκύλος τρέχει στους δρόμους.", "Ο ΣΚΎΛΟΣ ΤΡΈΧΕΙ ΣΤΟΥΣ ΔΡΌΜΟΥΣ."),
    "en": ("I saw what I wanted. I'm a dog!", "I SAW WHAT I WANTED. I'M A DOG!"),
    "fr": ("La femme est dans la rue, à l'école.", "LA FEMME EST DANS LA RUE, À L'ÉCOLE."),
    "nl": ("IJsland is mooi. De trein is bijna leeg.", "IJSLAND IS MOOI. DE TREIN IS BIJNA LEEG."),
    "ru": ("Собака бежит в парк.", "СОБАКА БЕЖИТ В ПАРК."),
    "tr": ("İzmir ılık, ışıklı bir şehir.", "İZMİR ILIK, IŞIKLI BİR ŞEHİR."),
    "ar": ("الكلب يجري في الحديقة.", "الكلب يجري في الحديقة."),
    "hi": ("कुत्ता दौड़ता है।", "कुत्ता दौड़ता है।"),
    "ka": ("ძაღლი გარბის პარკში.", "ძაღლი გარბის პარკში."),
    "zh": ("我在 NBA 看 NFL 比赛。", "我在 NBA 看 NFL 比赛。"),
}
"""Sentences as they are usually written, and in capitals."""
LETTERS = " ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ.!犬")
TEXT = "the quick brown fox jumps over the lazy dog a dog runs is not us us us US The NASA NASA {}"
KNOWN = learned([TEXT] * 20 + [LETTERS])
READ = Reader(KNOWN, KNOWN)


def knows(language: str) -> Vocabulary:
    """Returns a vocabulary of the sentences of a language, and of all their letters and capitals."""
    text, capitals = SENTENCES[language]
    return learned([text.replace("ß", "ss")] * 20 + [" ".join(capitals)])


@pytest.mark.parametrize("language", SENTENCES)
def test_a_sentence_is_written_in_capitals_and_back(language: str) -> None:
    text, capitals = SENTENCES[language]
    has_case = text != capitals
    assert upper(text, language) == capitals
    assert upper(capitals, language) == capitals
    assert in_capitals(capitals) == has_case
    assert not in_capitals(text)
    assert len(lower(capitals, language)) == len(capitals)
    if has_case:
        assert SentenceCase(knows(language), language)(capitals) == text.replace("ß", "ss")


@pytest.mark.parametrize("language", SENTENCES)
def test_only_lines_in_capitals_are_recased_and_their_translations_get_capitals(language: str) -> None:
    text, capitals = SENTENCES[language]
    text = text.replace("ß", "ss")
    vocab = knows(language)
    step = Recase(vocab, vocab, Languages(language, language))
    mixed = f"{text} {capitals}"
    for given, seen, written in ((text, text, text), (capitals, text, capitals), (mixed, mixed, text)):
        line = passed(given, step)
        assert (line.model_input, undone(line, text).text) == (seen, written)


def test_georgian_capitals_are_read_and_never_written() -> None:
    (text, _), vocab = SENTENCES["ka"], learned([SENTENCES["ka"][0]] * 20)
    assert in_capitals(text.upper())
    assert SentenceCase(vocab, "ka")(text.upper()) == text
    assert capitalized(text, "ka") == text


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("THE DOG ZOUX RUNS", "The dog ZOUX runs"),  # z, ou, x
        ("THE ZOUXQ RUNS", "The zouxq runs"),  # too long for an acronym
        ("The ZOUX runs", "The ZOUX runs"),
    ],
)
def test_rare_short_words_may_be_acronyms(line: str, seen: str) -> None:
    vocab = learned([TEXT, "sour hour loud noun"] * 20 + [LETTERS, LETTERS.lower()])
    assert passed(line, Recase(vocab, vocab, Languages("en", "de"))).model_input == seen


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("A DOG RUNS.", "A dog runs."),
        ("JUMPS!", "Jumps!"),
        ("NASA", "NASA"),  # a single subword
        ("US", "US"),  # as many as in lower case
        ("THE FOX IS US", "The fox is us"),
        ("NASA OVER THE FOX", "NASA over the fox"),
        ("THE FOX! THE {DOG}. {DOG} FOX (THE DOG) 3.5 DOG.", "The fox! The {DOG}. {DOG} fox (the dog) 3.5 dog."),
        ("5KG B-12 FOX DOG", "5KG B-12 fox dog"),
        ("{Name} DOG %s OVER FOX", "{Name} dog %s over fox"),
        ("A", "A"),
        ("犬 DOG FOX", "犬 DOG FOX"),
        ("A DOG runs.", "A DOG runs."),
        ("The Quick Brown Fox!", "The Quick Brown Fox!"),
        ("The", "The"),
        ("a dog is NOT a FOX", "a dog is NOT a FOX"),
    ],
)
def test_a_line_as_the_model_sees_it(line: str, seen: str) -> None:
    assert READ.as_read(line) == seen
    assert READ.as_read(line, prefix="x") == line


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("QUICK", "quick"),
        ("BERLIN", "Berlin"),  # it has fewer subwords with a capital
        ("MONDAY'S", "Monday's"),
        ("DFG", "DFG"),  # it has as many subwords in capitals
        ("NASA", "NASA"),
        ("I'M", "I'm"),
        ("ΩΨ", "ωψ"),  # only its lower-case letters are known
    ],
)
def test_a_word_is_written_as_the_vocabulary_knows_it_best(word: str, written: str) -> None:
    vocab = vocabulary_of("the quick fox I I I i s m Berlin Berlin Monday Monday NASA ωψ")
    assert SentenceCase(vocab, "en")(f"THE {word}") == f"The {written}"


def test_a_word_that_is_much_more_frequent_with_a_capital_is_a_name() -> None:
    class Known:
        def encode_batch(self, texts: Sequence[str], **options: Any) -> list[list[int]]:
            return [[{"Tom": 300, "tom": 1000, "What": 300, "what": 600}.get(text, 5000)] for text in texts]

        def is_subword(self, id: int) -> bool:
            return True

    vocab: Any = Known()
    assert SentenceCase(vocab, "en")("WHAT TOM? TOM WHAT") == "What Tom? Tom what"


def test_a_model_without_capitals_gets_lower_case_letters() -> None:
    small = vocabulary_of("a quick fox jumps over the")
    assert Reader(small, small).as_read("The {X} Fox") == "the {X} fox"


@pytest.mark.parametrize("asked", [{"raw": True}, {"prefix": "ein"}])
def test_a_line_is_given_to_the_model_in_capitals_if_the_user_says_so_or_how_it_begins(asked: dict[str, Any]) -> None:
    assert translated("IN THE DOG").text == "EIN IN THE DOG"
    assert translated("IN THE DOG", **asked).text == "ein IN THE DOG"


def test_constraints_terms_and_protected_text_keep_their_form() -> None:
    line, step = Line(1, "THE DOG"), Recase(LATIN, LATIN, Languages("en", "de"))
    line.wording = Wording((("DER HUND",), ("Dackel", "Der Dackel")), ("KATZE",), (("Köter",),))
    step([line])
    capitals, as_given = line.wording.phrases
    assert {"DER HUND", "der hund", "Der hund"} <= set(capitals)
    assert as_given == ("Dackel", "Der Dackel")
    assert {"KATZE", "Katze", "katze"} <= set(line.wording.avoid)
    written = undone(line, "der hund, Der Dackel, ein Köter A1").text
    assert written == "DER HUND, Der Dackel, EIN Köter A1"
    assert line.wording.unmet(written) == []
    masked = Protection().masked("{Name} DOG %s").model_input
    assert step.in_capitals(masked) == masked


@pytest.mark.parametrize(
    ("line", "forms"),
    [
        ("THE DOG", ["Hund"]),
        ("NASA RUNS IN THE PARK", ["Behörde", "Stadtpark"]),
        ("nasa runs", []),  # only a line in capitals has its terms in any case
        ("TELL US", ["USA"]),
        ("Tell us", ["wir"]),
    ],
)
def test_terms_are_found_in_a_line_in_capitals(line: str, forms: list[str]) -> None:
    pairs = {"dog": "Hund", "NASA": "Behörde", "the Park": "Stadtpark", "US": "USA", "us": "wir"}
    read = passed(line, Protect(None, None, Glossary(tuple(pair_of(*pair) for pair in pairs.items()))))
    assert [form for (form,) in read.wording.terms] == forms


@pytest.mark.parametrize(
    ("given", "known", "seen", "back"),
    [
        ("Ý chí", "ý chí", "ý chí", "Ý chí x"),
        ("Ý ý", "ý chí", "ý ý", "ý ý x"),  # of a word with two forms, neither comes back
        ("İNSAN ve adam", "insan ve adam İ N A", "insan ve adam", "İNSAN ve adam x"),  # never insAN
        ("İNSAN HAKLARI", "insan hakları haklari", "insan haklari", "İNSAN HAKLARI X"),
        ("MAẞE UND FUẞ", "maße und fuß", "maße und fuß", "MAẞE UND FUẞ X"),
    ],
)
def test_words_in_the_translation_get_their_capitals_back(given: str, known: str, seen: str, back: str) -> None:
    vocab = vocabulary_of(known)
    line = passed(given, Recase(vocab, vocab, Languages("", "")))
    assert (line.model_input, undone(line, f"{seen} x").text) == (seen, back)
