"""Embeddings and the projection read as similarity: which rows of E are like a word's, and which are like what
the decoder puts out at each step of a translation.

The logits h E^T are dot products of the decoder's output with the rows of E (Inan et al. 2017, section 3; Press
and Wolf 2017, section 2): a tied projection chooses the subword whose embedding is most like h.

Legend: V vocabulary, D model width, N steps of a translation, EOS counted, n words' subwords.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vtrans.checkpoint import LoadedModel
from vtrans.config import NEAREST, NEAREST_OF_STEP
from vtrans.console import Console
from vtrans.data.vocabulary import Vocabulary
from vtrans.decoding.forced import forced_batches, hidden
from vtrans.decoding.translator import Translator
from vtrans.errors import InputError


@dataclass(frozen=True)
class Row:
    """A row of a matrix and how like it is to the vector in question."""

    id: int
    piece: str
    dot: float
    cosine: float


@dataclass(frozen=True)
class Near:
    """The rows of one matrix that are most like that of a subword, by cosine, itself left out."""

    places: tuple[str, ...]  # where the model uses the matrix
    id: int
    piece: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Step:
    """One step of a translation: what was chosen, the rank of its row among all by likeness to the decoder's
    output, 1 the most like one, and the most like ones by dot product, which are the logits, and by cosine."""

    chosen: Row
    logprob: float
    rank_by_dot: int
    rank_by_cosine: int
    by_dot: tuple[Row, ...]
    by_cosine: tuple[Row, ...]


def embeddings(loaded: LoadedModel) -> list[tuple[tuple[str, ...], Tensor, Vocabulary]]:
    """The matrices [V, D] with a row for each subword, each one once, with all the places that use it."""
    model = loaded.model
    places: dict[int, list[str]] = {}
    weights: dict[int, tuple[Tensor, Vocabulary]] = {}
    for name, weight, vocab in (
        ("src_embedding", model.src_embedding.weight, loaded.src_vocab),
        ("tgt_embedding", model.tgt_embedding.weight, loaded.tgt_vocab),
        ("projection", model.projection.weight, loaded.tgt_vocab),
    ):
        places.setdefault(id(weight), []).append(name)
        weights.setdefault(id(weight), (weight.detach(), vocab))
    return [(tuple(names), *weights[key]) for key, names in places.items()]


def neighbours(loaded: LoadedModel, word: str, count: int = NEAREST) -> list[Near]:
    """For each matrix and each subword of the word, the `count` nearest rows. InputError for a blank word."""
    if not word.strip():
        raise InputError("--word must be a word, but is blank.")
    found = []
    for places, weight_VD, vocab in embeddings(loaded):
        unit_VD = F.normalize(weight_VD, dim=-1)
        for token in vocab.encode(word):
            dots_V, cosines_V = weight_VD @ weight_VD[token], unit_VD @ unit_VD[token]
            order = [i for i in cosines_V.topk(min(count + 1, len(vocab))).indices.tolist() if i != token][:count]
            found.append(Near(places, token, vocab.piece(token), _rows(order, dots_V, cosines_V, vocab)))
    return found


def steps(translator: Translator, sentence: str, count: int = NEAREST_OF_STEP) -> tuple[str, list[Step]]:
    """The translation of the sentence, and its steps. InputError for a sentence that is blank, or so long that
    it would be translated in pieces."""
    source = translator.one_piece(sentence)
    ((best,),) = translator.translate_window([sentence])
    model, vocab = translator.models[0].model, translator.tgt_vocab
    found = []
    with torch.inference_mode():
        (batch,) = forced_batches([(source, best.tokens)], 1, model.device)
        h_ND = hidden(model, batch)
        logits_NV = model.logits(h_ND).float().cpu()
        cosines_NV = (F.normalize(h_ND, dim=-1) @ F.normalize(model.projection.weight, dim=-1).T).float().cpu()
        cosines_NV[:, model.pad_id] = -torch.inf  # as its logit, which no training has seen
        logprobs_NV = logits_NV.log_softmax(-1)
    for token, dots_V, cosines_V, logprobs_V in zip(best.tokens, logits_NV, cosines_NV, logprobs_NV, strict=True):
        ranks = [int((values_V > values_V[token]).sum()) + 1 for values_V in (dots_V, cosines_V)]
        nearest = [
            _rows(values_V.topk(min(count, len(vocab) - 1)).indices.tolist(), dots_V, cosines_V, vocab)
            for values_V in (dots_V, cosines_V)
        ]
        (chosen,) = _rows([token], dots_V, cosines_V, vocab)
        found.append(Step(chosen, float(logprobs_V[token]), ranks[0], ranks[1], nearest[0], nearest[1]))
    return best.text, found


def _rows(ids: Sequence[int], dots_V: Tensor, cosines_V: Tensor, vocab: Vocabulary) -> tuple[Row, ...]:
    return tuple(Row(i, vocab.piece(i), float(dots_V[i]), float(cosines_V[i])) for i in ids)


def show_neighbours(found: Sequence[Near], console: Console) -> None:
    for near in found:
        console.table(
            f"{near.piece}  (row {near.id:,} of {' = '.join(near.places)})",
            [(f"{row.cosine:.3f}", f"{row.dot:.3f}", row.piece) for row in near.rows],
            header=("cosine", "dot", "row"),
        )


def show_steps(translation: str, found: Sequence[Step], console: Console) -> None:
    console.info(translation)
    console.table(
        "each step: what was chosen, how like its row is to the decoder's output (and its rank), and the rows most "
        "like it",
        [
            (
                str(number),
                step.chosen.piece,
                f"{math.exp(step.logprob):.2f}",
                f"{step.chosen.dot:.1f} ({step.rank_by_dot:,})",
                f"{step.chosen.cosine:.2f} ({step.rank_by_cosine:,})",
                "  ".join(f"{row.piece} {row.dot:.1f}" for row in step.by_dot),
                "  ".join(f"{row.piece} {row.cosine:.2f}" for row in step.by_cosine),
            )
            for number, step in enumerate(found, 1)
        ],
        header=("step", "chosen", "p", "dot (rank)", "cosine (rank)", "most by dot product", "most by cosine"),
    )
