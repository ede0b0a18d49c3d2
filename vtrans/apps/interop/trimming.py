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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple

import sentencepiece
import torch

from vtrans.data.preparation.overlap import script_of
from vtrans.model.checkpoint import LoadedModel, Unfilled, weights_of
from vtrans.model.network import Transformer, count_parameters
from vtrans.system.errors import InputError
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


def trimmed(loaded: LoadedModel, keep: Keep) -> tuple[LoadedModel, list[str]]:
    """Returns the model without the subwords that `trimmed_vocabularies` removes, and notes for the user. Weights that
    do not depend on the vocabulary are shared with `loaded`."""
    search = loaded.search
    old = loaded.src_vocab, loaded.tgt_vocab
    src, tgt = trimmed_vocabularies(*old, keep, search.begin)
    suppress = tuple(piece for piece in search.suppress if tgt.id_of(piece) is not None)
    smaller = replace(
        loaded, src_vocab=src, tgt_vocab=tgt, search=replace(search, suppress=suppress), shortlist=None
    )  # fmt: skip
    with Unfilled():
        network = Transformer(loaded.model.config, len(src), len(tgt), joint=smaller.joint, pad_id=PAD_ID)
    weights = weights_of(loaded.model)
    for name, weight in weights_of(network).items():
        value = weights[name].detach()
        if value.shape != weight.shape:
            before, after = (old[0], src) if name.startswith("src") else (old[1], tgt)
            rows = [before.id_of(after.piece(id)) or PAD_ID for id in range(len(after))]
            value = value.index_select(0, torch.tensor(rows))
        weight.data = value
    sizes = [count_parameters(each) for each in (network, loaded.model)]
    less = f"{sizes[0]:,} of {sizes[1]:,} weights, {1 - sizes[0] / sizes[1]:.0%} less"
    notes = [f"kept {len(tgt):,} of {len(old[1]):,} subwords: {less}"]
    if loaded.shortlist:
        notes.append("the shortlist is left out; make another one with `vtrans shortlist`")
    return replace(smaller, model=network.eval()), notes


def trimmed_vocabularies(
    src: Vocabulary, tgt: Vocabulary, keep: Keep, others: Sequence[str] = ()
) -> tuple[Vocabulary, Vocabulary]:
    """Returns the vocabularies with the subwords that the lines need, the characters of their scripts, special pieces,
    bytes, the most frequent pieces and `others`. Raises InputError if all lines are blank, or if the segmentation of a
    line would change."""
    if not any(map(str.strip, keep.lines)):
        raise InputError("`keep_text` must name files with some text, got only blank lines.")
    scripts = _scripts(keep.lines)
    sides = [src] if src is tgt else [src, tgt]
    kept = set(others).union(*(_needed(vocab, keep, scripts) for vocab in sides))
    smaller = [_with_pieces(vocab, kept) for vocab in sides]
    for vocab, old in zip(smaller, sides, strict=True):
        for some in _portions(keep.lines):
            for line, mine, theirs in zip(some, vocab.encode_batch(some), old.encode_batch(some), strict=True):
                if list(map(vocab.piece, mine)) != list(map(old.piece, theirs)):
                    raise InputError(
                        f"the model cannot be trimmed, because that would split {line[:80]!r} into other subwords."
                    )
    return smaller[0], smaller[-1]


def _scripts(lines: Sequence[str]) -> set[str]:
    """Returns the scripts of the lines' letters, and of spaces, digits and punctuation, which all scripts use."""
    letters = Counter(chain.from_iterable(lines))
    counts = Counter[str]()
    for letter, count in letters.items():
        counts[script_of(letter)] += count * letter.isalpha()
    least = _LEAST_LETTERS * counts.total()
    return {script for script, count in counts.items() if count >= least} | set(map(script_of, "\u25811."))


def _needed(vocab: Vocabulary, keep: Keep, scripts: set[str]) -> set[str]:
    """Returns the pieces of a vocabulary's tokenizer that stay."""
    if not vocab.spm:  # each word is a piece
        return {piece for line in keep.lines for piece in line.split()}
    scores = {text: score for text, score, type in pieces_of(vocab.spm) if type == NORMAL}
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


def _spm_with_pieces(proto: bytes, kept: set[str]) -> bytes:
    """Returns the SentencePiece model without the ordinary pieces that are not `kept`, and without self-test samples,
    which may need them."""

    def stays(number: int, content: int | bytes) -> bool:
        if number == PIECES and isinstance(content, bytes):
            text, _, type = piece_of(content)
            return type != NORMAL or text in kept
        return number != _SELF_TEST

    return b"".join(field(*each) for each in fields(proto) if stays(*each))


def _portions(lines: Sequence[str]) -> Iterator[list[str]]:
    return (list(lines[i : i + _LINES]) for i in range(0, len(lines), _LINES))
