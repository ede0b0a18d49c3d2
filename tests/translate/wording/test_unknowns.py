"""Characters that the vocabulary lacks, and symbols around a sentence."""

import time

import pytest
from typed_lines import LATIN, READ, passed, translated, undone, vocabulary_of

from vtrans.translate.steps.finish import Finish
from vtrans.translate.steps.line import Line
from vtrans.translate.steps.protect import CopiedText, Protect
from vtrans.translate.translation import TranslateOptions, Translation
from vtrans.translate.wording.protection import Protection


@pytest.mark.parametrize(
    ("line", "bullet"),
    [
        ("- the fox 0", "- "),
        (" \u2022 The fox.", " \u2022 "),
        ("* (the fox)", "* "),
        ("> 5 foxes", ""),
        ("\u00ab the fox \u00bb", ""),
        ("-The fox-", ""),
        ("M. Fox", ""),
        ("20. fox", ""),
        ("The fox...", ""),
    ],
)
def test_a_bullet_stays_before_its_line(line: str, bullet: str) -> None:
    vocab = vocabulary_of("the quick brown fox foxes The M 0 1 2 5 b . ( ) * > - \u2022 \u00ab \u00bb")
    read = passed(line, Protect(None, CopiedText(vocab, vocab)))
    assert bullet + read.model_input == line
    assert undone(read, "Der Fuchs.").text == f"{bullet}Der Fuchs."


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
        ("3,456.78 foxes", []),  # numbers are checked
        ("fox https://fox.org/a?b=1&c=2 fox.", ["https://fox.org/a?b=1&c=2"]),
        ("fox (http://fox.org/The_(fox)), fox", ["(", "http://fox.org/The_(fox)", ")"]),
        ("/fox/dog $5, 10%, a@b.org! 1/2 km/h", ["/fox/dog", "$5", "10%", "a@b.org", "1/2", "/"]),
        ("C++, C# and/or R&D", ["C++", "C#", "/", "R&D"]),
        ("**fox** *the dog* fox😀fox <fox", ["**", "**", "*", "*", "😀", "<"]),
        (f"fox {'fox' * 70}, {'狐' * 300}", ["fox" * 70, "狐" * 300]),  # no word is as long
        ("fox፡" * 60, ["፡"] * 60),  # the blank of Ethiopic
        ("don`t fox+ +", ["`", "fox+", "+"]),
    ],
)
def test_text_that_the_vocabulary_lacks_is_copied(line: str, copied: list[str]) -> None:
    spans = CopiedText(LATIN, LATIN).added_to(list(Protection().spans(line)), line, (0, len(line)))
    assert [line[begin:end] for begin, end in spans] == copied


@pytest.mark.parametrize("line", ["他跑了{}的路", "犬が{}を{}。", "เขาวิ่ง{}วัน", "он бежал {} раз"])
def test_an_address_ends_at_characters_of_scripts_without_spaces(line: str) -> None:
    vocab = vocabulary_of(line.replace("{}", " 5 6 a b "))
    text, found = line.format(*["5/6", "a@b"][: line.count("{}")]), CopiedText(vocab, vocab)
    spans = found.added_to([], text, (0, len(text)))
    assert [text[begin:end] for begin, end in spans] == ["5/6", "a@b"][: line.count("{}")]


def test_hostile_lines_are_read_in_linear_time() -> None:
    pieces = ("😀", "😀 ", "Dvořák", "-", "- ", "A", "A ", "\u0301", "犬ř", "a/", "(/", "/)", "<a/", "\u200d")
    for line in (*(20_000 * piece for piece in pieces), f"a{40_000 * '%'}a"):
        began = time.process_time()
        read = READ(line)
        READ.case.in_capitals(read.model_input, ("a",))
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
    begin, end = CopiedText(LATIN, LATIN).sentence_in(line, list(Protection().spans(line)))
    assert (line[:begin], line[end:]) == outside


def test_links_count_the_symbols_around_a_sentence() -> None:
    best = translated("😀 a 🎉 dog. → →", alignments=True)
    assert best.text == "😀 ein a 🎉 dog. → →"
    assert best.alignment == ((0, 0), (2, 3), (4, 5), (5, 6))
    best = translated("😀a 🎉 dog", alignments=True)
    assert (best.text, best.alignment) == ("😀ein a 🎉 dog", ((1, 2),))


def test_equal_translations_are_left_out() -> None:
    line = Line(1, "A DOG")
    line.translations = [Translation(text, -i, -i, True) for i, text in enumerate(["X", "Y", "X", "Z", "Y"])]
    Finish(TranslateOptions(nbest=5))([line])
    assert [(t.text, t.finished) for t in line.translations] == [
        *(("X", True), ("Y", True), ("Z", True)),
        *(("", False), ("", False)),
    ]
    assert [t.logprob for t in line.translations[:3]] == [0, -1, -3]


@pytest.mark.parametrize(
    ("line", "found", "wanted"),
    [
        ("a dog", "ein \ufffd \ufffdHund", "ein Hund"),
        ("a dog", "\ufffd\ufffd", ""),
        ("a \ufffd dog", "ein \ufffd Hund", "ein \ufffd Hund"),
    ],
)
def test_replacement_characters_are_removed(line: str, found: str, wanted: str) -> None:
    seen, links = Line(1, line), tuple((j, j) for j in range(len(found.split())))
    rated = tuple(1 / (1 + j) for j, _ in links)
    seen.translations = [Translation(found, 0.0, 0.0, True, alignment=links, word_confidences=rated)]
    Finish(TranslateOptions())([seen])
    (best,) = seen.translations
    assert best.text == wanted
    assert [j for _, j in best.alignment or ()] == list(range(len(wanted.split())))
    assert len(best.word_confidences or ()) == len(wanted.split())


@pytest.mark.parametrize("line", ["😀", " 犬犬 → 😀 ", "---", "?!", "😀 12", "1.000,5 + 3", "犬"])
def test_a_line_without_a_word_that_the_model_knows_is_its_own_translation(line: str) -> None:
    best = translated(line)
    assert (best.text, best.logprob) == (line, 0.0)
    assert translated(line, raw=True).text != line
