"""Names that a model cannot know are copied or translated by a table, and measures are copied."""

from __future__ import annotations

from typing import Any

import pytest

from vtrans.lines.line import Line
from vtrans.lines.names import CopyNames
from vtrans.lines.requirements import WriteCodes
from vtrans.text.languages import Languages
from vtrans.translate.translation import Translation
from vtrans.wording.glossary import Glossary, pair_of
from vtrans.wording.names import Name, Names

KNOWN = "Although Tom Boston Chemistry chemistry South"
"""All other words have three subwords."""


class Known:
    """A vocabulary that has few words."""

    def encode(self, text: str) -> list[int]:
        return [7] if text in KNOWN.split() else [7, 8, 9]

    def encode_batch(self, texts: list[str], *, tags: bool) -> list[list[int]]:
        return [self.encode(text) for text in texts]


VOCAB: Any = Known()
TO_GERMAN, TO_FRENCH = (Names(VOCAB, Languages("en", code)) for code in ("de", "fr"))


def translations(names: Names, line: str) -> dict[str, str]:
    return {line[name.begin : name.end]: name.translation for name in names.of(line)}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("I met Ana Okafor yesterday.", "Ana Okafor"),
        ("Although Okafor knows Tom, he lives in Cologne.", "Okafor; Cologne=K\u00f6ln"),
        ("Munich is far. Ventilation and chemistry are not Austrian.", "Munich=M\u00fcnchen"),
        ("Noor and Okafor are friends.", "Noor; Okafor"),
        ("Marek's brother likes Ren\u00e9s's books.", "Marek's=Mareks; Ren\u00e9s's=Ren\u00e9s\u2019"),
        ("She works for NASA in New Orleans.", "NASA; New Orleans"),
        ("We saw Mr. Tom and Dr. Okafor.", "Mr. Tom=Herrn Tom; Dr. Okafor"),
        ("U.S. Noor and Ana J.-K. R. Noor's plan B. Chemistry", "Noor; Ana J.-K. R. Noor's=Ana J.-K. R. Noors"),
        ("St. Noor's Day, F. Tom Noor Chemistry", "St. Noor's Day; F. Tom Noor"),
        ("They say that Mt. Okafor is high.", "Mt. Okafor"),
        ("Mrs. O'Brien left Scotland Yard and South Africa.", "Mrs. O'Brien=Frau O'Brien; South Africa=S\u00fcdafrika"),
        ("The Austrian Parliament likes Chemistry on Thursday.", ""),
        ("The Old House And The Okafor", "Okafor"),
        ("Amy", "Amy"),
        ("Sarah: Although South", "Sarah"),
        ("Sebastian Okafor, The Okafor", "Sebastian Okafor; Okafor"),
        ("Dear Ms. Okafor", "Dear Ms. Okafor=Sehr geehrte Frau Okafor"),
        ("Mr. Okafor", "Mr. Okafor=Herr Okafor"),
        ("Dear Mr. Okafor,", "Dear Mr. Okafor=Sehr geehrter Herr Okafor"),
        ("Dear Dr. Okafor,", "Dear Dr. Okafor=Guten Tag Dr. Okafor"),
        ("The Okafor House in London", "Okafor House; London"),
        ("Egypt and Hungary", "Egypt=\u00c4gypten; Hungary=Ungarn"),
        ("I met Ana Okafor.", "Ana Okafor"),
        ("THE OKAFOR LIVES", "OKAFOR"),
        ("I'LL SAY THAT YOU'VE A TAX-FREE OKAFOR, TOM", "OKAFOR"),
        ("EGYPT IS NEW ORLEANS", "EGYPT=\u00c4GYPTEN; NEW ORLEANS"),
        ("Martin Luther King met King Noor", "Martin Luther; King Noor=K\u00f6nig Noor"),
        ("Okafor lives here. Puffins are here.", "Okafor"),
        ("Juan de la Cruz, Tom bin Noor and al-Khatib left.", "Juan de la Cruz; Tom bin Noor; al-Khatib"),
        ("Van der Berg-Noor met Ms. \u00d3 Noor.", "Van der Berg-Noor; Ms. \u00d3 Noor=Frau \u00d3 Noor"),
        ("Phoenix is here.", "Phoenix"),
        ("Uncle Tom saw the Black Sea.", "Uncle Tom=Onkel Tom; Black Sea=Schwarz~ Meer"),
        ("Lucian is Austrian, and a Persian cat is here.", "Lucian"),
        ("Hi Lucian!", "Lucian"),
        ("We Miss Birds", ""),
        ("3.2 millimetres, 1 gallon or 75p", "3.2 millimetres=3,2 Millimeter; 1 gallon=1 Gallone; 75p=75 Pence"),
        ("1 in 10,000; 9 out of 10, 5 to 10 pens", "1 in 10,000=1 von 10.000; 9 out of 10=9 von 10; 5 to 10=5 bis 10"),
        ("it is 12/31/2024, 3/4/2024 or 1.5, 2 and 3", "12/31/2024=31.12.2024; 1.5, 2 and 3=1,5, 2 und 3"),
        ("They say NOT FBI.", "FBI"),
        ("iPhone users and tHe macOS", "iPhone; macOS"),
        ("VPN Okafor", "VPN Okafor"),
        ("ISO 9001", "ISO"),
        ("it is 24h or 3h 20min, 2 h", "24h=24 h; 3h 20min=3 h 20 min"),
        (
            "it is 9am-5:30pm, 11-2 pm or 12-2pm",
            "9am-5:30pm=9:00\u201317:30 Uhr; 11-2 pm=11\u201314 Uhr; 12-2pm=12\u201314 Uhr",
        ),
        ("it is 13-15pm, 7.30 or 8-9", ""),
        ("May 12", "May 12=12. Mai"),
        ("5th May 2024.", "5th May 2024=5. Mai 2024"),
        ("May 5 is far.", "May 5=Der 5. Mai"),
        ("it is on May 5 or May 12 of 2024", ""),
        (
            "fruit, e.g. apples, i.e. approx. 5 vs. 6 etc. in Fig. 2",
            "e.g.=z. B.; i.e.=d. h.; approx.=ca.; vs.; etc.=usw.; Fig.=Abb.",
        ),
        (
            "open Mon-Fri. Although Tom likes pens etc. Although 9 a.m.-5 p.m. Tom",
            "Mon-Fri=Mo\u2013Fr; etc=usw; 9 a.m.-5 p.m=9\u201317 Uhr",
        ),
        ("at 2-2:30 pm, not 3-1 am I", "2-2:30 pm=14:00\u201314:30 Uhr"),
        ("see no. 5, he said no. 5 is far", "no.=Nr."),
        ("12-12:30pm, 9:30-9:45am", "12-12:30pm=12:00\u201312:30 Uhr; 9:30-9:45am=9:30\u20139:45 Uhr"),
        ("A$20, R$ 1,500.50, US$5", "A$20=20 A$; R$ 1,500.50=1.500,50 R$"),
        ("-$5, \u20ac1,500.50", "-$5=-5 $; \u20ac1,500.50=1.500,50 \u20ac"),
        ("\u00a35-\u00a310, $5-10", "\u00a35-\u00a310=5\u201310 \u00a3; $5-10=5\u201310 $"),
        ("$2 million, $60k", "$2 million=2 Millionen Dollar; $60k=60.000 $"),
        ("\u20ac1.5m, \u20ac14/hour", "\u20ac1.5m=1,5 Mio. \u20ac; \u20ac14/hour=14 \u20ac/Stunde"),
        ("May 5-9, 2024 at 12:15 am", "May 5-9, 2024=5.\u20139. Mai 2024; 12:15 am=0:15 Uhr"),
        ("in 44 BC. AD 79, 5 AD", "BC=v. Chr; AD 79=79 n. Chr.; 5 AD=5 n. Chr."),
        ("-12\u00b0C, 120/80 mmHg", "-12\u00b0C=-12 \u00b0C; 120/80 mmHg"),
        ("it was 2 x 1.5 mg", "2 x 1.5 mg=2 x 1,5 mg"),
        ("+1,200.5%", "+1,200.5%=+1.200,5 %"),
        ("I live at 45 King's Road.", "45 King's Road"),
        ("I live in Elm Street, not the street.", "Elm Street"),
        ("Dear John Doe,", "Dear John Doe=Guten Tag John Doe"),
        ("Is Mr. Okafor far?", "Mr. Okafor=Herr Okafor"),
        ("theCat isHere", ""),
        ('Is the word "tree" or “old hat” a noun? He said "yes" there.', "tree; old hat"),
        ('the difference between "a" and "the"', "a; the"),
        ("Mon-Fri: 9am-6pm, Sun 5", "Mon-Fri=Mo\u2013Fr; 9am-6pm=9\u201318 Uhr"),
        ("\u00a55,000 or 5,000+, $5,000", "\u00a55,000=5.000 \u00a5; 5,000+=5.000+"),
        (
            "it is 1,200.5 km, 5kg, 8 m\u00b2 or 300 m, not $5 ml, 5m or 12 kmh",
            "1,200.5 km=1.200,5 km; 5kg=5 kg; 8 m\u00b2; 300 m",
        ),
    ],
)
def test_names_and_measures(line: str, names: str) -> None:
    """`names` are the names of a line, each with its form if that differs, separated by semicolons."""
    pairs = (name.partition("=") for name in names.split("; ") if name)
    assert translations(TO_GERMAN, line) == {name: form or name for name, _, form in pairs}


def test_a_name_is_written_as_the_table_has_it() -> None:
    line = Line(1, "we took a train from Cologne to Wuppdi")
    stages = CopyNames(TO_GERMAN, None), WriteCodes(required=True)
    for stage in stages:
        stage.before([line])
    assert line.seen.masked == "we took a train from A1 to B2"
    line.translations = [Translation("Zug nach B2 aus A1", -1.0, -1.0, True)]
    for stage in reversed(stages):
        stage.after([line])
    assert line.translations[0].text == "Zug nach Wuppdi aus K\u00f6ln"


def test_terms_and_constraints_win_over_names() -> None:
    stage = CopyNames(TO_GERMAN, Glossary((pair_of("Cologne", "Colonia"),)))
    line, begun = Line(1, "we like Cologne and Wuppdi"), Line(2, "we like Wuppdi", prefix="Wuppdi")
    stage.before([line, begun])
    assert [line.text[begin:end] for begin, end in line.protected] == ["Wuppdi"]
    assert not begun.protected
    assert [*TO_GERMAN.of("x Wuppdi")] == [Name(2, 8, "Wuppdi")]


@pytest.mark.parametrize(
    ("protected", "masked"),
    [
        ((10, 16), "I saw A1"),  # a word that the vocabulary lacks is a part of the name
        ((0, 13), "A1 for"),  # a part of the name is a part of other protected text
    ],
)
def test_a_name_that_overlaps_with_protected_text(protected: tuple[int, int], masked: str) -> None:
    line = Line(1, "I saw Ana Okafor")
    line.protected = [protected]
    for stage in (CopyNames(TO_GERMAN, None), WriteCodes(required=True)):
        stage.before([line])
    assert line.seen.masked == masked
