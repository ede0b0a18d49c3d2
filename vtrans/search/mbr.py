"""Minimum Bayes risk decoding (Kumar and Byrne 2004; Eikema and Aziz 2020): chooses the candidate translation with the
highest expected utility, its mean similarity to all candidates.

Legend: N distinct candidates, G distinct n-grams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vtrans.search.loop import Hypothesis

Floats = NDArray[np.float64]

CHRF_ORDER, CHRF_BETA, BLEU_ORDER = 6, 2, 4  # sacrebleu's defaults
COUNTED_NGRAMS = 4096  # n-grams counted at a time; bounds the memory


def ranked(
    hypotheses: Sequence[Hypothesis], texts: Sequence[str], utility: Callable[[Sequence[str]], Floats]
) -> list[Hypothesis]:
    """Returns the hypotheses with distinct texts, sorted by decreasing expected utility, which becomes their `score`.

    `texts` are the texts of `hypotheses`, each both a candidate and a pseudo-reference. A text counts as often as it
    occurs and is represented by its most probable hypothesis. Equal utilities rank by log-probability. The result does
    not depend on the order of the hypotheses.
    """
    times = Counter(texts)
    distinct = sorted(times)
    best: dict[str, Hypothesis] = {}
    for text, hyp in zip(texts, hypotheses, strict=True):
        best[text] = max(best.get(text, hyp), hyp, key=lambda h: (h.logprob, h.tokens))
    sums_N = utility(distinct) @ np.array([times[text] for text in distinct])
    scored = [
        replace(best[text], score=float(total) / len(texts)) for text, total in zip(distinct, sums_N, strict=True)
    ]
    return sorted(scored, key=lambda hyp: (-hyp.score, -hyp.logprob))


def chrf(texts: Sequence[str]) -> Floats:
    """Returns the chrF [N, N], from 0 to 100, of each text against each text as reference, like sacrebleu's
    `sentence_chrf`."""
    bare = ["".join(text.split()) for text in texts]
    precision_NN, recall_NN, orders_NN = np.zeros((3, len(texts), len(texts)))
    for n in range(1, CHRF_ORDER + 1):
        matches_NN, counts_N = _matches([[text[i : i + n] for i in range(len(text) - n + 1)] for text in bare])
        some_N = counts_N > 0
        divisor_N = np.maximum(counts_N, 1)
        precision_NN += matches_NN / divisor_N[:, None]
        recall_NN += matches_NN / divisor_N
        orders_NN += some_N[:, None] & some_N
    precision_NN /= np.maximum(orders_NN, 1)
    recall_NN /= np.maximum(orders_NN, 1)
    factor = CHRF_BETA**2
    score_NN = (1 + factor) * precision_NN * recall_NN
    score_NN /= np.where(score_NN > 0, factor * precision_NN + recall_NN, 1)
    return 100 * score_NN


def bleu(texts: Sequence[str]) -> Floats:
    """Returns the BLEU [N, N], from 0 to 100, of each text against each text as reference, like sacrebleu's
    `sentence_bleu`: tokenizer 13a, exponential smoothing, effective order."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenize = Tokenizer13a()  # type: ignore[no-untyped-call]
    words = [tokenize(text.rstrip()).split() for text in texts]
    lengths_N = np.array([len(text) for text in words])
    shared_NN, logs_NN = np.zeros((2, len(texts), len(texts)))
    smoothing_NN = np.ones_like(logs_NN)
    for n in range(1, BLEU_ORDER + 1):
        matches_NN, counts_N = _matches([[tuple(text[i : i + n]) for i in range(len(text) - n + 1)] for text in words])
        shared_NN += matches_NN
        smoothing_NN = np.where(matches_NN > 0, smoothing_NN, 2 * smoothing_NN)
        smoothed_NN = np.where(matches_NN > 0, matches_NN, 1 / smoothing_NN)
        has_N = counts_N > 0
        logs_NN += has_N[:, None] * np.log(100 * smoothed_NN / np.maximum(counts_N, 1)[:, None])
    orders_N = np.clip(lengths_N, 1, BLEU_ORDER)
    brevity_NN = np.exp(np.minimum(0, 1 - lengths_N / np.maximum(lengths_N, 1)[:, None]))
    score_NN: Floats = (shared_NN > 0) * brevity_NN * np.exp(logs_NN / orders_N[:, None])
    return score_NN


UTILITIES = {"chrf": chrf, "bleu": bleu}


def _matches(grams: Sequence[Sequence[Hashable]]) -> tuple[Floats, NDArray[np.int64]]:
    """Returns the number of n-grams that each pair of texts has in common [N, N] and the number in each text [N].

    An n-gram that occurs a times in one text and b times in the other counts min(a, b) times. So each repetition is
    treated as a distinct n-gram, and the common n-grams are the product of two rows of zeros and ones.
    """
    columns: dict[tuple[Hashable, int], int] = {}
    places = [
        (row, columns.setdefault((gram, again), len(columns)))
        for row, text_grams in enumerate(grams)
        for gram, times in Counter(text_grams).items()
        for again in range(times)
    ]
    at_row, at_column = np.array(places, dtype=np.int64).reshape(-1, 2).T
    counts_N = np.bincount(at_row, minlength=len(grams))
    matches_NN = np.zeros((len(grams), len(grams)), np.float32)
    for begin in range(0, len(columns), COUNTED_NGRAMS):
        inside = (at_column >= begin) & (at_column < begin + COUNTED_NGRAMS)
        has_NG = np.zeros((len(grams), COUNTED_NGRAMS), np.float32)
        has_NG[at_row[inside], at_column[inside] - begin] = 1
        matches_NN += has_NG @ has_NG.T
    return matches_NN.astype(np.float64), counts_N
