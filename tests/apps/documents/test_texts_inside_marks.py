"""Texts inside tags and marks: attributes of HTML, images and titles of Markdown, and what stays beside them."""

import json

import pytest
from catalogues import filled, loud, reverse, same

from vtrans.apps.documents.document import Translated


@pytest.mark.parametrize(
    ("page", "made"),
    [
        ('<html lang="en"><p>a', '<html lang="de"><p>A'),
        ("<HTML class=x xml:lang='en-US' lang=en><p>a", "<HTML class=x xml:lang='de' lang=de><p>A"),
        ('a <img src="x" alt="a b"> c', 'A <img src="x" alt="A B"> C'),
        ("<a title='a &quot;b&quot;' href=\"a\">c</a>", "<a title='A &quot;B&quot;' href=\"a\">C</a>"),
        (
            '<input placeholder="a" value="b"><p aria-label="c">d',
            '<input placeholder="A" value="b"><p aria-label="C">D',
        ),
        ('<meta name="description" content="a"><meta name="x" content="b">', None),
        ('<code title="a">b</code><pre>c d</pre>e', '<code title="a">b</code><pre>c d</pre>E'),
        ('<p data-x=\'alt="a"\' alt="">b', '<p data-x=\'alt="a"\' alt="">B'),
        ("a.<sup>1</sup> B c.<sup><a href=x>[2]</a></sup> D", "A.<sup>1</sup> B C.<sup><a href=x>[2]</a></sup> D"),
        ("a\r\n<p>b\n&#187;\u00a0c &copy;", "A\r\n<p>B » C ©"),
    ],
)
def test_attributes_are_text(page: str, made: str | None) -> None:
    expected = made or page.replace('content="a"', 'content="A"')
    assert filled("a.html", page.encode(), loud).decode() == expected
    unchanged = page.replace('"en"', '"de"').replace("=en>", "=de>").replace("'en-US'", "'de'")
    assert filled("a.html", page.encode(), same).decode().replace("&nbsp;", "\u00a0") == unchanged


def test_an_attribute_keeps_its_quotation_marks() -> None:
    made = filled("a.html", b'<img alt="a">', lambda line: Translated("\"b\" 'c' <d>", ()))
    assert made == b'<img alt="&quot;b&quot; &#39;c&#39; &lt;d&gt;">'


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("Term\n:   A text\n", "TERM\n:   A TEXT\n"),
        ("a == b\n", "A == B\n"),
        ("{{% note %}}\na b\n{{% /note %}}\n", "{{% note %}}\nA B\n{{% /note %}}\n"),
        ('a {{< ref "x" >}} b\n', 'A {{< ref "x" >}} B\n'),
        ("import A from 'b'\nimport 'c'\n\nexport const d = {\n  e: 1 }\n\na\n", None),
        ("import the file\n", "IMPORT THE FILE\n"),
        ('![a](x.png "b") c\n', '![A](x.png "B") C\n'),
        ('a [b](x "c") d ![e f](y)\n', 'A [B](x "C") D ![E F](y)\n'),
        (
            '---\ntitle: a\nlayout: b\ndescription: "c"\n---\n\nd\n',
            '---\ntitle: A\nlayout: b\ndescription: "C"\n---\n\nD\n',
        ),
        ('+++\ntitle = "a"\n+++\n\nb\n', '+++\ntitle = "A"\n+++\n\nB\n'),
        ("---\ntitle: 'a'\nsummary: b # c\n---\n", "---\ntitle: 'A'\nsummary: b # c\n---\n"),
    ],
)
def test_texts_of_markdown(text: str, made: str | None) -> None:
    assert filled("a.md", text.encode(), loud).decode() == (made or text.replace("\na\n", "\nA\n"))
    assert filled("a.md", text.encode(), same).decode() == text


def test_a_title_that_yaml_would_misread_gets_quotation_marks() -> None:
    def colon(line: str) -> Translated:
        return Translated("A: b", ())

    assert filled("a.md", b"---\ntitle: a\n---\n", colon) == b'---\ntitle: "A: b"\n---\n'


@pytest.mark.parametrize("text", [r"\u0020a b\u0020", "&#160;a b&#160;", r"\u00a0a <b>b</b>"])
def test_blanks_at_the_ends_of_a_string_of_android_stay(text: str) -> None:
    page = '<resources><string name="x">%s</string></resources>'
    made = filled("strings.xml", (page % text).encode(), reverse).decode()
    new = text.replace("a b", "b a").replace("a <b>b</b>", "<b>b</b> a")
    assert made == page % new


def test_only_messages_of_a_browser_extension_are_translated() -> None:
    entry = {"message": "a $NAME$ b", "description": "c d", "placeholders": {"name": {"content": "$1", "example": "e"}}}
    made = json.loads(filled("messages.json", json.dumps({"x": entry}).encode(), reverse))
    assert made == {"x": {**entry, "message": "b $NAME$ a"}}
    assert json.loads(filled("a.json", b'{"x": {"message": "a b"}, "y": "c d"}', reverse))["y"] == "d c"
