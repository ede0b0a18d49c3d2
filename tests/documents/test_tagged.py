"""Texts with XML tags: what is ignored, what divides sentences, and what is no XML."""

from __future__ import annotations

import pytest

from vtrans.documents.document import Document, Translated, html_document
from vtrans.documents.sentences import Splitting
from vtrans.documents.tagged import Tags, tagged_document
from vtrans.errors import DocumentError


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
        ("a <!-- no --> b <p:q r='1'>c</p:q>", Tags(), 1, "A <!-- no -->B <p:q r='1'>C</p:q>"),
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


@pytest.mark.parametrize(("splitting", "lines"), [("lines", 3), ("sentences", 2), ("nothing", 1)])
def test_where_text_with_tags_is_split(splitting: Splitting, lines: int) -> None:
    document = tagged_document("One.\nTwo\n<b>three</b>", "en", Tags(), splitting)
    assert len(document.lines) == lines


def test_ignored_elements_of_html_stay_in_their_sentence() -> None:
    document = html_document("See <K a='1'>this <k>one</k></k> and <j> <b>big</b>", "en", {"k", "j"})
    assert len(document.lines) == 1
    assert raised(document) == "SEE <K a='1'>this <k>one</k></k> AND <j> <b>big</b>"
