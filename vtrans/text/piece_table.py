"""Piece tables: the vocabularies of other programs, where SentencePiece splits the text and a list assigns the ids.

The list keeps the other program's order, so that an export can write it back. Our ids number the four special pieces
first, then the other pieces in the list's order. A special piece that the list lacks still has an id.

A packed table is a line that names the format, a line of JSON, and the SentencePiece model. With an empty model, the
text consists of pieces separated by spaces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vtrans.system.errors import FileError

MAGIC = b"vtrans piece table 1\n"
SPECIAL_KINDS = ("pad", "unk", "bos", "eos")  # in the order of our ids
_LANGUAGE = re.compile(r">>.+<<")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which has no UTF-8


@dataclass(frozen=True)
class PieceTable:
    """The pieces of another program, in its order. `special` holds the indices of the padding, unknown, start and end
    pieces, None for a missing one. Raises ValueError for an invalid table."""

    pieces: tuple[str, ...]
    special: tuple[int | None, int | None, int | None, int | None]
    order: tuple[int | None, ...] = field(init=False, compare=False)
    """The index in `pieces` of each of our ids; None for a special piece that the list lacks."""

    def __post_init__(self) -> None:
        taken = [place for place in self.special if place is not None]
        if not all(isinstance(piece, str) and piece and not _SURROGATE.search(piece) for piece in self.pieces):
            raise ValueError("a piece is not a text")
        if len(set(self.pieces)) != len(self.pieces):
            raise ValueError("a piece occurs twice")
        if len(set(taken)) != len(taken) or not all(type(p) is int and 0 <= p < len(self.pieces) for p in taken):
            raise ValueError("its special pieces are not different places of the table")
        rest = (place for place in range(len(self.pieces)) if place not in taken)
        object.__setattr__(self, "order", (*self.special, *rest))


def is_language(piece: str) -> bool:
    """Returns whether a piece is a target-language tag, such as `>>fr<<`."""
    return _LANGUAGE.fullmatch(piece) is not None


def is_byte(piece: str) -> bool:
    """Returns whether a piece is a byte piece of SentencePiece, such as `<0x0A>`."""
    return _BYTE.fullmatch(piece) is not None


def split_language(text: str) -> tuple[list[str], str]:
    """Returns the tag at the start of a line, if any, and the rest: `>>fr<< A dog.` begins with `>>fr<<`."""
    end = text.find("<<")
    return ([text[: end + 2]], text[end + 2 :]) if text.startswith(">>") and end != -1 else ([], text)


def pack(pieces: Sequence[str], special: Mapping[str, int | None], spm: bytes) -> bytes:
    """Returns a packed table, with the index of each of SPECIAL_KINDS in `special`, and its SentencePiece model.

    Raises FileError if the table is invalid.
    """
    head = {"pieces": list(pieces), "special": {kind: special.get(kind) for kind in SPECIAL_KINDS}}
    try:
        packed = MAGIC + json.dumps(head, sort_keys=True, ensure_ascii=False).encode() + b"\n" + spm
        unpack(packed)
    except ValueError as error:
        raise FileError(f"the vocabulary cannot be used: {error}.") from None
    return packed


def unpack(packed: bytes) -> tuple[PieceTable, bytes]:
    """Returns the table and the SentencePiece model of packed bytes. Raises ValueError if they are damaged."""
    line, newline, spm = packed.removeprefix(MAGIC).partition(b"\n")
    if not packed.startswith(MAGIC) or not newline:
        raise ValueError("it is not a piece table")
    try:
        head: Any = json.loads(line)
        pieces, special = head["pieces"], head["special"]
        first, second, third, fourth = (special[kind] for kind in SPECIAL_KINDS)
        if not isinstance(pieces, list):
            raise ValueError("its pieces are not a list")
    except (KeyError, TypeError, RecursionError):
        raise ValueError("it is not a piece table") from None
    return PieceTable(tuple(pieces), (first, second, third, fourth)), spm
