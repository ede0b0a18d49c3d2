"""Serialised SentencePiece models: settings and pieces that SentencePiece itself shows only with the protobuf package.

The numbers of fields are those of SentencePiece's `sentencepiece_model.proto`.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Any

BPE = 2
"""The `model_type` of BPE; 1 is unigram."""
_PIECES, _SELF_TEST = 1, 4
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4


def model_type(proto: bytes) -> int:
    """Returns the model_type (3) of the trainer_spec (2)."""
    return int(_in_spec(proto, 2, 3, 1))


def normalization(proto: bytes) -> str:
    """Returns the name (1) of the rule in the normalizer_spec (3)."""
    return bytes(_in_spec(proto, 3, 1, b"")).decode()


def normalization_table(proto: bytes) -> bytes:
    """Returns the precompiled_charsmap (2) of the normalizer_spec (3); empty for a model that does not normalize."""
    return bytes(_in_spec(proto, 3, 2, b""))


def _in_spec(proto: bytes, message: int, field: int, default: int | bytes) -> int | bytes:
    for number, value in fields(proto):
        if number == message and isinstance(value, bytes):
            return next((content for n, content in fields(value) if n == field), default)
    raise ValueError("no such message")


def added_pieces(proto: bytes, first: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the user-defined pieces and the control pieces, which follow the `first` special ones."""
    texts: dict[int, list[str]] = {_USER_DEFINED: [], _CONTROL: []}
    for text, _, type in itertools.islice(_pieces(proto), first, None):
        if type not in texts:
            break
        texts[type].append(text)
    return tuple(texts[_USER_DEFINED]), tuple(texts[_CONTROL])


def ordinary_pieces(proto: bytes) -> dict[str, float]:
    """Returns the score of each piece that is neither special, a byte nor user-defined, in order."""
    return {text: score for text, score, type in _pieces(proto) if type == _NORMAL}


def with_pieces(proto: bytes, kept: Collection[str]) -> bytes:
    """Returns the model with only those ordinary pieces that are `kept`. It has no samples of a self-test, as those
    may have other pieces."""
    parts = []
    for number, content in fields(proto):
        if not isinstance(content, bytes):  # of an unknown version
            continue
        if number == _PIECES:
            text, _, type = _piece(content)
            if type == _NORMAL and text not in kept:
                continue
        if number != _SELF_TEST:
            parts.append(_field(number, content))
    return b"".join(parts)


def bpe_model(pieces: Sequence[str], table: bytes) -> bytes:
    """Returns a model of BPE with these ordinary pieces, of which the first is merged first, and a
    `normalization_table`."""
    special = [("<unk>", 0, _UNKNOWN), ("<s>", 0, _CONTROL), ("</s>", 0, _CONTROL)]
    ordinary = [(piece, -rank, _NORMAL) for rank, piece in enumerate(pieces)]
    messages = [
        _field(1, text.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", score) + _varint(3 << 3) + _varint(type)
        for text, score, type in [*special, *ordinary]
    ]
    parts = [_field(_PIECES, message) for message in messages]
    parts.append(_field(2, _varint(3 << 3) + _varint(BPE)))
    name = b"user_defined" if table else b"identity"
    return b"".join([*parts, _field(3, _field(1, name) + _field(2, table))])


def _pieces(proto: bytes) -> Iterator[tuple[str, float, int]]:
    return (_piece(value) for field, value in fields(proto) if field == _PIECES and isinstance(value, bytes))


def _piece(message: bytes) -> tuple[str, float, int]:
    """Returns the piece (1), the score (2) and the type (3) of a message."""
    values: dict[int, Any] = dict(fields(message))
    text, score = values.get(1), values.get(2, bytes(4))
    if not isinstance(text, bytes) or not isinstance(score, bytes) or len(score) != 4:
        raise ValueError("a piece has no text, or no number as its score")
    return text.decode(), *struct.unpack("<f", score), values.get(3, _NORMAL)


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the number and value (bytes or an integer) of each field of a protobuf message, in order.

    The wire format: https://protobuf.dev/programming-guides/encoding/
    """

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value, at

    at = 0
    while at < len(message):
        key, at = varint(at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(at)
            yield number, value
            continue
        if wire == 2:
            length, at = varint(at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + length > len(message):
            raise ValueError("truncated")
        yield number, message[at : at + length]
        at += length


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Returns an integer as `fields` reads it."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
