"""Adds subwords to a model's vocabulary, so that the model can learn a script or letters that the vocabulary lacks.

Each new subword has a character that no old subword has. Text without unknown or byte-encoded characters is therefore
encoded as before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import sentencepiece

from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.learn_vocabulary import SizeError, learn
from vtrans.data.preparation.parallel_text import Sample, Split
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.piece_table import SPECIAL_KINDS, is_language, pack, split_language
from vtrans.text.spm import BPE, CONTROL, NORMAL, model_type, piece_field, pieces_of
from vtrans.text.vocabulary import SPECIAL_PIECES, Vocabulary, have_one_table

BYTES = 256  # pieces of bytes, which SentencePiece counts


def with_added(
    vocabularies: tuple[Vocabulary, Vocabulary], split: Split, options: PrepareOptions, console: Console
) -> tuple[Vocabulary, Vocabulary]:
    """Returns the vocabularies with up to `options.vocab_add` more subwords, learned from the training pairs, and with
    any missing tags of the options. A vocabulary shared by both sides stays one object. Raises InputError for a
    vocabulary without a SentencePiece model."""
    src, tgt = vocabularies
    sides = [("both", src)] if src is tgt else [("src", src), ("tgt", tgt)]
    assert options.vocab_add is not None
    scores = []
    for side, vocab in sides:
        if not vocab.spm:
            raise InputError("`vocab_add` needs a vocabulary with a SentencePiece model, but `vocab_from` has none.")
        scores.append(_learned(Sample(split, side, options.sample, lambda pairs: None), vocab, options.vocab_add))
        name = {"both": "vocabulary", "src": "source vocabulary", "tgt": "target vocabulary"}[side]
        console.info(f"{len(scores[-1]):,} subwords are added to the {name}, each with a character that it lacked.")
    tags = [tag for tag in dict.fromkeys(options.tags) if tag not in src.tags]
    one_table, union = have_one_table(src, tgt), list(dict.fromkeys(itertools.chain(*scores)))
    made = []
    for (side, vocab), added in zip(sides, scores, strict=True):
        rows = union if one_table else list(added)
        made.append(_extended(vocab, added, rows, tags if one_table or side == "src" else []))
    return made[0], made[-1]


def _learned(sentences: Iterable[str], vocab: Vocabulary, number: int) -> dict[str, float]:
    """Returns up to `number` new subwords with their scores. Single characters come first, the most frequent first."""
    known = set("".join(vocab.piece(id) for id in range(len(vocab)) if vocab.is_subword(id)))
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocab.spm)
    lines = []
    for sentence in sentences:
        text = split_language(sentence)[1] if vocab.table and vocab.tags else sentence
        words = processor.normalize(text).split("\u2581")
        if lacking := [word for word in words if not known.issuperset(word)]:
            lines.append(" ".join(lacking))
    if not lines:
        return {}
    is_bpe = model_type(vocab.spm) == BPE
    how = PrepareOptions(subword="bpe" if is_bpe else "unigram", normalization="identity")
    size = len(SPECIAL_PIECES) + BYTES + number + len(known.intersection("".join(lines)))
    try:
        learned = learn(lines, size, how)
    except SizeError as error:
        learned = learn(lines, error.nearest, how)
    ordinary = [(piece, score) for piece, score, type in pieces_of(learned.spm) if type == NORMAL]
    found = [item for item in ordinary if not known.issuperset(item[0])]
    found.sort(key=lambda item: len(item[0]) > 1)
    scores = [score for _, score, type in pieces_of(vocab.spm) if type == NORMAL]
    if is_bpe:  # merge after all others
        return {piece: min(scores) - rank for rank, (piece, _) in enumerate(found[:number], 1)}
    # Capped, because the highest score of a piece determines the score of user-defined symbols.
    return {piece: min(score, max(scores)) for piece, score in found[:number]}


def _extended(vocab: Vocabulary, scores: Mapping[str, float], rows: Sequence[str], tags: Sequence[str]) -> Vocabulary:
    """Returns a vocabulary with more subwords and tags. `rows` are the new subwords of its table, if it has one."""
    known = {piece for piece, _, _ in pieces_of(vocab.spm)}
    added = [piece_field(piece, score) for piece, score in scores.items() if piece not in known]
    if vocab.table is None:
        return Vocabulary(b"".join([vocab.spm, *added, *(piece_field(tag, 0, CONTROL) for tag in tags)]))
    pieces, there = vocab.pieces, set(vocab.pieces)
    new = [row for row in rows if row not in there]
    # M2M100 has its languages after all subwords.
    at = next((place for place, piece in enumerate(pieces) if is_language(piece)), len(pieces))
    places = zip(SPECIAL_KINDS, vocab.table.special, strict=True)
    special = {kind: place + len(new) if place is not None and place >= at else place for kind, place in places}
    return Vocabulary(pack([*pieces[:at], *new, *pieces[at:], *tags], special, b"".join([vocab.spm, *added])))
