"""A memory: which translations it gives to strings and lines, and how documents mark them."""

from pathlib import Path

import catalogues
import pytest
from catalogues import Translate, reverse

from vtrans.apps.documents.document import Lines
from vtrans.apps.documents.formats.html import html_document
from vtrans.apps.documents.memory import Lookup, Memory, Remembered
from vtrans.apps.documents.pairs import PairCollector
from vtrans.apps.documents.sentences import PROTECTION
from vtrans.system.errors import InputError
from vtrans.text.languages import Languages

EN_DE = Languages("en", "de")
HEADER = (
    'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
)


def near(text: str, similarity: float) -> object:
    return (text, pytest.approx(similarity))


def remembered(content: str, name: str = "a.po") -> Remembered:
    memory = Remembered()
    PairCollector(EN_DE, memory).add(name, content.encode(), 1_000_000)
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


def test_a_translation_gets_the_escapes_of_its_file() -> None:
    memory = remembered(po(("tea and milk", "Tee & Milch's < 3")))
    made = filled("strings.xml", '<resources><string name="a">tea and milk</string></resources>', memory)
    assert made == f'<resources><string name="a">Tee &amp; Milch{chr(92)}\'s &lt; 3</string></resources>'


def test_placeholders_of_the_entry_are_kept() -> None:
    memory = remembered(po(("%s in %s", "in %2$s ist %1$s"), flags="c-format"))
    assert filled("b.po", po(("%d in %s", ""), flags="c-format"), memory) == po(
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
    assert remembered(po((text, translation)))(text) is None
    assert translation not in filled("b.po", po((text, "")), memory)
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
    assert filled("b.po", po(("One cat. Two dogs.", "")), memory) == po(
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
