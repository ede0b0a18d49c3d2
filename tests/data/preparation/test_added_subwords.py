"""`prepare-bpe --vocab-add`: a vocabulary gets subwords for characters that it lacks, and encodes all other text as
before."""

import random
from pathlib import Path

import pytest
from corpora import ALL, TRAIN, VALID, Pairs, made, options, refused
from foreign import TARGET_TEXT, TEXT, hugging_face_folder, multilingual_folder
from translators import learned

from vtrans.apps.interop.formats import read_model
from vtrans.data.options import Subword
from vtrans.data.store import DataFolder
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import UNK_ID, Vocabulary, have_one_table

LINES = [line for pair in ALL for line in pair]


def cherokee(text: str) -> str:
    """A text with its letters in a script that no vocabulary here has."""
    return "".join(chr(0x13A0 + 7 * ord(sign) % 85) if sign.isalpha() else sign for sign in text)


def extended(folder: Path, pairs: Pairs, *old: Vocabulary, **values: object) -> DataFolder:
    """The data of pairs whose targets are in the other script, in an extended vocabulary."""
    train, valid = ([(src, cherokee(tgt)) for src, tgt in part] for part in (pairs, pairs[:3]))
    protos = tuple(vocab.proto for vocab in (old[0], old[-1]))
    made(options(folder, train, valid, vocabularies=protos, vocab_add=60, **values))
    return DataFolder.open(folder / "data")


def check(new: Vocabulary, old: Vocabulary, lines: list[str], others: list[str]) -> None:
    """Asserts that `lines` have the same subwords as before, and `others` have no unknown or byte subwords."""
    assert [[*map(new.piece, new.encode(line))] for line in lines] == [
        [*map(old.piece, old.encode(line))] for line in lines
    ]
    for line in others:
        assert new.covers(line)
        assert not old.covers(line)
        assert new.decode(new.encode(line)) == line


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_an_own_vocabulary_learns_a_script(tmp_path: Path, kind: Subword) -> None:
    old = learned(LINES, None, subword=kind, symbols=("<BT>",), tags=(">>de<<",))
    values = {"tags": (">>chr<<",), "src_lang": ("en",), "tgt_lang": ("chr",)}
    data = extended(tmp_path, TRAIN, old, **values)
    new, dice, signs = data.tgt_vocab, random.Random(1), sorted(set("".join(LINES)))
    assert data.joint
    scrambled = ["".join(dice.choices(signs, k=30)) for _ in range(300)]
    check(new, old, [*LINES, *scrambled, "<BT> a dog", "\u0436 \u6771"], [cherokee(tgt) for _, tgt in VALID])
    assert [new.piece(id) for id in range(len(old))] == [old.piece(id) for id in range(len(old))]
    assert 20 < len(new) - len(old) <= 60 + 1
    assert (new.symbols, new.tags, data.tags) == (("<BT>",), (">>de<<", ">>chr<<"), {"chr": ">>chr<<"})
    assert len(new.encode(cherokee("Hund"))) < 4


@pytest.mark.parametrize("separate", [False, True])
def test_the_table_of_an_imported_vocabulary_gets_rows(tmp_path: Path, separate: bool) -> None:
    folder = hugging_face_folder(tmp_path / "hf", separate=separate)
    model = read_model(folder).model
    pairs = list(zip(TEXT[:4], TARGET_TEXT[:4], strict=True))
    data = extended(tmp_path, pairs, model.src_vocab, model.tgt_vocab)
    check(data.tgt_vocab, model.tgt_vocab, TARGET_TEXT[:4], [*map(cherokee, TARGET_TEXT[:4])])
    check(data.src_vocab, model.src_vocab, TEXT[:4], [])
    assert have_one_table(data.src_vocab, data.tgt_vocab) is data.joint is not separate


@pytest.mark.parametrize("m2m100", [False, True])
def test_tags_of_languages_follow_the_new_subwords(tmp_path: Path, m2m100: bool) -> None:
    pytest.importorskip("transformers")
    codes = {"from": "en", "to": "de"} if m2m100 else {"from": "eng_Latn", "to": "deu_Latn"}
    old = read_model(multilingual_folder(tmp_path / "hf", m2m100=m2m100), codes).model.tgt_vocab
    new = extended(tmp_path, list(zip(TEXT[:4], TARGET_TEXT[:4], strict=True)), old).tgt_vocab
    check(new, old, [*TEXT, f">>{codes['to']}<< {TEXT[0]}"], [*map(cherokee, TARGET_TEXT[:4])])
    assert new.tags == old.tags
    assert new.pieces.index(new.tags[0]) == old.pieces.index(old.tags[0]) + len(new) - len(old)
    assert UNK_ID not in new.encode(f">>{codes['to']}<< {cherokee(TARGET_TEXT[0])}")


def test_a_vocabulary_that_cannot_be_extended_is_refused(tmp_path: Path) -> None:
    refused(options(tmp_path, vocab_add=9), "`vocab_add`.*`vocab_from`")
    words = pack(["</s>", "a"], {"eos": 0}, b"")
    refused(options(tmp_path, vocabularies=(words, words), vocab_add=9), "`vocab_add`.*SentencePiece")
