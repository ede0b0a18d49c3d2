"""Vocabularies of other programs: SentencePiece splits the text, a table gives the ids."""

import pytest
import sentencepiece
from foreign import pieces_of, sentencepiece_model

from vtrans.system.errors import FileError
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID, Vocabulary, have_one_table

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
