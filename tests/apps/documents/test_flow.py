"""Sentences, what lies between them, and text that goes on across captions and lines."""

import re

import hypothesis.strategies as st
import pytest
from catalogues import filled, loud, reverse, same
from hypothesis import given

from vtrans.apps.documents.document import PlainDocument, Translated
from vtrans.apps.documents.files import open_file
from vtrans.apps.documents.formats.flow import SubtitleDocument, divided
from vtrans.apps.documents.formats.html import html_document
from vtrans.apps.documents.sentences import Splitting, split_sentences

WRAPPED = "The dogs all go into the park near the river every\nday, and there they meet all of the other dogs that\n" \
    "live here.\n"  # fmt: skip


def captions(*texts: str) -> str:
    return "".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{text}\n\n" for n, text in enumerate(texts, 1))


def short(line: str) -> Translated:
    return Translated("No.", ())


@pytest.mark.parametrize(
    ("texts", "lines"),
    [
        (("all go to the park", "now. And then", "they sleep."), ["all go to the park now.", "And then they sleep."]),
        (("<i>all go to</i>", "<i>the park.</i>"), ["all go to the park."]),
        (("{\\an8}a dog\\Nruns", "very far."), ["a dog runs very far."]),
        (("a dog\n\nruns here.",), ["a dog runs here."]),
        (("- A dog", "- A cat."), ["A dog", "A cat."]),
        ((">> A dog. >> A cat.",), ["A dog.", "A cat."]),
        (("[DOOR]\na dog runs", "very far."), ["[DOOR]", "a dog runs very far."]),
        (("a", "b", "c", "d", "e", "f"), ["a", "b", "c", "d", "e", "f"]),
        (("a {\\i1}big{\\i0} dog.",), ["a big dog."]),
    ],
)  # fmt: skip
def test_a_sentence_across_captions_is_one_line(texts: tuple[str, ...], lines: list[str]) -> None:
    source = captions(*texts)
    assert SubtitleDocument(source, "en").lines == lines
    for newline in ("\n", "\r\n"):
        content = source.replace("\n", newline)
        upper = re.sub(r"(?<![\\{])\b[a-z]+\b(?![\d>])|\b[A-Z][a-z]+\b", lambda word: word.group().upper(), content)
        assert filled("a.srt", content.encode(), loud).decode() == upper
        for translate in (same, reverse, short):
            made = filled("a.srt", content.encode(), translate).decode()
            assert [re.findall(form, made) for form in FIXED] == [re.findall(form, content) for form in FIXED]
            assert all(re.split(r"\d\r?\n.* --> .*\n", made)[1:])


FIXED = (r"\d+\r?\n.* --> .*\n", r"</?\w>|\{.*?\}|^- |>> ", r"\n(?:\r?\n)+\d")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_wrapped_paragraph_is_read_as_one_and_other_lines_stay_lines(newline: str) -> None:
    text = f"A title\n\n{WRAPPED}\n- one\n- two\n".replace("\n", newline)
    lines = open_file("a.txt", text.encode(), 10_000).read(text, "en").lines
    assert lines == ["A title", " ".join(WRAPPED.split()), "- one", "- two"]
    assert filled("a.txt", text.encode(), loud).decode() == text.upper()
    assert filled("a.txt", text.encode(), same).decode() == text
    listed = text.replace("every", "every.").replace("that", "that.")
    assert filled("a.txt", listed.encode(), reverse).decode().count(newline) == text.count(newline)


def test_lines_without_spaces_are_wrapped_where_the_next_character_would_not_fit() -> None:
    line = "关于城市总体规划实施情况以及明年重点工作安排的说明和补充材料的目录以及其他有关事项的报告"
    read = [open_file("a.txt", text.encode(), 10_000).read(text, "zh").lines for text in (
        f"{line}\n{line}\n", f"{line}\n{line[:20]}\n{line}\n",
    )]  # fmt: skip
    assert read == [[line * 2], [line, line[:20], line]]


def test_a_mixture_of_line_ends_stays() -> None:
    for name, content in {"a.txt": b"A dog\r\nruns\nfar\r\n", "a.html": b"<p>A dog\r\n<p>runs\n"}.items():
        assert filled(name, content, loud) == content.upper().replace(b"<P>", b"<p>")


@given(st.text("ab, <>.|", max_size=30), st.lists(st.integers(1, 20), min_size=1, max_size=5))
def test_the_parts_of_a_text_make_it_up_again(text: str, shares: list[int]) -> None:
    parts = divided(text, shares, "|")
    assert len(parts) <= len(shares)
    assert re.sub(" +", "", "".join(parts)) == re.sub("[ |]", "", text)


TEXTS = st.text(st.sampled_from("ab.?! \n\r\t\u2028\x85\x0c\"'()。Z9Dr") | st.characters(exclude_categories=["Cs"]))


@given(TEXTS, st.sampled_from(["en", "de", "zh-Hans", "xx"]))
def test_the_parts_make_up_the_text_again(text: str, language: str) -> None:
    split = split_sentences(text, language)
    assert split.joined(split.sentences) == text
    assert len(split.between) == len(split.sentences) + 1
    assert all(sentence and sentence == sentence.strip() for sentence in split.sentences)
    assert not any(between.strip() for between in split.between)


@pytest.mark.parametrize(
    ("splitting", "sentences"),
    [
        ("lines", ["One.", "Two", "and three."]),
        ("sentences", ["One.", "Two and three."]),
        ("nothing", ["One. Two and three."]),
    ],
)
def test_where_a_text_is_split(splitting: Splitting, sentences: list[str]) -> None:
    text = " One.\nTwo\nand three.\n"
    split = split_sentences(text, "en", splitting)
    assert split.sentences == sentences
    assert split.joined(sentences).replace("\n", " ") == text.replace("\n", " ")


TRANSLATIONS = {
    "A dog.": "狗。",
    "A cat.": "猫。",
    "狗。": "A dog.",
    "猫。": "A cat.",
    "कुत्ता।": "A dog.",
    "Ja!": "はい!",
}


@pytest.mark.parametrize(
    ("text", "language", "written"),
    [
        ("A dog. A cat.\nA dog.", "en", "狗。猫。\n狗。"),
        ("A dog.  A cat.", "en", "狗。  猫。"),
        ("狗。猫。", "zh", "A dog. A cat."),
        ("狗。 x", "zh", "A dog. x"),
        ("कुत्ता।कुत्ता।", "hi", "A dog. A dog."),
        ("Ja! A dog.", "de", "はい!狗。"),
        ("ABC。 犬。", "ja", "ABC。 犬。"),  # it stays as it is
    ],
)
def test_sentences_are_separated_as_in_the_script_of_the_translation(text: str, language: str, written: str) -> None:
    plain = PlainDocument(text, language)
    translations = [Translated(TRANSLATIONS.get(line, line)) for line in plain.lines]
    assert plain.joined(translations) == written
    marked = html_document(f"<p><b>{text}</b></p>", language, splitting="lines")
    assert marked.joined(translations) == f"<p><b>{written}</b></p>"
