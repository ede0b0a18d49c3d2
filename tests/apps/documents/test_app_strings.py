"""Strings of apps in files of one language, whose copies differ in translations only."""

import json

import pytest
from catalogues import Translate, filled, loud, made_of, reverse, same, seen

from vtrans.apps.documents.document import FilledDocument, Filling, Translated
from vtrans.apps.documents.files import open_file

ANDROID = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!-- ü one two -->\n'
    '<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">\n    <string name="a">%s</string>\n</resources>\n'
)
NET = '<?xml version="1.0" encoding="utf-8"?>\n<root>\n  <data name="a" xml:space="preserve">%s</data>\n</root>\n'
EXTENSION = '{"x": {"message": "%s", "description": "c d", "placeholders": {"name": {"content": "$1"}}}}'


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
        ('{"a":\r\n\t{"b" : ["c d", 1.50, -0, 1e99, null, true, "e f"]}}',
         '{"a":\r\n\t{"b" : ["d c", 1.50, -0, 1e99, null, true, "f e"]}}'),
        ('{"a": "c d", "a": "e f"}', '{"a": "d c", "a": "f e"}'),
        ('"a b"', '"b a"'),
        ('{"n": %s, "a": "b c"}' % ("9" * 5000), '{"n": %s, "a": "c b"}' % ("9" * 5000)),
        (r'{"a": "b \u00fc \ud83d\ude00 c"}', r'{"a": "c \ud83d\ude00 \u00fc b"}'),
        (r'{"a": "b\n\"c\" d"}', r'{"a": "b\nd \"c\""}'),
        ('{"dogs_one": "{{count}} big dog"}', '{"dogs_one": "dog big {{count}}"}'),
        ('{"a": "see $t(b.c, {\\"n\\": 1}) now"}', '{"a": "now $t(b.c, {\\"n\\": 1}) see"}'),
        ('{"a": "see @:b.c. now"}', '{"a": "@:b.c. see now"}'),
        ('{"a": "no dogs | one dog | {n} dogs"}', '{"a": "dogs no | dog one | dogs {n}"}'),
        ('{"a": "a <0>big dog</0> runs", "b": "%s has %d"}', '{"a": "runs <0>dog big</0> a", "b": "%2$d has %1$s"}'),
        ('{"a": "on {d, date, long} now"}', '{"a": "now {d, date, long} on"}'),
        ("1", "1"),
        (EXTENSION % "a $NAME$ b", EXTENSION % "b $NAME$ a"),
        ('{"x": {"message": "a b"}, "y": "c d"}', '{"x": {"message": "b a"}, "y": "d c"}'),
    ],
)  # fmt: skip
def test_the_values_of_json_are_translated(source: str, expected: str) -> None:
    assert made("a.json", source) == expected
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
        ('a <xliff:g id="x">big dog</xliff:g> b', 'b <xliff:g id="x">big dog</xliff:g> a'),
        ("a <![CDATA[<b>b c</b>]]> d &lt; e", "a <![CDATA[<b>b c</b>]]> d &lt; e"),
        ('<a href="%1$s">a b</a> c', 'c <a href="%1$s">b a</a>'),
        ("<b>a</b> &lt;b&gt;b&lt;/b&gt; c", "<b>a</b> &lt;b&gt;b&lt;/b&gt; c"),
        ("<a title='a>b'>b c</a> d", "<a title='a>b'>b c</a> d"),
        ("<![CDATA[a <b>b</b> ]]]]><![CDATA[>]]>", "<![CDATA[a <b>b</b> ]]]]><![CDATA[>]]>"),
        ('<![CDATA[مرحبا <a href="?a=1">يا %1$s</a>]]>', '<![CDATA[<a href="?a=1">%1$s يا</a> مرحبا]]>'),
        ("%1$s has 50%% of %2$d", "%2$d of 50%% has %1$s"),
        ("100% sure", "sure 100%"),
        (r"now \@home", r"\@home now"),
        ("what <!-- a b --> now", "what <!-- a b --> now"),
        ("@string/a_b", "@string/a_b"),
        (r"\ud83d\ude00 a", "a \U0001f600"),
        (r"\u0020a b\u0020", r"\u0020b a\u0020"),
        ("&#160;a b&#160;", "&#160;b a&#160;"),
        (r"\u00a0a <b>b</b>", r"\u00a0<b>b</b> a"),
        ("", ""),
    ],
)
def test_the_strings_of_android_keep_their_escapes_and_tags(source: str, expected: str) -> None:
    assert made("strings.xml", ANDROID % source) == ANDROID % expected
    assert made("strings.xml", ANDROID % source, same) == ANDROID % source


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"a b" = "c d";', '"a b" = "d c";'),
        ('/* "a" = "b"; */ a.b/* = */=\n"c d" // "e"\n;// f', '/* "a" = "b"; */ a.b/* = */=\n"d c" // "e"\n;// f'),
        (r'"a" = "say \"b\"\tc \U00fc\n\\e f";', r'"a" = "\"b\" say\tü c\nf \\e";'),
        ('"a b";\n"c"="d e";', '"a b";\n"c"="e d";'),
        ('"a"="%@ has %d";', '"a"="%2$d has %1$@";'),
        ('"a"="b\nc d";', '"a"="b\\nd c";'),
        ('"a" = "";\r\n', '"a" = "";\r\n'),
        ('"a"="b c";"a"="d e";', '"a"="c b";"a"="e d";'),
    ],
)  # fmt: skip
def test_the_values_of_strings_files_are_translated(source: str, expected: str) -> None:
    for codec in ("utf-8", "utf-16-le", "utf-16-be"):
        for mark in ("\ufeff", ""):
            content = (mark + source).encode(codec)
            assert filled("a.strings", content) == (mark + expected).encode(codec)
            assert filled("a.strings", content, same) == content


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# A comment = a\n! another \\\ntitle = Big dogs\n", "# A comment = a\n! another \\\ntitle = BIG DOGS\n"),
        ("  open : Open the \\\n         file\n", "  open : OPEN THE FILE\n"),
        (r"a=It''s {0} here", r"a=IT''S {0} HERE"),
        ("count %d dogs\nempty=\n", "count %d DOGS\nempty=\n"),
        (r"lead=\  a b", r"lead=\  A B"),
        (r"odd=\ud83d", r"odd=\ud83d"),
        ("message=It's {0}", "message=It's {0}"),
        (r"uni=Caf\u00e9 bar", r"uni=CAF\u00C9 BAR"),
        ("a=café b", "a=CAFÉ B"),
    ],
)
def test_the_values_of_java_are_translated(source: str, expected: str) -> None:
    assert made("a.properties", source, loud) == expected
    assert filled("a.properties", source.encode("latin-1"), loud) == expected.encode("latin-1")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("<value>Big {0:d MMM} &amp; dogs</value><comment>b c</comment>",
         "<value>dogs &amp; {0:d MMM} Big</value><comment>b c</comment>"),
        ("<value><![CDATA[a < b]]></value>", "<value>b &lt; a</value>"),
        ("<value/>", "<value/>"),
    ],
)  # fmt: skip
def test_the_texts_of_net_are_translated(data: str, expected: str) -> None:
    assert made("a.resx", NET % data) == NET % expected
    for old, new in (('"a"', '"a" type="System.Drawing.Size"'), ('"a"', '"&gt;&gt;x.Name"')):
        other = (NET % data).replace(old, new)
        assert made("a.resx", other) == other


FILES = {
    "a.json": '{"a": "%s"}',
    "a.po": 'msgid "%s"\nmsgstr ""\n',
    "a.strings": '"a" = "%s";',
    "a.xml": '<resources><string name="a">%s</string></resources>',
    "a.ts": "<TS><context><message><source>%s</source><translation/></message></context></TS>",
    "a.xlf": "<xliff><trans-unit><source>%s</source></trans-unit></xliff>",
}


@pytest.mark.parametrize("name", ["a.json", "a.po", "a.xlf"])
def test_each_branch_of_an_icu_message_is_a_sentence(name: str) -> None:
    made = filled(name, (FILES[name] % "see {n, plural, one {# dog} other {# dogs}} now").encode()).decode()
    assert "{n, plural, one {now dog # see} other {now dogs # see}}" in made


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
