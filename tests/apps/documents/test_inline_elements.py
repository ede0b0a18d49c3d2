"""Inline elements without text: the blanks beside them stay, and so do the words between them."""

import re

import pytest
from catalogues import filled, loud, reverse
from office_files import BODY, docx, member, zipped

from vtrans.apps.documents.formats.xml import Tags, tagged_document

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
NAMES = (("office", "office"), ("text", "text"), ("draw", "drawing"), ("style", "style"))
NAMESPACES = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{urn}:1.0"' for name, urn in NAMES)
CONTENT = f"<office:document {NAMESPACES}>%s</office:document>"


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
    made = filled("a.odt", zipped(content_xml=CONTENT % body, styles_xml=CONTENT % header), loud)
    upper = re.sub(r">[^<>]*", lambda match: match.group().upper(), body)
    assert member(made, "content.xml") == CONTENT % upper
    assert upper in member(made, "styles.xml")
