"""The writing system (script) of a subword, and the vocabulary overlap of two sides per script.

Scripts are values of Unicode's Script property (Unicode Standard Annex 24), which the package `regex` supports and
Python's unicodedata does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

# fmt: off
SCRIPTS = (
    "Latin", "Greek", "Cyrillic", "Armenian", "Georgian", "Hebrew", "Arabic", "Syriac", "Thaana", "Nko", "Ethiopic",
    "Tifinagh", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam",
    "Sinhala", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan", "Mongolian", "Javanese", "Han", "Hiragana", "Katakana",
    "Bopomofo", "Hangul", "Yi", "Cherokee", "Canadian_Aboriginal",
)
# fmt: on
"""The scripts that are counted separately; letters of other scripts count as "other script"."""

SCRIPT_THRESHOLD = 5
"""The threshold of the printed rows. Below it, most common types are names, or words of one language in the other's
text."""

SCRIPT_DEFINITION = (
    "script: Unicode's Script property of a subword's characters, without digits and characters of the scripts Common "
    "and Inherited (punctuation, symbols); mixed: several scripts; word start: U+2581, the word-start mark, alone; "
    "source, target: types seen at least N times on that side; shared: share of that side's running tokens in the "
    "script whose type is in both"
)


def script_of(piece: str) -> str:
    """Returns the script of a subword, ignoring the word-start mark U+2581. A subword without letters is "digits",
    "punctuation and symbols" or "word start"."""
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
    import regex

    names = "|".join(rf"(?P<{script}>\p{{Script={script}}})" for script in SCRIPTS)
    common = r"[\p{Script=Common}\p{Script=Inherited}\p{Script=Unknown}]"
    digits = rf"(?P<digits>\p{{Nd}}|(?=\p{{N}}){common})"
    return regex.compile(rf"{digits}|{names}|(?P<common>{common})|(?P<other_script>.)", regex.DOTALL)


def overlap_by_script(
    src_counts: Mapping[str, int], tgt_counts: Mapping[str, int], thresholds: Collection[int]
) -> list[dict[str, Any]]:
    """Returns the overlap of the two sides per script, as SCRIPT_DEFINITION defines it. Rows are sorted by threshold,
    then by decreasing running tokens. The counts are per piece, as from `subword_counts`.
    """
    pieces: dict[str, list[str]] = {}
    for piece in dict.fromkeys((*src_counts, *tgt_counts)):
        pieces.setdefault(script_of(piece), []).append(piece)
    rows = []
    for threshold in thresholds:
        for script, members in pieces.items():
            src, tgt = ({p: counts[p] for p in members if p in counts} for counts in (src_counts, tgt_counts))
            rows.append(_row(script, threshold, src, tgt))
    return sorted(rows, key=lambda row: (row["threshold"], -row["src_tokens"] - row["tgt_tokens"], row["script"]))


def _row(script: str, threshold: int, src: Mapping[str, int], tgt: Mapping[str, int]) -> dict[str, Any]:
    src_types, tgt_types = ({piece for piece, n in side.items() if n >= threshold} for side in (src, tgt))
    both, either = src_types & tgt_types, src_types | tgt_types
    running, covered = [sum(side.values()) for side in (src, tgt)], [sum(side[p] for p in both) for side in (src, tgt)]
    return {
        "script": script,
        "threshold": threshold,
        "src": len(src_types),
        "tgt": len(tgt_types),
        "both": len(both),
        "either": len(either),
        "share": len(both) / len(either) if either else 0.0,
        "src_tokens": running[0],
        "tgt_tokens": running[1],
        "src_shared": covered[0] / running[0] if running[0] else 0.0,
        "tgt_shared": covered[1] / running[1] if running[1] else 0.0,
    }


def script_table(rows: Collection[Mapping[str, Any]]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Returns the rows at SCRIPT_THRESHOLD as text, and their header."""
    header = ("script", "source", "target", "both", "overlap", "source tokens", "shared", "target tokens", "shared")
    return [
        (
            row["script"],
            f"{row['src']:,}",
            f"{row['tgt']:,}",
            f"{row['both']:,}",
            f"{row['share']:.0%}",
            f"{row['src_tokens']:,}",
            f"{row['src_shared']:.0%}" if row["src_tokens"] else "",
            f"{row['tgt_tokens']:,}",
            f"{row['tgt_shared']:.0%}" if row["tgt_tokens"] else "",
        )
        for row in rows
        if row["threshold"] == SCRIPT_THRESHOLD
    ], header
