"""Tags in translations: laws for any HTML, where tags go, and texts with XML tags."""

import re
import time
from collections import Counter

import hypothesis.strategies as st
import pytest
from catalogues import Translate, filled, loud, reverse, same
from hypothesis import example, given

from vtrans.apps.documents.document import Translated
from vtrans.apps.documents.formats.html import html_document, read_html
from vtrans.apps.documents.formats.xml import Tags, tagged_document
from vtrans.system.errors import DocumentError


def shout(line: str) -> Translated:
    """Without an alignment."""
    return Translated(line.upper())


def translated(text: str, translate: Translate) -> str:
    document = html_document(text, "en")
    return document.joined([translate(line) for line in document.lines])


PARTS = st.sampled_from(
    [*"""
    <b>| </b>|<i class='x > y'>|</i>|<a href="?a=1&amp;b=2">|</a>|<p>|</p>|<br>|<img src=x>|<!-- a b -->|
    <script>a < b; c > d</script>|<code>x y</code>|<span translate=no>n o</span>|<pre>|</pre>|word |two words. |Next| |
    |.|, |&lt;tag&gt;|&amp;|é|<|>|&|</x|</>|<?|🙂
    """.strip().split("|"), "\r", "\r\n"]
)  # fmt: skip
HTML = st.lists(PARTS, max_size=25).map("".join)


def tags(document: str) -> Counter[str]:
    """Everything in a document that is not text, as it was written."""
    return Counter(item.raw for item in read_html(document) if item.kind != "text" and item.raw.strip())


@given(HTML)
def test_the_items_of_a_document_make_it_up_again(document: str) -> None:
    assert "".join(item.raw for item in read_html(document)) == document


@given(HTML, st.sampled_from([same, reverse, shout]))
@example(".<i class='x > y'>. </b></i></x", reverse)
@example(".<b>. </b></x", reverse)
def test_every_tag_is_in_the_translation_once_and_as_it_was_written(document: str, translate: Translate) -> None:
    assert tags(translated(document, translate)) == tags(document)


def nested(document: str) -> bool:
    """Whether each closing tag closes the element that was opened last."""
    opened: list[str] = []
    for closing, name in re.findall(r"<(/?)([biu])>", document):
        if not closing:
            opened.append(name)
        elif not opened or opened.pop() != name:
            return False
    return not opened


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> str:
    words = " ".join(draw(st.lists(st.sampled_from(["dog", "cat,", "runs", "far.", "(so)"]), max_size=4)))
    if depth == 0:
        return words
    children = draw(st.lists(st.tuples(st.sampled_from("biu"), trees(depth - 1)), max_size=3))
    return " ".join([words, *(f"<{name}>{inside}</{name}>" for name, inside in children)])


@given(trees(), st.sampled_from([same, reverse, shout]))
def test_nested_elements_stay_nested(document: str, translate: Translate) -> None:
    assert nested(document)
    assert nested(translated(document, translate))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("The <b>big</b> dog", "dog <b>big</b> The"),
        ("a <b>b <i>c</i></b> d", "d <b><i>c</i> b</b> a"),
        ("Look, <a href='/x'>here</a>.", "<a href='/x'>here</a>. Look,"),
        ("<p>a b</p><p>c d</p>", "<p>b a</p><p>d c</p>"),
        ("<p class='k'>one.\n Two three.</p>\n", "<p class='k'>one.\n three. Two</p>\n"),
        ("a <code>b c</code> d e", "a <code>b c</code> e d"),
        (
            "a <span translate='no'>b <span>c</span> d</span> e f",
            "a <span translate='no'>b <span>c</span> d</span> f e",
        ),
        ("<b class=notranslate>a b</b> c d", "<b class=notranslate>a b</b> d c"),
        ("<script>a b</script><style>c d</style>e f", "<script>a b</script><style>c d</style>f e"),
        ("a &lt;b&gt; &amp; c&nbsp;", "c &amp; &lt;b&gt; a&nbsp;"),
        ("<b>one two. Three</b> four", "four <b>Three two. one</b>"),
        ("<pre>a b\n  c d</pre>e f", "<pre>a b\n  c d</pre>f e"),
        ("a b\r\nc\r<b>d</b>\re", "e <b>d</b> c b a"),
        ("x <img src='a b'> y", "y <img src='a b'> x"),
        ("</b> a b", "</b> b a"),
        ("a b <b", "b a <b"),
        ("<i\r\nid='<>'>a b</i\r\n></x\r\ny", "<i\r\nid='<>'>b a</i\r\n></x\r\ny"),
        ("<b>a</b></> b", "b <b>a</b></>"),
        ("a &amp;<b>{0}</b>.", "&amp;<b>{0}</b>. a"),  # a tag never cuts a placeholder
        ("", ""),
    ],
)
def test_tags_follow_their_words(document: str, expected: str) -> None:
    assert translated(document, reverse) == expected


@pytest.mark.parametrize(
    ("document", "translation", "links", "expected"),
    [
        # Tags inside words surround the same parts.
        ("the <b>ls</b>(1) manual", "ls(1)-Handbuch", [(1, 0), (2, 0)], "<b>ls</b>(1)-Handbuch"),
        ("see <b>ls</b>(1), please", "siehe ls(1).", [(0, 0), (1, 1)], "siehe <b>ls</b>(1)."),
        ("the <b>ls</b> command", "der ls-Befehl", [(0, 0), (1, 1), (2, 1)], "der <b>ls</b>-Befehl"),
        ("<b>--a</b>[=<i>n</i>] sets", "setzt --a[=n]", [(0, 1), (1, 0)], "setzt <b>--a</b>[=<i>n</i>]"),
        ("<b>a<i>b</i></b>.c is", "ist ab.c", [(0, 1), (1, 0)], "ist <b>a<i>b</i></b>.c"),
        ("the <i>file</i>s", "die Dateien", [(0, 0), (1, 1)], "die <i>Dateien</i>"),
        ("a '<b>-</b>' is", "ein \u201e-\u201c", [(0, 0), (1, 1)], "ein \u201e<b>-</b>\u201c"),
        ("<b>-o</b>|<b>--op</b> is", "-o| --op", [(0, 0), (0, 1)], "<b>-o</b>| <b>--op</b>"),
        ("an <b>a</b> is", "ein Tag", [(0, 0), (1, 1)], "ein <b>Tag</b>"),
        # A word of the translation that stands for words inside and outside belongs to the element that lacks others.
        ("a <i>timeout</i> value", "ein Zeitwert", [(0, 0), (1, 1), (2, 1)], "ein <i>Zeitwert</i>"),
        # Punctuation stays outside an element whose text has none.
        ("the <i>files</i> that", "die Dateien, die", [(0, 0), (1, 1), (2, 2)], "die <i>Dateien</i>, die"),
        ("say <b>hello</b> now", "jetzt \u201ehallo\u201c", [(0, 0), (1, 1)], "jetzt \u201e<b>hallo</b>\u201c"),
        ("<b>Note:</b> it is", "Achtung: es ist", [(0, 0), (1, 1), (2, 2)], "<b>Achtung:</b> es ist"),
        # Characters are words in scripts without spaces between words.
        ("I love <b>Beijing</b>.", "我爱北京。", [(0, 0), (1, 1), (2, 2), (2, 3), (2, 4)], "我爱<b>北京</b>。"),
        ("我爱<b>北\n京</b>。", "I love Beijing.", [(0, 0), (1, 1), (2, 2), (3, 2)], "I love <b>Beijing</b>."),
        ("สุนัข<b>วิ่ง</b>", "A dog runs", [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)], "A dog <b>runs</b>"),
    ],
)
def test_tags_enclose_their_words(document: str, translation: str, links: list[tuple[int, int]], expected: str) -> None:
    assert translated(document, lambda line: Translated(translation, tuple(links))) == expected


def test_thousands_of_elements_with_one_text_are_placed_in_linear_time() -> None:
    number, began = 3000, time.process_time()
    links = [(word, other) for word in range(number) for other in (0, number - 1)]
    made = translated("<b>a</b> " * number, lambda line: Translated(line, tuple(links)))
    assert made.count("<b>") == number
    assert time.process_time() - began < 4, "takes less than a second, and 15 if it is quadratic"


def test_text_cannot_become_a_tag() -> None:
    assert translated("a &lt;script&gt;", reverse) == "&lt;script&gt; a"
    assert (
        translated("a", lambda line: Translated("<script>alert(1)</script>&"))
        == "&lt;script&gt;alert(1)&lt;/script&gt;&amp;"
    )


@pytest.mark.parametrize(
    ("page", "translation", "written"),
    [
        ("<html lang=en><p>A dog.</p>", "كلب.", '<html dir="rtl" lang=en><p>كلب.</p>'),
        (
            "<!doctype html><HTML DIR='rtl' lang=he><p>כלב</p>",
            "a dog",
            '<!doctype html><HTML dir="ltr" lang=he><p>a dog</p>',
        ),
        ("<html dir=rtl><p>כלב</p>", "كلب", "<html dir=rtl><p>كلب</p>"),
        ("<html><p dir=ltr>A dog.</p>", "狗。", "<html><p dir=ltr>狗。</p>"),
        ("<p>A dog.</p>", "كلب.", "<p>كلب.</p>"),
    ],
)
def test_a_page_has_the_direction_of_its_translation(page: str, translation: str, written: str) -> None:
    assert translated(page, lambda line: Translated(translation)) == written


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
    assert (len(document.lines), document.joined(list(map(loud, document.lines)))) == (lines, result)


@pytest.mark.parametrize("text", ["a < b", "<a>", "</a>", "a</text><text>b", "&unknown;", "\x01", "<a>" * 300])
def test_what_is_not_xml_is_refused(text: str) -> None:
    with pytest.raises(DocumentError, match="XML"):
        tagged_document(text, "en", Tags(), "lines")


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
