"""Catalogues of Xcode and Qt, which have a translation beside its source: what is filled and how, and what stays."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from catalogues import Translate, filled, reverse, rotated, same
from hypothesis import given

from vtrans.documents.document import FilledDocument, Translated
from vtrans.documents.files import Filling, open_file
from vtrans.documents.pairs import Taken
from vtrans.documents.remembered import Remembered
from vtrans.documents.translating import Lines
from vtrans.errors import DocumentError
from vtrans.text.languages import Languages

QT = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE TS>\n<TS version="2.1" language="de_DE" sourcelanguage="en">\n'
    "<context>\n    <name>Main &lt;a b&gt;</name>\n%s</context>\n</TS>\n"
)
UNFINISHED = '<translation type="unfinished">'


def unit(value: str, state: str = "translated") -> dict[str, Any]:
    return {"stringUnit": {"state": state, "value": value}}


def forms(one: str, other: str, state: str = "translated") -> dict[str, Any]:
    return {"variations": {"plural": {"one": unit(one, state), "other": unit(other, state)}}}


def xcode(strings: object, *, indent: int | None = 2) -> str:
    """Returns a catalogue as Xcode writes it, or in one line."""
    catalogue = {"sourceLanguage": "en", "strings": strings, "version": "1.0"}
    separators = (",", " : ") if indent else (",", ":")
    dumped = json.dumps(catalogue, indent=indent, separators=separators, ensure_ascii=False)
    return dumped.replace("{}", "{\n\n    }") if indent else dumped


def message(source: str, translation: str, attributes: str = "") -> str:
    return (
        f'    <message{attributes}>\n        <location filename="a.cpp" line="1"/>\n        <source>{source}</source>\n'
        f"        <comment>x y</comment>\n        {translation}\n    </message>\n"
    )


def numerus(*texts: str, unfinished: bool = True) -> str:
    inside = "".join(f"\n            <numerusform>{text}</numerusform>" for text in texts)
    return f"{UNFINISHED if unfinished else '<translation>'}{inside}\n        </translation>"


def made(name: str, content: str, translate: Translate = reverse, *, overwrite: bool = False) -> str:
    return filled(name, content.encode(), translate, overwrite=overwrite).decode()


@pytest.mark.parametrize("indent", [2, None])
def test_an_entry_without_the_language_gets_it_in_its_place(indent: int | None) -> None:
    review = "needs_review"
    before: dict[str, Any] = {
        "%@ has a dog": {},
        "a b": {"comment": "c d", "extractionState": "manual", "shouldTranslate": True},
        "key": {"localizations": {"ar": unit("x"), "en": unit("Two dogs"), "fr": unit("x")}},
        "n": {"localizations": {"en": forms("%lld dog", "%lld dogs")}},
        "old": {"localizations": {"de": unit("old", "new")}},
    }
    after: dict[str, Any] = json.loads(json.dumps(before))
    after["%@ has a dog"] = {"localizations": {"de": unit("dog a has %@", review)}}
    localizations = {"localizations": {"de": unit("b a", review)}}
    after["a b"] = {"comment": "c d", "extractionState": "manual", **localizations, "shouldTranslate": True}
    arabic, *others = before["key"]["localizations"].items()
    after["key"]["localizations"] = dict([arabic, ("de", unit("dogs Two", review)), *others])
    after["n"]["localizations"] = {"de": forms("dog %lld", "dogs %lld", review), "en": forms("%lld dog", "%lld dogs")}
    after["old"]["localizations"]["de"] = unit("old", review)
    translated = made("Localizable.xcstrings", xcode(before, indent=indent))
    assert translated == xcode(after, indent=indent)
    assert made("a.xcstrings", translated) == translated


@pytest.mark.parametrize(
    "entry",
    [
        {"localizations": {"de": unit("x")}},
        {"localizations": {"de": unit("x", "needs_review")}},
        {"localizations": {"de": forms("x", "")}},
        {"shouldTranslate": False},
        {"extractionState": "stale"},
        {"localizations": {"en": unit(" ")}},
    ],
)
def test_an_entry_that_is_translated_or_not_to_be_translated_stays(entry: object) -> None:
    assert made("a.xcstrings", xcode({"a b": entry, "": {"c": 1}})) == xcode({"a b": entry, "": {"c": 1}})


def test_overwriting_replaces_a_localization() -> None:
    content = xcode({"a b": {"localizations": {"de": forms("x", "y"), "fr": unit("z")}}})
    expected = xcode({"a b": {"localizations": {"de": unit("b a", "needs_review"), "fr": unit("z")}}})
    assert made("a.xcstrings", content, overwrite=True) == expected


def test_substitutions_and_other_placeholders_stay_and_are_counted() -> None:
    source = {**unit("%#@dogs@ run"), "substitutions": {"dogs": {"argNum": 1, **forms("%arg dog", "%arg dogs")}}}
    entries = {"a": {"localizations": {"en": source}}, "b \\ud83d": {}, "the %@ here": {}}
    content = xcode(entries).replace("\\\\ud83d", "\\ud83d")
    (text,) = open_file("a.xcstrings", content.encode(), 10_000, Filling("de")).texts
    document = open_file("a.xcstrings", content.encode(), 10_000, Filling("de")).read(text, "en")
    assert isinstance(document, FilledDocument)
    assert document.joined([Translated("hier")]) == content
    assert document.left == 3


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("a b", f"{UNFINISHED}</translation>", f"{UNFINISHED}b a</translation>"),
        ("a b", '<translation type="unfinished"/>', f"{UNFINISHED}b a</translation>"),
        ("a b", "<translation></translation>", f"{UNFINISHED}b a</translation>"),
        ("a b", "<translation>x</translation>", None),
        ("a b", f"{UNFINISHED}x</translation>", None),
        ("a b", '<translation type="vanished"></translation>', None),
        ("a b", '<translation type="obsolete"/>', None),
        ("&amp;Open it", f"{UNFINISHED}</translation>", f"{UNFINISHED}it &amp;Open</translation>"),
        ("a &lt;b&gt;c d&lt;/b&gt; %1 %L2 e", f"{UNFINISHED}</translation>",
         f"{UNFINISHED}e %L2 %1 &lt;b&gt;d c&lt;/b&gt; a</translation>"),
        ('a <byte value="x"/> b', f"{UNFINISHED}</translation>", f'{UNFINISHED}b <byte value="x"/> a</translation>'),
        ("a\nb", f"{UNFINISHED}</translation>", f"{UNFINISHED}a\nb</translation>"),
        ("", f"{UNFINISHED}</translation>", None),
    ],
)  # fmt: skip
def test_messages_of_qt(source: str, translation: str, expected: str | None) -> None:
    content = QT % message(source, translation)
    assert made("a.ts", content) == QT % message(source, expected or translation)
    assert made("a.ts", made("a.ts", content)) == made("a.ts", content)


def test_the_forms_of_qt_translate_one_thing_and_several() -> None:
    attributes = ' numerus="yes"'
    content = QT % message("%n big dog(s)", numerus("", ""), attributes)
    assert made("a.ts", content) == QT % message("%n big dog(s)", numerus("dog big %n", "dogs big %n"), attributes)
    one = QT % message("%n dog(s)", numerus("", unfinished=False), attributes)
    assert made("a.ts", one) == QT % message("%n dog(s)", numerus("dogs %n"), attributes)
    filled_form = QT % message("%n dog(s)", numerus("", "x"), attributes)
    assert made("a.ts", filled_form) == filled_form


def test_overwriting_a_finished_message_of_qt_makes_it_unfinished() -> None:
    content = QT % message("a b", "<translation>x</translation>")
    assert made("a.ts", content, overwrite=True) == QT % message("a b", f"{UNFINISHED}b a</translation>")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "a.xcstrings",
            xcode(
                {
                    "a dog": {"localizations": {"de": unit("ein Hund")}},
                    "n": {"localizations": {"en": forms("%d cat", "%d cats"), "de": forms("%d Katze", "%d Katzen")}},
                    "a bird": {"localizations": {"de": unit("ein Vogel", "needs_review")}},
                    "a cow": {},
                }
            ),
            {"taken": 3, "unchecked": 1, "untranslated": 1},
        ),
        (
            "a.ts",
            QT % (
                message("a dog", "<translation>ein Hund</translation>")
                + message("%n cat(s)", numerus("%n Katze", "%n Katzen", unfinished=False), ' numerus="yes"')
                + message("a bird", f"{UNFINISHED}ein Vogel</translation>")
                + message("a cow", f"{UNFINISHED}</translation>")
            ),
            {"taken": 3, "unchecked": 1, "untranslated": 1},
        ),
    ],
)  # fmt: skip
def test_checked_translations_are_pairs_and_a_memory(name: str, content: str, expected: dict[str, int]) -> None:
    memory, taken = Remembered(), Taken(Languages("", ""))
    for corpus in (taken, Taken(Languages("", ""), memory)):
        corpus.add(name, content.encode(), 100_000)
    assert {reason: n for reason, n in taken.counts[name].items() if n} == expected
    assert list(taken.pairs) == [("a dog", "ein Hund"), ("A1 cat", "A1 Katze"), ("A1 cats", "A1 Katzen")]
    assert taken.languages.src == "en"
    new = xcode({"a dog": {}}) if name == "a.xcstrings" else QT % message("a dog", f"{UNFINISHED}</translation>")
    opened = open_file(name, new.encode(), 10_000, Filling("de"))
    document = opened.read(opened.texts[0], "en")
    assert Lines([document], memory).filled == 1
    done = unit("ein Hund") if name == "a.xcstrings" else "<translation>ein Hund</translation>"
    old = xcode({"a dog": {"localizations": {"de": done}}})
    assert document.joined([]) == (old if name == "a.xcstrings" else QT % message("a dog", str(done)))


def test_files_in_other_languages_are_refused() -> None:
    for name, content in (("a.ts", QT % ""), ("a.xcstrings", xcode({}))):
        with pytest.raises(DocumentError, match="en"):
            open_file(name, content.encode(), 10_000, Filling("en", source="de"))
        assert open_file(name, content.encode(), 10_000, Filling("de", source="en"))
    with pytest.raises(DocumentError, match="target language"):
        filled("a.xcstrings", xcode({}).encode(), tgt="")


WORDS = st.sampled_from(["dog ", "Two. Three ", "%1 ", "%@ ", "%n", "(s) ", "é", "\n", "  ", "'", '"', "\\"])
TEXTS = st.lists(WORDS, min_size=1, max_size=5).map("".join)
TRANSLATE = st.sampled_from([same, reverse, rotated])


@given(st.dictionaries(TEXTS, st.sampled_from([{}, {"comment": "c"}, {"localizations": {"fr": unit("x")}}])), TRANSLATE)
def test_a_catalogue_gets_localizations_and_keeps_all_else(entries: dict[str, Any], translate: Translate) -> None:
    for indent in (2, None):
        content = xcode(dict(sorted(entries.items())), indent=indent)
        translated = made("a.xcstrings", content, translate)
        strings = json.loads(translated)["strings"]
        added = {key: entry.get("localizations", {}).pop("de", None) for key, entry in strings.items()}
        for key, entry in strings.items():
            assert (entry if entry.get("localizations") else {**entry, "localizations": None}) == {
                "localizations": None, **entries[key]
            }  # fmt: skip
            assert added[key] is None or added[key]["stringUnit"]["state"] == "needs_review"
            assert translate is not same or not key.strip() or added[key]["stringUnit"]["value"] == key
        assert made("a.xcstrings", translated, translate) == translated


@given(st.lists(TEXTS, max_size=4), TRANSLATE)
def test_a_file_of_qt_gets_translations_and_keeps_all_else(sources: list[str], translate: Translate) -> None:
    empty = f"{UNFINISHED}</translation>"
    content = QT % "".join(message(source, empty) for source in sources)
    translated = made("a.ts", content, translate)
    parts = content.split(empty)
    for part in parts[:-1]:
        assert translated.startswith(part)
        translated = translated[len(part) :]
        assert translated.startswith(UNFINISHED)
        translated = translated[translated.index("</translation>") + len("</translation>") :]
    assert translated == parts[-1]


HOSTILE = {
    "TypeScript": ("a.ts", b"export const a: string = 'b c';\n"),
    "TypeScript with a type": ("a.ts", b"const a: Array<TS> = [];\n"),
    "a video": ("a.ts", b"G@\x11\x10\x00B\xf0%\x00\x01" * 100),
    "another root": ("a.ts", b"<a><TS/></a>"),
    "an entity": ("a.ts", b'<!DOCTYPE TS [<!ENTITY a "b">]><TS>&a;</TS>'),
    "half a file": ("a.ts", b"<TS><context>"),
    "no catalogue": ("a.xcstrings", b'{"a": "b"}'),
    "an array": ("a.xcstrings", b"[]"),
    "entries that are texts": ("a.xcstrings", b'{"sourceLanguage": "en", "strings": {"a": "b"}}'),
    "localizations in an array": ("a.xcstrings", xcode({"a": {"localizations": []}}).encode()),
    "a huge number": ("a.xcstrings", xcode({"a": {"b": 1}}).replace("1\n", "9" * 5000 + "\n").encode()),
    "deep objects": ("a.xcstrings", b'{"sourceLanguage": "en", "strings": ' + b'{"a":' * 300 + b"1" + b"}" * 301),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_broken_catalogue_is_refused(name: str) -> None:
    with pytest.raises(DocumentError, match=r"^[^\n]{10,150}\.$"):
        filled(*HOSTILE[name])
