"""Strings of apps in files of one language: JSON, ARB, Android and iOS. Their copies differ in translations only."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from catalogues import Translate, filled, reverse, rotated, same
from hypothesis import given

from vtrans.documents.document import FilledDocument, Translated
from vtrans.documents.files import Filling, open_file
from vtrans.errors import DocumentError

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
        ("{}", "{}"),
        ("1", "1"),
    ],
)  # fmt: skip
def test_the_values_of_json_are_translated(source: str, expected: str | None) -> None:
    translated = made("a.json", source)
    assert expected is None or translated == expected
    assert len(translated) == len(expected or source)
    assert translated != source or not any(" " in text for text in source.split('"')[3::4])
    assert made("a.json", source, same) == source


MESSAGES = {
    "a {name} b": "b {name} a",
    "{n, plural, =0 {no dogs} one {# big dog} other {# big dogs}}":
        "{n, plural, =0 {dogs no} one {dog big #} other {dogs big #}}",
    "{n,plural,offset:1 one{a b}other{c d}}": "{n,plural,offset:1 one{b a}other{d c}}",
    "see {n, plural, one {# dog} other {# dogs}} now": "{n, plural, one {now dog # see} other {now dogs # see}}",
    "{g, select, f {she has {n, plural, one {# dog} other {# dogs}}} other {no dogs}}":
        "{g, select, f {{n, plural, one {dog # has she} other {dogs # has she}}} other {dogs no}}",
    "{n, plural, one {} other {a b}}": "{n, plural, one {} other {b a}}",
    " {n, plural, other {a b}} ": " {n, plural, other {b a}} ",
    "{n, plural, other {on {d, date, long} now}}": "{n, plural, other {now {d, date, long} on}}",
    "it''s '{this}' now": "now '{this}' it\u2019s",
}  # fmt: skip


@pytest.mark.parametrize("source", MESSAGES)
def test_the_branches_of_a_message_are_translated_as_whole_sentences(source: str) -> None:
    content = json.dumps({"@@locale": "en_US", "@a": {"description": "e f"}, "a": source}, ensure_ascii=False)
    expected = json.dumps({"@@locale": "de", "@a": {"description": "e f"}, "a": MESSAGES[source]}, ensure_ascii=False)
    assert made("a.arb", content) == expected
    assert made("a.arb", content, same) == content.replace("en_US", "de")
    if "plural" in source:
        assert json.loads(made("a.json", content))["a"] == MESSAGES[source]


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


def test_an_apostrophe_does_not_quote_an_argument() -> None:
    content = '{"a": "the {name} here"}'
    answer = made("a.arb", content, lambda line: Translated(f"l'{line.split()[1]} d'eau"))
    assert answer == '{"a": "l\u2019{name} d\'eau"}'


def test_an_arb_file_in_another_language_is_refused() -> None:
    content = made("a.arb", '{"@@locale": "en_GB", "a": "b c"}').encode()
    with pytest.raises(DocumentError, match="de"):
        open_file("a.arb", content, 1000, Filling("de", source="en"))
    assert open_file("a.arb", content, 1000, Filling("fr", source="de"))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (r"Don\'t stop\nthe dog\u2026 now", r"stop Don\'t\nnow dog… the"),
        ("a &amp; b &lt;i>c d&lt;/i>", "&lt;i&gt;d c&lt;/i&gt; b &amp; a"),
        ("one\n        two  three", "three two one"),
        ('"one  two"', '"one  two"'),
        ('"it\'s one"', '"one it\\\'s"'),
        ("<![CDATA[<b>a b</b> c]]>", "c &lt;b&gt;b a&lt;/b&gt;"),
        ('a <xliff:g id="n" example="b c">%1$s</xliff:g> d', 'd <xliff:g id="n" example="b c">%1$s</xliff:g> a'),
        ("a <b>c <i>d e</i></b> f", "f <b><i>e d</i> c</b> a"),
        ("%1$s has 50%% of %2$d", "%2$d of 50%% has %1$s"),
        ("100% sure", "sure 100%"),
        (r"now \@home", r"\@home now"),
        ("what <!-- a b --> now", None),
        ("@string/a_b", "@string/a_b"),
        ("?attr/a", "?attr/a"),
        (r"\ud83d\ude00 a", "a \U0001f600"),
        ("", ""),
    ],
)
def test_the_strings_of_android_keep_their_escapes_and_tags(source: str, expected: str | None) -> None:
    if expected is not None:
        assert made("strings.xml", string(source)) == string(expected)
    assert made("strings.xml", string(source), same) == string(source)


def test_arrays_and_plural_forms_of_android_are_translated() -> None:
    body = (
        '<string-array name="a"><item>{}</item>\n<item>@string/b</item></string-array>\n'
        '<plurals name="b"><item quantity="one">{}</item><item quantity="other">{}</item></plurals>'
        '<string name="c" translatable="false">a b</string><string name="d"/><color name="e">a b</color>'
        '<string-array name="a" translatable="false"><item>a b</item></string-array>'
    )
    translated = made("values/strings.xml", ANDROID % body.format("a b", "%d dog", "%d dogs"))
    assert translated == ANDROID % body.format("b a", "dog %d", "dogs %d")


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
        (" ", " "),
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


@given(st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from([same, reverse, rotated]))
def test_the_other_files_differ_in_their_strings_only(texts: list[str], translate: Translate) -> None:
    escaped = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    xml = [text.replace("&", "&amp;").replace("<", "&lt;").replace("'", "\\'") for text in escaped]
    for name, parts in (
        ("a.strings", [f'/* {number} "; */ "k" = "{text}";\n' for number, text in enumerate(escaped)]),
        ("a.xml", ["<resources>", *(f"<string name='k'>{text}</string>\n" for text in xml), "</resources>"]),
    ):
        content = "".join(parts)
        translated = made(name, content, translate)
        separators = (' = "', '";\n') if name == "a.strings" else ("'>", "</string>")
        for separator in separators:
            assert translated.count(separator) == content.count(separator)
        assert translate is not same or translated == content
        assert made(name, translated, same) == translated


HOSTILE = {
    "a deep array": ("a.json", b"[" * 100_000),
    "a deep object": ("a.json", b'{"a":' * 300 + b"1" + b"}" * 300),
    "half a file": ("a.json", b'{"a": "b'),
    "a comment": ("a.json", b'{"a": "b"} // c'),
    "no number": ("a.json", b"[NaN]"),
    "a control character": ("a.json", b'["a\nb"]'),
    "UTF-16": ("a.json", "\ufeff{}".encode("utf-16-le")),
    "no ARB": ("a.arb", b"x"),
    "no XML": ("a.xml", b"x"),
    "other XML": ("a.xml", b'<project><target name="a">b c</target></project>'),
    "an entity": ("a.xml", b'<!DOCTYPE r [<!ENTITY a "b">]><resources><string name="a">&a;</string></resources>'),
    "an open comment": ("a.strings", b'"a" = "b"; /* c'),
    "no semicolon": ("a.strings", b'"a" = "b"'),
    "an open string": ("a.strings", b'"a" = "b;\n' * 1001),
    "white space": ("a.strings", b'"a"' + b" " * 100_000),
    "open comments": ("a.strings", b'"a"' + b"/*" * 50_000),
    "a binary file": ("a.strings", b"bplist00\x00\xff"),
    "a property list": ("a.strings", b'<?xml version="1.0"?><plist/>'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_broken_file_is_refused(name: str) -> None:
    with pytest.raises(DocumentError, match=r"^[^\n]{10,150}\.$"):
        filled(*HOSTILE[name])


def test_an_error_names_the_line() -> None:
    for name, content in (("a.json", '{\n"a": x}'), ("a.strings", '"a"="b";\n\n x'), ("a.xml", "<resources>\n<a></b>")):
        with pytest.raises(DocumentError, match=r"^Line [23]: "):
            made(name, content)


def test_a_mark_and_line_ends_stay() -> None:
    for name, content in (("a.json", '{\r\n"a": "b c"}\r\n'), ("a.xml", string("b c").replace("\n", "\r\n"))):
        translated = filled(name, ("\ufeff" + content).encode())
        assert translated.decode() == "\ufeff" + content.replace("b c", "c b")


def test_a_translation_with_other_placeholders_is_refused() -> None:
    for name, content in (
        ("a.json", '{"a": "the {{name}} here"}'),
        ("a.arb", '{"a": "{n, plural, other {# dogs}}"}'),
        ("a.xml", string("the %1$s here")),
        ("a.strings", '"a" = "the %@ here";'),
    ):
        assert made(name, content, lambda line: Translated("x")) == content
