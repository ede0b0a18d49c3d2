"""Training pairs from documents: what is taken, what is left out, and that models see what they will translate."""

import pytest

from vtrans.apps.documents.pairs import PairCollector
from vtrans.system.errors import DocumentError
from vtrans.text.languages import Languages

HEADER = (
    'msgid ""\nmsgstr ""\n"Language: de_AT\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Plural-Forms: nplurals=%d; plural=%s;\\n"\n\n'
)
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
