"""Measures the subword overlap of two sides, and advises on whether a joint vocabulary is likely to help."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from vtrans.data.preparation.writing_systems import SCRIPT_DEFINITION, SCRIPT_THRESHOLD, overlap_by_script, script_table
from vtrans.system.console import Console
from vtrans.text.vocabulary import Vocabulary

OVERLAP_THRESHOLDS = (1, 5, 20)
ADVICE_THRESHOLD = 5
MEASURED = ((0.35, 1.0), (0.09, -0.2))
"""(token share at ADVICE_THRESHOLD, BLEU gained by a joint vocabulary with one matrix).

The baseline has separate vocabularies, tied target embedding and projection, and the same number of weights. Measured
by the study recipes/studies/sharing.toml with two seeds and 700 updates of small: English-German, and the same with the
German in Cyrillic letters.
"""
OVERLAP_DEFINITION = (
    "both: subword types seen at least N times on the source side and at least N times on the target side "
    "of the text; either: types seen at least N times on one side or the other; overlap: both over "
    "either; tokens: share of the running tokens of the two sides whose type is in both; special symbols "
    "and single-byte pieces are left out of all four"
)


def subword_counts(vocabulary: Vocabulary, counts: Sequence[int]) -> dict[str, int]:
    """Returns the counts per piece, without special pieces, single-byte pieces, tags and user-defined symbols.

    `counts` is indexed by id.
    """
    named = ((i, vocabulary.piece(i), n) for i, n in enumerate(counts) if n)
    return {piece: n for i, piece, n in named if piece not in vocabulary.symbols and vocabulary.is_subword(i)}


def overlap(src_counts: Mapping[str, int], tgt_counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Returns the overlap of the two sides at each of OVERLAP_THRESHOLDS, as OVERLAP_DEFINITION defines it.

    Counts are per piece (`subword_counts`), so separate vocabularies can also be compared.
    """
    running = sum(src_counts.values()) + sum(tgt_counts.values())
    rows = []
    for threshold in OVERLAP_THRESHOLDS:
        src = {piece for piece, n in src_counts.items() if n >= threshold}
        tgt = {piece for piece, n in tgt_counts.items() if n >= threshold}
        both, either = src & tgt, src | tgt
        covered = sum(src_counts[p] + tgt_counts[p] for p in both)
        rows.append(
            {
                "threshold": threshold,
                "both": len(both),
                "either": len(either),
                "share": len(both) / len(either) if either else 0.0,
                "token_share": covered / running if running else 0.0,
            }
        )
    return rows


def overlap_report(src_counts: Mapping[str, int], tgt_counts: Mapping[str, int]) -> dict[str, Any]:
    """Returns the overlap of the two sides in total and by script, as data.json records it."""
    return {
        "definition": OVERLAP_DEFINITION,
        "rows": overlap(src_counts, tgt_counts),
        "script_definition": SCRIPT_DEFINITION,
        "scripts": overlap_by_script(src_counts, tgt_counts, OVERLAP_THRESHOLDS),
    }


def show_overlap(report: Mapping[str, Any], console: Console, width: int | None = None) -> None:
    """Prints an `overlap_report` and advice, wrapping sentences at `width` columns."""

    def say(text: str) -> None:
        console.info(text if width is None else textwrap.fill(text, width, break_on_hyphens=False))

    totals = [
        (str(row["threshold"]), f"{row['both']:,}", f"{row['either']:,}", f"{row['share']:.0%}",
         f"{row['token_share']:.0%}")
        for row in report["rows"]
    ]  # fmt: skip
    console.table("vocabulary overlap", totals, header=("N", "both", "either", "overlap", "tokens"))
    say(f"({report['definition']}.)")
    rows, header = script_table(report["scripts"])
    console.table(f"by script, N = {SCRIPT_THRESHOLD}", rows, header=header)
    say(f"({report['script_definition']}.)")
    say(tying_advice(report["rows"]))


def tying_advice(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns advice on whether one matrix for both sides is likely to help, from the nearest point of MEASURED."""
    token_share: float = next(row["token_share"] for row in rows if row["threshold"] == ADVICE_THRESHOLD)
    (high, gained), (low, lost) = MEASURED
    nearer = min(MEASURED, key=lambda point: abs(point[0] - token_share))
    advice = (
        "a joint vocabulary with one matrix, the default, suits these texts"
        if nearer == MEASURED[0]
        else "separate vocabularies, with the target embedding and the projection tied, may do as well or better"
    )
    return (
        f"{token_share:.0%} of the running subwords occur on both sides (N = {ADVICE_THRESHOLD}): {advice}. In short "
        f"trainings with equally many weights, one matrix was {gained:g} BLEU better at {high:.0%} and {-lost:g} BLEU "
        f"worse at {low:.0%}; differences this small may be chance."
    )
