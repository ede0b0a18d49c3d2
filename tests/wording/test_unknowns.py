"""Characters that the vocabulary cannot write, and what stays around a sentence."""

from __future__ import annotations

import time
from typing import Any

import pytest
from typed_lines import LATIN, READ, Reader, translated, vocabulary_of

from vtrans.lines.line import Line
from vtrans.lines.mbr import LeaveOutEqual
from vtrans.lines.requirements import ProtectText
from vtrans.lines.unknowns import AROUND, Characters, CopyUnknown, DropInvisible
from vtrans.translate.translation import Translation
from vtrans.wording.protect import Protection


@pytest.mark.parametrize(
    ("line", "read", "around"),
    [
        ("- the fox 0", "the fox 0", ("- ", "")),
        (" \u2022 The fox.", "The fox.", (" \u2022 ", "")),
        ("* (the fox)", "(the fox)", ("* ", "")),
        ("> 5 foxes", "> 5 foxes", None),
        ("\u00ab the fox \u00bb", "\u00ab the fox \u00bb", None),
        ("-The fox-", "-The fox-", None),
        ("M. Fox", "M. Fox", None),
        ("20. fox", "20. fox", None),
        ("The fox...", "The fox...", None),
    ],
)
def test_a_bullet_stays_before_its_line(line: str, read: str, around: Any) -> None:
    vocab = vocabulary_of("the quick brown fox The M 0 1 2 5 b . ( ) * > - \u2022 \u00ab \u00bb")
    stage, seen = CopyUnknown(Characters(vocab, vocab)), Line(1, line)
    stage.before([seen])
    assert (seen.seen.text, AROUND.get(seen)) == (read, around)
    seen.translations = [Translation("Der Fuchs.", -1.0, -1.0, True)]
    stage.after([seen])
    assert seen.translations[0].text == f"{around[0] if around else ''}Der Fuchs."


def copied_of(reader: Reader, line: str) -> list[str]:
    read = reader(line, prefix="x")  # so that the symbols around it are part of it
    return [text for code, text in read.parts if code in read.texts]


@pytest.mark.parametrize(
    ("line", "copied"),
    [
        ("The fox.", []),
        ("The fox 😀😀.", ["😀😀"]),
        ("👨‍👩‍👧 🇩🇪 ☎️ →", ["👨‍👩‍👧", "🇩🇪", "☎️", "→"]),
        ("Dvořák's fox", ["Dvořák's"]),
        ("Ærø", ["Ærø"]),
        ("собака 狐狸, αβγ!", ["собака", "狐狸", "αβγ"]),
        ("fox क्\u200dया \u2067שלום\u2069", ["क्\u200dया", "\u2067שלום\u2069"]),
        ("{😀} fox 😀", ["{😀}", "😀"]),  # protected text is one piece
        ("fox\u00a0ｆｏｘ", []),  # normalization gives them pieces
    ],
)
def test_what_the_vocabulary_lacks_is_copied(line: str, copied: list[str]) -> None:
    assert copied_of(READ, line) == copied


@pytest.mark.parametrize(
    ("line", "copied"),
    [
        ("fox https://fox.org/a?b=1&c=2 fox.", ["https://fox.org/a?b=1&c=2"]),
        ("fox (http://fox.org/The_(fox)), fox", ["(", "http://fox.org/The_(fox)", ")"]),
        ("/fox/dog $5, 10%, a@b.org! 1/2 km/h", ["/fox/dog", "$5", "10%", "a@b.org", "1/2", "/"]),
        ("C++ and/or R&D", ["C++", "/", "R&D"]),
        ("**fox** *the dog* fox😀fox <fox", ["**", "**", "*", "*", "😀", "<"]),
        (f"fox {'fox' * 70}, {'狐' * 300}", ["fox" * 70, "狐" * 300]),  # no word is as long
        ("fox፡" * 60, ["፡"] * 60),  # the blank of Ethiopic
        ("don`t fox+ +", ["`", "fox+", "+"]),
    ],
)
def test_a_run_with_an_unknown_symbol_is_copied_as_a_whole(line: str, copied: list[str]) -> None:
    assert copied_of(READ, line) == copied


def test_hostile_lines_are_read_in_linear_time() -> None:
    for piece in ("😀", "😀 ", "Dvořák", "-", "- ", "A", "A ", "\u0301", "犬ř", "a/", "(/", "/)", "<a/", "\u200d"):
        began = time.process_time()
        read = READ(piece * 20_000)
        READ.case.in_capitals(read.masked, ("a",))
        assert time.process_time() - began < 5, "20,000 pieces take milliseconds, and minutes if the time is quadratic"


def test_unknown_characters_come_back_and_are_linked_to_themselves() -> None:
    best = translated("a 😀 dog", alignments=True)
    assert (best.text, best.alignment) == ("ein a 😀 dog", ((1, 2),))


@pytest.mark.parametrize(
    ("line", "outside"),
    [
        ("😀 a dog", ("😀 ", "")),
        ("a dog. 😀😀 ", ("", " 😀😀 ")),
        ("→ a dog!🎉", ("→ ", "🎉")),
        ("a dog 😀", ("", "")),  # it may be a part of the sentence
        ("狐 a dog. 狐", ("", "")),  # a word
        (" a dog. ", ("", "")),
        ("| | a dog: .... |", ("| | ", " |")),
        ("|| a dog ||", ("|| ", " ||")),
        ("😀 {😀} a dog. {😀} 😀", ("😀 ", "")),  # protected text belongs to the sentence
        ("\t\r a dog", ("", "")),
    ],
)
def test_symbols_around_a_sentence_stay_where_they_are(line: str, outside: tuple[str, str]) -> None:
    read = Line(1, line)
    for stage in (ProtectText(Protection()), CopyUnknown(Characters(LATIN, LATIN))):
        stage.before([read])
    assert (AROUND.get(read) or ("", "")) == outside


def test_links_count_the_symbols_around_a_sentence() -> None:
    best = translated("😀 a 🎉 dog. → →", alignments=True)
    assert best.text == "😀 ein a 🎉 dog. → →"
    assert best.alignment == ((0, 0), (2, 3), (4, 5), (5, 6))
    best = translated("😀a 🎉 dog", alignments=True)
    assert (best.text, best.alignment) == ("😀ein a 🎉 dog", ((1, 2),))


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("\x00\x80", ""),
        ("a \x00 do\u00adg\u202e", "a  dog"),
        ("a\tdog", "a\tdog"),  # normalization makes it a space
        ("👨\u200d👩\U000e0067 \u200ddog", "👨\u200d👩\U000e0067 dog"),  # they join emoji
        ("क्\u200dया \u2067שלום\u2069 \u2067dog\u2069", "क्\u200dया \u2067שלום\u2069 dog"),  # they are copied
    ],
)
def test_control_characters_are_not_shown_to_the_model(line: str, seen: str) -> None:
    read = Line(1, line)
    DropInvisible(Characters(LATIN, LATIN)).before([read])
    assert read.seen.text == seen


def test_equal_translations_are_left_out() -> None:
    line = Line(1, "A DOG")
    line.translations = [Translation(text, -i, -i, True) for i, text in enumerate(["X", "Y", "X", "Z", "Y"])]
    LeaveOutEqual().after([line])
    assert [(t.text, t.finished) for t in line.translations] == [
        *(("X", True), ("Y", True), ("Z", True)),
        *(("", False), ("", False)),
    ]
    assert [t.logprob for t in line.translations[:3]] == [0, -1, -3]


@pytest.mark.parametrize("line", ["😀", " 犬犬 → 😀 ", "---", "?!", "😀 12", "1.000,5 + 3", "犬"])
def test_a_line_without_a_word_that_the_model_knows_is_its_own_translation(line: str) -> None:
    best = translated(line)
    assert (best.text, best.logprob) == (line, 0.0)
    assert translated(line, raw=True).text != line
