"""Lines in capitals, in title case, and with characters that the vocabulary cannot write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from translators import SEARCH, window, word_vocabulary

from vtrans.config import SearchConfig
from vtrans.data.preparation.learn_vocabulary import learn
from vtrans.engines.alignments import Links
from vtrans.engines.engine import Source
from vtrans.lines.case import CASE, Case, LowerCase, initial, title
from vtrans.lines.line import Line
from vtrans.lines.mbr import LeaveOutEqual
from vtrans.lines.requirements import ProtectText, WriteCodes
from vtrans.lines.terms import FindTerms
from vtrans.lines.unknowns import AROUND, Characters, CopyUnknown, DropInvisible
from vtrans.search.decoder import SubwordPair
from vtrans.search.loop import Hypothesis
from vtrans.storage.model_file import Model
from vtrans.text.case import SentenceCase, lower, upper
from vtrans.text.languages import Languages
from vtrans.text.matches import Match
from vtrans.text.vocabulary import Vocabulary
from vtrans.translate.translation import TranslateOptions, Translation
from vtrans.translate.translator import Translator
from vtrans.wording.glossary import Glossary, pair_of
from vtrans.wording.phrases import Wording
from vtrans.wording.protect import Masked, Protection


def vocabulary_of(text: str) -> Vocabulary:
    return learn([text] * 20, size=None, kind="bpe", coverage=1.0, normalization="nmt_nfkc")


LATIN = vocabulary_of("The quick brown fox jumps over the lazy dog. NASA NASA NASA stop ä ö, 0 1!")


class Reader:
    """The stages that read a line for a model with these vocabularies."""

    def __init__(self, src_vocab: Vocabulary, tgt_vocab: Vocabulary) -> None:
        characters = Characters(src_vocab, tgt_vocab)
        self.case = LowerCase(characters, "en", "de")
        self._stages = ProtectText(Protection()), CopyUnknown(characters), WriteCodes(required=True), self.case

    def __call__(self, text: str, prefix: str = "", match: Match | None = None) -> tuple[Masked, Case | None]:
        """Returns a line as the model sees it, and its case if that is to be restored."""
        line = Line(1, text, prefix, match=match)
        for stage in self._stages:
            stage.before([line])
        return line.seen, CASE.get(line)


CAPITALS, TITLE, INITIAL = Case(upper), Case(title), Case(initial)
READ = Reader(LATIN, LATIN)
WORDS = vocabulary_of("ein a dog runs in the park Hund HUND A DOG RUNS The Dog Runs In Park EIN 12 .")


@pytest.mark.parametrize(
    ("line", "case"),
    [
        ("A DOG RUNS.", CAPITALS),
        ("DON'T!", CAPITALS),
        ("STOP", CAPITALS),
        ("NASA", None),  # it has a piece of its own
        ("ÄÖ 12 - ÖÄ", CAPITALS),
        ("A DOG runs.", None),
        ("A", None),
        ("12 !?", None),
        ("", None),
        ("犬 DOG FOX", CAPITALS),
        ("The Quick Brown Fox!", TITLE),
        ("Don't Stop The Fox", TITLE),
        ("The Brown Fox", TITLE),
        ("Brown NASA", None),
        ("Fox Nasa", None),  # it may be a name, as the vocabulary has no piece for it
        ("The", INITIAL),
        ("The!", None),
        ("Dog 4", INITIAL),
        ("The Quick brown Fox Jumps", None),
        ("ONE Fox Jumps Over Dogs", TITLE),
        ("ONE FOX JUMPS OVER myFox", CAPITALS),  # words of mixed case do not count
        ("NASA Jumps Over The Fox", TITLE),
        ("NASA 978-3", None),  # a number is no word
        ("NASA FBI", None),  # both are acronyms
        ("FOX OVER DOG (see fox)", None),
        ("FOX OVER THE LAZY DOG (fox)", CAPITALS),
        ("FOX Over The Dog", TITLE),
    ],
)
def test_the_case_of_a_line(line: str, case: Any) -> None:
    found = READ.case.case_of(Masked.plain(line))
    assert (found and found.write) == (case and case.write)


def test_a_word_by_itself_is_read_small_and_keeps_its_capital() -> None:
    read, case = READ("Dog 4")
    assert (read.text, case and case.restore("hund 4")) == ("dog 4", "Hund 4")


@pytest.mark.parametrize(
    ("line", "read", "around"),
    [
        ("1. The fox", "The fox", ("1. ", "")),
        ("1.2 The fox", "The fox", ("1.2 ", "")),
        ("  b) the fox", "the fox", ("  b) ", "")),
        ("- the fox 0", "the fox 0", ("- ", "")),
        ("The fox...", "The fox.", ("", "...")),
        ("2) the fox …", "the fox.", ("2) ", " …")),
        ("1.2 foxes", "1.2 foxes", None),
        ("10 the", "10 the", None),
        ("1. 2.", "1. 2.", None),
        ("fox 1...", "fox 1...", None),
    ],
)
def test_the_number_of_an_item_and_an_ellipsis_stay_where_they_are(line: str, read: str, around: Any) -> None:
    vocab = vocabulary_of("the quick brown fox The 0 1 2 b . ) - …")
    stage, seen = CopyUnknown(Characters(vocab, vocab)), Line(1, line)
    stage.before([seen])
    assert (seen.seen.text, AROUND.get(seen)) == (read, around)
    seen.translations = [Translation("Der Fuchs.", -1.0, -1.0, True)]
    stage.after([seen])
    before, after = around or ("", "")
    assert seen.translations[0].text == (f"{before}Der Fuchs{after or '.'}")


def test_protected_text_has_no_case_and_keeps_it() -> None:
    line = "{Name} DOG %s OVER FOX"
    read, case = READ(line)
    assert read.text == "{Name} dog %s over fox"
    assert case
    assert case.write is upper
    assert CAPITALS.restore(read.masked) == Protection().masked(line).masked
    assert READ(line, prefix="x")[1] is None


@pytest.mark.parametrize(
    ("text", "capitals", "title"),
    [
        ("Der große A1 „hund“.", "DER GROSSE A1 „HUND“.", "Der Große A1 „Hund“."),
        ("- 'n x-y", "- 'N X-Y", "- 'N X-y"),
        ("", "", ""),
    ],
)
def test_a_text_is_given_a_case(text: str, capitals: str, title: str) -> None:
    assert (CAPITALS.restore(text), TITLE.restore(text)) == (capitals, title)


def copied_of(reader: Reader, line: str) -> list[str]:
    read, _ = reader(line, prefix="x")  # so that the symbols around it are part of it
    return [text for code, text in read.parts if code in read.texts]


@pytest.mark.parametrize(
    ("line", "copied"),
    [
        ("The fox.", []),
        ("The fox 😀😀.", ["😀😀"]),
        ("👨‍👩‍👧 🇩🇪 ☎️ →", ["👨‍👩‍👧", "🇩🇪", "☎️", "→"]),
        ("Dvořák's fox", ["Dvořák's"]),
        ("Ærø", ["Ærø"]),
        ("собака 狐狸, αβγ!", ["собака", "狐狸", "αβγ"]),
        ("{😀} fox 😀", ["{😀}", "😀"]),  # protected text is one piece
        ("fox\u00a0ｆｏｘ", []),  # normalization gives them pieces
    ],
)
def test_what_the_vocabulary_lacks_is_copied(line: str, copied: list[str]) -> None:
    assert copied_of(READ, line) == copied


@pytest.mark.parametrize(
    ("line", "copied"),
    [
        ("fox https://fox.org/a?b=1&c=2 fox.", ["https://fox.org/a?b=1&c=2"]),
        ("fox (http://fox.org/The_(fox)), fox", ["(", "http://fox.org/The_(fox)", ")"]),
        ("/fox/dog $5, 10%, a@b.org! 1/2 km/h", ["/fox/dog", "$5", "10%", "a@b.org", "1/2", "km/h"]),
        ("C++ and/or R&D", ["C++", "/", "R&D"]),
        ("**fox** *the dog* fox😀fox <fox", ["**", "**", "*", "*", "😀", "<"]),
        (f"fox {'fox' * 70}, {'狐' * 300}", ["fox" * 70, "狐" * 300]),  # no word is as long
        ("don`t fox+ +", ["`", "fox+", "+"]),
    ],
)
def test_a_run_with_an_unknown_symbol_is_copied_as_a_whole(line: str, copied: list[str]) -> None:
    assert copied_of(READ, line) == copied


def test_words_of_a_script_that_the_vocabulary_has_are_not_copied() -> None:
    cyrillic = vocabulary_of("Съешь же ещё этих мягких французских булок, да выпей чаю")
    reader = Reader(cyrillic, LATIN)
    assert copied_of(reader, "Съѣшь fox 狐") == ["fox", "狐"]
    assert not copied_of(Reader(cyrillic, vocabulary_of("狐狸")), "fox"), "the target cannot write it either"


def test_capitals_that_the_vocabulary_lacks_are_written_small() -> None:
    small = Reader(vocabulary_of("the quick brown fox"), LATIN)
    assert small("The fOX %S İ")[0].text == "the fox %S İ"


def test_unknown_words_of_a_table_are_copied() -> None:
    vocab = word_vocabulary()
    assert copied_of(Reader(vocab, vocab), "a 😀") == ["😀"]


def test_hostile_lines_are_read_in_linear_time() -> None:
    for piece in ("😀", "😀 ", "Dvořák", "-", "- ", "A", "A ", "\u0301", "犬ř", "a/", "(/", "/)", "<a/", "\u200d"):
        began = time.process_time()
        read, _ = READ(piece * 20_000)
        for case in (CAPITALS, TITLE):
            case.restore(read.masked)
        assert time.process_time() - began < 5, "20,000 pieces take milliseconds, and minutes if the time is quadratic"


class Echo:
    """An engine that translates every line as "ein" and the line."""

    def __init__(self) -> None:
        self.name, self.settings, self.device = "echo", SEARCH, "cpu"
        self.models: list[Model[Any]] = []
        self.max_length: int | None = None
        self.languages: Sequence[Languages] = ()
        self.tags: Mapping[str, str] = {}
        self.src_vocab = self.tgt_vocab = WORDS

    def search(
        self, sources: Sequence[Source], config: SearchConfig, **options: Any
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        for i, source in enumerate(sources):
            terms = [self.tgt_vocab.decode(phrase.forms[0].tokens) for phrase in source.phrases if not phrase.exactly]
            text = " ".join(["ein", *terms, self.src_vocab.decode(source.tokens[:-1])])
            tokens = tuple(self.tgt_vocab.encode(text))
            yield i, [Hypothesis(tokens, -1.0, -1.0, True, (-1.0,) * (len(tokens) + 1))]

    def align(self, pairs: Sequence[SubwordPair], words: Any, batch_tokens: int) -> list[Links]:
        return [()] * len(pairs)

    def token_logprobs(
        self, pairs: Sequence[SubwordPair], batch_tokens: int, done: Callable[[], None] = lambda: None
    ) -> list[tuple[float, ...]]:
        return [(-1.0,) * len(target) for _, target in pairs]


def translated(line: str, *, prefix: str | None = None, constraints: Any = None, **options: Any) -> Translation:
    return Translator(Echo()).translate_window(
        window(
            [line],
            prefixes=None if prefix is None else [prefix],
            constraints=None if constraints is None else [constraints],
        ),
        TranslateOptions(**options),
    )[0][0]


def test_a_translation_has_the_case_of_its_line() -> None:
    assert translated("A DOG RUNS").text == "EIN A DOG RUNS"
    assert translated("The Dog Runs In The Park").text == "Ein The Dog Runs In The Park"
    assert translated("a dog RUNS").text == "ein a dog RUNS"


@pytest.mark.parametrize("asked", [{"raw": True}, {"prefix": "ein"}])
def test_a_line_is_left_as_it_is_if_the_user_says_so_or_how_it_begins(asked: dict[str, Any]) -> None:
    assert translated("A DOG", **asked).text.endswith("A DOG")
    assert not translated("A DOG", **asked).text.isupper()


def test_words_of_mixed_case_keep_it_in_both_directions() -> None:
    vocab = vocabulary_of("the fox or dog The FOX OR myFox Dog")
    read, case = Reader(vocab, vocab)("THE FOX, myFox OR Dog.")
    assert case
    assert read.text == "The fox, myFox or Dog."
    assert case.restore("ein myFox-Hund, Dog, dog myFoxy.") == "EIN myFox-HUND, Dog, DOG MYFOXY."
    assert Case(title, kept=("myFox",)).restore("ein myFox und fox") == "Ein myFox Und Fox"


@pytest.mark.parametrize(
    ("word", "before", "written"),
    [
        ("QUICK", "", "quick"),
        ("Quick", "", "quick"),
        ("BERLIN", "", "Berlin"),  # it has fewer subwords with a capital
        ("MONDAY'S", "", "Monday's"),
        ("DFGH", "", "DFGH"),  # it has no vowel
        ("NASA", "", "NASA"),
        ("I'M", "", "I'm"),
        ("US", "tell", "us"),
        ("US", "The", "US"),
        ("U.S.", "", "U.S."),
        ("Zorgu", "", "Zorgu"),  # no form is known, so it stays a name
        ("ZORGU", "", "zorgu"),
    ],
)
def test_a_word_is_written_as_in_a_sentence(word: str, before: str, written: str) -> None:
    vocab = vocabulary_of("the quick fox i us 's m Berlin Berlin Monday Monday")
    assert SentenceCase(vocab, "en")(word, before) == written


def test_a_word_that_is_much_more_frequent_with_a_capital_is_a_name() -> None:
    class Known:
        def encode_batch(self, texts: Sequence[str], **options: Any) -> list[list[int]]:
            return [[{"Tom": 300, "tom": 1000, "What": 300, "what": 600}.get(text, 5000), 7] for text in texts]

    vocab: Any = Known()
    write = SentenceCase(vocab, None)
    assert [write(word, "") for word in ("TOM", "WHAT", "DOG")] == ["Tom", "what", "dog"]


def test_each_sentence_of_a_line_begins_with_a_capital() -> None:
    assert READ("THE FOX! THE {DOG}. {DOG}'S FOX (THE DOG).")[0].text == "The fox! The {DOG}. {DOG}'s fox (the dog)."


def test_dotless_letters_and_final_sigma() -> None:
    assert (lower("IŞIK İZMİR", "tr"), upper("ışık izmir", "tr-TR")) == ("ışık izmir", "IŞIK İZMİR")
    assert (lower("IŞIK İZ", "en"), upper("ıi", "en")) == ("işik iz", "II")
    assert title("iki ışık", "az") == "İki Işık"
    assert (lower("ΟΔΟΣ ΣΟΦΟΣ"), upper("οδος")) == ("οδος σοφος", "ΟΔΟΣ")
    assert all(len(lower(chr(code))) == 1 for code in range(0x250)), "terms are found by their place"


def test_a_constraint_in_the_case_of_the_line_may_be_searched_in_another() -> None:
    line, stage = Line(1, "THE DOG"), LowerCase(Characters(LATIN, LATIN), "en", "de")
    line.wording = asked = Wording((("DER HUND",), ("Dackel",)), ("KATZE",))
    stage.before([line])
    capitals, as_given = line.wording.phrases
    assert {"der hund", "Der hund", "Der Hund"} <= set(capitals)
    assert as_given == ("Dackel",)
    assert {"KATZE", "Katze", "katze"} <= set(line.wording.avoid)
    stage.after([line])
    assert line.wording == asked


@pytest.mark.parametrize(
    ("asked", "phrase", "counted"),
    [({"constraints": ["Hund"]}, "Hund", 0), ({"constraints": ["HUND"]}, "HUND", 0), ({"avoid": ["DOG"]}, "DOG", 1)],
)
def test_constraints_on_a_line_in_capitals(asked: dict[str, Any], phrase: str, counted: int) -> None:
    made = Translator(Echo())
    best = made.translate_window(window(["A DOG"], constraints=[asked]))[0][0]
    assert phrase in best.text.split()
    assert best.text.replace("Hund", "HUND").isupper()
    assert made.counts.unmet == counted, "Echo avoids nothing"


@pytest.mark.parametrize(
    ("line", "forms"),
    [
        ("THE DOG", ["HUND"]),
        ("NASA RUNS IN THE PARK", ["BEHÖRDE", "STADTPARK"]),
        ("NASA Runs In The Park", ["Behörde", "Stadtpark"]),
        ("nasa runs", []),  # only a line that has a case has its terms in any case
        ("THE US AND us", ["USA", "WIR"]),
    ],
)
def test_terms_are_found_in_the_line_as_it_was_written(line: str, forms: list[str]) -> None:
    pairs = {"dog": "Hund", "NASA": "Behörde", "the Park": "Stadtpark", "US": "USA", "us": "wir"}
    made = Glossary(tuple(pair_of(*pair) for pair in pairs.items()))
    read = Line(1, line)
    stages = LowerCase(Characters(LATIN, LATIN), "en", "de"), FindTerms(made)
    for stage in stages:
        stage.before([read])
    for stage in reversed(stages):
        stage.after([read])
    assert [form for (form,) in read.wording.terms] == forms


def test_a_term_that_is_not_applied_is_counted() -> None:
    class Deaf(Echo):
        def search(self, sources: Sequence[Source], *args: Any, **options: Any) -> Any:
            return super().search([replace(source, phrases=()) for source in sources], *args, **options)

    made = Translator(Deaf())
    made.translate_window(window(["A DOG"]), TranslateOptions(glossary=Glossary((pair_of("Dog", "Hund"),))))
    assert made.counts.unmet == 1


def test_terms_are_written_in_the_case_of_the_line() -> None:
    best = translated("A DOG", glossary=Glossary((pair_of("dog", "Hund"),)))
    assert "HUND" in best.text.split()


def test_a_term_in_the_capitals_of_the_line_comes_before_others() -> None:
    best = translated("A DOG US", glossary=Glossary((pair_of("us", "uns"), pair_of("US", "USA"))))
    assert "USA" in best.text.split()


def test_unknown_characters_come_back_and_are_linked_to_themselves() -> None:
    best = translated("a 😀 dog", alignments=True)
    assert (best.text, best.alignment) == ("ein a 😀 dog", ((1, 2),))


@pytest.mark.parametrize(
    ("line", "outside"),
    [
        ("😀 a dog", ("😀 ", "")),
        ("a dog. 😀😀 ", ("", " 😀😀 ")),
        ("→ a dog!🎉", ("→ ", "🎉")),
        ("a dog 😀", ("", "")),  # it may be a part of the sentence
        ("😀 12", ("😀 ", "")),
        ("狐 a dog. 狐", ("", "")),  # a word
        (" a dog. ", ("", "")),
        ("😀 ", ("😀 ", "")),
        ("😀 {😀} a dog. {😀} 😀", ("😀 ", "")),  # protected text belongs to the sentence
        ("\t\r a dog", ("", "")),
    ],
)
def test_symbols_around_a_sentence_stay_where_they_are(line: str, outside: tuple[str, str]) -> None:
    read = Line(1, line)
    for stage in (ProtectText(Protection()), CopyUnknown(Characters(LATIN, LATIN))):
        stage.before([read])
    assert (AROUND.get(read) or ("", "")) == outside


def test_links_count_the_symbols_around_a_sentence() -> None:
    best = translated("😀 a 🎉 dog. → →", alignments=True)
    assert best.text == "😀 ein a 🎉 dog. → →"
    assert best.alignment == ((0, 0), (2, 3), (4, 5), (5, 6))
    best = translated("😀a 🎉 dog", alignments=True)
    assert (best.text, best.alignment) == ("😀ein a 🎉 dog", ((1, 2),))


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("\x00\x80", ""),
        ("a \x00 do\u00adg\u202e", "a  dog"),
        ("a\tdog", "a\tdog"),  # normalization makes it a space
        ("👨\u200d👩\U000e0067 \u200ddog", "👨\u200d👩\U000e0067 dog"),  # they join emoji
    ],
)
def test_control_characters_are_not_shown_to_the_model(line: str, seen: str) -> None:
    read = Line(1, line)
    DropInvisible(Characters(LATIN, LATIN)).before([read])
    assert read.seen.text == seen


def test_control_characters_count_as_words_of_the_line() -> None:
    best = translated("😀 \x00 a 🎉 \x00 dog. →", alignments=True)
    assert (best.text, best.alignment) == ("😀  ein a 🎉 dog. →", ((0, 0), (3, 3), (6, 5)))
    assert (translated("\x00").text, translated("\x00").logprob) == ("", 0.0)


def test_equal_translations_are_left_out() -> None:
    line = Line(1, "A DOG")
    line.translations = [Translation(text, -i, -i, True) for i, text in enumerate(["X", "Y", "X", "Z", "Y"])]
    LeaveOutEqual().after([line])
    assert [(t.text, t.finished) for t in line.translations] == [
        *(("X", True), ("Y", True), ("Z", True)),
        *(("", False), ("", False)),
    ]
    assert [t.logprob for t in line.translations[:3]] == [0, -1, -3]


def test_a_copied_line_has_one_translation() -> None:
    first, second = Translator(Echo()).translate_window(window(["😀"]), TranslateOptions(nbest=2))[0]
    assert (first.text, first.logprob, second.text, second.finished) == ("😀", 0.0, "", False)
    assert (
        Translator(Echo()).translate_window(window([" "]), TranslateOptions(nbest=2))[0]
        == [Translation("", 0.0, 0.0, True)] * 2
    ), "a blank line has blank ones"


@pytest.mark.parametrize("line", ["😀", " 犬犬 → 😀 "])
def test_a_line_without_a_word_that_the_model_knows_is_its_own_translation(line: str) -> None:
    best = translated(line)
    assert (best.text, best.logprob) == (line, 0.0)
    assert translated(line, raw=True).text != line
