"""A memory: which translations it gives to strings and lines, and how documents mark them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import catalogues
import pytest
from catalogues import Translate, reverse

from vtrans.documents.document import html_document
from vtrans.documents.memory import Memory
from vtrans.documents.pairs import Taken
from vtrans.documents.remembered import Lookup, Remembered
from vtrans.documents.sentences import PROTECTION
from vtrans.documents.translating import Lines
from vtrans.errors import FileError, InputError
from vtrans.text.languages import Languages
from vtrans.wording.protect import Protection

EN_DE = Languages("en", "de")
HEADER = (
    'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
)
XLIFF = (
    '<xliff version="1.2"><file source-language="en" target-language="de"><body><trans-unit id="1">'
    "<source>{}</source>{}</trans-unit></body></file></xliff>"
)
TWO = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">'
    '<file id="f"><unit id="u"><segment><source>{}</source></segment></unit></file></xliff>'
)


def near(text: str, similarity: float) -> object:
    return (text, pytest.approx(similarity))


def remembered(content: str, name: str = "a.po") -> Remembered:
    memory = Remembered()
    Taken(EN_DE, memory).add(name, content.encode(), 1_000_000)
    return memory


def po(*entries: tuple[str, str], flags: str = "") -> str:
    flag = f"#, {flags}\n" if flags else ""
    return HEADER + "".join(f'{flag}msgid "{src}"\nmsgstr "{tgt}"\n\n' for src, tgt in entries)


def filled(name: str, content: str, memory: Remembered, translate: Translate = reverse) -> str:
    """Returns a file that is filled from a memory, and by a translator that reverses words."""
    return catalogues.filled(name, content.encode(), translate, memory=memory).decode()


def test_a_catalogue_that_was_translated_is_filled_from_itself() -> None:
    """A round as with Weblate: translated, corrected, and used for the next version."""
    entries = (
        ("The big <b>dog</b>.", "Der <b>große</b> Hund."),
        ("a dog\\n", "ein Hund\\n"),
        ("One cat. Two dogs.", "Eine Katze. Zwei Hunde."),
        ("_File", "_Datei"),
        ("42", "zweiundvierzig"),
    )
    memory = remembered(po(*entries))
    assert filled("b.po", po(*((src, "") for src, _ in entries)), memory) == po(*entries)
    new = filled("b.po", po(("a bird", ""), ("a dog", "")), memory)
    assert new == HEADER + '#, fuzzy\nmsgid "a bird"\nmsgstr "bird a"\n\n' + 'msgid "a dog"\nmsgstr "ein Hund"\n\n'


def test_sentences_of_entries_are_known_too() -> None:
    memory = remembered(po(("One cat. Two dogs.", "Eine Katze. Zwei Hunde.")))
    assert filled("b.po", po(("Two dogs. One cat.", "")), memory) == po(
        ("Two dogs. One cat.", "Zwei Hunde. Eine Katze.")
    )
    partly = filled("b.po", po(("Two dogs. A bird.", "")), memory)
    assert partly == po(("Two dogs. A bird.", "Zwei Hunde. bird. A"), flags="fuzzy")


def test_a_text_with_several_translations_is_to_be_checked() -> None:
    memory = remembered(po(("open", "offen"), ("Open it", "x")) + 'msgctxt "verb"\nmsgid "open"\nmsgstr "öffnen"\n')
    assert filled("b.po", po(("open", "")), memory) == po(("open", "offen"), flags="fuzzy")
    assert memory("open") == "offen"
    assert memory("open", sure=True) is None


def test_placeholders_of_the_entry_are_kept() -> None:
    memory = remembered(po(("%s in %s", "in %2$s ist %1$s"), flags="c-format"))
    assert filled("b.po", po(("%d in %s", ""), flags="c-format"), memory) == po(
        ("%d in %s", "in %2$s ist %1$d"), flags="c-format"
    )


def test_a_translation_with_other_placeholders_is_not_used() -> None:
    memory = remembered(po(("Open %s", "Öffne es"), flags="c-format"))
    assert "Öffne" not in filled("b.po", po(("Open %s", ""), flags="c-format"), memory)


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
    assert remembered(po((text, translation)))(text) is None
    assert translation not in filled("b.po", po((text, "")), memory)
    assert Lines([html_document(f"<p>{text}</p>", "en")], memory).known == {}


@pytest.mark.parametrize(("text", "translation"), [("%s of %d", "%2$d %1$s"), ("{a} of %1.", "%1: {a}"), ("5%", "5 %")])
def test_a_correction_may_move_placeholders(tmp_path: Path, text: str, translation: str) -> None:
    corrections = Memory(tmp_path / "m")
    corrections.add(EN_DE, text, translation)
    assert corrections.get(EN_DE, text) == corrections.remembered(EN_DE)(text) == translation


def test_an_entry_keeps_its_own_accelerator() -> None:
    entries = (("_Quit", "B_eenden"), ("_File", "文件(_F)"))
    memory = remembered(po(*entries))
    assert filled("b.po", po(*((src, "") for src, _ in entries)), memory) == po(*entries)
    assert memory("_Quit") == "B_eenden"
    unit = XLIFF.format("_Quit", "<target>B_eenden</target>")
    assert ">B_eenden</target>" in filled("b.xlf", XLIFF.format("_Quit", ""), remembered(unit, "a.xlf"))
    assert ">B_eenden</target>" in filled("b.xlf", XLIFF.format("_Quit", ""), memory)


def test_plural_forms_of_one_text_are_to_be_checked() -> None:
    header = HEADER.replace("nplurals=2; plural=(n != 1)", "nplurals=3; plural=n>1 ? 2 : n")
    entry = header + 'msgid "a dog"\nmsgid_plural "dogs"\nmsgstr[0] "{}"\nmsgstr[1] "{}"\nmsgstr[2] "{}"\n'
    memory = remembered(entry.format("pes", "psi", "psů"))
    assert "#, fuzzy" in filled("b.po", entry.format("", "", ""), memory)
    two = HEADER + 'msgid "a dog"\nmsgid_plural "dogs"\nmsgstr[0] "{}"\nmsgstr[1] "{}"\n'
    memory = remembered(two.format("Hund", "Hunde"))
    assert filled("b.po", two.format("", ""), memory) == two.format("Hund", "Hunde")


def test_units_of_xliff_tell_that_they_are_from_a_memory() -> None:
    memory = remembered(XLIFF.format("A &amp; <g id='1'>b</g>", "<target>X &amp; <g id='1'>y</g></target>"), "a.xlf")
    done = filled("b.xlf", XLIFF.format("A &amp; <g id='1'>b</g>", ""), memory)
    assert '<target state="translated" state-qualifier="exact-match">X &amp; <g id=\'1\'>y</g></target>' in done
    assert 'state="needs-review-translation"' in filled("b.xlf", XLIFF.format("A cat", ""), memory)
    done = filled("b.xlf", TWO.format("A &amp; <g id='1'>b</g>"), memory)
    assert '<segment state="translated" subState="vtrans:memory">' in done
    assert 'subState="vtrans:review"' in filled("b.xlf", TWO.format("A cat"), memory)


def test_text_of_one_format_is_escaped_in_another() -> None:
    memory = remembered(po(("Cats & dogs", "Katzen & <Hunde>")))
    assert ">Katzen &amp; &lt;Hunde&gt;</target>" in filled("b.xlf", XLIFF.format("Cats &amp; dogs", ""), memory)
    memory = remembered(XLIFF.format("Cats &amp; dogs", "<target>Katzen &amp; Hunde</target>"), "a.xlf")
    assert filled("b.po", po(("Cats & dogs", "")), memory) == po(("Cats & dogs", "Katzen & Hunde"))
    assert filled("b.txt", "Cats & dogs", memory) == "Katzen & Hunde"


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
    assert filled("b.po", po(("One cat. Two dogs.", "")), memory) == po(
        ("One cat. Two dogs.", "Eine Katze. Zwei Hunde.")
    )


@pytest.mark.parametrize("value", [None, b"\xff"])
def test_values_that_are_not_text_are_refused(tmp_path: Path, value: object) -> None:
    path = tmp_path / "m"
    Memory(path).close()
    with sqlite3.connect(path) as file:
        file.execute("INSERT INTO corrections VALUES ('', 'en', 'de', 'a cat', ?)", [value])
    file.close()
    memory = Memory(path)
    for use in (lambda: memory.get(EN_DE, "a cat"), lambda: memory.remembered(EN_DE), lambda: [*memory.tmx("1")]):
        with pytest.raises(FileError, match="text"):
            use()
    memory.close()


def test_a_placeholder_in_another_sentence_leaves_only_the_whole_text() -> None:
    memory = remembered(po(("Copy %s. Really so?", "Kopieren. Wirklich %s?"), flags="c-format"))
    assert (memory("Really so?"), [*memory.sentences()][1:]) == (None, [])
    again = po(("Copy %s. Really so?", ""), flags="c-format")
    assert "Kopieren. Wirklich %s?" in filled("b.po", again, memory)
    assert filled("b.txt", "Really so?", memory) == "so? Really"


@pytest.mark.parametrize("target", ["Eine Katze. Zwei Hunde.", "Eine Katze, zwei Hunde."])
@pytest.mark.parametrize("name", ["a.xlf", "a.po"])
def test_a_text_of_several_sentences_is_known_as_a_line(name: str, target: str) -> None:
    text = "One cat. Two dogs."
    content = po((text, target)) if name == "a.po" else XLIFF.format(text, f"<target>{target}</target>")
    assert remembered(content, name)(text) == target


def test_placeholders_that_are_not_protected_make_no_match() -> None:
    memory = remembered(po(("Copy the %s now", "Jetzt %s kopieren"), flags="c-format"))
    assert Lookup(memory.sentences(), None)("Copy the file now") is None
    assert Lookup(memory.sentences(), Protection())("Copy the %s now") is None


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


def test_a_line_with_tags_is_left_to_the_model() -> None:
    memory = remembered(po(("a big cat", "eine große Katze")))
    tagged, plain = html_document("<p>a <b>big</b> cat</p>", "en"), html_document("<p>a big cat</p>", "en")
    groups = Lines([tagged, plain], memory).groups
    assert not groups[False]
    assert [line.text for line in groups[True]] == ["a big cat"]
