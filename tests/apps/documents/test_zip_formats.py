"""Presentations, tables and e-books: texts are translated, and all else stays byte for byte."""

import io
import re
import zipfile

import pytest
from catalogues import filled, loud, same
from office_files import member, zipped

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


@pytest.mark.parametrize("name", ["a.pptx", "a.xlsx", "a.epub"])
def test_a_second_run_without_changes_changes_nothing(name: str) -> None:
    paragraphs = "<a:p><a:r><a:t>A dog. A cat</a:t></a:r></a:p>"
    content = zipped(ppt__slides__slide1_xml=SLIDE % paragraphs, a_xhtml=XHTML % "<p>a\u00a0&#187;</p>",
                     xl__sharedStrings_xml=SHEET % f"<si><t{PRESERVED}>A dog. A cat</t></si>")  # fmt: skip
    assert filled(name, content, same) == content
