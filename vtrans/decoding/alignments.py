"""Which source words a translation's words go back to, read off the cross-attention of a decoder layer.

After the search, one pass over the translation that it found, each subword given, shows where every
position looks; nothing is captured while searching. A word is what stands between spaces, in the line
that was read and in the one that is written.

Legend: B pairs, S source length with EOS, T target length, H heads, I source words, J target words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.data.vocabulary import EOS_ID, Vocabulary
from vtrans.decoding.forced import ForcedBatch, Pair, forced_batches
from vtrans.model import Transformer

Links = tuple[tuple[int, int], ...]
"""A source word and a target word each, both counted from 0; in order."""

# What was chosen by alignment error rate on the gold alignments of the phrasebook (tests/bench/alignments.py):
# the upper half of the decoder's layers, the mean of their heads, and the position that predicts a subword
# rather than the one that is fed it. A word of either side is linked to the one that it shares most attention
# with, a source word only if that is this much: a translation need not say every word.
ENOUGH = 0.1


def align(
    models: Sequence[Transformer],
    weights: Sequence[float],
    pairs: Sequence[Pair],
    words: Sequence[tuple[Sequence[int], Sequence[int]]],
    batch_tokens: int,
) -> list[Links]:
    """The links of each pair; `words` holds for each of its subwords, EOS left out, the word that it is of.

    Of several models the attention is averaged by `weights`.
    """
    found: list[Links] = [()] * len(pairs)
    for batch in forced_batches(pairs, batch_tokens, models[0].device):
        attention_BTS = np.sum(
            [weight * mean_attention(model, batch) for model, weight in zip(models, weights, strict=True)], axis=0
        )
        for row, attention_TS in zip(batch.rows, attention_BTS, strict=True):
            found[row] = links(attention_TS, *words[row])
    return found


def mean_attention(model: Transformer, batch: ForcedBatch) -> NDArray[np.float64]:
    """[B, T, S]: where the position that predicts each subword of the targets looks; the mean over the heads
    of the upper half of the layers (of an odd number the middle one is not among them)."""
    upper: list[Tensor] = model.attentions(batch.src_BS, batch.keep_BS, batch.tgt_in_BT, upper_half(model))
    mean: NDArray[np.float64] = torch.cat(upper, 1).mean(1).float().cpu().double().numpy()
    return mean


def upper_half(model: Transformer) -> int:
    """The lowest of the layers that are read."""
    layers = model.config.decoder_layers
    return layers - max(1, layers // 2)


def links(attention_TS: NDArray[np.float64], src_words: Sequence[int], tgt_words: Sequence[int]) -> Links:
    """The links between the words that subwords are of.

    A source word takes the sum over its subwords, a target word the mean over its own. What goes to EOS
    goes to no word.
    """
    if not src_words or not tgt_words:
        return ()
    sources, src_starts = np.unique(src_words, return_index=True)
    targets, tgt_starts, sizes = np.unique(tgt_words, return_index=True, return_counts=True)
    real_TS = attention_TS[: len(tgt_words), : len(src_words)]
    shared_JI = np.add.reduceat(np.add.reduceat(real_TS, src_starts, 1), tgt_starts, 0) / sizes[:, None]
    chosen = {(int(i), j) for j, i in enumerate(shared_JI.argmax(1))}
    chosen |= {(i, int(j)) for i, j in enumerate(shared_JI.argmax(0)) if shared_JI[j, i] >= ENOUGH}
    return tuple(sorted((int(sources[i]), int(targets[j])) for i, j in chosen))


def pharaoh(links: Links) -> str:
    """`0-0 1-2`: source word, target word, as the tools of the field read it."""
    return " ".join(f"{i}-{j}" for i, j in links)


def source_words(line: str, ids: Sequence[int], vocab: Vocabulary) -> list[int]:
    """For each subword of a line the number of its word in `line.split()`."""
    by_word = vocab.encode_batch(line.split())
    if list(chain.from_iterable(by_word)) == list(ids):
        return [i for i, part in enumerate(by_word) for _ in part]
    # The vocabulary's normalisation parts words at other places than the line's own spaces.
    return [min(i, len(by_word) - 1) for i in target_words(ids, vocab)]


def target_words(tokens: Sequence[int], vocab: Vocabulary) -> list[int]:
    """For each subword the number of its word in the text that the subwords spell, split at its spaces.
    One without text goes with the word that follows, at the end with the last one."""
    numbers, last, between = [], -1, True
    for token in tokens:
        text = _text(token, vocab)
        parts = text.split()
        between |= text[:1].isspace()
        numbers.append(last + (between if last >= 0 or parts else 1))
        if parts:
            last += between + len(parts) - 1
            between = text[-1].isspace()
        else:
            between |= bool(text)
    return [min(number, max(last, 0)) for number in numbers]


def _text(token: int, vocab: Vocabulary) -> str:
    """What a subword adds to the text; a byte on its own stands for some letter, if it is not a space."""
    if token <= EOS_ID:
        return ""
    piece = vocab.piece(token).replace("\u2581", " ")
    if not vocab.is_subword(token):
        byte = chr(int(piece[1:-1], 16))
        return byte if byte.isascii() else "x"
    return piece
