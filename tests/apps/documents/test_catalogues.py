"""Catalogues of Xcode and Qt, which have a translation beside its source: what is filled and how, and what stays."""

import json
from typing import Any

import pytest
from catalogues import Translate, filled, loud, reverse

from vtrans.apps.documents.document import FilledDocument, Filling, Translated
from vtrans.apps.documents.files import open_file
from vtrans.apps.documents.memory import Remembered
from vtrans.apps.documents.pairs import PairCollector
from vtrans.system.errors import DocumentError
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


def test_what_would_have_other_placeholders_stays_and_is_counted() -> None:
    entries: dict[str, dict[str, str]] = {"b \\ud83d": {}, "the %@ here": {}}
    content = xcode(entries).replace("\\\\ud83d", "\\ud83d")
    (text,) = open_file("a.xcstrings", content.encode(), 10_000, Filling("de")).texts
    document = open_file("a.xcstrings", content.encode(), 10_000, Filling("de")).read(text, "en")
    assert isinstance(document, FilledDocument)
    assert document.joined([Translated("hier")]) == content
    assert document.left == 2


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


PAIRS = {
    "a.xcstrings": xcode(
        {
            "a dog": {"localizations": {"de": unit("ein Hund")}},
            "n": {"localizations": {"en": forms("%d cat", "%d cats"), "de": forms("%d Katze", "%d Katzen")}},
            "a bird": {"localizations": {"de": unit("ein Vogel", "needs_review")}},
            "a cow": {},
        }
    ),
    "a.ts": QT
    % (
        message("a dog", "<translation>ein Hund</translation>")
        + message("%n cat(s)", numerus("%n Katze", "%n Katzen", unfinished=False), ' numerus="yes"')
        + message("a bird", f"{UNFINISHED}ein Vogel</translation>")
        + message("a cow", f"{UNFINISHED}</translation>")
    ),
}
# A file without a translation, and with one.
ONE = {
    "a.xcstrings": (xcode({"a dog": {}}), xcode({"a dog": {"localizations": {"de": unit("ein Hund")}}})),
    "a.ts": (
        QT % message("a dog", f"{UNFINISHED}</translation>"),
        QT % message("a dog", "<translation>ein Hund</translation>"),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_checked_translations_are_pairs_and_a_memory(name: str) -> None:
    memory, collector = Remembered(), PairCollector(Languages("", ""))
    for corpus in (collector, PairCollector(Languages("", ""), memory)):
        corpus.add(name, PAIRS[name].encode(), 100_000)
    counts = {reason: n for reason, n in collector.counts[name].items() if n}
    assert counts == {"taken": 3, "unchecked": 1, "untranslated": 1}
    assert list(collector.pairs) == [("a dog", "ein Hund"), ("A1 cat", "A1 Katze"), ("A1 cats", "A1 Katzen")]
    assert collector.languages.src == "en"
    new, done = ONE[name]
    assert filled(name, new.encode(), memory=memory).decode() == done


@pytest.mark.parametrize("name", ONE)
def test_only_overwrite_translates_again_what_has_a_translation(name: str) -> None:
    new, done = ONE[name]
    assert made(name, done, loud) == done
    assert made(name, done, loud, overwrite=True) == made(name, new, loud) != new


def test_files_in_other_languages_are_refused() -> None:
    for name, content in (("a.ts", QT % ""), ("a.xcstrings", xcode({}))):
        with pytest.raises(DocumentError, match="en"):
            open_file(name, content.encode(), 10_000, Filling("en", source="de"))
        assert open_file(name, content.encode(), 10_000, Filling("de", source="en"))
    with pytest.raises(DocumentError, match="target language"):
        filled("a.xcstrings", xcode({}).encode(), tgt="")


def test_substitutions_of_xcode_are_translated() -> None:
    source = {**unit("%#@dogs@ here"), "substitutions": {"dogs": {"argNum": 1, **forms("%arg dog", "%arg dogs")}}}
    catalogue = json.loads(made("a.xcstrings", xcode({"x": {"localizations": {"en": source}}})))
    review = "needs_review"
    assert catalogue["strings"]["x"]["localizations"]["de"] == {
        **unit("here %#@dogs@", review),
        "substitutions": {"dogs": {"argNum": 1, **forms("dog %arg", "dogs %arg", review)}},
    }
