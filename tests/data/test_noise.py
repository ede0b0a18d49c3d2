"""Training noise: its changes, correct links, and repeatability from any point."""

import io
import unicodedata
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
from corpora import TRAIN, made, options
from drawn import seeded
from sentencepiece import SentencePieceTrainer

import vtrans.data.augmentation
from vtrans.data import noise
from vtrans.data.augmentation import Augmentation
from vtrans.data.matches import SEPARATOR_ID
from vtrans.data.noise import Noise, WordPair, changes_for
from vtrans.data.store import DataFolder, TokenStore
from vtrans.storage.pair_counts import PairCounts
from vtrans.text.languages import Languages
from vtrans.text.values import in_ascii
from vtrans.text.vocabulary import Vocabulary
from vtrans.text.words import words_of_ids

LINE = WordPair(
    ("The", "old", "man", "sees", "Anna", "today."),
    ("Heute", "sieht", "der", "alte", "Mann", "Anna."),
    frozenset({(0, 2), (1, 3), (2, 4), (3, 1), (4, 5), (5, 0)}),
)
STRAIGHT = WordPair(
    ("I", "see", "two", "big", "dogs."),
    ("Ich", "sehe", "zwei", "große", "Hunde."),
    frozenset((i, i) for i in range(5)),
)
NEXT = WordPair(("It", "rains!"), ("Es", "regnet!"), frozenset({(0, 0), (1, 1)}))


def changed(change: noise.Change, pair: WordPair, times: int = 200) -> list[WordPair]:
    """The different results of a change."""
    results = [change(pair, lambda: NEXT, seeded(seed)) for seed in range(times)]
    return list(dict.fromkeys(result for result in results if result is not None))


def linked(pair: WordPair) -> set[tuple[str, str]]:
    return {(pair.src[i], pair.tgt[j]) for i, j in pair.links or ()}


def test_only_the_source_is_lower_cased() -> None:
    (result,) = changed(noise.lower_case, LINE)
    assert result == WordPair(("the", "old", "man", "sees", "anna", "today."), LINE.tgt, LINE.links)
    turkish = changed(partial(noise.lower_case, language="tr"), WordPair(("IŞIK", "İKİZ"), LINE.tgt, None))
    assert [result.src for result in turkish] == [("ışık", "ikiz")]
    assert [result.src for result in changed(noise.lower_case, WordPair(("ΟΔΟΣ",), LINE.tgt, None))] == [("οδος",)]
    caseless = WordPair(("مرحبا", "नमस्ते"), ("こんにちは",), None)
    assert changed(noise.lower_case, caseless) == [caseless]


def test_typos_change_letters_of_the_source_only() -> None:
    accents = WordPair(("Frère", "Jacques,", "the", "x", "犬犬犬犬"), LINE.tgt, frozenset())
    results = changed(noise.typos, accents)
    assert len(results) > 50
    for result in results:
        assert (result.tgt, result.links, result.src[3:]) == (accents.tgt, accents.links, accents.src[3:])
        pairs = list(zip(accents.src, result.src, strict=True))
        assert any(before != after for before, after in pairs)
        assert all(abs(len(before) - len(after)) <= 1 for before, after in pairs)
    assert any(result.src[0] == "Frere" for result in results)
    assert not changed(noise.typos, WordPair(("a", "12345", "犬犬犬犬"), ("b",), None))


@pytest.mark.parametrize("word", ["Straße", "привет", "कमलनयन", "مدرسة", "שלום", "대한민국", "ქართული"])
def test_typos_use_letters_of_the_words_own_alphabet(word: str) -> None:
    results = changed(noise.typos, WordPair((word,), ("b",), None))
    assert len(results) > 6
    assert all(set(result.src[0]) <= {*word, *map(bare, word)} for result in results)


def bare(letter: str) -> str:
    base, *marks = iter(unicodedata.normalize("NFD", letter))
    return base if all(map(unicodedata.combining, marks)) else letter


def test_both_sides_lose_their_final_mark() -> None:
    (result,) = changed(noise.no_final_mark, LINE)
    assert (result.src[-1], result.tgt[-1], result.links) == ("today", "Anna", LINE.links)
    apart = WordPair(("Why", "?!"), ("Warum", "?!"), frozenset({(0, 0), (1, 1)}))
    assert changed(noise.no_final_mark, apart) == [WordPair(("Why",), ("Warum",), frozenset({(0, 0)}))]
    assert not changed(noise.no_final_mark, WordPair(("Why?",), ("Warum",), None))
    assert not changed(noise.no_final_mark, WordPair(("Why,",), ("Warum,",), None))
    others = WordPair(("क्यों?", "नहीं।"), ("كيف؟", "لا؟!"), None)
    assert changed(noise.no_final_mark, others) == [WordPair(("क्यों?", "नहीं"), ("كيف؟", "لا"), None)]


@pytest.mark.parametrize("pair", [LINE, STRAIGHT])
def test_codes_are_inserted_at_corresponding_places(pair: WordPair) -> None:
    results = changed(noise.copied, pair)
    assert len(results) > 20
    seen = set()
    for result in results:
        text = " ".join(result.src)
        codes = [code for code in ("A1", "B2", "C3") if code in text]
        assert codes
        assert codes == sorted(codes, key=text.index) == ["A1", "B2", "C3"][: len(codes)]
        assert result.links is not None
        for code in codes:
            (i,), (j,) = ([k for k, word in enumerate(words) if code in word] for words in (result.src, result.tgt))
            assert {(a, b) for a, b in result.links if i == a or j == b} == {(i, j)}
            if len(codes) == 1:
                seen.add((i == len(result.src) - 1, len(result.src) > len(pair.src)))
        kept = {link for link in linked(result) if not any(code in link[0] for code in codes)}
        assert kept <= linked(pair)
    assert seen >= {(True, True), (False, False)}  # at the end, and in place of words
    assert ((False, True) in seen) == (pair is STRAIGHT)  # between words, where no links cross


def test_numbers_change_on_both_sides_alike() -> None:
    pair = WordPair(("On", "12", "May,", "1,234.5"), ("Am", "12.", "Mai", "١٬٢٣٤٫٥"), None)
    results = changed(noise.renumbered, pair)
    assert len(results) > 50
    for result in results:
        day, number = result.src[1::2]
        assert result.src == ("On", day, "May,", number)
        assert result.tgt[:3] == ("Am", f"{day}.", "Mai")
        assert regex.fullmatch(r"[٠-٩]٬[٠-٩]{3}٫[٠-٩]", result.tgt[3])
        assert in_ascii(result.tgt[3]) == number


@pytest.mark.parametrize(
    ("language", "digits", "number", "written"),
    [
        ("de", "0", "12,345.6", "12.345,6"),
        ("fr", "0", "12,345.6", "12 345,6"),
        ("ar", "٠", "12,345.6", "١٢٬٣٤٥٫٦"),
        ("hi", "0", "1,234,567", "12,34,567"),
    ],
)
def test_new_numbers_have_the_form_of_each_side(language: str, digits: str, number: str, written: str) -> None:
    counted = {"digits": {digits: 100}, **({"decimal": {"٫": 99}, "group": {"٬": 99}} if digits == "٠" else {})}
    changes = changes_for(Languages("en", language), PairCounts({}, {}, counted))
    (renumbered,) = (change for change in changes if getattr(change, "func", change) is noise.renumbered)
    pairs = [
        (result.src[1:], result.tgt[1:])
        for result in changed(renumbered, WordPair(("so",), ("so",), frozenset({(0, 0)})), 600)
        if len(result.src) > 1
    ]
    forms = {tuple(in_zeros(" ".join(words)) for words in pair) for pair in pairs}
    assert (in_zeros(number), in_zeros(written)) in forms
    for src, tgt in pairs:
        assert regex.sub(r"\D", "", in_ascii("".join(src))) == regex.sub(r"\D", "", in_ascii("".join(tgt)))


def in_zeros(text: str) -> str:
    return "".join(chr(ord(c) - int(c)) if c.isdecimal() else c for c in text)


def test_quotation_marks_are_counted_on_each_side() -> None:
    counted = PairCounts({}, {"quotes": {"“”": 60, '""': 20}}, {"quotes": {"« »": 1}})
    changes = changes_for(Languages("", ""), counted)
    pair = WordPair(("no",), ("non",), frozenset({(0, 0)}))
    results = {(result.src, result.tgt) for change in changes for result in changed(change, pair)}
    assert {words for words in results if "“" in words[0][0]} == {(("“no”",), ('"non"',))}


def test_names_of_both_sides_are_replaced_by_new_ones() -> None:
    pair = WordPair(("Anna's", "dog", "likes", "Anna."), ("Annas", "Hund", "mag", "Anna."), None)
    results = changed(noise.renamed, pair)
    assert len(results) > 50
    for result in results:
        name = result.src[3].rstrip(".")
        assert name.istitle()
        assert result.src == (f"{name}'s", "dog", "likes", f"{name}.")
        assert result.tgt == (f"{name}s", "Hund", "mag", f"{name}.")
    assert not changed(noise.renamed, STRAIGHT)
    assert not changed(noise.renamed, WordPair(("Kat", "has", "a", "cat"), ("Kat", "hat", "eine", "Katze"), None))
    latin = WordPair(("Anna", "spielt"), ("Anna", "играет"), None)
    assert all(regex.fullmatch(r"\p{Latin}+", result.tgt[0]) for result in changed(noise.renamed, latin))


def test_a_pair_is_cut_only_where_no_link_crosses() -> None:
    assert {(result.src, result.tgt) for result in changed(noise.cut, STRAIGHT)} == {
        (STRAIGHT.src[part], STRAIGHT.tgt[part]) for part in (slice(2), slice(3), slice(2, None), slice(3, None))
    }
    for result in changed(noise.cut, STRAIGHT):
        assert linked(result) == {link for link in linked(STRAIGHT) if link[0] in result.src}
    assert not changed(noise.cut, LINE)
    assert not changed(noise.cut, WordPair(STRAIGHT.src, STRAIGHT.tgt, None))


def test_words_that_correspond_are_put_in_quotation_marks() -> None:
    results = changed(partial(noise.quoted, quotes=('""', "„“")), LINE)
    texts = {(" ".join(result.src), " ".join(result.tgt)) for result in results}
    assert len(texts) == 10
    assert texts > {
        ('The "old man" sees Anna today.', "Heute sieht der „alte Mann“ Anna."),
        ('The old man sees "Anna" today.', "Heute sieht der alte Mann „Anna“."),
        ('"The old man sees" Anna today.', "Heute „sieht der alte Mann“ Anna."),
    }
    assert {result.links for result in results} == {LINE.links}
    no, others = WordPair(("Non!",), ("否！",), frozenset({(0, 0)})), (("« ", " »"), "「」")
    spaced = changed(partial(noise.quoted, quotes=others), no)
    assert spaced == [WordPair(("«", "Non", "»!"), ("「否」！",), frozenset({(0, 0), (1, 0), (2, 0)}))]
    assert not changed(noise.quoted, WordPair(("so,", "no."), ("so,", "nein."), frozenset({(0, 1), (1, 0), (1, 1)})))
    assert not changed(noise.quoted, WordPair(("no",), ("„nein“",), frozenset({(0, 0)})))


@pytest.fixture(scope="module")
def linked_data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    folder = tmp_path_factory.mktemp("linked")
    path = folder / "train.align"
    path.write_text("".join("0-0 1-1 " + f"{len(src.split()) - 1}-{len(tgt.split()) - 1}\n" for src, tgt in TRAIN))
    tagged = {"src_lang": ("en",), "tgt_lang": ("de",), "tags": (">>de<<",)}
    made(options(folder, alignments=(path,), **tagged))
    return DataFolder.open(folder / "data")


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtrans.data.augmentation, "SHARD", 16)
    monkeypatch.setattr(vtrans.data.augmentation, "WINDOW", 3)


def drawn(data: DataFolder, rate: float, count: int) -> list[tuple[tuple[int, ...], ...]]:
    """The pairs of some windows: the ids of both sides, and the links."""
    make = partial(Noise, rate=rate, longest=1000, changes=changes_for(Languages("en", "de"), data.pair))
    augmentation = Augmentation(data.train, data.src_vocab, data.tgt_vocab, 1, 1000, noise=make, with_links=True)
    with closing(augmentation.windows(1, 0)) as windows:
        return [row for _, _, store in islice(windows, count) for row in rows(store)]


def rows(store: TokenStore) -> list[tuple[tuple[int, ...], ...]]:
    return [
        (tuple(store.src(i).tolist()), tuple(store.tgt(i).tolist()), tuple(store.links(i).flatten().tolist()))
        for i in range(len(store))
    ]


def test_the_rate_is_the_share_of_changed_pairs(linked_data: DataFolder) -> None:
    count = 12
    plain, some, most = (drawn(linked_data, rate, count) for rate in (0.0, 0.3, 1.0))
    shares = [np.mean([a != b for a, b in zip(plain, noisy, strict=True)]) for noisy in (some, most)]
    assert 0.15 < shares[0] < 0.35
    assert shares[1] > 0.5  # not every pair can be changed in every way


@pytest.mark.parametrize(("word", "written"), [("no", "no"), ("nó", "non")])
def test_a_pair_stays_as_it_is_if_its_vocabulary_lacks_a_character(word: str, written: str) -> None:
    model, ids = io.BytesIO(), {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "vocab_size": 7}
    options: dict[str, Any] = {"model_type": "char", **ids}
    SentencePieceTrainer.train(sentence_iterator=iter(["no non"] * 9), model_writer=model, **options)
    vocab = Vocabulary(model.getvalue())
    side = np.array(vocab.encode("non"), np.int32), np.array([4])
    shard = Noise(vocab, vocab, 1.0, 99, [lambda pair, *_: replace(pair, src=(word,))])((side, side), 1)
    assert [vocab.decode(values.tolist()) for values, _ in shard] == [written, "non"]


@pytest.mark.parametrize("links", [None, frozenset({(0, 0)})])
def test_links_of_a_change_of_ones_own_are_optional(
    linked_data: DataFolder, links: frozenset[tuple[int, int]] | None
) -> None:
    noise = Noise(linked_data.src_vocab, linked_data.tgt_vocab, 1.0, 99, [lambda pair, *_: replace(pair, links=links)])
    shard = tuple(linked_data.train.joined(side, np.arange(3)) for side in ("src", "tgt", "links"))
    assert (noise(shard, 1)[2][1] > 0).tolist() == 3 * [links is not None]
    assert len(noise(shard[:2], 1)) == 2


def test_subwords_of_linked_words_are_linked_and_tags_stay_in_front(linked_data: DataFolder) -> None:
    vocab, tag = linked_data.src_vocab, linked_data.src_vocab.id_of(">>de<<")
    for src, tgt, links in drawn(linked_data, 1.0, 6):
        assert src[0] == tag
        assert tag not in src[1:]
        words = words_of_ids(src[1:], vocab), words_of_ids(tgt, vocab)
        subwords = {(i, j) for i, j in np.array(links).reshape(-1, 2).tolist()}
        by_word = {(words[0][i - 1], words[1][j]) for i, j in subwords}
        assert subwords == {
            (i, j) for i in range(1, len(src)) for j in range(len(tgt)) if (words[0][i - 1], words[1][j]) in by_word
        }


def test_noise_leaves_fuzzy_matches_alone(tmp_path: Path) -> None:
    (tmp_path / "train.align").write_text("0-0 1-1 2-2 3-3 4-4\n" * len(TRAIN))
    made(options(tmp_path, fuzzy=True, alignments=(tmp_path / "train.align",)))
    data = DataFolder.open(tmp_path / "data")
    rows = [tuple(data.train.src(i).tolist()) for i in range(len(data.train))]
    matches = {row[: row.index(SEPARATOR_ID) + 1] for row in rows if SEPARATOR_ID in row}
    seen = set()
    for src, _, links in drawn(data, 1.0, 6):
        if SEPARATOR_ID in src:
            before = src.index(SEPARATOR_ID) + 1
            seen.add(tuple(src[:before]))
            assert SEPARATOR_ID not in src[before:]
            assert all(place >= before for place in links[::2])
    assert seen
    assert seen <= matches
