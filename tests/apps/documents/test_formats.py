"""Files: each format is translated and otherwise unchanged, byte for byte; tags and placeholders stay."""

import io
import re
import zipfile
from collections import Counter

import hypothesis.strategies as st
import pytest
from catalogues import filled, loud, reverse, same
from hypothesis import given, settings
from office_files import docx, zipped

from vtrans.apps.documents.document import Lines, Translated
from vtrans.apps.documents.files import COMPLETED, FORMATS, open_file
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
    ".ts": "<TS><context><message><source>A dog</source><translation/></message></context></TS>",
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


# Laws of every format.

OFFICE = "urn:oasis:names:tc:opendocument:xmlns"
SLIDE = "http://schemas.openxmlformats.org/drawingml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
PRESERVED = ' xml:space="preserve"'
CELL = f"<si><t{PRESERVED}>%s</t></si>"
PARAGRAPH = "<a:p><a:r><a:t>%s</a:t></a:r></a:p>"
TEXTS = {
    ".txt": "%s\n\n%s\n",
    ".html": '<!-- x --><html lang="de"><p class="x">%s<br>%s</p><script>x y</script></html>\n',
    ".srt": "1\n00:00:01,000 --> 00:00:02,000\n%s\n\n2\n00:00:02,000 --> 00:00:03,000\n%s\n",
    ".vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\n%s\n\n00:02.000 --> 00:03.000 align:end\n%s\n",
    ".md": "# %s\n\n```\nx y\n```\n\n* %s\n",
    ".json": '{"x": "%s", "y": ["%s", 1]}\n',
    ".strings": '/* x y */\n"x" = "%s";\n"y" = "%s";\n',
    ".properties": "# x y\nx=%s\ny = %s\n",
    ".xml": '<resources>\n  <string name="x">%s</string>\n  <string name="y">%s</string>\n</resources>\n',
    ".resx": '<root><data name="x"><value>%s</value></data><data name="y"><value>%s</value></data></root>\n',
}
ZIPS = {
    ".docx": docx("<w:p><w:r><w:t>%s</w:t></w:r></w:p><w:p><w:r><w:t>%s</w:t></w:r></w:p>"),
    ".odt": zipped(content_xml=f'<x xmlns:t="{OFFICE}:text:1.0"><t:p>%s</t:p><t:h>%s</t:h></x>'),
    ".pptx": zipped(ppt__slides__slide1_xml=f'<x xmlns:a="{SLIDE}">{PARAGRAPH}{PARAGRAPH}</x>'),
    ".xlsx": zipped(xl__sharedStrings_xml=f'<sst xmlns="{SHEET}">{CELL}{CELL}</sst>'),
    ".epub": zipped(x_xhtml='<html lang="de"><p>%s</p><p>%s</p></html>'),
}
WORDS = st.sampled_from(["a dog", "b.", "{name}", "c, d", "See it.", "\u00fc"])
SENTENCE = st.lists(WORDS, min_size=1, max_size=4).map(" ".join).filter(lambda text: text[0].isalpha())


def unzipped(content: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return "".join(file.read(name).decode(errors="replace") for name in file.namelist())


def written(ending: str, texts: tuple[str, str]) -> bytes:
    """A file with two texts."""
    if ending in TEXTS:
        return (TEXTS[ending] % texts).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(ZIPS[ending])) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, content.replace(b"%s", texts[0].encode(), 1).replace(b"%s", texts[1].encode(), 1))
    return made.getvalue()


def frame(ending: str, content: bytes) -> tuple[str, Counter[str]]:
    """A file without the words of its texts, and its tags and placeholders."""
    text = unzipped(content) if ending in ZIPS else content.decode()
    text = text.replace(PRESERVED, "").replace("\\u00FC", "\u00fc").replace("\\u00DC", "\u00dc")
    words = re.compile(r"\b(?:a|dog|b|c|d|see|it|name|\u00fc)\b|[ {},.\n]", re.IGNORECASE)
    return words.sub("", text), Counter(re.findall(r"<[^<>]*>|\{\w+\}", text))


@pytest.mark.parametrize("ending", [*TEXTS, *ZIPS])
@settings(max_examples=10)
@given(texts=st.tuples(SENTENCE, SENTENCE))
def test_what_is_no_text_stays(ending: str, texts: tuple[str, str]) -> None:
    content, name = written(ending, texts), f"a{ending}"
    unchanged = filled(name, content, same)
    assert frame(ending, unchanged) == frame(ending, content)
    assert unchanged == content or ending in (".docx", ".odt")
    for translate in (loud, reverse):
        made = filled(name, content, translate)
        assert frame(ending, made) == frame(ending, content)
        again = open_file(name, made, 10_000_000)
        assert len([again.read(text, "de") for text in again.texts]) == len(open_file(name, content, 10_000_000).texts)
        if ending in COMPLETED:
            assert filled(name, content, same, existing=made) == made


def test_every_format_has_a_law() -> None:
    catalogues = {*XLIFF_ENDINGS, ".po", ".pot", ".arb", ".xcstrings", ".ts"}
    tables = {".csv", ".tsv"}  # test_tables.py
    assert FORMATS.keys() == {*TEXTS, *ZIPS, *tables, *catalogues, ".htm", ".markdown", ".mdx"}
