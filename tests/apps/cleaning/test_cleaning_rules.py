"""The rules of `vtrans clean` that look at one pair: what each drops, and what is like it and stays."""

from typing import Any

import pytest

from vtrans.apps.cleaning.clean_options import RULES, CleanOptions
from vtrans.apps.cleaning.rules import Rules, key_of

SAMPLE = [
    ("The dog runs through the big park.", "Der Hund läuft durch den großen Park."),
    ("Two women are singing on a stage.", "Zwei Frauen singen auf einer Bühne."),
    ("A man with a hat buys bread.", "Ein Mann mit Hut kauft Brot."),
]
LONG = "The old man walks slowly through the empty street and looks for his dog."
DROPPED = [
    ("empty", "", "Ein Hund."),
    ("empty", "A dog.", " \u00a0"),
    ("length", "word " * 251, "Wort " * 251),
    ("length", "A dog.", "a" * 2501),
    ("ratio", LONG, "Der alte Mann."),
    ("ratio", "The old man.", "Der alte Mann geht langsam durch die leere Straße und sucht seinen Hund."),
    ("script", "The dog runs.", "Собака бежит."),
    ("script", "狗在跑。", "Der Hund läuft."),
    ("copy", "The dog runs.", "The dog runs."),
    ("repetition", "The dog runs in the park.", "Der Hund Der Hund Der Hund Der Hund läuft im Park."),
    ("repetition", "She sees the dog in the park.", "Sie sieht den Hund. Hund. Hund. Hund. Hund. Hund."),
    ("markup", "The dog runs.", 'Der <a href="x.html">Hund</a> läuft.'),
    ("markup", "Tom &amp; Mary", "Tom und Maria"),
    ("numbers", "It costs 15 euros.", "Es kostet 25 Euro."),
    ("numbers", "It was in 2001.", "Es war 2010."),
    ("urls", "See https://example.org/a for more.", "Mehr unter https://example.org/b."),
    ("urls", "Write to tom@example.org.", "Schreib Tom eine Nachricht."),
    ("language", "The dog runs through the big park.", "Le chien court dans le grand parc et les filles chantent."),
    ("language", "Der Hund läuft durch den großen Park.", "Zwei Frauen singen auf einer Bühne."),
]
KEPT = [
    ("length", "word " * 250, "Wort " * 250),
    ("ratio", "No.", "Auf gar keinen Fall!"),
    ("ratio", LONG, "Der alte Mann geht durch die Straße."),
    ("script", "The letter π is Greek.", "Der Buchstabe π ist griechisch."),
    ("copy", "Berlin", "Berlin"),
    ("copy", "OK!", "OK!"),
    ("repetition", "No, no, no, no!", "Nein, nein, nein!"),
    ("repetition", "Wait ...........", "Warte."),
    ("markup", "The <b>dog</b> runs.<br>", "Der <B>Hund</B> läuft.<br />"),
    ("markup", "Call <name>, if a < b & c > d.", "Ruf <Name>, wenn a < b & c > d."),
    ("numbers", "It costs 1,500.50 euros.", "Es kostet 1.500,50 Euro."),
    ("numbers", "It costs 1,050 euros.", "Es kostet 1050 Euro."),
    ("numbers", "Come on 05/03.", "Komm am 3.5."),
    ("numbers", "The date is 9/11/2001.", "Das Datum ist der 11.9.2001."),
    ("urls", "See https://example.org/a.", "Siehe (https://example.org/a)!"),
    ("urls", "Tom @ work", "Tom @ Arbeit"),
    ("language", "Hello, Tom.", "Hallo, Tom."),
    ("language", "OK.", "OK?"),
    ("language", "!!!", "???"),
]


def rules(without: tuple[str, ...] = (), sample: list[tuple[str, str]] | None = None, **values: Any) -> Rules:
    options: dict[str, Any] = {"src": "text.en", "tgt": "text.de", "without": without} | values
    return Rules(CleanOptions(**options), ["mojibake"], sample or SAMPLE)


@pytest.mark.parametrize(("rule", "src", "tgt"), DROPPED)
def test_a_rule_drops_what_breaks_it_unless_it_is_left_out(rule: str, src: str, tgt: str) -> None:
    assert rules().reason(src, tgt) == rule
    assert rules((rule,)).reason(src, tgt) != rule


@pytest.mark.parametrize(("rule", "src", "tgt"), KEPT)
def test_what_is_like_a_broken_pair_is_kept(rule: str, src: str, tgt: str) -> None:
    assert rules().reason(src, tgt) is None, rule


@pytest.mark.parametrize(
    ("part", "most"),
    [("word ", 250), ("слово ", 250), ("개가 ", 250), ("狗", 250), ("は", 250), ("หมา", 833), ("ဟာ", 1250)],
)
def test_the_length_of_a_line_is_counted_in_words_or_in_the_characters_of_its_script(part: str, most: int) -> None:
    only_length = rules(tuple(RULES.keys() - {"length"}))
    assert only_length.reason(part * most, "x") is None
    assert only_length.reason(part * (most + 1), "x") == "length"


def test_each_rule_without_models_has_cases() -> None:
    missing = RULES.keys() - {rule for rule, *_ in DROPPED}
    assert missing == {"mojibake", "duplicate", "misaligned", "incomplete"}


def test_mojibake_is_repaired_or_dropped() -> None:
    pytest.importorskip("ftfy", reason="ftfy is not installed: pip install ftfy")
    wanted = Rules(CleanOptions("text.en", "text.de"), (), SAMPLE)
    broken = "Der Hund läuft über die Straße.".encode().decode("cp1252")
    assert wanted.read("The dog crosses the street.", broken)[1] == "Der Hund läuft über die Straße."
    assert wanted.reason("The dog crosses the street.", "Der Hund l\ufffduft.") == "mojibake"
    assert wanted.reason("The dog crosses the street.", "Der Hund läuft.") is None
    foreign = ("São Paulo is fun – isn’t it?", "„São Paulo“ macht Spaß … oder? ÄÖÜ ñ")
    assert wanted.read(*foreign) == foreign
    assert rules().read("", broken)[1] == broken


def test_near_duplicates_have_one_key() -> None:
    key = key_of("The dog runs.", "Der Hund läuft.")
    for same in (("the dog runs", "Der Hund läuft!"), ("The  DOG – runs…", " der Hund läuft.")):
        assert key_of(*same) == key
    for other in (("The dog runs.", "Der Hund rennt."), ("The dogs run.", "Der Hund läuft."), ("Der Hund", "The dog")):
        assert key_of(*other) != key
    assert key_of("!", "!") != key_of("?", "?")
    assert key_of("a b", "c") != key_of("a", "b c")
