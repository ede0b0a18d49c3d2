"""Earlier translations of strings of apps: what they have stays byte for byte, and what they lack is added."""

import json
import re
from xml.etree import ElementTree

import hypothesis.strategies as st
import pytest
from catalogues import filled, loud
from hypothesis import given

from vtrans.apps.documents.document import Translated
from vtrans.system.errors import DocumentError

SOURCES = {
    "app.json": """{
  "title": "Big dogs",
  "menu": {
    "open": "Open the file",
    "items_one": "{{count}} big dog",
    "items_other": "{{count}} big dogs"
  },
  "steps": ["Wash it", "Dry it", 3],
  "empty": ""
}
""",
    "app.arb": """{
  "@@locale": "en",
  "title": "Big dogs",
  "@title": {"description": "Shown above the page"},
  "dogs": "{n, plural, one {# big dog} other {# big dogs}}",
  "@dogs": {"placeholders": {"n": {}}}
}
""",
    "a.strings": '/* x */\n"a" = "b c";\nb = "d";\nc = "e f";',
    "strings.xml": """<?xml version="1.0" encoding="utf-8"?>
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">
    <!-- The page -->
    <string name="title">Big dogs</string>
    <string name="version" translatable="false">1.0 beta</string>
    <string name="hello">Hello <xliff:g id="name">%1$s</xliff:g> there</string>
    <string-array name="steps">
        <item>Wash it</item>
        <item>Dry it</item>
    </string-array>
    <plurals name="dogs">
        <item quantity="one">%d big dog</item>
        <item quantity="other">%d big dogs</item>
    </plurals>
</resources>
""",
}


def completed(name: str, existing: str, source: str = "", mark: str = "new") -> str:
    """Returns an existing translation with new ones, which contain the mark."""

    def translate(line: str) -> Translated:
        return Translated(f"{mark} {line}", ())

    return filled(name, (source or SOURCES[name]).encode(), translate, existing=existing.encode()).decode()


@pytest.mark.parametrize(
    ("name", "existing", "expected"),
    [
        (
            "app.json",
            '{\n\t"menu": {"open": "Öffnen", "old": "Alt"},\n\t"steps": ["Waschen"]\n}',
            '{\n\t"menu": {"open": "Öffnen",\n    "items_one": "new {{count}} big dog",\n    "items_other": '
            '"new {{count}} big dogs", "old": "Alt"},\n\t"steps": ["Waschen", "new Dry it", 3],\n  "title": '
            '"new Big dogs",\n  "empty": ""\n}',
        ),
        ("app.json", '{"menu": "Menü", "steps": {}, "empty": "x", "title": 5}', None),
        (
            "app.arb",
            '{"@@locale": "de", "dogs": "Hunde"}',
            '{"@@locale": "de",\n  "title": "new Big dogs",\n  "@title": {"description": "Shown above the page"}'
            ', "dogs": "Hunde"}',
        ),
        ("app.arb", "{}", None),
        (
            "strings.xml",
            '<resources>\n    <string name="title">Hunde</string> <!-- gut -->\n    <plurals name="dogs">\n'
            '        <item quantity="few">%d Hunde</item>\n        <item quantity="one">%d Hund</item></plurals>\n'
            "</resources>",
            '<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">\n    <string name="title">Hunde</string>\n'
            '    <string name="hello">new Hello <xliff:g id="name">%1$s</xliff:g> there</string>\n'
            '    <string-array name="steps">\n        <item>new Wash it</item>\n        <item>new Dry it</item>\n'
            '    </string-array> <!-- gut -->\n    <plurals name="dogs">\n'
            '        <item quantity="few">%d Hunde</item>\n        <item quantity="one">%d Hund</item>\n'
            '        <item quantity="other">new %d big dogs</item></plurals>\n</resources>',
        ),
        ("strings.xml", "<resources/>", None),
        ("strings.xml", "<resources></resources>", None),
        ("a.strings", 'b = "Öffnen"; // gut\n"old"="Alt";',
         'b = "Öffnen";\nc = "new e f"; // gut\n"old"="Alt";\n/* x */\n"a" = "new b c";'),
        ("a.strings", "\n", None),
    ],
)  # fmt: skip
def test_what_is_missing_is_added_after_what_is_before_it(name: str, existing: str, expected: str | None) -> None:
    made = completed(name, existing)
    assert expected is None or made == expected
    assert completed(name, made, mark="newer") == made


@pytest.mark.parametrize(
    ("name", "source", "existing", "added"),
    [
        ("a.json", '{"a_one": "b c", "a_other": "d e"}', '{"a_other": "x"}', 0),
        ("a.json", '{"a": {"one": "b c", "other": "d e"}}', '{"a": {"few": "y", "other": "x"}}', 0),
        ("a.json", '{"a_one": "b c", "a_two": "d e"}', '{"a_one": "x"}', 1),
        ("a.json", '{"a_one": "b c", "a_other": "d e"}', '{"a_one": "x"}', 1),
        ("a.strings", '"a_two" = "b c";', '"b_other" = "x";', 1),
        ("a.json", '{"a": "b c"}', '{"a": null}', 1),
        ("a.strings", '"a" = "b c";', '"a" = "";', 1),
        ("a.xml", '<resources><string name="a">b</string></resources>', '<resources><string name="a"/></resources>', 1),
        ("a.properties", "a=b c\nd=e f\n", "# x\nd=g", 1),
        ("a.resx", '<root><data name="a"><value>b</value></data></root>', "<root/>", 1),
        ("a.xml", '<resources><plurals name="a"><item quantity="one">b</item><item quantity="other">c</item></plurals>'
         '</resources>', '<resources><plurals name="a"><item quantity="other">x</item></plurals></resources>', 0),
        ("a.xml", '<resources><string name="a_one">b c</string></resources>',
         '<resources><string name="a_other">x</string></resources>', 1),
    ],
)  # fmt: skip
def test_what_is_empty_is_translated_and_no_plural_form_is_added(
    name: str, source: str, existing: str, added: int
) -> None:
    assert completed(name, existing, source).count("new ") == added


@pytest.mark.parametrize("existing", ["[]x", '["a"]', '"a"', '{"@@locale": "fr", "a": "b"}'])
def test_an_existing_file_that_does_not_fit_is_refused(existing: str) -> None:
    with pytest.raises(DocumentError, match=r"^[^\n]{10,200}\.$"):
        completed("app.arb", existing)


TEXTS = st.sampled_from(["one dog", "Two. Three", "{0} x", "a \\ b", 'a "b" c', "é", " ", "", "a & <b>c</b>"])
KEYS = st.text(st.sampled_from("abcd.-"), min_size=1, max_size=3)


@given(st.sampled_from([".json", ".arb", ".xml", ".strings"]), st.dictionaries(KEYS, TEXTS, min_size=1), st.data())
def test_every_text_is_kept_or_translated(ending: str, texts: dict[str, str], data: st.DataObject) -> None:
    kept = data.draw(st.dictionaries(KEYS, TEXTS), label="existing")
    made = completed(f"a{ending}", written(ending, kept), written(ending, texts))
    values = read(ending, made)
    assert values.keys() == kept.keys() | texts.keys()
    for key, value in values.items():
        if kept.get(key, "").strip() or key not in texts or not texts[key].strip():
            assert value == (kept if key in kept else texts)[key]
        else:
            assert value.startswith("new ")
    assert completed(f"a{ending}", made, written(ending, texts), mark="newer") == made


def written(ending: str, texts: dict[str, str]) -> str:
    """Returns a file with these texts by their keys."""
    if ending in (".json", ".arb"):
        return json.dumps(texts, indent=2)
    if ending == ".xml":
        root = ElementTree.Element("resources")
        for key, text in texts.items():
            ElementTree.SubElement(root, "string", name=key).text = text.replace("\\", "\\\\").replace('"', '\\"')
        return ElementTree.tostring(root, encoding="unicode")
    escaped = {key: text.replace("\\", "\\\\").replace('"', '\\"') for key, text in texts.items()}
    return "\n".join(f'/* {key} */ "{key}" = "{text}";' for key, text in escaped.items())


def read(ending: str, content: str) -> dict[str, str]:
    """Returns the texts of a file by their keys, with another program if there is one."""
    if ending in (".json", ".arb"):
        return dict(json.loads(content))
    if ending == ".xml":
        found = {element.attrib["name"]: element.text or "" for element in ElementTree.fromstring(content)}
    else:
        found = dict(re.findall(r'"([^"]*)" = "((?:[^"\\]|\\.)*)";', content))
    return {key: re.sub(r"\\(.)", r"\1", text) for key, text in found.items()}


# Catalogues, whose source files have places for translations.

TEMPLATE = r"""# Title
#, fuzzy
msgid ""
msgstr ""
"Language: \n"
"Content-Type: text/plain; charset=CHARSET\n"
"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\n"

#: a.c:1
msgid "A dog"
msgstr ""

#: a.c:2
#, c-format
msgctxt "menu"
msgid "Open %s"
msgstr ""

msgid "one cat"
msgid_plural "%d cats"
msgstr[0] ""
msgstr[1] ""
"""
XLIFF = """<?xml version="1.0"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a" source-language="en" target-language="de" datatype="plaintext"><body>
<trans-unit id="1"><source>A dog</source></trans-unit>
<trans-unit id="2"><source>Open <x id="a"/></source></trans-unit>
<trans-unit id="3"><source>A dog</source></trans-unit>
</body></file></xliff>
"""
XLIFF_2 = """<?xml version="1.0"?>
<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">
<unit id="1"><segment><source>A dog</source></segment></unit>
<unit id="2"><segment><source>Two dogs</source></segment></unit>
</file></xliff>
"""
QT = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de" sourcelanguage="en">
<context><name>A</name>
<message><source>A dog</source><translation type="unfinished"></translation></message>
<message><source>Two dogs</source><comment>x</comment><translation type="unfinished"></translation></message>
</context>
<context><name>B</name>
<message><source>A dog</source><translation type="unfinished"></translation></message>
</context>
</TS>
"""
CATALOGUES = {"a.pot": TEMPLATE, "a.xlf": XLIFF, "b.xlf": XLIFF_2, "a.ts": QT}


@pytest.mark.parametrize("name", CATALOGUES)
def test_changed_and_empty_entries_of_catalogues_are_translated(name: str) -> None:
    source = CATALOGUES[name]
    first = completed(name, "", source)
    changed = completed(name, first, source.replace("A dog", "A cat", 1), mark="newer")
    assert changed.count("newer A cat") == 1
    assert changed.count("newer") == 1
    emptied = completed(name, first.replace("new A dog", "", 1), source, mark="newer")
    assert emptied.count("newer") == 1
    assert filled(name, first.encode(), loud).decode() == first
    assert filled(name, first.encode(), loud, overwrite=True) == filled(name, source.encode(), loud)


def test_an_existing_po_file_keeps_its_header_forms_flags_and_obsolete_entries() -> None:
    header = 'msgid ""\nmsgstr ""\n"Last-Translator: Anna\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n%s\n'
    forms = '"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : n<5 ? 1 : 2);\\n"\n'
    plural = 'msgid "one cat"\nmsgid_plural "%d cats"\nmsgstr[0] "a"\nmsgstr[1] "b"\nmsgstr[2] "c"\n'
    old = '# by Anna\nmsgid "Gone"\nmsgstr "Weg"\n'
    other = 'msgctxt "other"\nmsgid "A dog"\nmsgstr "nicht dieser"\n'
    obsolete = '\n#~ msgid "Older"\n#~ msgstr "x"\n'
    made = completed("a.pot", f"{header % forms}{plural}\n{old}\n{other}{obsolete}", TEMPLATE)
    assert made.startswith(header % forms)
    assert plural in made
    assert 'msgid "A dog"\nmsgstr "new A dog"' in made
    assert made.endswith(
        f'{obsolete}\n# by Anna\n#~ msgid "Gone"\n#~ msgstr "Weg"\n\n'
        '#~ msgctxt "other"\n#~ msgid "A dog"\n#~ msgstr "nicht dieser"\n'
    )
    assert completed("a.pot", made, TEMPLATE, mark="newer") == made
