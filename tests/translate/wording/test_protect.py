"""Glossaries and protected text: finding terms, and copying protected text byte for byte."""

import random
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from drawn import seeded
from translators import SEARCH, FakeEngine, sentences, translator, vocabulary, window
from typed_lines import passed, undone

from vtrans.search.options import Sampling
from vtrans.system.errors import FileError, InputError
from vtrans.text.case import in_capitals
from vtrans.translate.steps.memory import Remember
from vtrans.translate.steps.protect import Protect
from vtrans.translate.steps.steps import StepsOfEngine
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.wording.glossary import Glossary, pair_of, read_glossary
from vtrans.translate.wording.phrases import Wording, occurrences
from vtrans.translate.wording.protection import EVERYDAY, Protection

PAIRS = {"dog": "Hund|Hunde", "big": "groß", "big dog": "Bernhardiner", "march": "Marsch", "March": "März"}
TERMS = Glossary(tuple(pair_of(*pair) for pair in (PAIRS | {"NATO": "Nato", "c++": "C++", "犬": "Hund"}).items()))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a dog and a big dog", ["Hund", "Bernhardiner"]),
        ("dogs, hotdog, dog-house", ["Hund"]),
        ("Dog. Dog, A Dog", ["Hund", "Hund"]),
        ("“Dog? ‘Dog", ["Hund", "Hund"]),
        ("Big dog, big dogs", ["Bernhardiner", "groß"]),
        ("March, march", ["März", "Marsch"]),
        ("DOG nato NATO", ["Nato"]),
        ("in c++, c++11", ["C++"] * 2),
        ("小犬犬", ["Hund", "Hund"]),
        ("", []),
    ],
)
def test_the_terms_in_a_line(line: str, found: list[str]) -> None:
    assert [term.forms[0] for term in TERMS.terms_in(line)] == found


@pytest.mark.parametrize(
    ("language", "terms", "line", "found"),
    [
        ("tr", ["ışık", "ikiz", "kil"], "Işık, ışık. İkiz Ikiz ILIK", ["ışık", "ışık", "ikiz"]),
        ("tr", ["ışık", "ikiz", "kil"], "IŞIK İKİZ KIL", ["ışık", "ikiz"]),
        ("el", ["οδος", "σοφία"], "Οδος ΟΔΟΣ ΣΟΦΊΑΣ", ["οδος"]),
        ("el", ["οδος", "σοφία"], "ΟΔΟΣ ΣΟΦΊΑ", ["οδος", "σοφία"]),
        ("fa", ["کتاب", "می\u200cدود"], "کتاب\u200cها می\u200cدود کتاب", ["می\u200cدود", "کتاب"]),
        ("hi", ["हिन्दी", "क"], "क्या हिन्दी, क", ["हिन्दी", "क"]),
        ("ko", ["개"], "개 개가", ["개"]),
        ("th", ["หมา", "ก"], "หมากิน ก", ["หมา", "ก"]),  # never a part of a grapheme
        ("km", ["ឆ្កែ", "រ"], "ឆ្កែរត់រា", ["ឆ្កែ", "រ"]),
        ("zh", ["狗"], "小狗狗。", ["狗", "狗"]),
    ],
)
def test_the_terms_of_a_language(language: str, terms: list[str], line: str, found: list[str]) -> None:
    glossary = Glossary(tuple((term, (term,)) for term in terms))
    given = glossary.of_lines([line])
    assert given is not None
    assert [term.forms[0] for term in given.terms_in(line, language, any_case=in_capitals(line))] == found


def test_a_glossary_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("# animals\n\nbig  dog\tHund | Hunde\nC#\tC#\n", encoding="utf-8")
    assert read_glossary(path).pairs == (("big dog", ("Hund", "Hunde")), ("C#", ("C#",)))
    for line in ("dog", "dog\tHund\tHunde", "\tHund", "dog\t", "dog\tHund||Hunde"):
        path.write_text(f"cat\tKatze\n{line}\n", encoding="utf-8")
        with pytest.raises(FileError, match=r"line 2 of .*terms\.tsv"):
            read_glossary(path)
    path.write_text("dog\tHund\n\ncat\tKatze\ndog\tHunde\n", encoding="utf-8")
    with pytest.raises(FileError, match=r"line 4 of .* 'dog' of line 1"):
        read_glossary(path)


@pytest.mark.parametrize(
    ("line", "protected"),
    [
        ("Hello {name}, {0}, {{ x }} and {n:.2f}, ${home}", ["{name}", "{0}", "{{ x }}", "{n:.2f}", "${home}"]),
        ("%s, %d%%, %1$s, %(name)s, %.2f and 50% same", ["%s", "%d", "%1$s", "%(name)s", "%.2f"]),
        ("See https://a.org/b?c=d&e, (www.x.com) or ftp://y.", ["https://a.org/b?c=d&e", "www.x.com", "ftp://y"]),
        ("https://en.org/Dog_(animal).", ["https://en.org/Dog_(animal)"]),
        ("Mail a.b+c@d-e.co.uk.", ["a.b+c@d-e.co.uk"]),
        ("<b>x</b> &amp; <code>a b</code> 1 < 2 > 0", ["<b>", "</b>", "&amp;", "<code>a b</code>"]),
        ("Run `ls -l` <kbd>x y</kbd>.", ["`ls -l`", "<kbd>x y</kbd>"]),
        ("{n, plural, one {# a {x}} other {b}} {n, o {p}}", ["{n, plural, one {# a {x}} other {b}}", "{p}"]),
        ("A1 {x} {x}", ["{x}", "{x}"]),
        ("a {b c} d@e 5 % s", []),
    ],
)
def test_protected_text_by_kind(line: str, protected: list[str]) -> None:
    masked = Protection().masked(line)
    assert [text for code, text in masked.parts if code in masked.texts] == protected
    assert masked.text == line
    assert not any(text in masked.model_input for text in protected)
    assert sum(masked.counts().values()) == len(protected)
    assert masked.restored(masked.model_input).text == line


def test_more_patterns_come_first_and_invalid_ones_are_refused() -> None:
    masked = Protection((r"v\d+", r"x*")).masked("v12 {v12} a")
    assert [text for code, text in masked.parts if code in masked.texts] == ["v12", "{v12}"]
    with pytest.raises(InputError, match="`protect_patterns`"):
        Protection(("(",))


HOSTILE = r"<code> aB a@ {a,plural,x{ %0 http://( ` &a --a- <a 1.. { a/ %a $a% :a a1- A1: a_ a:: a. a/b. 1a \a #a"


@pytest.mark.parametrize("piece", HOSTILE.split())
def test_a_hostile_line_is_read_in_linear_time(piece: str) -> None:
    began = time.process_time()
    EVERYDAY.masked(piece * 20_000)
    assert time.process_time() - began < 2, "20,000 pieces take milliseconds, and minutes if the time is quadratic"


def test_lost_and_repeated_codes_are_corrected() -> None:
    masked = Protection().masked("{a} and {b} and {a}")
    (a, _), (b, _) = masked.texts.items()
    for translation in ("", "und", a, f"{a} {a} {a} {b} {b}", f"{b}{a}", f"{a}7 {b}"):
        restored = masked.restored(translation).text
        assert (restored.count("{a}"), restored.count("{b}")) == (2, 1), translation


@pytest.mark.parametrize(
    ("line", "translation", "expected"),
    [
        ("a %s shirt", "ein A1hemd", "ein %s hemd"),
        ("a %s shirt", "einA1 Hemd", "ein %s Hemd"),
        ("a %s shirt", "ein A1-Hemd", "ein %s-Hemd"),
        ("%s, {x}", "A1B2", "%s{x}"),
        ("%s, {x}", "A1A1hemd B2", "%s hemd {x}"),  # the second A1 is left out
        ("{n}th place", "A1ter Platz", "{n}ter Platz"),
        ("{a}x{b} big", "groß A1 x B2", "groß {a}x{b}"),
        ("{a}{b} of {c}", "C3 und A1 B2", "{c} und {a}{b}"),
        ("{a}x{b} big", "groß B2 x A1", "groß {b} x {a}"),
        ('a "{b}" now', 'jetzt " A1"', 'jetzt "{b}"'),
        ("see ({a})", "„ A1“ sehen", "„{a}“ sehen"),
        ("a {b} now", 'jetzt " A1"', 'jetzt " {b}"'),
        ("a ({b}) now", "so - A1", "so - {b}"),
        ("<b>Hi</b> Tom<br>!", "A1 Hallo B2 Tom C3!", "<b>Hallo</b> Tom<br>!"),
        ("\u72d0<b>\u72d0</b>\u72d0", "a A1 fox B2 is", "a <b> fox </b> is"),
        ("先，编辑{a}好", "先,编辑 A1 好", "先,编辑{a}好"),
    ],
)
def test_words_join_protected_text_only_as_in_the_source(line: str, translation: str, expected: str) -> None:
    assert Protection().masked(line).restored(translation).text == expected


def test_links_count_words_as_a_reader_does() -> None:
    line = passed("New York dog", Protect(Protection(("New York",)), None))
    (code,) = line.codes
    made = undone(line, f"Hund {code}", ((0, 1), (1, 0)))
    assert (made.text, made.alignment) == ("Hund New York", ((0, 1), (2, 0)))


PLACEHOLDERS = ("{name}", "%s", "https://x.org/?a=1", "me@x.org", "<b>", "{{ two words }}")


def lines_with(numbers: random.Random) -> list[str]:
    lines = []
    for line in sentences(16, seed=5):
        words = line.split()
        for _ in range(numbers.randrange(3) if words else 0):
            words.insert(numbers.randrange(len(words) + 1), numbers.choice(PLACEHOLDERS))
        lines.append(" ".join(words))
    return lines


def spans(text: str) -> Counter[str]:
    return Counter({p: n for p in PLACEHOLDERS if (n := text.count(p))})


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"max_length": 0}, {"nbest": 2}),
        ({"max_length": 3}, {}),
        ({"stop": "shrink"}, {}),
        ({"max_source": 6}, {}),
        ({}, {"sampling": Sampling(seed=3), "nbest": 2}),
        ({"max_length": 0, "no_repeat_ngram": 1}, {"alignments": True}),
    ],
)
def test_protected_text_occurs_as_often_as_in_the_source(settings: dict[str, Any], options: dict[str, Any]) -> None:
    lines = lines_with(seeded(1))
    found = translator(**settings).translate_window(window(lines), TranslateOptions(protect=Protection(), **options))
    assert sum(map(bool, map(spans, lines))) > 3
    for line, translations in zip(lines, found, strict=True):
        for t in translations:
            if t.finished or t.text:
                assert spans(t.text) == spans(line), (line, t.text)
            for i, j in t.alignment or ():
                assert i < len(line.split())
                assert j < len(t.text.split())


def test_protected_text_is_linked_to_itself() -> None:
    lines = ["the dog {x} sleeps in <b> the %s park", "{x} in the park"]
    translations = translator(max_length=0).translate_window(
        window(lines), TranslateOptions(alignments=True, protect=Protection())
    )
    for line, (t,) in zip(lines, translations, strict=True):
        src, tgt = line.split(), t.text.split()
        links = {(src[i], tgt[j]) for i, j in t.alignment or ()}
        for i, word in enumerate(src):
            if Protection().masked(word).texts:
                assert [tgt[j] for k, j in t.alignment or () if k == i and word in tgt[j]], (links, t.text)
                assert len([j for k, j in t.alignment or () if k == i]) == 1


@pytest.mark.parametrize("asked", ["prefix", "constraints", "glossary"])
def test_no_code_is_a_word_that_the_translation_is_asked_to_contain(asked: str) -> None:
    glossary = Glossary((pair_of("road", "the B2|A1"),)) if asked == "glossary" else None
    wanted: dict[str, Any] = {"prefix": {"prefix": "die A1"}, "constraints": {"wording": Wording((("A1",),))}}
    line = passed("a road {x}", Remember(None, None), Protect(Protection(), None, glossary), **wanted.get(asked, {}))
    assert "A1" not in line.codes
    assert undone(line, f"die A1 {next(iter(line.codes))}").text == "die A1 {x}"


def test_the_search_places_protected_text() -> None:
    lines = lines_with(seeded(2))
    made = translator(max_length=0)
    for (t,), line in zip(
        made.translate_window(window(lines), TranslateOptions(protect=Protection())), lines, strict=True
    ):
        if t.finished and line:
            found = made.tgt_vocab.decode(t.tokens).replace("\ufffd", "")
            restored = Protection().masked(line).restored(found).text
            assert t.text.lower().split() == restored.lower().split(), "up to capitals and spaces at its beginning"
            codes = Protection().masked(line).counts()
            assert {code: made.tgt_vocab.decode(t.tokens).count(code) for code in codes} == codes


def test_terms_of_the_glossary_are_in_the_translation() -> None:
    lines = sentences(16, seed=6)
    glossary = Glossary((pair_of("dog", "Hund|park"), pair_of("in the", "ein ein"), pair_of("cat", "\u2581")))
    made = translator(max_length=0)
    translations = made.translate_window(window(lines), TranslateOptions(glossary=glossary))
    for line, (t,) in zip(lines, translations, strict=True):
        for term, forms in glossary.pairs[:2]:
            said = sum(len(list(occurrences(form, t.text))) for form in forms)
            assert said >= len(list(occurrences(term, line))), (line, t.text)
    # The vocabulary cannot write the translation of cat.
    assert made.counts.unmet == sum("cat" in line for line in lines) > 0
    with pytest.raises(InputError, match="`glossary`"):
        translator().translate_window(window(lines), TranslateOptions(glossary=glossary, sampling=Sampling()))


@pytest.mark.parametrize(
    ("line", "copied"),
    [
        ("A-17, mp3, 4K, LH586 and B95C.", ["A-17", "mp3", "4K", "LH586", "B95C"]),
        ("X1/200-B, RFC-2119.3", ["X1/200-B", "RFC-2119.3"]),
        ("这个MP3文件", ["MP3"]),
        ("9e107d9d372bb6826bd8 at 0x1F40", ["9e107d9d372bb6826bd8", "0x1F40"]),
        ("550e8400-e29b-41d4-a716-446655440000!", ["550e8400-e29b-41d4-a716-446655440000"]),
        ("00:1A:2B:3C:4D:5E or 2001:db8::1", ["00:1A:2B:3C:4D:5E", "2001:db8::1"]),
        ("DE23 8584 9366 5724 9509 21 in", ["DE23 8584 9366 5724 9509 21"]),
        ("v1.2.3-rc1, v5.49 and V2.0.", ["v1.2.3-rc1", "v5.49", "V2.0"]),
        ("/etc/x/, ~/a.txt, ./run or C:\\Users\\x", ["/etc/x/", "~/a.txt", "./run", "C:\\Users\\x"]),
        ("%PATH%\\a.b on \\\\srv\\x.", ["%PATH%\\a.b", "\\\\srv\\x"]),
        ("config.yaml, docs/a.mp3 or ~/.x of example.org. Then", ["config.yaml", "docs/a.mp3", "~/.x", "example.org"]),
        ("github.com/foo/bar, a.co.uk/x?y=1.", ["github.com/foo/bar", "a.co.uk/x?y=1"]),
        ("#love #हिन्दी #любовь @a.b: f", ["#love", "#हिन्दी", "#любовь", "@a.b"]),
        ("--verbose, [--max-d=N]", ["--verbose", "--max-d=N"]),
        ("snake_case MAX_SIZE a.b() std::sort", ["snake_case", "MAX_SIZE", "a.b()", "std::sort"]),
        ("Copy %1 to $HOME. 你好%n%，$USER来", ["%1", "$HOME", "%n%", "$USER"]),
        ("(%n_1%) :a::b: $x$ [[a page]]", ["%n_1%", ":a::b:", "$x$", "[[a page]]"]),
        # Words and numbers.
        ("Die LehrerInnen und Lehrer_innen an kwaloluGunyazo, isiXhosa, iPhone, McDonald", []),
        ("3.500.000 Einwohner, 9.5, 3,000.50, 1 500, 192.168.0.1, $5M, 1990s, 3rd, 20h15, 10am, 5kg, 5KG", []),
        ("1/2, 5-10, 2\u20133, 24/7, 12/05/1987, 2026-11-24, 10:30:45, %50, 100%, 50%n, +1 555 0199", []),
        ("-el padre de Ana-, 's Avonds, EE. UU., dhr. Jansen, l'homme, C++, C#, km/h, he/she, 1.FC, z.B. -v", []),
        ("Henry II of World War IV :-) Ctrl+C page(s) f(x) _x y_ -- and --Yes, dog.... and dog---", []),
        ("20.jahrhundert, a:b:c, Note: a, Mr./Mrs. X, ARTIKEL-12, top-10, ein `a o ` b, w/", []),
    ],
)
def test_models_that_learned_codes_copy_more_kinds_and_no_words_or_numbers(line: str, copied: list[str]) -> None:
    assert [line[begin:end] for begin, end in EVERYDAY.spans(line)] == copied


def test_only_models_that_learned_codes_copy_by_default() -> None:
    def copies(codes: bool, **options: Any) -> bool:
        engine: Any = FakeEngine(vocabulary())
        engine.models = [SimpleNamespace(codes=codes, usual_length=0, pair=None)]
        steps = StepsOfEngine(engine, SEARCH, retry=True)(TranslateOptions(**options))
        return "{dog}" in passed("a {dog} runs", *steps.before).codes.values()

    assert copies(True) is copies(False, protect=Protection()) is True
    assert copies(False) is copies(True, protect=False) is copies(True, raw=True) is False


@pytest.mark.parametrize("text", ['big dog,"Hund, gross"\r\n', '# a,b\nbig dog,"Hund, gross"', "big dog;Hund"])
def test_cells_are_terms_and_translations(tmp_path: Path, text: str) -> None:
    path = tmp_path / "terms.CSV"
    path.write_bytes(text.encode())
    assert read_glossary(path).pairs == (("big dog", ("Hund, gross" if "gross" in text else "Hund",)),)


@pytest.mark.parametrize("text", ["a,b,c", "a", ",b", "a\tb"])
def test_other_lines_are_refused_with_their_number(tmp_path: Path, text: str) -> None:
    path = tmp_path / "terms.csv"
    path.write_text(f"x,y\n{text}\n", encoding="utf-8")
    with pytest.raises(FileError, match="line 2"):
        read_glossary(path)
