"""Measures the subword overlap of two sides, and advises on whether a joint vocabulary is likely to help."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import regex

from vtrans.system.console import Console
from vtrans.text.vocabulary import Vocabulary

OVERLAP_THRESHOLDS = (1, 5, 20)
ADVICE_THRESHOLD = 5
"""The threshold of the advice and of the printed rows per script. Below it, most common types are names, or words of
one language in the other's text."""
MEASURED = ((0.35, 1.0), (0.09, -0.2))
"""(token share at ADVICE_THRESHOLD, BLEU gained by a joint vocabulary with one matrix).

The baseline has separate vocabularies, tied target embedding and projection, and the same number of weights. Measured
by the study recipes/studies/sharing.toml with two seeds and 700 updates of small: English-German, and the same with the
German in Cyrillic letters.
"""
OVERLAP_DEFINITION = (
    "source, target: subword types seen at least N times on that side; both: on both sides; overlap: both over types "
    "seen at least N times on one side or the other; shared: share of the running tokens, of that side or of the two "
    "sides together, whose type is in both. Special symbols and single-byte pieces are left out. script: Unicode's "
    "Script property of a subword's characters, without digits and characters of the scripts Common and Inherited "
    "(punctuation, symbols); mixed: several scripts; word start: U+2581, the word-start mark, alone"
)


# fmt: off
SCRIPTS = (
    "Latin", "Greek", "Cyrillic", "Armenian", "Georgian", "Hebrew", "Arabic", "Syriac", "Thaana", "Nko", "Ethiopic",
    "Tifinagh", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam",
    "Sinhala", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan", "Mongolian", "Javanese", "Han", "Hiragana", "Katakana",
    "Bopomofo", "Hangul", "Yi", "Cherokee", "Canadian_Aboriginal",
)
# fmt: on
"""The scripts that are counted separately; letters of other scripts count as "other script"."""


def subword_counts(vocabulary: Vocabulary, counts: Sequence[int]) -> dict[str, int]:
    """Returns the counts per piece, without special pieces, single-byte pieces, tags and user-defined symbols.

    `counts` is indexed by id.
    """
    named = ((i, vocabulary.piece(i), n) for i, n in enumerate(counts) if n)
    return {piece: n for i, piece, n in named if piece not in vocabulary.symbols and vocabulary.is_subword(i)}


def overlap(src_counts: Mapping[str, int], tgt_counts: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Yields the overlap of the two sides at each of OVERLAP_THRESHOLDS, as OVERLAP_DEFINITION defines it.

    Counts are per piece (`subword_counts`), so separate vocabularies can also be compared.
    """
    sides = (src_counts, tgt_counts)
    for threshold in OVERLAP_THRESHOLDS:
        src, tgt = ({piece for piece, n in side.items() if n >= threshold} for side in sides)
        both, either = src & tgt, src | tgt
        running, covered = [sum(side.values()) for side in sides], [sum(side[p] for p in both) for side in sides]
        yield {
            "threshold": threshold,
            "src": len(src),
            "tgt": len(tgt),
            "both": len(both),
            "either": len(either),
            "share": len(both) / max(1, len(either)),
            "src_tokens": running[0],
            "tgt_tokens": running[1],
            "src_shared": covered[0] / max(1, running[0]),
            "tgt_shared": covered[1] / max(1, running[1]),
            "token_share": sum(covered) / max(1, sum(running)),
        }


def overlap_report(src_counts: Mapping[str, int], tgt_counts: Mapping[str, int]) -> dict[str, Any]:
    """Returns the overlap of the two sides in total and by script, as data.json records it. The script with the most
    running tokens comes first."""
    scripts = defaultdict[str, tuple[dict[str, int], dict[str, int]]](lambda: ({}, {}))
    for side, counts in enumerate((src_counts, tgt_counts)):
        for piece, n in counts.items():
            scripts[script_of(piece)][side][piece] = n
    rows = [{"script": script, **row} for script, sides in scripts.items() for row in overlap(*sides)]
    rows.sort(key=lambda row: (row["threshold"], -row["src_tokens"] - row["tgt_tokens"], row["script"]))
    whole = list(overlap(src_counts, tgt_counts))
    return {"definition": OVERLAP_DEFINITION, "rows": whole, "scripts": rows, "advice": tying_advice(whole)}


def show_overlap(report: Mapping[str, Any], console: Console) -> None:
    """Prints an `overlap_report`."""
    rows = [*report["rows"], *(row for row in report["scripts"] if row["threshold"] == ADVICE_THRESHOLD)]
    cells = []
    for row in rows:
        types = [f"{row[name]:,}" for name in ("src", "tgt", "both")]
        shares = [f"{row[name]:.0%}" for name in ("share", "src_shared", "tgt_shared", "token_share")]
        cells.append((row.get("script", "all"), row["threshold"], *types, *shares))
    header = ("script", "N", "source", "target", "both", "overlap", "source shared", "target shared", "shared")
    console.table("vocabulary overlap", cells, header=header)
    console.info(f"({report['definition']}.)")
    console.info(tying_advice(report["rows"]))  # an older data folder's report has no advice


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


def script_of(piece: str) -> str:
    """Returns the script of a subword, a value of Unicode's Script property (Unicode Standard Annex 24), ignoring the
    word-start mark U+2581. A subword without letters is "digits", "punctuation and symbols" or "word start"."""
    text = piece.replace("\u2581", "")
    if not text:
        return "word start"
    groups = {match.lastgroup or "" for match in _characters().finditer(text)}
    scripts = groups - {"digits", "common"}
    if len(scripts) == 1:
        return scripts.pop().replace("_", " ")
    if scripts:
        return "mixed"
    return "digits" if "digits" in groups else "punctuation and symbols"


@cache
def _characters() -> Any:
    """Returns a pattern that matches any character, in a group named after its script."""
    names = "|".join(rf"(?P<{script}>\p{{Script={script}}})" for script in SCRIPTS)
    common = r"[\p{Script=Common}\p{Script=Inherited}\p{Script=Unknown}]"
    digits = rf"(?P<digits>\p{{Nd}}|(?=\p{{N}}){common})"
    return regex.compile(rf"{digits}|{names}|(?P<common>{common})|(?P<other_script>.)", regex.DOTALL)
