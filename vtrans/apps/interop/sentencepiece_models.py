"""Changes serialised SentencePiece models, and writes new ones, for other programs (text/spm.py reads them)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vtrans.text.spm import (
    BPE,
    CONTROL,
    NORMAL,
    PIECES,
    UNKNOWN,
    field,
    fields,
    in_spec,
    piece_field,
    piece_of,
    pieces_of,
)

_SELF_TEST = 4  # the field of its samples


def normalization_table(proto: bytes) -> bytes:
    """Returns the precompiled_charsmap (2) of the normalizer_spec (3); empty for a model that does not normalize."""
    return bytes(in_spec(proto, 3, 2, b""))


def ordinary_pieces(proto: bytes) -> dict[str, float]:
    """Returns the score of each piece that is neither special, a byte nor user-defined, in order."""
    return {text: score for text, score, type in pieces_of(proto) if type == NORMAL}


def with_pieces(proto: bytes, kept: Collection[str]) -> bytes:
    """Returns the model with only those ordinary pieces that are `kept`. It has no samples of a self-test, as those
    may have other pieces."""
    parts = []
    for number, content in fields(proto):
        if not isinstance(content, bytes):  # of an unknown version
            continue
        if number == PIECES:
            text, _, type = piece_of(content)
            if type == NORMAL and text not in kept:
                continue
        if number != _SELF_TEST:
            parts.append(field(number, content))
    return b"".join(parts)


def bpe_model(pieces: Sequence[str], table: bytes) -> bytes:
    """Returns a model of BPE with these ordinary pieces, of which the first is merged first, and a
    `normalization_table`."""
    special = [("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL), ("</s>", 0, CONTROL)]
    ordinary = [(piece, -rank, NORMAL) for rank, piece in enumerate(pieces)]
    parts = [piece_field(*piece) for piece in [*special, *ordinary]]
    parts.append(field(2, field(3, BPE)))
    name = b"user_defined" if table else b"identity"
    return b"".join([*parts, field(3, field(1, name) + field(2, table))])
