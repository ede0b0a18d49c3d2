"""Subword vocabularies: SentencePiece models with our special ids, and the vocabularies of imported models.

In our vocabularies `byte_fallback` is always on, so no character is unknown: characters without a piece are encoded as
bytes. Two things are lost: several spaces become one, and U+2581, SentencePiece's mark for the start of a word, becomes
a space. The rule of normalization.py composes characters; SentencePiece's own rules replace more.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal

import sentencepiece

from vtrans.system.errors import FileError, InputError
from vtrans.text.normalization import NFC, source_text
from vtrans.text.piece_table import MAGIC, PieceTable, is_byte, is_language, split_language, unpack
from vtrans.text.spm import BPE, model_type, normalization, user_defined_pieces

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
# The names of SentencePiece models in a data folder.
JOINT_FILE, SRC_FILE, TGT_FILE = "vocab.model", "src.model", "tgt.model"
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
Kind = Literal["bpe", "unigram", "table"]
Formality = Literal["more", "less"]
FORMALITY: dict[Formality, str] = {"more": "<formal>", "less": "<informal>"}
"""Symbols that request a formal or informal address (`Sie` or `du`). One may begin a source, after its tag."""
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")  # categories of control characters, surrogates and spaces


class Vocabulary:
    """A subword vocabulary with our special ids. Two vocabularies are equal if their `digest` is.

    `proto` is a SentencePiece model made by `vtrans prepare-bpe`, or a packed piece table (piece_table.py), where
    pieces that the table lacks are `<unk>`.

    `symbols` are the pieces that the user asked for, such as `<BT>`. Wherever one occurs in a text, it is a single
    subword that normalization does not change, and the text around it is encoded as if it were absent. `tags` are the
    pieces that name a target language. Text becomes a tag only at the start of a line and only with a table; tags are
    never decoded. `pieces` are in the order of the table if there is one, else of the ids. `order[id]` is the index in
    `pieces`, or None if the table lacks the id. Raises FileError, which calls the vocabulary `name`, if `proto` is not
    such a vocabulary or has other special ids.
    """

    def __init__(self, proto: bytes, name: str = "the vocabulary") -> None:
        self.proto = bytes(proto)
        self.digest = hashlib.sha256(self.proto).hexdigest()
        self.table: PieceTable | None = None
        self.symbols: tuple[str, ...] = ()
        self.tags: tuple[str, ...] = ()
        self._model = sentencepiece.SentencePieceProcessor()
        self.spm, self.normalization = self.proto, "none"
        self.kind: Kind = "table"
        try:
            if self.proto.startswith(MAGIC):
                self.table, self.spm = unpack(self.proto)
            if self.spm or self.table is None:
                self._model.LoadFromSerializedProto(self.spm)
                self.normalization = normalization(self.spm) or "none"
            if self.table is None:
                self.kind = "bpe" if model_type(self.spm) == BPE else "unigram"
                self.symbols = user_defined_pieces(self.spm, len(SPECIAL_PIECES))
        except (RuntimeError, ValueError, IndexError):
            raise FileError(f"{name} is not a SentencePiece model; copy the file again, or name another.") from None
        if self.table is None:
            self._pieces = self._model_pieces(name)
            self.pieces = tuple(self._pieces)
            self.tags = tuple(piece for i, piece in enumerate(self.pieces) if i > EOS_ID and self._model.is_control(i))
            self.order: Sequence[int | None] = range(len(self._pieces))
        else:
            self.pieces, self.order = self.table.pieces, self.table.order
            ordinary = [piece for place, piece in enumerate(self.pieces) if place not in self.table.special]
            # An ordinary piece with the name of a special one of ours gets a quote, because pieces must differ.
            shown = [f"{piece}'" if piece in SPECIAL_PIECES else piece for piece in ordinary]
            self._pieces = [*SPECIAL_PIECES, *shown]
            self._known = {piece: i for i, piece in enumerate(ordinary, len(SPECIAL_PIECES))}
            self.tags = tuple(filter(is_language, ordinary))
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        known = set(FORMALITY.values()) <= set(self.symbols)
        self.formality = {name: self.encode(symbol) for name, symbol in FORMALITY.items()} if known else {}
        """The ids of each symbol of FORMALITY if both are in `symbols`, because the model has then learned them."""
        self._tag_ids = frozenset(map(self._ids.__getitem__, self.tags))
        self._is_unknown: dict[str, bool] = {}

    def _model_pieces(self, name: str) -> list[str]:
        pieces = [self._model.id_to_piece(i) for i in range(self._model.get_piece_size())]
        if tuple(pieces[:4]) != SPECIAL_PIECES:
            raise FileError(
                f"the first pieces of {name} must be {', '.join(SPECIAL_PIECES)}, got {', '.join(pieces[:4])}; "
                "make one with `vtrans prepare-bpe`."
            )
        return pieces

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a line, without special ids; [] if nothing is left after normalization.

        Raises InputError for text that is not UTF-8, such as a command-line argument with other bytes.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"{text!r} is not UTF-8; give text in UTF-8.") from None
        (ids,) = self.encode_batch([text])
        return ids

    def encode_batch(self, texts: Sequence[str], *, tags: bool = True) -> list[list[int]]:
        """Returns the ids of each line, as `encode` does. Without `tags`, no text becomes a tag, even with a table."""
        if self.table is None:
            # With a list, SentencePiece starts threads, which takes longer than encoding a line.
            return [self._model.encode(text) for text in texts]
        begun = [split_language(text) if self.tags and tags else ([], text) for text in texts]
        rest = [text for _, text in begun]
        if self.spm:
            pieces: list[list[str]] = self._model.encode(rest, out_type=str, num_threads=1)
        else:
            pieces = [[piece for piece in text.split(" ") if piece] for text in rest]
        return [
            [self._known.get(piece, UNK_ID) for piece in (*language, *line)]
            for (language, _), line in zip(begun, pieces, strict=True)
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of subword ids. Special ids and tags are skipped. Byte pieces may decode to a line end."""
        ids = [i for i in ids if i > EOS_ID and i not in self._tag_ids]
        if self.table is None:
            text: str = self._model.decode(ids)
            return text
        pieces = [self.pieces[place] for i in ids if (place := self.order[i]) is not None]
        if not self.spm:
            return " ".join(pieces)
        decoded: str = self._model.decode_pieces(pieces)
        return decoded.replace("\u2581", " ").strip()

    def piece(self, id: int) -> str:
        """Returns the piece of an id as SentencePiece writes it, with U+2581 before a word."""
        return self._pieces[id]

    def text_of(self, id: int) -> str:
        """Returns the text of a piece, with a space before a word; a byte is written as its piece. Without a
        SentencePiece model, each piece of a table is a word."""
        piece = self._pieces[id]
        return f" {piece}" if self.table is not None and not self.spm else piece.replace("\u2581", " ")

    def id_of(self, piece: str) -> int | None:
        """Returns the id of a piece as `piece` writes it, or None."""
        return self._ids.get(piece)

    def merges(self) -> dict[str, tuple[int, int]]:
        """Returns the (id, rank) of each piece that BPE can produce, single characters included.

        Two neighbours merge if together they are such a piece; the lowest rank merges first.
        """
        assert self.kind == "bpe", "only BPE merges"
        ordinary = (i for i in range(len(self)) if self.is_subword(i) and self.piece(i) not in self.symbols)
        return {self.piece(i): (i, round(-self._model.get_score(i))) for i in ordinary}

    def as_source(self, text: str) -> str:
        """Returns a text as the model reads sources: passed through `source_text` if the rule is NFC."""
        return source_text(text) if self.normalization == NFC else text

    def covers(self, text: str) -> bool:
        """Returns whether a text is encoded without unknown or byte pieces."""
        return all(map(self.is_subword, self.encode_batch([text], tags=False)[0]))

    def unknown(self, text: str) -> set[str]:
        """Returns the visible characters of a text that have no piece."""
        found = set()
        for character in set(text):
            if character not in self._is_unknown:
                is_visible = unicodedata.category(character) not in _INVISIBLE
                self._is_unknown[character] = is_visible and not self.covers(character)
            if self._is_unknown[character]:
                found.add(character)
        return found

    def lacking(self, text: str) -> set[str]:
        """Returns the visible characters of a text that have no piece, not even in lower case."""
        return {character for character in self.unknown(text) if self.unknown(character.lower())}

    def names_language(self, line: str) -> bool:
        """Returns whether a line begins with one of the table's tags, so that steps leave the line unchanged."""
        return self.table is not None and any(tag in self.tags for tag in split_language(line)[0])

    def is_subword(self, id: int) -> bool:
        """Returns whether the id is neither special, nor a tag, nor one of the 256 single-byte pieces."""
        byte = self._model.is_byte(id) if self.table is None else is_byte(self._pieces[id])
        return id > EOS_ID and not byte and id not in self._tag_ids


def words_between_spaces(line: str) -> list[str]:
    """Returns the words of a line which BPE with the rule NFC learns and encodes independently of each other. A line
    with U+2581, which SentencePiece takes for a space, is one word."""
    return [line] if "\u2581" in line else line.split(" ")


def have_one_table(src: Vocabulary, tgt: Vocabulary) -> bool:
    """Returns whether an id means the same piece on both sides, so that one embedding can serve both: there is one
    vocabulary, or two SentencePiece models split text into the pieces of one table."""
    return src is tgt or (src.table is not None and src.table == tgt.table)
