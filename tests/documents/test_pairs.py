"""Training pairs from documents: what is taken, what is left out, and that models see what they will translate."""

from __future__ import annotations

import pytest
from catalogues import seen

from vtrans.documents.files import Filling, open_file
from vtrans.documents.pairs import Taken
from vtrans.documents.translating import Lines
from vtrans.errors import DocumentError
from vtrans.text.languages import Languages

HEADER = (
    'msgid ""\nmsgstr ""\n"Language: de_AT\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Plural-Forms: nplurals=%d; plural=%s;\\n"\n\n'
)
XLIFF = (
    '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" source-language="en-US" '
    'target-language="de-DE" datatype="plaintext"><body>%s</body></file></xliff>'
)
TWO = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">'
    '<file id="f"><unit id="u">%s</unit></file></xliff>'
)
TMX = '<tmx version="1.4"><header srclang="%s"/><body>%s</body></tmx>'


def taken(name: str, content: str, src: str = "", tgt: str = "") -> Taken:
    found = Taken(Languages(src, tgt))
    found.add(name, content.encode(), 1_000_000)
    return found


def po(body: str, plural: str = "(n != 1)", forms: int = 2) -> Taken:
    return taken("a.po", HEADER % (forms, plural) + body)


def entry(msgid: str, msgstr: str, before: str = "") -> str:
    return f'{before}msgid "{msgid}"\nmsgstr "{msgstr}"\n\n'


def unit(source: str, target: str) -> str:
    return f"<trans-unit id='1'><source>{source}</source>{target}</trans-unit>"


def segment(source: str, target: str, state: str = "") -> str:
    return f"<segment{state}><source>{source}</source>{target}</segment>"


def tu(*variants: tuple[str, str]) -> str:
    texts = "".join(f"<tuv xml:lang='{code}'><seg>{text}</seg></tuv>" for code, text in variants)
    return f"<tu>{texts}</tu>"


def counts(found: Taken) -> dict[str, int]:
    (counted,) = found.counts.values()
    return {reason: n for reason, n in counted.items() if n}


def test_translated_entries_are_taken_and_all_others_counted() -> None:
    body = entry("a dog", "ein Hund") + entry("a cat", "") + entry("a bird", "ein Vogel", "#, fuzzy\n")
    body += entry("42", "42") + entry("see %s", "siehe", "#, c-format\n") + '#~ msgid "old"\n#~ msgstr "alt"\n'
    body += entry("a dog", "ein Hund", 'msgctxt "b"\n')
    found = po(body)
    assert list(found.pairs) == [("a dog", "ein Hund")]
    assert counts(found) == {
        "taken": 1, "untranslated": 1, "unchecked": 1, "wordless": 1, "placeholders": 1, "repeated": 1
    }  # fmt: skip
    assert found.languages == Languages("en", "de-AT")


@pytest.mark.parametrize(
    ("forms", "plural", "strings", "pairs"),
    [
        (2, "(n != 1)", ["ein Hund", "%d Hunde"], [("a dog", "ein Hund"), ("A1 dogs", "A1 Hunde")]),
        (2, "n==1", ["%d Hunde", "ein Hund"], [("A1 dogs", "A1 Hunde"), ("a dog", "ein Hund")]),
        (1, "0", ["%d Hunde"], [("A1 dogs", "A1 Hunde")]),
        (2, "(n != 1)", ["ein Hund", ""], [("a dog", "ein Hund")]),
    ],
)
def test_plural_forms_belong_to_the_singular_or_the_plural(
    forms: int, plural: str, strings: list[str], pairs: list[tuple[str, str]]
) -> None:
    body = '#, c-format\nmsgid "a dog"\nmsgid_plural "%d dogs"\n'
    body += "".join(f'msgstr[{n}] "{string}"\n' for n, string in enumerate(strings))
    assert list(po(body, plural, forms).pairs) == pairs


@pytest.mark.parametrize(
    ("flags", "msgid", "msgstr", "pairs"),
    [
        ("", "the <b>big</b> dog", "der <b>große</b> Hund", [("the big dog", "der große Hund")]),
        ("", "B<ls>(1) lists I<file>", "B<ls>(1) listet I<Datei>", [("ls(1) lists file", "ls(1) listet Datei")]),
        ("", "_Open", "Ö_ffnen", [("Open", "Öffnen")]),
        ("", "use --all or -a", "-a oder --all", [("use A1 or B2", "B2 oder A1")]),
        ("", "{n} of {m}: {n}", "{m}: {n} von {n}", [("A1 of B2: A1", "B2: A1 von A1")]),
        ("c-format", "%s in %d", "%2$d in %1$s", [("A1 in B2", "B2 in A1")]),
        ("", "A1 and --all", "A1 und --all", [("B2 and C3", "B2 und C3")]),
        ("", "One dog. Two cats.", "Ein Hund. Zwei Kater.", [("One dog.", "Ein Hund."), ("Two cats.", "Zwei Kater.")]),
        ("", "One dog. Two cats.", "Ein Hund, zwei Katzen.", [("One dog. Two cats.", "Ein Hund, zwei Katzen.")]),
        ("", "One -a. Two -b.", "Eins -b. Zwei -a.", [("One A1. Two B2.", "Eins B2. Zwei A1.")]),
        ("", "a\\nb", "c\\nd", [("a", "c"), ("b", "d")]),
        ("", "see --all", "siehe --alle", []),
        ("", "see", "siehe --all", []),
        ("", "see", "siehe https://example.org", []),
    ],
)  # fmt: skip
def test_markup_is_read_as_for_translation(flags: str, msgid: str, msgstr: str, pairs: list[tuple[str, str]]) -> None:
    body = entry(msgid, msgstr, f"#, {flags}\n" if flags else "")
    assert list(po(body).pairs) == pairs


@pytest.mark.parametrize(
    "msgid",
    ["the <b>big</b> dog sees %s.", "B<ls> -l lists {n} files in I<folder>, or :ref:`all`", "-a -b -a", "A1 -x"],
)
def test_a_model_is_trained_on_what_it_is_given(msgid: str) -> None:
    """Translating the entry asks the model for the sources of its training pairs."""
    body = entry(msgid, "", "#, c-format\n")
    opened = open_file("a.po", (HEADER % (2, "0") + body).encode(), 1_000_000, Filling("de"))
    lines = [line for group in Lines([opened.read(opened.texts[0], "en")]).groups.values() for line in group]
    given = [seen(line.text).seen.masked for line in lines]
    assert [src for src, _ in po(entry(msgid, f"x {msgid}", "#, c-format\n")).pairs] == given


def test_xliff_units_that_are_to_be_checked_are_left_out() -> None:
    tags = 'the <g id="1">big</g> <x id="2"/> dog', '<x id="2"/> der <g id="1">große</g> Hund'
    body = unit(tags[0], f"<target>{tags[1]}</target>") + unit("a cat", "") + unit("a cow", "<target/>")
    body += unit("a bird", '<target state="needs-review-translation">ein Vogel</target>')
    body += unit("a fish", '<target state="new">ein Fisch</target>')
    body += unit("an ant", '<target state="final">eine Ameise</target>')
    found = taken("a.xlf", XLIFF % body)
    assert list(found.pairs) == [("the big A1 dog", "A1 der große Hund"), ("an ant", "eine Ameise")]
    assert counts(found) == {"taken": 2, "untranslated": 2, "unchecked": 2}
    assert found.languages == Languages("en-US", "de-DE")
    second = segment("a dog", "<target>ein Hund</target>", ' state="reviewed"')
    second += segment("a bird", "<target>ein Vogel</target>", ' state="initial"')
    found = taken("b.xliff", TWO % second)
    assert (list(found.pairs), found.languages) == ([("a dog", "ein Hund")], Languages("en", "de"))


def test_a_translation_memory_is_read_in_the_direction_asked_for() -> None:
    body = tu(("en-US", "a dog"), ("de-DE", "ein Hund")) + tu(("en-US", "a cat")) + tu(("de-DE", "<ph/>!"), ("en", "-"))
    assert list(taken("a.tmx", TMX % ("en-US", body)).pairs) == [("a dog", "ein Hund")]
    found = taken("a.tmx", TMX % ("en-US", body), "de", "en")
    assert list(found.pairs) == [("ein Hund", "a dog")]
    assert counts(found) == {"taken": 1, "untranslated": 1, "placeholders": 1}
    several = body + tu(("en-US", "a dog"), ("fr", "un chien"))
    with pytest.raises(DocumentError, match="languages"):
        taken("a.tmx", TMX % ("en-US", several))
    assert list(taken("a.tmx", TMX % ("en-US", several), tgt="fr", src="en").pairs) == [("a dog", "un chien")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.po", 'msgid "a"\nmsgstr b\n', "Line 2"),
        ("a.po", 'msgid "a"\nmsgstr "b"\n', "languages"),
        ("a.xlf", "<xliff>\n<a>\n</xliff>", "Line 3"),
        ("a.xlf", "<tmx/>", "xliff"),
        ("a.txt", "a", "must end"),
    ],
)
def test_damaged_documents_are_refused(name: str, content: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        taken(name, content)


def test_documents_of_a_corpus_have_the_same_languages() -> None:
    found = Taken(Languages("", "de"))
    found.add("a.po", (HEADER % (2, "0") + entry("a dog", "ein Hund")).encode(), 1_000_000)
    with pytest.raises(DocumentError, match="fr"):
        found.add("b.po", (HEADER % (2, "0")).replace("de_AT", "fr").encode(), 1_000_000)


def test_translated_names_of_keys_are_text_and_equal_ones_placeholders() -> None:
    found = po(
        entry("Press Ctrl+S in %s.", "Drücken Sie Strg+S in %s.")
        + entry("Press Alt+F4.", "Drücken Sie Alt+F4.")
        + entry("Press Ctrl+Q in %s.", "Drücken Sie Strg+Q.")
    )
    assert [*found.pairs] == [
        ("Press Ctrl+S in A1.", "Drücken Sie Strg+S in A1."),
        ("Press A1.", "Drücken Sie A1."),
    ]
    assert counts(found) == {"taken": 2, "placeholders": 1}


def test_the_codes_of_nllb_are_the_languages_of_documents() -> None:
    contents = {
        "a.po": HEADER % (2, "(n != 1)") + entry("a dog", "ein Hund"),
        "a.xlf": XLIFF % unit("a dog", "<target>ein Hund</target>"),
        "a.tmx": TMX % ("en", tu(("en-GB", "a dog"), ("fr", "un chien"), ("de", "ein Hund"))),
    }
    for name, content in contents.items():
        assert list(taken(name, content, "eng_Latn", "deu_Latn").pairs) == [("a dog", "ein Hund")]
