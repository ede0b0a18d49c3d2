"""Catalogues of Qt, which have a translation beside its source: what is filled and how, and what stays."""

import pytest
from catalogues import Translate, filled, loud, reverse

from vtrans.apps.documents.document import Filling
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


def test_checked_translations_are_pairs_and_a_memory() -> None:
    content = QT % (
        message("a dog", "<translation>ein Hund</translation>")
        + message("%n cat(s)", numerus("%n Katze", "%n Katzen", unfinished=False), ' numerus="yes"')
        + message("a bird", f"{UNFINISHED}ein Vogel</translation>")
        + message("a cow", f"{UNFINISHED}</translation>")
    )
    memory, collector = Remembered(), PairCollector(Languages("", ""))
    for corpus in (collector, PairCollector(Languages("", ""), memory)):
        corpus.add("a.ts", content.encode(), 100_000)
    counts = {reason: n for reason, n in collector.counts["a.ts"].items() if n}
    assert counts == {"taken": 3, "unchecked": 1, "untranslated": 1}
    assert list(collector.pairs) == [("a dog", "ein Hund"), ("A1 cat", "A1 Katze"), ("A1 cats", "A1 Katzen")]
    assert collector.languages.src == "en"
    new = QT % message("a dog", f"{UNFINISHED}</translation>")
    made = filled("a.ts", new.encode(), memory=memory).decode()
    assert made == QT % message("a dog", "<translation>ein Hund</translation>")


def test_a_file_in_another_language_is_refused() -> None:
    with pytest.raises(DocumentError, match="en"):
        open_file("a.ts", (QT % "").encode(), 10_000, Filling("en", source="de"))
    assert open_file("a.ts", (QT % "").encode(), 10_000, Filling("de", source="en"))


XLIFF = '<xliff version="1.2"><file><body><trans-unit id="1"><source>A dog</source></trans-unit></body></file></xliff>'
XLIFF_2 = (
    '<xliff version="2.0" srcLang="en"><file><unit><segment><source>A dog</source></segment></unit></file></xliff>'
)
EMPTY = {
    "a.po": 'msgid ""\nmsgstr ""\n"Language: de\\n"\n\nmsgid "A dog"\nmsgstr ""\n',
    "a.xlf": XLIFF,
    "b.xlf": XLIFF_2,
    "a.ts": QT % message("A dog", f"{UNFINISHED}</translation>"),
    "b.ts": QT % message("A dog", numerus("", "")),
}


@pytest.mark.parametrize("name", EMPTY)
def test_only_overwrite_translates_again_what_has_a_translation(name: str) -> None:
    first, second = (made(name, EMPTY[name], translate) for translate in (reverse, loud))
    assert first != second
    assert made(name, first, loud) == first
    assert made(name, first, loud, overwrite=True) == second
