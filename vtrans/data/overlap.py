"""How many subwords the two sides of a text have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vtrans.data.vocabulary import SPECIAL_PIECES, Vocabulary

OVERLAP_THRESHOLDS = (1, 5, 20)
# What recipes/sharing/study.py measured, two seeds, 700 updates of multi30k-10min: at this share of shared running
# subwords (seen ADVICE_THRESHOLD times on both sides), the BLEU of one joint vocabulary with one matrix less that of
# separate vocabularies with as many weights, target embedding and projection tied. English-German, and the same with
# the German in Cyrillic letters.
ADVICE_THRESHOLD = 5
MEASURED = ((0.35, 1.0), (0.09, -0.2))
OVERLAP_DEFINITION = (
    "both: subword types seen at least N times on the source side and at least N times on the target side "
    "of the text; either: types seen at least N times on one side or the other; overlap: both over "
    "either; tokens: share of the running tokens of the two sides whose type is in both; special symbols "
    "and single-byte pieces are left out of all four"
)


@dataclass(frozen=True)
class OverlapRow:
    """The overlap of two sides for types seen at least `threshold` times."""

    threshold: int
    both: int
    """Types seen at least so often on each side."""
    either: int
    """Types seen at least so often on one side or the other."""
    share: float
    """both / either; 0 if there is none."""
    token_share: float
    """Of the running tokens of both sides, those whose type is in `both`."""


def subword_counts(vocabulary: Vocabulary, counts: Sequence[int]) -> dict[str, int]:
    """Counts by surface piece from counts by id, without special and single-byte pieces, and symbols of the user."""
    first = len(SPECIAL_PIECES) + len(vocabulary.symbols)
    return {vocabulary.piece(i): n for i, n in enumerate(counts) if n and i >= first and vocabulary.is_subword(i)}


def overlap(src_counts: Mapping[str, int], tgt_counts: Mapping[str, int]) -> list[OverlapRow]:
    """The overlap of the two sides at each of OVERLAP_THRESHOLDS, as OVERLAP_DEFINITION says.

    The counts are by surface piece (`subword_counts`), so two separate vocabularies compare too.
    """
    running = sum(src_counts.values()) + sum(tgt_counts.values())
    rows = []
    for threshold in OVERLAP_THRESHOLDS:
        src = {piece for piece, n in src_counts.items() if n >= threshold}
        tgt = {piece for piece, n in tgt_counts.items() if n >= threshold}
        both, either = src & tgt, src | tgt
        covered = sum(src_counts[p] + tgt_counts[p] for p in both)
        rows.append(
            OverlapRow(
                threshold,
                len(both),
                len(either),
                len(both) / len(either) if either else 0.0,
                covered / running if running else 0.0,
            )
        )
    return rows


def overlap_table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The rows, each an OverlapRow as a dict, as they are printed, with their header."""
    header = ("N", "both", "either", "overlap", "tokens")
    return [
        (str(row["threshold"]), f"{row['both']:,}", f"{row['either']:,}", f"{row['share']:.0%}",
         f"{row['token_share']:.0%}")
        for row in rows
    ], header  # fmt: skip


def tying_advice(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether one matrix for both sides is likely to pay, from the share of running subwords that both sides have
    (the row of ADVICE_THRESHOLD): by the nearer of what was MEASURED, and how far it goes."""
    token_share: float = next(row["token_share"] for row in rows if row["threshold"] == ADVICE_THRESHOLD)
    (_, gained), (_, lost) = sorted(MEASURED, reverse=True)
    nearer = min(MEASURED, key=lambda point: abs(point[0] - token_share))
    so = (
        "a joint vocabulary and one matrix, the default, suit these texts"
        if nearer[1] > 0
        else "separate vocabularies may do as well or better: prepare-bpe --separate, whose tie is tgt-softmax"
    )
    where = " and ".join(f"{share:.0%}" for share, _ in MEASURED)
    return (
        f"{token_share:.0%} of the running subwords are of both sides (N = {ADVICE_THRESHOLD}): {so}. With as many "
        f"weights, one matrix was {gained:g} BLEU better and {-lost:g} worse in short trainings at {where}; "
        "differences so small may be chance."
    )
