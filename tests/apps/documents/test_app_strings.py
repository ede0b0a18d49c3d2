"""Strings of apps in files of one language, whose copies differ in translations only."""

import html
import json
import re
from collections import Counter
from xml.sax.saxutils import escape

import hypothesis.strategies as st
import pytest
from catalogues import Translate, filled, loud, made_of, reverse, rotated, same, seen
from hypothesis import given

from vtrans.apps.documents.document import FilledDocument, Filling, Translated
from vtrans.apps.documents.files import open_file
from vtrans.apps.documents.formats.app_strings.xml_files import android_document

ANDROID = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!-- ü one two -->\n'
    '<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">\n    %s\n</resources>\n'
)


def string(text: str, attributes: str = "") -> str:
    return ANDROID % f'<string name="a"{attributes}>{text}</string>'


def made(name: str, content: str, translate: Translate = reverse) -> str:
    return filled(name, content.encode(), translate).decode()


def left_of(name: str, content: str) -> int:
    """Returns how many texts of a file stay because they cannot be translated."""
    opened = open_file(name, content.encode(), 1_000_000, Filling("de"))
    document = opened.read(opened.texts[0], "en")
    assert isinstance(document, FilledDocument)
    assert document.joined([Translated.unchanged(line) for line in document.lines]) == content
    return document.left


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('{"a b": "c d"}', '{"a b": "d c"}'),
        ('{"a":\r\n\t{"b" : ["c d", 1.50, -0, 1e99, null, true, "e f"]}}', None),
        ('{"a": "c d", "a": "e f"}', '{"a": "d c", "a": "f e"}'),
        ('"a b"', '"b a"'),
        ('{"n": %s, "a": "b c"}' % ("9" * 5000), '{"n": %s, "a": "c b"}' % ("9" * 5000)),
        (r'{"a": "b \u00fc \ud83d\ude00 c"}', r'{"a": "c \ud83d\ude00 \u00fc b"}'),
        (r'{"a": "b\n\"c\" d"}', r'{"a": "b\nd \"c\""}'),
        ('{"dogs_one": "{{count}} big dog", "dogs_other": "{{count}} big dogs"}', None),
        ('{"a": "see $t(b.c, {\\"n\\": 1}) now"}', '{"a": "now $t(b.c, {\\"n\\": 1}) see"}'),
        ('{"a": "see @:b.c. now"}', None),
        ('{"a": "no dogs | one dog | {n} dogs"}', '{"a": "dogs no | dog one | dogs {n}"}'),
        ('{"a": "a <0>big dog</0> runs", "b": "%s has %d"}', '{"a": "runs <0>dog big</0> a", "b": "%2$d has %1$s"}'),
        ('{"a": "on {d, date, long} now"}', '{"a": "now {d, date, long} on"}'),
        ("1", "1"),
    ],
)  # fmt: skip
def test_the_values_of_json_are_translated(source: str, expected: str | None) -> None:
    translated = made("a.json", source)
    assert expected is None or translated == expected
    assert len(translated) == len(expected or source)
    assert translated != source or not any(" " in text for text in source.split('"')[3::4])
    assert made("a.json", source, same) == source


@pytest.mark.parametrize(
    "message",
    [
        "{n, plural, one {# dog} other {# dogs}} and {m, plural, one {# cat} other {# cats}}",
        "{a, plural, other {# dogs {b, plural, other {# cats}}}}",
        "the {n, selectordinal, one {#st} other {#th}} dog",
        "{n, plural, one {a b} other {c d}",
        "{n, plural, a b}",
        "{n, plural, other {a b}}}",
        "{n, plural, }",
        "{n, select, other {" * 3000,
        "a b \ud83d",
    ],
)
def test_a_message_that_is_not_clear_stays_and_is_counted(message: str) -> None:
    assert left_of("a.arb", json.dumps({"a": message, "b": "c d"}, ensure_ascii=True)) == 1


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (r"Don\'t stop\nthe dog\u2026 now", r"stop Don\'t\nnow dog… the"),
        ("one\n        two  three", "three two one"),
        ('"one  two"', '"one  two"'),
        ('"it\'s one"', '"one it\\\'s"'),
        ("<![CDATA[<b>a b</b> &amp; c]]>", "<![CDATA[c &amp; <b>b a</b>]]>"),
        ('<![CDATA[Visit <a href="x y">our site</a> now]]>', '<![CDATA[now <a href="x y">site our</a> Visit]]>'),
        ('Visit &lt;a href="x y">our site&lt;/a> now', 'now &lt;a href="x y"&gt;site our&lt;/a&gt; Visit'),
        (r"&lt;a href=\"x\">a b&lt;/a> c", r"c &lt;a href=\"x\"&gt;b a&lt;/a&gt;"),
        ('a &lt;img alt="it\'s -v"> b', 'b &lt;img alt="it\'s -v"&gt; a'),
        ('&lt;font color="%s">a b&lt;/font> %s', '%2$s &lt;font color="%1$s"&gt;b a&lt;/font&gt;'),
        ('<font color="%s">a b</font> %s', '%2$s <font color="%1$s">b a</font>'),
        ('a <xliff:g>%s</xliff:g> <i id="%s">b</i>', '<i id="%2$s">b</i> <xliff:g>%1$s</xliff:g> a'),
        ("a <![CDATA[<b>b c</b>]]> d &lt; e", "a <![CDATA[<b>b c</b>]]> d &lt; e"),
        ("<![CDATA[a <b>b</b> ]]]]><![CDATA[>]]>", "<![CDATA[a <b>b</b> ]]]]><![CDATA[>]]>"),
        ('<![CDATA[مرحبا <a href="?a=1">يا %1$s</a>]]>', '<![CDATA[<a href="?a=1">%1$s يا</a> مرحبا]]>'),
        ("%1$s has 50%% of %2$d", "%2$d of 50%% has %1$s"),
        ("100% sure", "sure 100%"),
        (r"now \@home", r"\@home now"),
        ("what <!-- a b --> now", None),
        ("@string/a_b", "@string/a_b"),
        (r"\ud83d\ude00 a", "a \U0001f600"),
        ("", ""),
    ],
)
def test_the_strings_of_android_keep_their_escapes_and_tags(source: str, expected: str | None) -> None:
    if expected is not None:
        assert made("strings.xml", string(source)) == string(expected)
    assert made("strings.xml", string(source), same) == string(source)


ANDROID_PARTS = [
    "dog ", "two. Three ", "您好 ", "%1$s ", '"', r"it\'s ", '&lt;a href="x y">', "&lt;/a>", "&lt;i&gt;", "&lt;/i>",
    r'&lt;img src=\"%2$s\">', "&amp;", "<i>a b</i>", "<![CDATA[<a id='c' b> & ]]>", '<xliff:g id="n">%3$s</xliff:g>',
]  # fmt: skip


def marks(text: str) -> tuple[Counter[str], bool]:
    """Returns the tags and placeholders of a string, whether they are XML or text, and whether it has CDATA."""
    flat = html.unescape(re.sub(r"<!\[CDATA\[(.*?)\]\]>", lambda section: html.escape(section[1]), text))
    return Counter(re.findall(r"</?[a-z][^<>]*>|%\d\$s", flat)), "<![CDATA[" in text


@given(st.lists(st.sampled_from(ANDROID_PARTS), max_size=8).map("".join), st.sampled_from([reverse, same, rotated]))
def test_markup_in_the_text_of_android_is_there_once_and_as_it_was(source: str, translate: Translate) -> None:
    before, _, after = string("\0").partition("\0")
    translated = made("strings.xml", string(source), translate)
    assert marks(translated.removeprefix(before).removesuffix(after)) == marks(source)


@pytest.mark.parametrize("source", ["a &lt;br> b", "a &lt;b>c&lt;/b> d", "<![CDATA[a <br id='%1$s'> b]]>", "a <br/> b"])
@pytest.mark.parametrize("translation", ["c", "c <br> d <i>", "<br id='%2$s'>"])
def test_a_string_of_android_with_other_markup_stays(source: str, translation: str) -> None:
    (opened,) = open_file("strings.xml", string(source).encode(), 100_000).texts
    document = android_document(opened, "en")
    assert isinstance(document, FilledDocument)
    assert document.slots[0].written([escape(translation)]) is None


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"a b" = "c d";', '"a b" = "d c";'),
        ('/* "a" = "b"; */ a.b/* = */=\n"c d" // "e"\n;// f', '/* "a" = "b"; */ a.b/* = */=\n"d c" // "e"\n;// f'),
        (r'"a" = "say \"b\"\tc d \U00fc\n\\e f";', r'"a" = "\"b\" say\td c ü... "'),
        ('"a b";\n"c"="d e";', '"a b";\n"c"="e d";'),
        ('"a"="%@ has %d";', '"a"="%2$d has %1$@";'),
        ('"a"="b\nc d";', '"a"="b\\nd c";'),
        ('"a" = "";\r\n', '"a" = "";\r\n'),
        ('"a"="b c";"a"="d e";', '"a"="c b";"a"="e d";'),
    ],
)  # fmt: skip
def test_the_values_of_strings_files_are_translated(source: str, expected: str) -> None:
    translated = made("Localizable.strings", source)
    if "..." not in expected:
        assert translated == expected
    for codec in ("utf-8", "utf-16-le", "utf-16-be"):
        for mark in ("\ufeff", ""):
            content = (mark + source).encode(codec)
            assert filled("a.strings", content) == (mark + translated).encode(codec)
            assert filled("a.strings", content, same) == content


WORDS = st.sampled_from(
    ["dog ", "Two. Three ", "{0} ", "{{n}} ", "%@ ", "%1$s ", "<b>big</b> ", "'", '"', "\\", "é", "\n", " ", "#", "&"]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=6).map("".join)


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8), st.booleans())
def test_json_differs_in_its_strings_only(value: object, ascii_only: bool) -> None:
    content = json.dumps(value, ensure_ascii=ascii_only)
    for translate in (same, reverse, rotated):
        translated = made("a.json", content, translate)
        assert shape(json.loads(translated)) == shape(value)
        assert translate is not same or translated == content


def shape(value: object) -> object:
    """Returns a value without its strings, but with the keys of its objects."""
    if isinstance(value, dict):
        return {key: shape(member) for key, member in value.items()}
    return [shape(member) for member in value] if isinstance(value, list) else isinstance(value, str) or value


FILES = {
    "a.json": '{"a": "%s"}',
    "a.po": 'msgid "%s"\nmsgstr ""\n',
    "a.strings": '"a" = "%s";',
    "a.xml": '<resources><string name="a">%s</string></resources>',
    "a.xlf": "<xliff><trans-unit><source>%s</source></trans-unit></xliff>",
}


def foreign(text: str) -> Translated:
    """Returns a line in which nothing that a model sees is as it was."""
    line = seen(text)
    made = line.model_input.upper().translate({ord(mark): "-" for mark in "%$:@{}."})
    return made_of(line, f"x {made}")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", ["the ? dog runs", "请打开?文件 (?)", "افتح ?، الملف", "?dog"])
@pytest.mark.parametrize(
    "placeholder", ["%name%", "%i%", "$x_1$", ":warning:", "{{.Name}}", "$HOME_Dir", "$1", "%1", "%a%%b%", "@Key@"]
)
def test_placeholders_of_strings_are_known_by_their_form(name: str, text: str, placeholder: str) -> None:
    sign = placeholder if text[1:] != "dog" else f"{placeholder} "
    source = FILES[name].replace("%s", text.replace("?", sign))
    made = filled(name, source.encode(), foreign).decode()
    assert made != source
    assert made.replace(source, "").count(placeholder) >= text.count("?")
    assert foreign(f"$5 {text}").text.startswith("x -5")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", ["a [%b c] d", "a %~b c", "a $$b c", "a {b c", "a b} c", "5 % b", "$1 b", "US$100 b"])
def test_a_string_whose_translation_has_other_marks_stays(name: str, text: str) -> None:
    source = FILES[name].replace("%s", text)
    assert filled(name, source.encode(), lambda line: Translated("x")).decode() == source


def test_a_price_may_be_written_in_another_way() -> None:
    made = filled("a.json", b'{"a": "US$100 of 5%"}', lambda line: Translated("5 % von 100 US$"))
    assert made == b'{"a": "5 % von 100 US$"}'


JAVA = r"""# A comment = a
! another \
title = Big dogs
  open : Open the \
         file
caf\u00e9=It''s {0} here
count %d dogs
empty=
lead=\  a b
odd=\ud83d
message=It's {0}
uni=Caf\u00e9 bar
"""
NET = """<?xml version="1.0" encoding="utf-8"?>
<root>
  <resheader name="version"><value>2.0</value></resheader>
  <data name="a" xml:space="preserve"><value>Big {0} &amp; dogs</value><comment>b c</comment></data>
  <data name="b" type="System.Drawing.Size"><value>12, 13</value></data>
  <data name="&gt;&gt;x.Name"><value>x y</value></data>
  <data name="c"><value/></data>
  <data name="d"><value><![CDATA[a < b]]></value></data>
</root>
"""


def test_values_of_java() -> None:
    made = filled("a.properties", JAVA.encode(), loud).decode()
    changed = {
        "Big dogs": "BIG DOGS",
        "Open the \\\n         file": "OPEN THE FILE",
        "It''s {0} here": "IT''S {0} HERE",
        "=\\  a b": "=\\  A B",
        "=Caf\\u00e9 bar": "=CAF\\u00C9 BAR",
        "count %d dogs": "count %d DOGS",
    }
    expected = JAVA
    for old, new in changed.items():
        expected = expected.replace(old, new)
    assert made == expected
    assert filled("a.properties", "a=café b".encode(), loud).decode() == "a=CAFÉ B"
    assert filled("a.properties", "a=café b".encode("latin-1"), loud).decode("latin-1") == "a=CAFÉ B"


def test_texts_of_net() -> None:
    made = filled("a.resx", NET.encode(), reverse).decode()
    assert made == NET.replace("Big {0} &amp; dogs", "dogs &amp; {0} Big").replace("<![CDATA[a < b]]>", "b &lt; a")


@pytest.mark.parametrize(("name", "source"), [("a.properties", JAVA), ("a.resx", NET)])
def test_what_is_missing_is_filled(name: str, source: str) -> None:
    first = filled(name, source.encode(), loud)
    shorter = re.sub(r"count .*\n|  <data name=\"a\".*\n", "", first.decode())
    completed = filled(name, source.encode(), loud, existing=shorter.encode()).decode()
    assert sorted(completed.split("\n")) == sorted(first.decode().split("\n"))
