"""Vocabularies of a small text, in which no character is unknown, and of other programs, whose ids a table gives."""

import io
from typing import Any, get_args

import pytest
import sentencepiece
from foreign import pieces_of, sentencepiece_model
from hypothesis import example, given
from hypothesis import strategies as st
from translators import learned

from vtrans.data.options import Subword
from vtrans.data.preparation.learn_vocabulary import SizeError
from vtrans.data.preparation.overlap import overlap, subword_counts
from vtrans.system.errors import FileError
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    SPECIAL_PIECES,
    UNK_ID,
    Vocabulary,
    have_one_table,
    words_between_spaces,
)

NOUNS = ("dog", "cat", "horse", "bird", "Hund", "Katze", "Pferd", "Vogel", "garden", "Garten")
VERBS = ("sees", "hears", "finds", "sieht", "hört", "findet")
TEXT = [f"{a} {v} {b}." for a in NOUNS for v in VERBS for b in NOUNS]
KINDS: tuple[Subword, ...] = ("bpe", "unigram")


def small(size: int | None = 320, kind: Subword = "bpe", text: list[str] = TEXT, **settings: Any) -> Vocabulary:
    return learned(text, size, subword=kind, **settings)


VOCABULARY = small()
UNNORMALISED = [small(None, kind, normalization="identity") for kind in KINDS]


@given(st.text(st.characters(codec="utf-8")), st.sampled_from(UNNORMALISED))
@example("Łódź 東京 costs 5€ 🙂", UNNORMALISED[1])
def test_any_text_survives_but_for_spaces(text: str, vocabulary: Vocabulary) -> None:
    ids = vocabulary.encode(text)
    assert all(EOS_ID < i < len(vocabulary) for i in ids), "no character is unknown"
    # U+2581 is SentencePiece's own mark for a space.
    words = [word for word in text.replace("\u2581", " ").split(" ") if word]
    assert vocabulary.decode(ids) == " ".join(words)


@pytest.mark.parametrize("text", ["</s>", "<s> <pad> <unk>", "<0x41>", "a\0b", "\u2585", "a\nb"])
def test_text_that_looks_like_a_special_piece_is_ordinary_text(text: str) -> None:
    ids = VOCABULARY.encode(text)
    assert min(ids) > EOS_ID
    assert VOCABULARY.decode(ids) == text.replace("\n", " ")


def test_special_ids_are_fixed_and_not_decoded() -> None:
    assert [VOCABULARY.piece(i) for i in (PAD_ID, UNK_ID, BOS_ID, EOS_ID)] == ["<pad>", "<unk>", "<s>", "</s>"]
    ids = VOCABULARY.encode("dog sees Hund.")
    assert VOCABULARY.decode([BOS_ID, *ids[:2], UNK_ID, *ids[2:], EOS_ID, PAD_ID]) == "dog sees Hund."
    assert VOCABULARY.decode([]) == ""
    assert VOCABULARY.encode("") == VOCABULARY.encode("   ") == []


HOSTILE = (
    "dog",
    "Hund.",
    " ",
    "  ",
    "\u2581",
    "\t",
    "e\u0301",
    "\u0301",
    "\u0663\u0664",
    "\u2585",
    "\u200b",
    "\uffff",
    "<BT>",
)
TAGGED = small(symbols=("<BT>",))


@given(st.lists(st.sampled_from(HOSTILE)).map("".join))
def test_words_are_encoded_independently(line: str) -> None:
    assert [id for word in words_between_spaces(line) for id in TAGGED.encode(word)] == TAGGED.encode(line)


def test_the_same_is_learned_from_words_and_from_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    text = [*TEXT, *(f"{a}{b}{c} {a}" for a in HOSTILE for b in HOSTILE for c in HOSTILE)]
    from_words = small(text=text, symbols=("<BT>",))
    monkeypatch.setattr("vtrans.data.preparation.learn_vocabulary.words_between_spaces", lambda line: [line])
    assert small(text=text, symbols=("<BT>",)).proto == from_words.proto


def test_a_tag_may_be_a_number() -> None:
    assert learned(TEXT, 320, tags=("1",)).tags == ("1",)  # though the numbers of the words are digits as well


SYMBOLS = ("<BT>", '@"x,y@', "ﬁx")  # CSV would split the second; NFKC would change the third


@pytest.mark.parametrize("kind", KINDS)
def test_a_symbol_is_one_subword_anywhere(kind: Subword) -> None:
    plain = small(290, kind)
    tagged = learned(TEXT, 290 + len(SYMBOLS), subword=kind, symbols=SYMBOLS)
    assert (plain.symbols, tagged.symbols) == ((), SYMBOLS)
    assert len(tagged) == 290 + len(SYMBOLS)  # the symbols displace no subwords
    assert [tagged.piece(EOS_ID + 1 + i) for i in range(len(SYMBOLS))] == list(SYMBOLS)
    for place, symbol in enumerate(SYMBOLS, EOS_ID + 1):
        for text in ("{} dog sees", "dog {} sees", "dog {}", "dog{}sees", "{}{} dog", "{}", "({})"):
            written = text.replace("{}", symbol)
            ids = tagged.encode(written)
            assert ids.count(place) == text.count("{}")
            assert tagged.decode(ids) == written
        assert plain.encode(symbol) != tagged.encode(symbol)
    # Other text is encoded as without them.
    for text in (*TEXT[::50], "<bt> <B T> BT> 5€"):
        assert [tagged.piece(i) for i in tagged.encode(text)] == [plain.piece(i) for i in plain.encode(text)]
    counts = [1] * len(tagged)
    assert not set(subword_counts(tagged, counts)) & set(SYMBOLS)
    assert set(subword_counts(tagged, counts)) == set(subword_counts(plain, counts[: len(plain)]))


@pytest.mark.parametrize("kind", KINDS)
def test_equal_text_gives_equal_bytes(kind: Subword) -> None:
    assert small(None, kind).proto == small(None, kind).proto
    assert small(None, kind, TEXT[::2]).proto != small(None, kind).proto


@pytest.mark.parametrize("name", ["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "identity"])
def test_the_normalization_is_read_from_the_model(name: str) -> None:
    vocabulary = small(normalization=name)
    assert vocabulary.normalization == name
    fullwidth = vocabulary.decode(vocabulary.encode("Ｄog ﬁnds"))
    expected = {"identity": "Ｄog ﬁnds", "nmt_nfkc_cf": "dog finds"}.get(name, "Dog finds")
    assert fullwidth == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [5, 280, 100_000])
def test_an_impossible_size_is_refused_with_the_nearest_that_works(kind: Subword, size: int) -> None:
    with pytest.raises(SizeError, match=f"`vocab_size` .* {size};") as caught:
        small(size, kind)
    nearest = caught.value.nearest
    assert (nearest > size) is (size < 300)
    assert len(small(nearest, kind)) == nearest
    beyond = nearest + (1 if size > nearest else -1)
    with pytest.raises(SizeError, match=f" {nearest} .* {beyond};"):
        small(beyond, kind)


def test_uncovered_characters_are_encoded_as_bytes() -> None:
    text = ["ab ba " * 2000 + "ж"]
    rare, full = (small(None, text=text, character_coverage=coverage) for coverage in (0.999, 1.0))
    assert len(full.encode("ж")) < len(rare.encode("ж"))
    assert rare.decode(rare.encode("ж")) == full.decode(full.encode("ж")) == "ж"


def test_no_sentence_is_skipped_silently() -> None:
    """By default, SentencePiece skips sentences of more than 4192 bytes or with U+2585."""
    odd = ["z" + "q" * 5000, "xyz \u2585"]
    pieces = {VOCABULARY.piece(i) for i in range(len(VOCABULARY))}
    assert not pieces & {"q", "x"}
    vocabulary = small(None, text=[*TEXT, *odd])
    pieces = {vocabulary.piece(i) for i in range(len(vocabulary))}
    assert {"q", "x", "y"} <= pieces


@pytest.mark.parametrize("kind", get_args(Subword))
@pytest.mark.parametrize("zero", "0٠۰०০๐០０")
def test_each_digit_of_any_script_is_a_subword(zero: str, kind: Subword) -> None:
    digits = {ord(digit): ord(zero) + int(digit) for digit in "0123456789"}
    text = [f"year{number} 199{number % 10} 2,0{number}".translate(digits) for number in range(2000)]
    vocab = learned(text, split_digits=True, subword=kind)
    pieces = [vocab.text_of(i).strip() for i in range(len(vocab)) if vocab.is_subword(i)]
    assert max(sum(map(str.isdecimal, piece)) for piece in pieces) == 1
    assert all(len(piece) == 1 for piece in pieces if any(map(str.isdecimal, piece)))
    assert [vocab.decode(vocab.encode(line)) for line in text] == text


def test_foreign_and_damaged_models_are_refused() -> None:
    for proto in (b"", b"\0", b"a dog", VOCABULARY.proto[:1000], VOCABULARY.proto[:-7], b"\xff" * 100):
        with pytest.raises(FileError, match=r"^x\.model "):
            Vocabulary(proto, "x.model")
    foreign = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=foreign, vocab_size=40, minloglevel=2
    )
    with pytest.raises(FileError, match=r"x\.model .*<pad>, <unk>, <s>, </s>, got <unk>, <s>, </s>"):
        Vocabulary(foreign.getvalue(), "x.model")


def test_overlap_by_hand() -> None:
    src = {"a": 40, "b": 5, "c": 1, "d": 100, "e": 4}
    tgt = {"a": 20, "b": 4, "c": 2, "f": 24}
    # Types on both sides: a, b, c. Types on either side: a to f. Running tokens: 150 + 50.
    assert [tuple(row.values()) for row in overlap(src, tgt)] == [
        (1, 5, 4, 3, 6, 3 / 6, 150, 50, 46 / 150, 26 / 50, (60 + 9 + 3) / 200),
        (5, 3, 2, 1, 4, 1 / 4, 150, 50, 40 / 150, 20 / 50, 60 / 200),  # b: 5 times on one side, 4 on the other
        (20, 2, 2, 1, 3, 1 / 3, 150, 50, 40 / 150, 20 / 50, 60 / 200),
    ]
    assert [sum(row.values()) for row in overlap({}, {})] == [1, 5, 20]


SOURCE, TARGET = (
    sentencepiece_model(text * 5, 30)
    for text in (["a dog sees a cat", "the cat runs"], ["ein Hund sieht", "die Katze rennt"])
)
PIECES = [
    "</s>",
    "<unk>",
    *dict.fromkeys((*pieces_of(SOURCE)[:-4], ">>de<<", *pieces_of(TARGET), "▁zz", "<s>")),
    "<pad>",
]
SPECIAL = {"unk": 1, "eos": 0, "bos": len(PIECES) - 1}
SRC, TGT = (Vocabulary(pack(PIECES, SPECIAL, spm)) for spm in (SOURCE, TARGET))


def test_ids_are_the_special_ones_and_then_the_order_of_the_table() -> None:
    order = SRC.table.order if SRC.table else ()
    assert len(SRC) == len(PIECES) + 1  # the table has no padding
    assert order[:4] == (None, 1, len(PIECES) - 1, 0)
    assert list(order[4:]) == list(range(2, len(PIECES) - 1))
    assert [SRC.piece(i) for i in range(4)] == list(SPECIAL_PIECES)
    assert len({SRC.piece(i) for i in range(len(SRC))}) == len(SRC)
    for piece in (PIECES[2], "▁zz", ">>de<<"):
        id = SRC.id_of(piece)
        assert id is not None
        assert (SRC.piece(id), PIECES[order[id] or 0]) == (piece, piece)
    assert [SRC.id_of(piece) for piece in SPECIAL_PIECES] == [PAD_ID, UNK_ID, BOS_ID, EOS_ID]
    assert SRC.id_of("no such piece") is None


def test_pieces_of_the_text_are_looked_up_and_missing_ones_are_unknown() -> None:
    text = "a dog sees the cat"
    model = sentencepiece.SentencePieceProcessor()
    model.LoadFromSerializedProto(SOURCE)
    pieces = model.encode(text, out_type=str)
    ids = SRC.encode(text)
    assert [SRC.piece(i) if i != UNK_ID else None for i in ids] == [p if p in PIECES else None for p in pieces]
    assert SRC.encode_batch([text, "", text]) == [ids, [], ids]
    assert set(SRC.encode("東")) <= {UNK_ID, SRC.id_of("▁")}


def test_each_side_has_its_own_model_over_one_table() -> None:
    assert have_one_table(SRC, TGT)
    assert SRC.digest != TGT.digest
    assert SRC.encode("rennt rennt") != TGT.encode("rennt rennt")
    assert TGT.decode(TGT.encode("die Katze sieht")) == "die Katze sieht"
    other = Vocabulary(pack([*PIECES, "more"], SPECIAL, TARGET))
    assert not have_one_table(SRC, other)


def test_a_language_prefix_is_one_piece_before_the_text() -> None:
    language = SRC.id_of(">>de<<")
    assert SRC.encode(">>de<< a dog") == [language, *SRC.encode(" a dog")]
    assert SRC.encode("a >>de<< dog")[0] != language
    assert SRC.encode(">>xx<< a dog") == [UNK_ID, *SRC.encode("a dog")]
    without = Vocabulary(pack([piece for piece in PIECES if piece != ">>de<<"], {"unk": 1, "eos": 0}, SOURCE))
    assert without.encode(">>de<< a")[0] != UNK_ID or len(without.encode(">>de<< a")) > 2


@pytest.mark.parametrize(
    ("pieces", "special"),
    [
        (["a", "a"], {}),
        (["a", ""], {}),
        (["a", "\ud800"], {}),
        (["a", "b"], {"eos": 2}),
        (["a", "b"], {"eos": -1}),
        (["a", "b"], {"eos": 1, "unk": 1}),
        (["a", "b"], {"eos": True}),
    ],
)
def test_a_table_that_is_not_sound_is_refused(pieces: list[str], special: dict[str, int | None]) -> None:
    with pytest.raises(FileError):
        pack(pieces, special, b"")
