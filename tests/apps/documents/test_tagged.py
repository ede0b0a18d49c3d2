"""Texts with XML tags: what is ignored, what divides sentences, and what is no XML."""

import pytest

from vtrans.apps.documents.document import Document, Translated
from vtrans.apps.documents.formats.tagged import Tags, tagged_document
from vtrans.system.errors import DocumentError


def raised(document: Document) -> str:
    """Returns a document whose words are in capitals."""
    return document.joined(
        [Translated(line.upper(), tuple((i, i) for i in range(len(line.split())))) for line in document.lines]
    )


@pytest.mark.parametrize(
    ("text", "tags", "lines", "result"),
    [
        ("a <b>big</b> dog", Tags(), 1, "A <b>BIG</b> DOG"),
        ("a &amp; b&#x27;s <b/>", Tags(), 1, "A &amp; B'S <b/>"),
        ("a <x>keep</x> b", Tags({"x"}), 1, "A <x>keep</x> B"),
        ("<d><t>a</t><p>One. Two.</p></d>", Tags(), 3, "<d><t>A</t><p>ONE. TWO.</p></d>"),
        ("<b>a</b> <i>c</i>", Tags(joining={"b", "i"}), 1, "<b>A</b> <i>C</i>"),
        ("<b>a</b> <i>c</i>", Tags(outline=False), 1, "<b>A</b> <i>C</i>"),
        ("a <s>b</s> c", Tags(splitting={"s"}), 3, "A <s>B</s> C"),
        ("a <!-- no --> b <p:q r='1'>c</p:q>", Tags(), 1, "A <!-- no --> B <p:q r='1'>C</p:q>"),
        ("<![CDATA[a < b]]>", Tags(), 1, "A &lt; B"),
        ('<?xml version="1.0"?>\n<r>a b</r>\n', Tags(), 1, '<?xml version="1.0"?>\n<r>A B</r>\n'),
        (" <b> </b> ", Tags(), 0, " <b> </b> "),
        ("", Tags(), 0, ""),
    ],
)
def test_tags_stay(text: str, tags: Tags, lines: int, result: str) -> None:
    document = tagged_document(text, "en", tags, "lines")
    assert (len(document.lines), raised(document)) == (lines, result)


@pytest.mark.parametrize(
    "text",
    [
        "a < b",
        "<a>",
        "</a>",
        "a</text><text>b",
        "&unknown;",
        "\x01",
        "<!DOCTYPE r [<!ENTITY a 'b'>]><r>&a;</r>",
        "<a>" * 300,
    ],
)
def test_what_is_not_xml_is_refused(text: str) -> None:
    with pytest.raises(DocumentError, match="XML"):
        tagged_document(text, "en", Tags(), "lines")
