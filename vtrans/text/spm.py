"""Serialised SentencePiece models: settings and pieces that SentencePiece exposes only with the protobuf package.

Field numbers, here in parentheses, come from SentencePiece's `sentencepiece_model.proto`.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

BPE = 2
"""The `model_type` of BPE; 1 is unigram."""
PIECES = 1
"""The field number of pieces."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
"""The types of pieces."""


def model_type(proto: bytes) -> int:
    """Returns the model_type (3) of the trainer_spec (2)."""
    return int(in_spec(proto, 2, 3, 1))


def normalization(proto: bytes) -> str:
    """Returns the name (1) of the normalization rule in the normalizer_spec (3)."""
    return bytes(in_spec(proto, 3, 1, b"")).decode()


def with_normalization(proto: bytes, name: str) -> bytes:
    """Returns a model with `name` as its normalization rule. Leaves out the file name (6) that the rule came from, and
    the input_format (7) of the trainer_spec (2)."""
    parts = []
    for number, value in fields(proto):
        if number == 2 and isinstance(value, bytes):
            value = value.replace(field(7, b"tsv"), b"", 1)
        if number == 3 and isinstance(value, bytes):
            spec = ((n, name.encode() if n == 1 else content) for n, content in fields(value) if n != 6)
            value = b"".join(itertools.starmap(field, spec))
        parts.append(field(number, value))
    return b"".join(parts)


def in_spec(proto: bytes, message: int, field: int, default: int | bytes) -> int | bytes:
    """Returns a field of a message of the model, or `default`. Raises ValueError if the message is missing."""
    for number, value in fields(proto):
        if number == message and isinstance(value, bytes):
            return next((content for n, content in fields(value) if n == field), default)
    raise ValueError("no such message")


def user_defined_pieces(proto: bytes, first: int) -> tuple[str, ...]:
    """Returns the user-defined pieces, which follow the `first` special pieces together with control pieces."""
    rest = itertools.islice(pieces_of(proto), first, None)
    added = itertools.takewhile(lambda piece: piece[2] in (USER_DEFINED, CONTROL), rest)
    return tuple(text for text, _, type in added if type == USER_DEFINED)


def pieces_of(proto: bytes) -> Iterator[tuple[str, float, int]]:
    """Yields the text, the score and the type of each piece."""
    return (piece_of(value) for field, value in fields(proto) if field == PIECES and isinstance(value, bytes))


def piece_of(message: bytes) -> tuple[str, float, int]:
    """Returns the text (1), score (2) and type (3) of a piece. Raises ValueError if the message is damaged."""
    values: dict[int, Any] = dict(fields(message))
    text, score = values.get(1), values.get(2, bytes(4))
    if not isinstance(text, bytes) or not isinstance(score, bytes) or len(score) != 4:
        raise ValueError("a piece has no text, or no number as its score")
    return text.decode(), *struct.unpack("<f", score), values.get(3, NORMAL)


def piece_field(text: str, score: float, type: int = NORMAL) -> bytes:
    """Returns a piece as a field, which may be appended to a serialised model."""
    content = field(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + field(3, type)
    return field(PIECES, content)


def field(number: int, value: int | bytes) -> bytes:
    """Returns a serialised field, as `fields` reads it."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(number: int) -> bytes:
    """Returns an integer as a protobuf varint."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the number and value (bytes or an integer) of each field of a protobuf message, in order.

    Raises ValueError or IndexError for damaged bytes. Format: https://protobuf.dev/programming-guides/encoding/
    """

    def number_at(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value, at

    at = 0
    while at < len(message):
        key, at = number_at(at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = number_at(at)
            yield number, value
            continue
        if wire == 2:
            length, at = number_at(at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + length > len(message):
            raise ValueError("truncated")
        yield number, message[at : at + length]
        at += length
