"""Forced decoding with compiled code: the log-probabilities and aligning attention of existing translations, which
engines/forced.py computes with torch.

A pass computes all positions of a pair at once. Threads divide the pairs and do not change the result. The whole
vocabulary is used, even with a shortlist.

Legend: S source length with EOS, T target length.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtrans.engines.compiled.decoder import CompiledDecoder
from vtrans.search.decoder import SubwordPair
from vtrans.text.vocabulary import BOS_ID, EOS_ID

Floats = NDArray[np.float32]

# Minimum number of subwords per call, except the last: enough for the threads, and few enough to interrupt soon.
SUBWORDS = 4096


class Pairs(ctypes.Structure):
    """`Pairs` of forced.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("sources", "source_lengths", "targets", "fed", "target_lengths")),
        *((name, ctypes.c_int32) for name in ("count", "first_layer", "end_layer", "heads")),
    )


def token_logprobs(decoder: CompiledDecoder, pairs: Sequence[SubwordPair], threads: int) -> Iterator[Floats]:
    """Yields, for each pair, the natural log-probability of each target subword given the preceding ones [T]."""
    for some in _parts(pairs):
        found = _pass(decoder, some, threads, attention=False)[0]
        yield from np.split(found, np.cumsum([len(target) for _, target in some[:-1]]))


def mean_attention(decoder: CompiledDecoder, pairs: Sequence[SubwordPair], threads: int) -> Iterator[Floats]:
    """Yields, for each pair, the attention [T, S] that aligns each target subword, like
    `mean_attention` of engines/forced.py."""
    config = decoder.config
    for some in _parts(pairs):
        weights, at = _pass(decoder, some, threads, attention=True)[1], 0
        for source, target in some:
            T, S = len(target), len(source) + config.source_eos
            predicting_TS = weights[at : at + T * S].reshape(T, S)
            at += T * S
            if not config.source_eos:  # EOS is not attended to
                predicting_TS = np.pad(predicting_TS, ((0, 0), (0, 1)))
            # With a head that aligns words, use the position that is fed the subword, except for the last subword.
            fed_TS = np.concatenate((predicting_TS[1:], predicting_TS[-1:]))
            yield fed_TS if config.alignment_layer else predicting_TS


def _parts(pairs: Sequence[SubwordPair]) -> Iterator[Sequence[SubwordPair]]:
    """Yields the pairs in order, in parts of about SUBWORDS subwords."""
    begin = size = 0
    for end, (source, target) in enumerate(pairs, 1):
        size += len(source) + len(target)
        if size >= SUBWORDS or end == len(pairs):
            yield pairs[begin:end]
            begin, size = end, 0


def _pass(
    decoder: CompiledDecoder, pairs: Sequence[SubwordPair], threads: int, *, attention: bool
) -> tuple[Floats, Floats]:
    """Returns the concatenated log-probabilities of all targets and, with `attention`, their concatenated attention."""
    config = decoder.config
    eos = (EOS_ID,) if config.source_eos else ()
    sources, targets = [(*source, *eos) for source, _ in pairs], [target for _, target in pairs]
    fed = [(BOS_ID, *target)[: len(target)] for target in targets]
    source_lengths, target_lengths = (np.array([len(row) for row in rows], np.int64) for rows in (sources, targets))
    before = source_lengths if config.architecture == "decoder-only" else 0
    src_positions = decoder.src_positions(int(source_lengths.max()))
    tgt_positions = decoder.tgt_positions(int((before + target_lengths).max()))
    arrays = (_joined(sources), source_lengths, _joined(targets), _joined(fed), target_lengths)
    upper_half = config.decoder_layers - max(1, config.decoder_layers // 2)
    layers = (config.alignment_layer - 1, config.alignment_layer, 1)
    if not config.alignment_layer:
        layers = upper_half, config.decoder_layers, config.heads
    logprobs = np.empty(target_lengths.sum(), dtype=np.float32)
    weights = np.zeros(source_lengths @ target_lengths if attention else 0, dtype=np.float32)
    decoder.library.forced_pass(
        decoder.compiled.pointer,
        ctypes.byref(Pairs(*(array.ctypes.data for array in arrays), len(pairs), *layers)),
        src_positions.ctypes.data,
        tgt_positions.ctypes.data,
        threads,
        logprobs.ctypes.data,
        weights.ctypes.data if attention else None,
    )
    return logprobs, weights


def _joined(rows: Sequence[Sequence[int]]) -> NDArray[Any]:
    return np.fromiter(chain.from_iterable(rows), np.int64)
