"""The writing systems of subwords, and the overlap of two sides in each of them.

A script is Unicode's Script property (Unicode Standard Annex 24). Python's unicodedata does not have it; the
package `regex` does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
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
"""Those that are told apart; letters of any other are of an "other script"."""

SCRIPT_THRESHOLD = 5
"""Of the rows that are printed. Below it names and slips of the other language are most of what is shared."""

SCRIPT_DEFINITION = (
    "script: Unicode's Script property of a subword's characters, digits and those of Common and Inherited "
    "(punctuation, symbols) left out; mixed: of several; word start: U+2581, the mark of one, by itself; "
    "source, target: types seen at least N times on the side; "
    "shared tokens: share of the running tokens of that script on the side whose type is in both"
)


@dataclass(frozen=True)
class ScriptRow:
    """The overlap of two sides in one script, for types seen at least `threshold` times."""

    script: str
    threshold: int
    src: int
    """Types seen at least so often on the source side."""
    tgt: int
    both: int
    either: int
    share: float
    """both / either; 0 if there is none."""
    src_tokens: int
    """Running tokens of the source side in this script, rare types counted."""
    tgt_tokens: int
    src_shared: float
    """Of these, the share whose type is in `both`; 0 if there are none."""
    tgt_shared: float


def script_of(piece: str) -> str:
    """The script of a subword, U+2581 before a word left out; one without letters is of digits, of punctuation
    and symbols, or the bare start of a word."""
    text = piece.replace("\u2581", "")
    if not text:
        return "word start"
    found = {match.lastgroup or "" for match in _characters().finditer(text)}
    scripts = found - {"digits", "common"}
    if len(scripts) == 1:
        return scripts.pop().replace("_", " ")
    if scripts:
        return "mixed"
    return "digits" if "digits" in found else "punctuation and symbols"


@cache
def _characters() -> Any:
    """Matches any character, its script the name of the group."""
    import regex

    names = "|".join(rf"(?P<{script}>\p{{Script={script}}})" for script in SCRIPTS)
    common = r"[\p{Script=Common}\p{Script=Inherited}\p{Script=Unknown}]"
    digits = rf"(?P<digits>\p{{Nd}}|(?=\p{{N}}){common})"
    return regex.compile(rf"{digits}|{names}|(?P<common>{common})|(?P<other_script>.)", regex.DOTALL)


def overlap_by_script(
    src_counts: Mapping[str, int], tgt_counts: Mapping[str, int], thresholds: Collection[int]
) -> list[ScriptRow]:
    """For each threshold the scripts of the two sides, that of the most running tokens first. The counts are by
    surface piece (vocab.subword_counts)."""
    pieces: dict[str, list[str]] = {}
    for piece in dict.fromkeys((*src_counts, *tgt_counts)):
        pieces.setdefault(script_of(piece), []).append(piece)
    rows = [
        _row(
            script,
            threshold,
            {piece: src_counts[piece] for piece in members if piece in src_counts},
            {piece: tgt_counts[piece] for piece in members if piece in tgt_counts},
        )
        for threshold in thresholds
        for script, members in pieces.items()
    ]
    return sorted(rows, key=lambda row: (row.threshold, -row.src_tokens - row.tgt_tokens, row.script))


def _row(script: str, threshold: int, src: Mapping[str, int], tgt: Mapping[str, int]) -> ScriptRow:
    src_types = {piece for piece, n in src.items() if n >= threshold}
    tgt_types = {piece for piece, n in tgt.items() if n >= threshold}
    both, either = src_types & tgt_types, src_types | tgt_types
    running, covered = [sum(side.values()) for side in (src, tgt)], [sum(side[p] for p in both) for side in (src, tgt)]
    return ScriptRow(
        script,
        threshold,
        len(src_types),
        len(tgt_types),
        len(both),
        len(either),
        len(both) / len(either) if either else 0.0,
        running[0],
        running[1],
        covered[0] / running[0] if running[0] else 0.0,
        covered[1] / running[1] if running[1] else 0.0,
    )


def script_table(rows: Collection[Mapping[str, Any]]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The rows of SCRIPT_THRESHOLD as they are printed, with their header."""
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
