"""The rule NFC of a vocabulary, and the simpler text of sources, over all characters of Unicode."""

import sys
import unicodedata

import pytest
from translators import learned

from vtrans.text.normalization import nfc_rules, source_text

CHARACTERS = [c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) not in ("Cs", "Cn", "Co")]
NFC_VOCAB = learned(["The quick brown fox jumps over the lazy dog."] * 20)


def test_the_simpler_text_of_any_character_has_the_words_of_the_line() -> None:
    """Invisible characters join nothing, spaces stay spaces, and doing it twice changes nothing more."""
    for character in CHARACTERS:
        line, word = f"a {character} b{character}c", source_text(character)
        simple = source_text(line)
        assert simple == source_text(simple) == f"a {word} b{word}c", ascii(character)
        assert len(simple.split()) == len(line.split()) - (not word and not character.isspace()), ascii(character)


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("\uff28\uff45\uff4c\uff4c\uff4f\uff01\u3000\uff11\uff12\uff05", "Hello! 12%"),
        ("\ufb01nd \U0001d400\ufe8e", "find A\u0627"),
        ("\u201ea\u201c \u2019tis \u201ab\u2018", "\"a\" 'tis 'b'"),
        ("a\u00a0b\u2009c\u00add\u200be\ufefff\x85g", "a b cdef g"),
        ("10\u2076 m\u00b2 \u00bd \u2460 \u2122",) * 2,
        ("so\u2026 5\u338f e\u2011mail \u2103", "so... 5kg e-mail \u00b0C"),
        ("\u06cc\u200c\u0627 \u0915\u094d\u200d\u0937 \u200fa \u2764\ufe0f \u0e19\u0e49\u0e33 \u300c\u6f22\u300d",) * 2,
        ("a\tb",) * 2,  # a tab separates cells
    ],
)
def test_sources_are_written_in_usual_shapes(text: str, simple: str) -> None:
    assert source_text(text) == simple


def test_all_characters_survive_in_a_vocabulary_up_to_canonical_equivalence() -> None:
    for character in CHARACTERS:
        if character == "\u2581" or character.isspace():
            continue
        for text in (f"b{character}d", unicodedata.normalize("NFD", f"e{character}")):
            written = NFC_VOCAB.decode(NFC_VOCAB.encode(text))
            assert unicodedata.normalize("NFC", written) == unicodedata.normalize("NFC", text), ascii(text)


def test_the_rules_compose_and_change_nothing_else() -> None:
    for text, composed in nfc_rules().items():
        assert composed == unicodedata.normalize("NFC", text) or text in "\t\n\r"
    line = "\u1112\u1161\u11ab \u01b0\u0301\u0323 \u0958 \u00c5\u212b A\u030a"
    ids = NFC_VOCAB.encode(line)
    assert NFC_VOCAB.decode(ids) == "\ud55c \u1ee9\u0323 \u0915\u093c \u00c5\u00c5 \u00c5"
    assert NFC_VOCAB.encode("a\tb\n c\r") == NFC_VOCAB.encode("a b c")
    assert NFC_VOCAB.normalization == "nfc"


def test_rules_that_a_new_vocabulary_can_have_are_its_own() -> None:
    """The same text gives the same bytes, wherever SentencePiece read the rule from."""
    again = learned(["The quick brown fox jumps over the lazy dog."] * 20)
    assert again.proto == NFC_VOCAB.proto
    assert b".tsv" not in again.proto


def test_single_letters_of_korean_stay_single() -> None:
    for text in ("\u314b\u314b", "\u3131\u314f", "\uffa1\uffc2"):
        assert source_text(text) == text
