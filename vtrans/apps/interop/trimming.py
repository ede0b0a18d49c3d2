"""Trims a model's vocabulary to the subwords that a text needs, without changing how the text is segmented.

A unigram model chooses the segmentation with the highest total score. If its pieces stay, removing other pieces only
removes competitors. The scores of unknown characters and user-defined pieces depend on the lowest and the highest
piece score, so those two pieces stay as well.

BPE repeatedly merges the adjacent pair with the best score. If all intermediate pieces of the text's subwords stay,
each step has fewer candidates, and the best one is still among them. The merges inside a subword do not depend on the
surrounding text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import NamedTuple

import sentencepiece
import torch
from torch import Tensor

from vtrans.apps.interop.comparison import Program
from vtrans.apps.interop.foreign_files import Read
from vtrans.apps.interop.imported import Imported, Sources, shapes_of
from vtrans.data.preparation.writing_systems import script_of
from vtrans.storage.model_file import check_model, needs_code, with_network
from vtrans.storage.tensors import open_tensors
from vtrans.system.errors import FileError, InputError
from vtrans.text.piece_table import SPECIAL_KINDS, is_byte, is_language, pack, split_language
from vtrans.text.spm import BPE, NORMAL, PIECES, field, fields, model_type, piece_of, pieces_of
from vtrans.text.vocabulary import PAD_ID, SPECIAL_PIECES, Vocabulary

_LEAST_LETTERS = 0.001  # minimum share of the text's letters for a script to be kept
_LINES = 10_000  # encoded at a time
_SELF_TEST = 4  # the field `self_test_data` of a SentencePiece model


class Keep(NamedTuple):
    """The text that a trimmed vocabulary must encode, and the subwords that it keeps."""

    lines: Sequence[str]
    """Lines of both languages, whose segmentation must not change."""
    frequent: int
    """How many of each tokenizer's first pieces in the lines' scripts stay in any case."""


def trimmed(imported: Imported, keep: Keep) -> Imported:
    """Returns the model with the subwords that the lines need, the characters of their scripts, special pieces, bytes
    and the most frequent pieces. Raises InputError if all lines are blank, and FileError if the segmentation of a line
    would change."""
    if not any(map(str.strip, keep.lines)):
        raise InputError("`keep_text` must name files with some text, got only blank lines.")
    model, config = imported.model, imported.model.model.config
    src, tgt = model.src_vocab, model.tgt_vocab
    scripts = _scripts(keep.lines)
    sides = [src] if src is tgt else [src, tgt]
    kept = set(model.search.begin).union(*(_needed(vocab, keep, scripts) for vocab in sides))
    smaller = [_with_pieces(vocab, kept) for vocab in sides]
    ids = []  # per side: the old ids of the subwords that stay
    for vocab, old in zip(smaller, sides, strict=True):
        ids.append([old.id_of(vocab.piece(id)) or PAD_ID for id in range(len(vocab))])
        _check(imported.path, vocab, old, ids[-1], keep.lines)
    suppress = tuple(piece for piece in model.search.suppress if smaller[-1].id_of(piece) is not None)
    before = shapes_of(imported.path, config, src, tgt)
    after = shapes_of(imported.path, config, smaller[0], smaller[-1])
    weights = {
        name: read
        if before.get(name) == after.get(name)
        else partial(_rows, read, ids[0 if name.startswith("src") else -1])
        for name, read in model.model.weights.items()
    }
    sizes = [sum(map(prod, shapes.values())) for shapes in (before, after)]
    note = (
        f"kept {len(smaller[-1]):,} of {len(tgt):,} subwords: {sizes[1]:,} of {sizes[0]:,} weights, "
        f"{1 - sizes[1] / sizes[0]:.0%} less"
    )
    lost = ["the shortlist is left out; make another one with `vtrans shortlist`"] if model.shortlist else []
    search = replace(model.search, suppress=suppress)
    model = replace(
        model, model=Sources(config, weights), search=search, shortlist=None,
        src_vocab=smaller[0], tgt_vocab=smaller[-1],
    )  # fmt: skip
    original = imported.original and partial(_limited, imported.original, ids)
    return replace(imported, notes=(*imported.notes, note, *lost), model=model, original=original)


def model_file(path: Path) -> Imported:
    """Returns the model in a model file of vtrans, for trimming. Raises FileError as `checkpoint.load_model` does."""
    with open_tensors(path, "model", "pt") as (file, header):
        model = check_model(path, file, header)
    if model.model.config.is_own:
        raise needs_code(path, model.model.config)

    def read(name: str) -> Tensor:
        with open_tensors(path, "model", "pt") as (file, _):
            tensor: Tensor = file.get_tensor(name)
            return tensor.float()

    sources = Sources(model.model.config, {name: partial(read, name) for name in model.model.layout.shapes})
    return Imported(path, "a model file of vtrans", (), with_network(model, sources))


def _scripts(lines: Sequence[str]) -> set[str]:
    """Returns the scripts of the lines' letters, and of spaces, digits and punctuation, which all scripts use."""
    letters = Counter[str]()
    for line in lines:
        letters.update(line)
    counts = Counter[str]()
    for letter, count in letters.items():
        counts[script_of(letter)] += count * letter.isalpha()
    least = _LEAST_LETTERS * counts.total()
    return {script for script, count in counts.items() if count >= least} | set(map(script_of, "\u25811."))


def _needed(vocab: Vocabulary, keep: Keep, scripts: set[str]) -> set[str]:
    """Returns the pieces of a vocabulary's tokenizer that stay."""
    if not vocab.spm:  # each word is a piece
        return {piece for line in keep.lines for piece in line.split()}
    scores = _ordinary_pieces(vocab.spm)
    written = [piece for piece in scores if piece.isascii() or script_of(piece) in scripts]
    kept = {piece for piece in written if len(piece) == 1} | set(written[: keep.frequent])
    kept |= {min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)}
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=vocab.spm)
    for lines in _portions(keep.lines):
        texts = [split_language(line)[1] for line in lines] if vocab.table and vocab.tags else lines
        for pieces in tokenizer.encode(texts, out_type=str):
            kept.update(pieces)
    if model_type(vocab.spm) == BPE:
        kept.update(*[_merged(piece, scores) for piece in kept])
    others = (tokenizer.id_to_piece(id) for id in range(tokenizer.get_piece_size()))
    return kept | {piece for piece in others if piece not in scores}


def _merged(piece: str, scores: Mapping[str, float]) -> Iterator[str]:
    """Yields the pieces that BPE makes while it merges characters into `piece`."""
    parts = list(piece)
    while pairs := [(scores[a + b], -n) for n, (a, b) in enumerate(pairwise(parts)) if a + b in scores]:
        n = -max(pairs)[1]  # the leftmost pair wins a tie
        parts[n : n + 2] = [parts[n] + parts[n + 1]]
        yield parts[n]


def _with_pieces(vocab: Vocabulary, kept: set[str]) -> Vocabulary:
    """Returns the vocabulary limited to `kept`, special pieces, tags and bytes, in the same order."""
    tokenizer = _spm_with_pieces(vocab.spm, kept)
    if vocab.table is None:
        return Vocabulary(tokenizer)
    places = dict(zip(SPECIAL_KINDS, vocab.table.special, strict=True))
    special = {kind: vocab.pieces[place] for kind, place in places.items() if place is not None}
    stay = kept.union(special.values(), SPECIAL_PIECES)
    pieces = [piece for piece in vocab.pieces if piece in stay or is_language(piece) or is_byte(piece)]
    return Vocabulary(pack(pieces, {kind: pieces.index(piece) for kind, piece in special.items()}, tokenizer))


def _ordinary_pieces(proto: bytes) -> dict[str, float]:
    """Returns the scores of the ordinary pieces (not special, bytes or user-defined), in the model's order."""
    return {text: score for text, score, type in pieces_of(proto) if type == NORMAL}


def _spm_with_pieces(proto: bytes, kept: set[str]) -> bytes:
    """Returns the SentencePiece model without the ordinary pieces that are not `kept`, and without self-test samples,
    which may need them."""
    parts = []
    for number, content in fields(proto):
        if not isinstance(content, bytes):  # a field of an unknown version
            continue
        if number == PIECES:
            text, _, type = piece_of(content)
            if type == NORMAL and text not in kept:
                continue
        if number != _SELF_TEST:
            parts.append(field(number, content))
    return b"".join(parts)


def _check(path: Path, vocab: Vocabulary, old: Vocabulary, old_ids: Sequence[int], lines: Sequence[str]) -> None:
    for some in _portions(lines):
        for line, mine, theirs in zip(some, vocab.encode_batch(some), old.encode_batch(some), strict=True):
            if [old_ids[id] for id in mine] != theirs:
                raise FileError(
                    f"{path} cannot be trimmed, because that would split {line[:80]!r} into other subwords."
                )


def _portions(lines: Sequence[str]) -> Iterator[list[str]]:
    return (list(lines[i : i + _LINES]) for i in range(0, len(lines), _LINES))


def _rows(read: Read, ids: Sequence[int]) -> Tensor:
    return read().index_select(0, torch.tensor(ids))


def _limited(original: Callable[[], Program], ids: Sequence[Sequence[int]]) -> Program:
    """Returns the other program, limited to these source and target subwords."""
    program = original()
    program.limit(ids[0], ids[-1])
    return program
