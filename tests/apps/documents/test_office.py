"""Office files and e-books: which parts are translated, and that runs, fields, notes and blanks stay."""

import io
import re
import zipfile

import pytest
from catalogues import filled, loud, reverse
from office_files import BODY, docx, member, zipped

from vtrans.apps.documents.files import open_file
from vtrans.apps.documents.formats.xml import Tags, tagged_document
from vtrans.system.errors import DocumentError, DocumentSizeError

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
NAMES = (("office", "office"), ("text", "text"), ("draw", "drawing"), ("style", "style"))
NAMESPACES = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{urn}:1.0"' for name, urn in NAMES)
ODT = f"<office:document {NAMESPACES}>%s</office:document>"


@pytest.mark.parametrize(
    "page",
    [
        'A <img src="a.png"> new dog',
        'Page <img src="a"> of <img src="b">.',
        "A <span></span> dog",
        "Name: <input> years",
        "A <!-- b --> dog",
        "<b></b> A dog",
        "A <b></b><i></i> dog <u></u>",
    ],
)
def test_blanks_beside_elements_without_text_stay(page: str) -> None:
    expected = re.sub(r"<[^<>]*>|\w", lambda match: match.group() if match.group()[1:] else match.group().upper(), page)
    assert filled("a.html", page.encode(), loud).decode() == expected
    xml = re.sub(r"<(img|input)[^<>]*>", r"<\1/>", page)
    document = tagged_document(xml, "en", Tags(), "sentences")
    made = document.joined([loud(line) for line in document.lines])
    assert made == re.sub(r"<(img|input)[^<>]*>", r"<\1/>", expected)
    if "!" not in page and '"' not in page:
        made = filled("a.po", f'{HEADER}msgid "{xml}"\nmsgstr ""\n'.encode(), loud).decode()
        assert f'msgstr "{document.joined([loud(line) for line in document.lines])}"' in made


def run(text: str, properties: str = "") -> str:
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def field(code: str, result: str) -> str:
    parts = (f'<w:fldChar w:fldCharType="{kind}"/>' for kind in ("begin", "separate", "end"))
    begin, separate, end = (f"<w:r>{part}</w:r>" for part in parts)
    return f"{begin}<w:r><w:instrText>{code}</w:instrText></w:r>{separate}{result}{end}"


def simple(code: str, result: str) -> str:
    return f'<w:fldSimple w:instr="{code}">{run(result)}</w:fldSimple>'


LINK, UNDERLINED = '<w:hyperlink w:anchor="a">%s</w:hyperlink>', "<w:rPr><w:u/></w:rPr>"


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        (run("Page ") + field("PAGE", run("3")) + run(" of ") + field("NUMPAGES", run("9")), None),
        (run("Page ") + simple("PAGE", "3") + run(" of ") + simple("NUMPAGES", "9"), None),
        (run("a ") + run("big", UNDERLINED) + run(" dog"), run("A ") + run("BIG", UNDERLINED) + run(" DOG")),
        (run("see ") + LINK % run("here") + run("."), run("SEE ") + LINK % run("HERE") + run(".")),
        (
            run("see (") + LINK % run("our page") + run("). So"),
            run("SEE (") + LINK % run("OUR PAGE") + run("). SO"),
        ),
        (LINK % run("a ") + LINK % run("b"), LINK % run("A") + run(" ") + LINK % run("B")),
        (run("a ") + field("HYPERLINK x", run("dog")) + run(" runs"), None),
        *((run("a ") + f"<w:{name}>{run('dog')}</w:{name}>" + run(" runs"), None) for name in
          ("moveTo", "customXml", "dir", "bdo", "ins")),
        (run("a dog") + f"<w:r><w:pict><w:p>{run('in a box')}</w:p></w:pict></w:r>", None),
        (run("a dog") + "<w:r><w:footnoteReference/></w:r>" + run(" runs"), None),
        (run("a ") + "<w:r><w:drawing><w:inline/></w:drawing></w:r>" + run(" dog"), None),
    ],
)  # fmt: skip
def test_a_word_paragraph_keeps_its_blanks_and_fields(paragraph: str, expected: str | None) -> None:
    text = re.compile(r"(?<=preserve\">)[^<]*")
    written = expected or text.sub(lambda match: match.group().upper(), paragraph)
    made = filled("a.docx", docx(f"<w:p>{paragraph}</w:p>"), loud)
    assert member(made, "word/document.xml") == BODY % f"<w:p>{written}</w:p>"
    backwards = member(filled("a.docx", docx(f"<w:p>{paragraph}</w:p>"), reverse), "word/document.xml")
    tags = [sorted(re.findall("<[^<>]*>", text)) for text in (backwards, BODY % f"<w:p>{paragraph}</w:p>")]
    assert set(tags[0]) == set(tags[1])


@pytest.mark.parametrize(
    "paragraph",
    [
        'a <text:user-field-get text:name="a">500</text:user-field-get> dog',
        "a dog<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>a note. more</text:p>"
        "</text:note-body></text:note> runs.",
        "a dog <draw:frame><draw:text-box><text:p>a <text:span>box</text:span></text:p></draw:text-box></draw:frame>"
        " runs.",
        'a <draw:frame text:anchor-type="as-char"/> dog <text:bookmark/>runs',
    ],
)
def test_an_open_document_keeps_its_blanks_and_reads_notes_and_boxes(paragraph: str) -> None:
    body = f"<text:p>{paragraph}</text:p>"
    header = f"<style:header>{body}</style:header>"
    made = filled("a.odt", zipped(content_xml=ODT % body, styles_xml=ODT % header), loud)
    upper = re.sub(r">[^<>]*", lambda match: match.group().upper(), body)
    assert member(made, "content.xml") == ODT % upper
    assert upper in member(made, "styles.xml")


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


def test_the_elements_of_an_office_file_are_bounded() -> None:
    for name, content in (("a.docx", docx("<w:p/>" * 10**6)), ("a.odt", zipped(content_xml=ODT % ("<a/>" * 10**6)))):
        assert len(content) < 1_000_000
        with pytest.raises(DocumentSizeError, match="1,000,000"):
            open_file(name, content, 1 << 28)


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
