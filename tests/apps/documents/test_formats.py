"""Files: each format is translated and otherwise unchanged, byte for byte."""

import io
import re
import zipfile

import pytest
from catalogues import filled, loud
from office_files import BODY, docx, member, zipped

from vtrans.apps.documents.document import Answers, Groups, Lines, Translated
from vtrans.apps.documents.files import FORMATS, open_file
from vtrans.apps.documents.formats.flow import divided
from vtrans.apps.documents.formats.html import html_document
from vtrans.apps.documents.formats.subtitles import SubtitleDocument
from vtrans.apps.documents.formats.xliff import XLIFF_ENDINGS
from vtrans.apps.documents.formats.xml import Tags, tagged_document
from vtrans.system.errors import DocumentError, DocumentSizeError
from vtrans.text.words import has_spaces

OFFICE, TEXT = (f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0" for name in ("office", "text"))
CONTENT = f'<office:document-content xmlns:office="{OFFICE}" xmlns:text="{TEXT}">%s</office:document-content>'


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


def test_a_word_file_keeps_its_runs_and_other_members() -> None:
    body = (
        '<w:p w:rsidR="1"><w:pPr><w:jc w:val="x"/></w:pPr><w:r><w:t xml:space="preserve">The </w:t></w:r>'
        '<w:proofErr w:type="spellStart"/><w:r w:rsidR="2"><w:t>big</w:t></w:r>'
        '<w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve"> dog &amp; cat</w:t></w:r>'
        "<w:r><w:tab/><w:t>next one</w:t></w:r></w:p>"
        "<w:p/>"
    )
    content = docx(body, word__header1_xml=(BODY % "<w:p><w:r><w:t>a b</w:t></w:r></w:p>"))
    made = filled("x.docx", content)
    assert member(made, "word/header1.xml") == BODY % ('<w:p><w:r><w:t xml:space="preserve">b a</w:t></w:r></w:p>')
    assert member(made, "word/document.xml") == BODY % (
        '<w:p w:rsidR="1"><w:pPr><w:jc w:val="x"/></w:pPr>'
        '<w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve">cat &amp; dog</w:t></w:r>'
        '<w:r><w:t xml:space="preserve"> big The</w:t></w:r>'
        '<w:r><w:tab/></w:r><w:r><w:t xml:space="preserve">one next</w:t></w:r></w:p><w:p/>'
    )
    with zipfile.ZipFile(io.BytesIO(made)) as file:
        assert file.read("word/media/a.png") == b"\x89PNG"


def test_a_member_that_is_larger_than_its_directory_says_is_refused() -> None:
    content = bytearray(docx("<w:p/>"))
    entry = content.find(b"PK\x01\x02")
    for at in (entry + 24, content.find(b"PK\x03\x04") + 22):
        content[at : at + 4] = (10).to_bytes(4, "little")
    with pytest.raises(DocumentError):
        filled("a.docx", bytes(content))


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


XML = {
    ".xml": '<resources><string name="a">A dog</string></resources>',
    ".resx": '<root><data name="a"><value>A dog</value></data></root>',
    **dict.fromkeys(
        XLIFF_ENDINGS,
        "<xliff><file><body><trans-unit><source>A dog</source></trans-unit></body></file></xliff>",
    ),
}
OFFICE_FILES = {
    ".docx": docx("<w:p/>"),
    ".odt": zipped(content_xml=CONTENT % "<text:p/>"),
    ".pptx": zipped(ppt__slides__slide1_xml="<a/>"),
    ".xlsx": zipped(xl__sharedStrings_xml="<a/>"),
    ".epub": zipped(a_xhtml="<a/>"),
}
NO_XML = {".txt", ".html", ".htm", ".srt", ".vtt", ".po", ".pot", ".md", ".markdown", ".mdx", ".json", ".arb",
          ".strings", ".properties", ".csv", ".tsv"}  # fmt: skip


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


@pytest.mark.parametrize("ending", sorted(FORMATS.keys() - NO_XML))
@pytest.mark.parametrize("broken", ["<a>A dog", "<a>\x01</a>", "<a>\ud800</a>", "<a b='<a>'/>", ""])
def test_a_translation_that_is_no_xml_is_not_written(ending: str, broken: str) -> None:
    content = OFFICE_FILES.get(ending) or XML[ending].encode()
    opened = open_file(f"a{ending}", content, 100_000)
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


DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SLIDE = f'<p:sld xmlns:p="p" xmlns:a="{DRAWING}"><p:txBody>%s</p:txBody></p:sld>'
SHEET = '<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">%s</sst>'
XHTML = '<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head><body>%s</body></html>'
PRESERVED = ' xml:space="preserve"'


def upper(text: str) -> str:
    return re.sub(r">[^<>]+", lambda match: match.group().upper(), text)


def test_slides_and_notes() -> None:
    number = '<a:fld type="slidenum"><a:t>2</a:t></a:fld>'
    text = f'<a:p><a:r><a:rPr b="1"/><a:t>page </a:t></a:r>{number}<a:endParaRPr/></a:p>'
    slide = SLIDE % f"{text}<a:p><a:r><a:t>a b</a:t></a:r></a:p>"
    content = zipped(ppt__slides__slide1_xml=slide, ppt__notesSlides__notesSlide1_xml=slide, ppt__other_xml=slide)
    made = filled("a.pptx", content, loud)
    for name in ("ppt/slides/slide1.xml", "ppt/notesSlides/notesSlide1.xml"):
        assert member(made, name) == upper(slide)
    assert member(made, "ppt/other.xml") == slide


def test_cells_without_the_names_of_columns() -> None:
    strings = (
        "<si><t>Price</t></si><si><t>a dog</t></si><si><r><rPr><b/></rPr><t>b</t></r><r><t> c</t></r></si><si><t/></si>"
    )
    table = '<table><tableColumns><tableColumn id="1" name="Price"/></tableColumns></table>'
    made = filled("a.xlsx", zipped(xl__sharedStrings_xml=SHEET % strings, xl__tables__table1_xml=table), loud)
    expected = upper(strings).replace("PRICE", "Price")
    assert member(made, "xl/sharedStrings.xml").replace(PRESERVED, "") == SHEET % expected
    assert member(made, "xl/tables/table1.xml") == table


def test_chapters_and_the_table_of_contents() -> None:
    page = XHTML % '<p>a <b>dog</b>.&#160;It <img src="x" alt="a"/> is<br/>b</p>'
    toc = "<ncx><navMap><navPoint><navLabel><text>a dog</text></navLabel></navPoint><x>b</x></navMap></ncx>"
    content = zipped(mimetype="application/epub+zip", OEBPS__a_xhtml=page, toc_ncx=toc, content_opf="<p>a</p>")
    made = filled("a.epub", content, loud)
    assert member(made, "OEBPS/a.xhtml") == upper(page).replace('"a"/', '"A"/')
    assert member(made, "toc.ncx") == upper(toc)
    assert member(made, "content.opf") == "<p>a</p>"
    with zipfile.ZipFile(io.BytesIO(made)) as file, zipfile.ZipFile(io.BytesIO(content)) as old:
        assert file.namelist() == old.namelist()
