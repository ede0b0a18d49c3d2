"""Finds the rows of E that are similar to a word's rows, or to the decoder's output at each step of a translation.

The logits h E^T are dot products of the decoder's output h with the rows of E (Inan et al. 2017, section 3; Press and
Wolf 2017, section 2): a tied projection prefers the subword whose embedding is most similar to h.

Legend: V vocabulary, D model width, N steps of a translation including EOS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from vtrans.apps.analysis.attention_map import one_piece
from vtrans.config import NEAREST, NEAREST_OF_STEP
from vtrans.engines.forced import forced_batches
from vtrans.model.checkpoint import LoadedModel
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.vocabulary import Vocabulary
from vtrans.translate.steps.line import Line
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator


@dataclass(frozen=True)
class Row:
    """A row of a matrix and its similarity to a vector."""

    id: int
    piece: str
    dot: float
    cosine: float


@dataclass(frozen=True)
class Neighbours:
    """The rows of one matrix with the largest cosine to the row of a subword, excluding that row."""

    places: tuple[str, ...]  # where the model uses the matrix
    id: int
    piece: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Step:
    """One step of a translation: the subword that was chosen, and the rows most similar to the decoder's output.

    The dot products are the logits. A rank is the place of the chosen row among all rows; 1 is the most similar.
    """

    chosen: Row
    logprob: float
    rank_by_dot: int
    rank_by_cosine: int
    by_dot: tuple[Row, ...]
    by_cosine: tuple[Row, ...]


def neighbours(loaded: LoadedModel, word: str, count: int = NEAREST) -> list[Neighbours]:
    """Returns the `count` nearest rows by cosine, per matrix and subword of the word.

    The matrices are the embeddings and the projection; a shared matrix is listed once. Raises InputError for a blank
    word.
    """
    if not word.strip():
        raise InputError("`word` must not be blank.")
    uses = (("src_embedding", loaded.src_vocab), ("tgt_embedding", loaded.tgt_vocab), ("projection", loaded.tgt_vocab))
    matrices: dict[Tensor, tuple[Vocabulary, list[str]]] = {}
    for name, vocab in uses:
        matrices.setdefault(getattr(loaded.model, name).weight, (vocab, []))[1].append(name)
    neighbours = []
    for weight, (vocab, places) in matrices.items():
        weight_VD, unit_VD = weight.detach(), F.normalize(weight.detach(), dim=-1)
        for token in vocab.encode(word):
            dots_V, cosines_V = weight_VD @ weight_VD[token], unit_VD @ unit_VD[token]
            nearest = [i for i in _largest(cosines_V, count + 1) if i != token][:count]
            rows = _rows(nearest, dots_V, cosines_V, vocab)
            neighbours.append(Neighbours(tuple(places), token, vocab.piece(token), rows))
    return neighbours


def steps(
    translator: Translator, sentence: str, count: int = NEAREST_OF_STEP, *, to: str | None = None
) -> tuple[str, list[Step]]:
    """Returns the translation of a sentence and its steps, each with the `count` nearest rows.

    Raises InputError for a sentence that is blank or would be translated in several pieces.
    """
    sentence = translator.engine.src_vocab.as_source(sentence)
    source = [*translator.reader.beginning(to), *one_piece(translator.reader, sentence, to)]
    ((best,),) = translator.translate_window([Line(1, sentence)], TranslateOptions(to=to, raw=True))
    model, vocab = translator.engine.models[0].model, translator.tgt_vocab
    with torch.inference_mode():
        ((_, batch),) = forced_batches([(source, best.tokens)], 1, model.device)
        h_ND = model.hidden(*batch.inputs)
        logits_NV = model.logits(h_ND).float().cpu()
        cosines_NV = (F.normalize(h_ND, dim=-1) @ F.normalize(model.projection.weight, dim=-1).T).float().cpu()
        cosines_NV[:, model.pad_id] = -torch.inf  # like its logit: padding is never predicted
        logprobs_NV = logits_NV.log_softmax(-1)
    count, steps = min(count, len(vocab) - 1), []  # all rows except padding
    for token, dots_V, cosines_V, logprobs_V in zip(best.tokens, logits_NV, cosines_NV, logprobs_NV, strict=True):
        both = (dots_V, cosines_V)
        rank_by_dot, rank_by_cosine = (int((values_V > values_V[token]).sum()) + 1 for values_V in both)
        by_dot, by_cosine = (_rows(_largest(values_V, count), *both, vocab) for values_V in both)
        (chosen,) = _rows([token], *both, vocab)
        steps.append(Step(chosen, float(logprobs_V[token]), rank_by_dot, rank_by_cosine, by_dot, by_cosine))
    return best.text, steps


def _largest(values_V: Tensor, count: int) -> list[int]:
    """Returns the ids of the largest values, in descending order."""
    ids: list[int] = values_V.topk(min(count, len(values_V))).indices.tolist()
    return ids


def _rows(ids: Sequence[int], dots_V: Tensor, cosines_V: Tensor, vocab: Vocabulary) -> tuple[Row, ...]:
    return tuple(Row(i, vocab.piece(i), float(dots_V[i]), float(cosines_V[i])) for i in ids)


def show_neighbours(neighbours: Sequence[Neighbours], console: Console) -> None:
    for subword in neighbours:
        console.table(
            f"{subword.piece}  (row {subword.id:,} of {' = '.join(subword.places)})",
            [(f"{row.cosine:.3f}", f"{row.dot:.3f}", row.piece) for row in subword.rows],
            header=("cosine", "dot", "row"),
        )


def show_steps(translation: str, steps: Sequence[Step], console: Console) -> None:
    console.info(translation)
    console.table(
        "steps: the chosen subword, its probability, its similarity to the decoder's output (and rank), nearest rows",
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
            for number, step in enumerate(steps, 1)
        ],
        header=("step", "chosen", "p", "dot (rank)", "cosine (rank)", "nearest by dot", "nearest by cosine"),
    )
