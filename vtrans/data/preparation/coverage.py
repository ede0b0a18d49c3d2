"""Counts the characters of a text for which a vocabulary has no pieces, or which it replaces."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vtrans.system.console import Console
from vtrans.text.vocabulary import UNK_ID, Vocabulary

MOST_NAMED = 10  # maximum number of characters to name
MOST_LACKING, MOST_CHANGED = 0.01, 0.02  # shares of characters and of lines above which there is a warning


@dataclass
class Coverage:
    """The characters of one side that lack a piece, those that decoding changes, and the number of lines with the
    latter."""

    lacking: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    changed_lines: int = 0

    def add(self, other: Coverage) -> None:
        self.lacking += other.lacking
        self.changed += other.changed
        self.changed_lines += other.changed_lines

    def report(self) -> dict[str, Any]:
        """Returns the counts, and the most frequent characters, as data.json records them."""
        return {
            "lacking": self.lacking.total(),
            "most_lacking": dict(self.lacking.most_common(MOST_NAMED)),
            "changed_lines": self.changed_lines,
            "most_changed": dict(self.changed.most_common(MOST_NAMED)),
        }


class Covering:
    """Measures how well a vocabulary covers lines. Canonically equivalent characters (NFC) count as unchanged."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary, self._loses = vocabulary, dict.fromkeys(" \t", (False, False))
        self._composes = vocabulary.encode("\u00e9") == vocabulary.encode("e\u0301")

    def __call__(self, lines: Sequence[str]) -> Coverage:
        text = unicodedata.normalize("NFC", "".join(lines)) if self._composes else "".join(lines)
        codes = np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32)
        times = np.bincount(codes)
        found, coverage = {chr(code): int(times[code]) for code in np.flatnonzero(times)}, Coverage()
        for character, number in found.items():
            if character not in self._loses:
                self._loses[character] = self._lost(character)
            for loses, counts in zip(self._loses[character], (coverage.lacking, coverage.changed), strict=True):
                if loses:
                    counts[character] = number
        if coverage.changed:
            coverage.changed_lines = sum(not coverage.changed.keys().isdisjoint(line) for line in lines)
        return coverage

    def _lost(self, character: str) -> tuple[bool, bool]:
        (ids,) = self._vocabulary.encode_batch([character], tags=False)
        written = self._vocabulary.decode(ids)
        is_equal = unicodedata.normalize("NFC", written) == unicodedata.normalize("NFC", character)
        return not self._vocabulary.covers(character), not is_equal and UNK_ID not in ids


def show_coverage(report: Mapping[str, Any], console: Console, *, remedy: bool) -> None:
    """Prints the characters of the training text that the vocabularies lack or replace. `remedy` says whether another
    normalization rule can be chosen."""
    for side, name in (("src", "source"), ("tgt", "target")):
        facts, characters = report["coverage"][side], report["characters"][side]
        if facts["lacking"] > MOST_LACKING * characters:
            console.warn(
                f"the vocabulary has no pieces for {facts['lacking']:,} of {characters:,} characters of the {name}: "
                f"{_named(facts['most_lacking'])}. Learn a vocabulary from this text, without --vocab-from, or add "
                "subwords to the model's with --vocab-add."
            )
        if side == "tgt" and (n := facts["changed_lines"]):
            say = console.warn if remedy and n > MOST_CHANGED * report["kept"] else console.info
            say(
                f"{n:,} of {report['kept']:,} training targets have characters that normalization replaces, so no "
                f"translation can contain them: {_named(facts['most_changed'])}."
                + (" Prepare with --normalization nfc to keep them." if remedy else "")
            )


def _named(counts: Mapping[str, int]) -> str:
    """Returns characters, each with its code and number."""
    return ", ".join(f"{c if c.isprintable() else ''} U+{ord(c):04X} ({n:,})".strip() for c, n in counts.items())
