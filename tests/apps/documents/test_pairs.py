"""Translated documents as training pairs and as memories: what is taken, what is left out, and how it is used."""

from pathlib import Path

import pytest
from catalogues import filled

from vtrans.apps.documents.document import Lines
from vtrans.apps.documents.formats.html import html_document
from vtrans.apps.documents.memory import Lookup, Memory, Remembered
from vtrans.apps.documents.pairs import PairCollector
from vtrans.apps.documents.sentences import PROTECTION
from vtrans.system.errors import DocumentError, InputError
from vtrans.text.languages import Languages

EN_DE = Languages("en", "de")
HEADER = (
    'msgid ""\nmsgstr ""\n"Language: de_AT\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Plural-Forms: nplurals=%d; plural=%s;\\n"\n\n'
)
PLAIN = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
TMX = '<tmx version="1.4"><header srclang="%s"/><body>%s</body></tmx>'


def taken(name: str, content: str, src: str = "", tgt: str = "") -> PairCollector:
    found = PairCollector(Languages(src, tgt))
    found.add(name, content.encode(), 1_000_000)
    return found


def po(body: str, plural: str = "(n != 1)", forms: int = 2) -> PairCollector:
    return taken("a.po", HEADER % (forms, plural) + body)


def entry(msgid: str, msgstr: str, before: str = "") -> str:
    return f'{before}msgid "{msgid}"\nmsgstr "{msgstr}"\n\n'


def tu(*variants: tuple[str, str]) -> str:
    texts = "".join(f"<tuv xml:lang='{code}'><seg>{text}</seg></tuv>" for code, text in variants)
    return f"<tu>{texts}</tu>"


def counts(found: PairCollector) -> dict[str, int]:
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


# Memories.


def near(text: str, similarity: float) -> object:
    return (text, pytest.approx(similarity))


def remembered(content: str, name: str = "a.po") -> Remembered:
    memory = Remembered()
    PairCollector(EN_DE, memory).add(name, content.encode(), 1_000_000)
    return memory


def plain(*entries: tuple[str, str], flags: str = "") -> str:
    flag = f"#, {flags}\n" if flags else ""
    return PLAIN + "".join(f'{flag}msgid "{src}"\nmsgstr "{tgt}"\n\n' for src, tgt in entries)


def made(name: str, content: str, memory: Remembered) -> str:
    """Returns a file that is filled from a memory, and by a translator that reverses words."""
    return filled(name, content.encode(), memory=memory).decode()


def test_a_catalogue_that_was_translated_is_filled_from_itself() -> None:
    """A round as with Weblate: translated, corrected, and used for the next version."""
    entries = (
        ("The big <b>dog</b>.", "Der <b>große</b> Hund."),
        ("a dog\\n", "ein Hund\\n"),
        ("One cat. Two dogs.", "Eine Katze. Zwei Hunde."),
        ("_File", "_Datei"),
        ("42", "zweiundvierzig"),
    )
    memory = remembered(plain(*entries))
    assert made("b.po", plain(*((src, "") for src, _ in entries)), memory) == plain(*entries)
    new = made("b.po", plain(("a bird", ""), ("a dog", "")), memory)
    assert new == PLAIN + '#, fuzzy\nmsgid "a bird"\nmsgstr "bird a"\n\n' + 'msgid "a dog"\nmsgstr "ein Hund"\n\n'


def test_a_translation_gets_the_escapes_of_its_file() -> None:
    memory = remembered(plain(("tea and milk", "Tee & Milch's < 3")))
    written = made("strings.xml", '<resources><string name="a">tea and milk</string></resources>', memory)
    assert written == f'<resources><string name="a">Tee &amp; Milch{chr(92)}\'s &lt; 3</string></resources>'


def test_placeholders_of_the_entry_are_kept() -> None:
    memory = remembered(plain(("%s in %s", "in %2$s ist %1$s"), flags="c-format"))
    assert made("b.po", plain(("%d in %s", ""), flags="c-format"), memory) == plain(
        ("%d in %s", "in %2$s ist %1$d"), flags="c-format"
    )


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("Copy %s now", "Kopieren"),
        ("Open {name} here", "Hier öffnen"),
        ("%1 files", "Dateien"),
        ("${a} and ${b}", "${a} und ${a}"),
        ("%s of %d", "%d von %s"),
        ("a dog", "ein %s"),
    ],
)
def test_a_correction_with_other_placeholders_is_not_used(tmp_path: Path, text: str, translation: str) -> None:
    corrections = Memory(tmp_path / "m")
    corrections.add(EN_DE, text, translation)
    memory = corrections.remembered(EN_DE)
    assert (memory(text), corrections.get(EN_DE, text)) == (None, None)
    assert remembered(plain((text, translation)))(text) is None
    assert translation not in made("b.po", plain((text, "")), memory)
    assert Lines([html_document(f"<p>{text}</p>", "en")], memory).known == {}


def test_corrections_are_a_memory(tmp_path: Path) -> None:
    corrections = Memory(tmp_path / "m")
    corrections.add(EN_DE, "One cat. Two dogs.", "Eine Katze. Zwei Hunde.")
    corrections.add(Languages("en", "fr"), "One cat.", "Un chat.")
    corrections.add(Languages("de", "en"), "Ein Hund", "A dog")
    memory = corrections.remembered(EN_DE)
    assert (memory("Two dogs."), memory(" One cat.\n"), memory("One dog.")) == ("Zwei Hunde.", " Eine Katze.\n", None)
    assert len(corrections.remembered(Languages("", "de"))) == 3
    for several in (Languages("en", ""), Languages("", "")):
        with pytest.raises(InputError, match="de, "):  # a line must not get a translation into another language
            corrections.remembered(several)
    assert corrections.remembered(Languages("", "en"))("Ein Hund") == "A dog"
    assert corrections.get(EN_DE, "One cat. Two dogs.") == "Eine Katze. Zwei Hunde."
    assert corrections.get(EN_DE, "One cat. Two dogs.", "xml") is None
    assert made("b.po", plain(("One cat. Two dogs.", "")), memory) == plain(
        ("One cat. Two dogs.", "Eine Katze. Zwei Hunde.")
    )


def test_a_match_has_the_codes_that_the_line_will_have() -> None:
    pairs = [
        ("Open {name} with the old editor", "{name} mit dem alten Editor öffnen"),
        ("Use {a} and {b} now", "{b} {a}"),
    ]
    matches = Lookup(pairs, PROTECTION)
    assert matches("Open {file} with the new editor") == near("A1 mit dem alten Editor öffnen", 5 / 6)
    assert matches("Use {a} and that now") is None
    matches.add("Open {x} with the new editor", "Mit dem neuen Editor {x} öffnen")
    assert matches("Open {file} with the new editor") == ("Mit dem neuen Editor A1 öffnen", 1.0)
    matches.add("Open {x} with the new editor", "{x} bearbeiten")
    assert matches("Open {file} with the new editor") == ("A1 bearbeiten", 1.0)
    assert Lookup(pairs, None)("Open {file} with the old editor") == near(pairs[0][1], 5 / 6)
