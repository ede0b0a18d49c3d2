"""Files: each format is translated and otherwise unchanged."""

from __future__ import annotations

import io
import zipfile

import pytest
from office_files import BODY, docx, member, zipped
from services import reversed_words
from translators import window

from vtrans.documents.document import Translated, html_document
from vtrans.documents.files import open_file
from vtrans.documents.office import _WORD
from vtrans.documents.subtitles import broken
from vtrans.documents.translating import Answers, Groups, Lines
from vtrans.documents.xml import Element, parse
from vtrans.errors import DocumentError, DocumentSizeError
from vtrans.server.batching import RequestOptions

OFFICE, TEXT = (f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0" for name in ("office", "text"))
CONTENT = f'<office:document-content xmlns:office="{OFFICE}" xmlns:text="{TEXT}">%s</office:document-content>'


def reversed_file(name: str, content: bytes) -> bytes:
    """Returns a file whose sentences are reversed."""
    opened = open_file(name, content, 100_000)
    documents = [opened.read(text, "en") for text in opened.texts]
    lines = [reversed_words(window(document.lines), RequestOptions(alignments=True)) for document in documents]
    texts = [d.joined([best[0] for best in nbest]) for d, nbest in zip(documents, lines, strict=True)]
    return opened.written(texts)


def translated(name: str, content: bytes, translation: str) -> bytes:
    """Returns a file whose sentences all have this translation."""
    opened = open_file(name, content, 100_000)
    documents = [opened.read(text, "en") for text in opened.texts]
    return opened.written([d.joined([Translated(translation, ())] * len(d.lines)) for d in documents])


def word(body: str) -> str:
    return member(reversed_file("a.docx", docx(body)), "word/document.xml")


def test_subtitles_keep_numbers_times_and_lines() -> None:
    first, second = "1\n00:00:01,000 --> 00:00:02,000\n", "2\n00:00:03,000 --> 00:00:04,000\n"
    text = f"{first}<i>one two</i> three\nfour five six\n\n{second}a & b\n"
    expected = f"{first}six five four three\n<i>two one</i>\n\n{second}b & a\n"
    assert reversed_file("a.srt", text.encode()).decode() == expected


def test_subtitles_of_the_web_keep_notes_settings_and_tags() -> None:
    head = "WEBVTT - a b\n\nNOTE a b\n\nSTYLE\n::cue { color: red }\n\nid one\n00:01.000 --> 00:04.000 align:start\n"
    for source, expected in (
        ("<v Anna Bell>a b &amp; c", "<v Anna Bell>c &amp; b a"),
        ("a <c.red.big>b c</c> d", "d <c.red.big>c b</c> a"),
        ("<v Anna Bell>a b\nc d", "<v Anna Bell>d\nc b a"),
        ("- a b\n- c <00:02.000>d", "- b a\n- d c <00:02.000>"),
    ):
        assert reversed_file("a.vtt", (head + source).encode()).decode() == head + expected


def test_a_dash_in_subtitles_begins_what_another_speaker_says() -> None:
    caption = "1\n00:00:01,000 --> 00:00:02,000\n{}\n\n"
    for source, expected in (
        ("- Hello you.\n- A dog runs.", "- you. Hello\n- runs. dog A"),
        ("-Hello you.\n\u2013 A dog\nruns fast.", "-you. Hello\n\u2013 fast. runs\ndog A"),
        ("<i>- Hello you.</i>\n<i>- A dog runs.</i>", "<i>- you. Hello</i>\n<i>- runs. dog A</i>"),
        ("<i>- Hello you.\n- A dog runs.</i>", "<i>- you. Hello\n- runs. dog A</i>"),
        ("Hello you.\n- A dog runs.", "you. Hello\n- runs. dog A"),
        ("a well-known\ndog", "dog\nwell-known a"),
        ("- a --> b", "- b --> a"),
        ("[DOOR OPENS]\na b\nc d", "OPENS] [DOOR\nd c\nb a"),
        ("a b\n(door opens)\n- c d", "b a\nopens) (door\n- d c"),
        ("\u266a a b \u266a\n\u266a c d \u266a", "\u266a b a \u266a\n\u266a d c \u266a"),
        ("a [b] c\nd", "d c\n[b] a"),
    ):
        assert reversed_file("a.srt", caption.format(source).encode()).decode() == caption.format(expected)


@pytest.mark.parametrize(
    ("text", "height", "expected"),
    [("a b c d", 2, "a b\nc d"), ("a b", 3, "a\nb"), ("", 2, ""), ("abcdef g", 2, "abcdef\ng"), ("a", 1, "a")],
)
def test_lines_are_broken_evenly(text: str, height: int, expected: str) -> None:
    assert broken(text, height) == expected


def test_a_word_file_keeps_its_runs_and_other_members() -> None:
    body = (
        '<w:p w:rsidR="1"><w:pPr><w:jc w:val="x"/></w:pPr><w:r><w:t xml:space="preserve">The </w:t></w:r>'
        '<w:proofErr w:type="spellStart"/><w:r w:rsidR="2"><w:t>big</w:t></w:r>'
        '<w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve"> dog &amp; cat</w:t></w:r>'
        "<w:r><w:tab/><w:t>next one</w:t></w:r></w:p>"
        "<w:p/>"
    )
    content = docx(body, word__header1_xml=(BODY % "<w:p><w:r><w:t>a b</w:t></w:r></w:p>"))
    made = reversed_file("x.docx", content)
    assert member(made, "word/header1.xml") == BODY % ('<w:p><w:r><w:t xml:space="preserve">b a</w:t></w:r></w:p>')
    assert member(made, "word/document.xml") == BODY % (
        '<w:p w:rsidR="1"><w:pPr><w:jc w:val="x"/></w:pPr>'
        '<w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve">cat &amp; dog </w:t></w:r>'
        '<w:r><w:t xml:space="preserve">big The</w:t></w:r>'
        '<w:r><w:tab/></w:r><w:r><w:t xml:space="preserve">one next</w:t></w:r></w:p><w:p/>'
    )
    with zipfile.ZipFile(io.BytesIO(made)) as file:
        assert file.read("word/media/a.png") == b"\x89PNG"


def test_text_of_a_word_file_is_always_inside_a_run() -> None:
    def stray(node: Element) -> list[str]:
        if node.name == "t":
            return []
        texts = [child.text for child in node.children if not child.name and child.text]
        return texts + [text for child in node.children for text in stray(child)]

    runs = [f"<w:r><w:rPr><w:{name}/></w:rPr><w:t xml:space='preserve'>{text}</w:t></w:r>" for name, text in (
        ("b", "one"), ("i", ", two "), ("b", "(three) f"), ("u", "our."), ("s", " "), ("b", "Five"))]  # fmt: skip
    link = "<w:hyperlink>" + runs[0] + runs[1] + "</w:hyperlink>"
    for body in ("".join(runs), link + runs[3], runs[2] + link, "".join(reversed(runs)) + link):
        assert stray(parse(word(f"<w:p>{body}</w:p>"), _WORD)) == []


def test_an_open_document_file() -> None:
    content = (
        CONTENT % "<text:h>one <text:span a='1'>two</text:span></text:h><text:p>a<text:s/>b<text:tab/>c d</text:p>"
    )
    made = reversed_file("x.odt", zipped(mimetype="application/vnd.oasis.opendocument.text", content_xml=content))
    assert member(made, "content.xml") == CONTENT % (
        "<text:h><text:span a='1'>two</text:span> one</text:h><text:p>b a<text:tab/>d c</text:p>"
    )


def test_a_member_that_is_larger_than_its_directory_says_is_refused() -> None:
    content = bytearray(docx("<w:p/>"))
    entry = content.find(b"PK\x01\x02")
    for at in (entry + 24, content.find(b"PK\x03\x04") + 22):
        content[at : at + 4] = (10).to_bytes(4, "little")
    with pytest.raises(DocumentError):
        reversed_file("a.docx", bytes(content))


@pytest.mark.parametrize(
    ("declaration", "codec", "expected"),
    [
        ("<meta charset='ISO-8859-1'>", "latin-1", "ü &#8364; &#128578;"),
        ("<meta charset=iso-8859-1><!--\u201c-->", "cp1252", "ü € &#128578;"),  # as browsers read it
        (
            '<META http-equiv="Content-Type" content="text/html; charset=Shift_JIS">',
            "shift_jis",
            "&#252; &#8364; &#1285",
        ),
        ("<!-- <meta charset=koi8-r> --><meta name=a><meta charset=iso-8859-15>", "iso-8859-15", "ü € &#128578;"),
        ('<?xml version="1.0" encoding="us-ascii"?>', "ascii", "&#252; &#8364; &#128578;"),
        ("<meta charset=utf-16>", "utf-8", "ü € \U0001f642"),  # ASCII cannot be UTF-16
        ("<meta charset=iso-8859-1><!--ü-->", "utf-8", "ü € \U0001f642"),  # what is UTF-8 stays UTF-8
        ("\ufeff<meta charset=iso-8859-1>", "utf-8", "ü € \U0001f642"),
        ("", "utf-8", "ü € \U0001f642"),
    ],
)
def test_html_stays_in_the_character_set_that_it_declares(declaration: str, codec: str, expected: str) -> None:
    made = translated("a.html", f"{declaration}<p>A dog".encode(codec), "ü € \U0001f642")
    assert made.decode(codec).startswith(f"{declaration}<p>{expected}")


@pytest.mark.parametrize("charset", ["x-unknown", "rot13"])
def test_html_in_an_unknown_character_set_is_refused(charset: str) -> None:
    with pytest.raises(DocumentError, match=charset):
        translated("a.html", f"<meta charset={charset}><p>A dog".encode(), "ü")


@pytest.mark.parametrize(
    ("name", "codec", "expected"),
    [
        ("ISO-8859-1", "latin-1", "ü &#8364; &#128578;"),
        ("UTF-16", "utf-16", "ü € \U0001f642"),
        ("UTF-8", "utf-8", "ü € \U0001f642"),
    ],
)
def test_a_part_of_an_office_file_stays_in_its_character_set(name: str, codec: str, expected: str) -> None:
    declared = f'<?xml version="1.0" encoding="{name}"?>'
    part = BODY.replace('<?xml version="1.0"?>', declared) % "<w:p><w:r><w:t>A d\u00f6g</w:t></w:r></w:p>"
    made = translated("a.docx", zipped(word__document_xml=part.encode(codec)), "ü € \U0001f642")
    with zipfile.ZipFile(io.BytesIO(made)) as file:
        text = file.read("word/document.xml").decode(codec)
    assert text.startswith(declared)
    assert f">{expected}</w:t>" in text


def test_documents_are_finished_one_by_one_and_no_line_is_asked_twice() -> None:
    texts = "One dog. Two cats.", "Two cats.", "1", "A bird. <i>A</i> mouse.", "Two cows. One dog."
    documents = [html_document(f"<p>{text}</p>", "en") for text in texts]
    asked: list[dict[bool, list[str]]] = []

    def answers(groups: Groups) -> Answers:
        asked.append({key: [line.text for line in group] for key, group in groups.items()})
        lines = (line for group in groups.values() for line in group)
        return {line: [Translated(line.text.upper(), ((0, 0), (1, 1)))] for line in lines}

    lines = Lines(documents)
    each = lines.each(answers, 1)
    assert [nbest[0].text for nbest in next(each)] == ["ONE DOG.", "TWO CATS."]
    assert asked == [{False: ["One dog.", "Two cats."], True: []}]
    found = [[nbest[0].text for nbest in answered] for answered in each]
    assert found == [["TWO CATS."], ["1"], ["A BIRD.", "A MOUSE."], ["TWO COWS.", "ONE DOG."]]
    assert asked[1:] == [{False: ["A bird."], True: ["A mouse."]}, {False: ["Two cows."], True: []}]
    whole = lines.answered(answers(lines.groups))
    assert [[nbest[0].text for nbest in answered] for answered in whole[1:]] == found
    assert len([*lines.each(answers, 4)]) == len(documents)
    assert asked[-2:] == [{False: ["One dog.", "Two cats.", "A bird."], True: ["A mouse."]}, asked[2]]


def test_the_elements_of_an_office_file_are_bounded() -> None:
    for name, content in (("a.docx", docx("<w:p/>" * 10**6)), ("a.odt", zipped(content_xml=CONTENT % "<a/>" * 10**6))):
        assert len(content) < 1_000_000
        with pytest.raises(DocumentSizeError, match="1,000,000"):
            open_file(name, content, 1 << 28)
