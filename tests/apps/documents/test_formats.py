"""Files: each format is translated and otherwise unchanged, byte for byte."""

import re

import pytest
from catalogues import filled
from office_files import docx

from vtrans.apps.documents.document import Lines, Translated
from vtrans.apps.documents.files import open_file
from vtrans.apps.documents.formats.flow import SubtitleDocument, divided
from vtrans.apps.documents.formats.html import html_document
from vtrans.apps.documents.formats.xliff import XLIFF_ENDINGS
from vtrans.apps.documents.formats.xml import Tags, tagged_document
from vtrans.system.errors import DocumentError
from vtrans.text.words import has_spaces


def test_subtitles_of_the_web_keep_notes_settings_and_tags() -> None:
    head = "WEBVTT - a b\n\nNOTE a b\n\nSTYLE\n::cue { color: red }\n\nid one\n00:01.000 --> 00:04.000 align:start\n"
    for source, expected in (
        ("<v Anna Bell>a b &amp; c", "<v Anna Bell>c &amp; b a"),
        ("a <c.red.big>b c</c> d", "d <c.red.big>c b</c> a"),
        ("<v Anna Bell>a b\nc d", "<v Anna Bell>d c\nb a"),
        ("- a b\n- c <00:02.000>d", "- b a\n- d c <00:02.000>"),
    ):
        assert filled("a.vtt", (head + source).encode()).decode() == head + expected


@pytest.mark.parametrize(
    "lines",
    [
        "A dog runs|in the park.",
        "Мы видели|собаку.",
        "개가 공원에서|뛴다.",
        "我昨天在公园里|看见了一只狗。",
        "彼は犬が「好き」|と言いました。",
        "犬がいて「えっ」|と叫んだのだ。",
        "ファーストフード|店で会いましょう",
        "<i>我爱你</i>，<b>北|京和上海</b>",
        "ภาษาไทย|ยากมาก",
    ],
)
def test_captions_are_read_and_broken_where_their_script_has_blanks_or_lines_may_end(lines: str) -> None:
    text = lines.replace("|", " " if has_spaces(lines) or lines.startswith("ภ") else "")
    assert divided(text, [1, 1]) == lines.split("|")
    (speech,) = SubtitleDocument("00:00:01,000 --> 00:00:02,000\n" + lines.replace("|", "\n"), "").lines
    assert speech == re.sub("<[^<>]*>", "", text)


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
    content = f"{declaration}<p>A dog".encode(codec)
    made = filled("a.html", content, lambda line: Translated("ü € \U0001f642", ()))
    assert made.decode(codec).startswith(f"{declaration}<p>{expected}")


def test_no_line_of_several_documents_is_asked_twice() -> None:
    texts = "One dog. Two cats.", "Two cats.", "1", "A bird. <i>A</i> mouse."
    lines = Lines([html_document(f"<p>{text}</p>", "en") for text in texts])
    groups = {key: [line.text for line in group] for key, group in lines.groups.items()}
    assert groups == {False: ["One dog.", "Two cats.", "A bird."], True: ["A mouse."]}
    asked = (line for group in lines.groups.values() for line in group)
    answered = lines.answered({line: [Translated(line.text.upper(), ((0, 0), (1, 1)))] for line in asked})
    found = [[nbest[0].text for nbest in nbests] for nbests in answered]
    assert found == [["ONE DOG.", "TWO CATS."], ["TWO CATS."], ["1"], ["A BIRD.", "A MOUSE."]]


XML = {
    ".xml": '<resources><string name="a">A dog</string></resources>',
    ".resx": '<root><data name="a"><value>A dog</value></data></root>',
    **dict.fromkeys(
        XLIFF_ENDINGS,
        "<xliff><file><body><trans-unit><source>A dog</source></trans-unit></body></file></xliff>",
    ),
}


@pytest.mark.parametrize("ending", XML)
@pytest.mark.parametrize(
    "prolog",
    [
        "\ufeff",
        "<!DOCTYPE %s>",
        '<!DOCTYPE %s SYSTEM "a.dtd">\n',
        "\n<!DOCTYPE %s >",
        "<!-- ü --><!DOCTYPE %s>",
        "<?a ü?>",
    ],
)
def test_what_is_before_the_root_of_xml_changes_nothing_else(ending: str, prolog: str) -> None:
    before = prolog.replace("%s", XML[ending][1:].partition(">")[0])
    made = filled(f"a{ending}", (before + XML[ending]).encode()).decode()
    assert made == before + filled(f"a{ending}", XML[ending].encode()).decode()
    document = tagged_document(f"<!DOCTYPE a>{XML[ending]}", "en", Tags(), "lines")
    assert document.joined([Translated(line, ()) for line in document.lines]) == f"<!DOCTYPE a>{XML[ending]}"


@pytest.mark.parametrize("broken", ["<a>A dog", "<a>\x01</a>", "<a>\ud800</a>", "<a b='<a>'/>", ""])
def test_a_translation_that_is_no_xml_is_not_written(broken: str) -> None:
    for name, content in (*((f"a{ending}", xml.encode()) for ending, xml in XML.items()), ("a.docx", docx("<w:p/>"))):
        opened = open_file(name, content, 100_000)
        assert opened.written(opened.texts)
        with pytest.raises(DocumentError, match=r"^[^\n]{10,200}\.$"):
            opened.written([broken])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("A café.\n".encode("latin-1"), "Line 1: .*UTF-8, got byte 0xe9 at byte offset 5; convert"),
        (b"\xff\xfeA\0\n\0B", "Line 2: .*UTF-16LE, got byte 0x42 at byte offset 6; convert"),
        ("A café.\r\nB\r\n".encode("utf-16-le"), "looks like UTF-16LE; convert"),
    ],
)
def test_text_that_is_not_of_its_encoding_is_refused_with_its_place(content: bytes, named: str) -> None:
    with pytest.raises(DocumentError, match=named):
        open_file("a.txt", content, 100_000)
