"""Counts of a language pair's conventions in the training text, and rules derived from them.

data/preparation/counting.py counts. The report of a data folder and the header of a model file store the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import index
from typing import Any, Literal, NamedTuple

import regex

from vtrans.text.marks import Marks, cldr_marks

Kind = Literal["names", "identifiers", "quoted"]
Side = Literal["src", "tgt"]
Table = Mapping[str, Mapping[str, int]]
"""Counts of the answers to each question."""

CASED = r"\p{Lu}\p{Ll}\p{Lt}"
NAME = regex.compile(r"\p{Lu}\p{Ll}{2,}(?![\w@])")
IDENTIFIER = regex.compile(rf"(?<![\w@./-])(?:\w*\p{{Ll}}\p{{Lu}}\w*|(?=\w*[{CASED}])[^\W_]+(?:_+[^\W_]+)+)(?![\w@/])")

USUAL = 0.55
"""The minimum share of the usual form. In sentences and captions, 61 to 73% of the rare English names are unchanged in
German translations, 72% in French, and 1% in Arabic, Chinese and Japanese. In a manual, whose names are mostly labels,
57% are unchanged in German, 45% in Latvian and 36% in Finnish."""
FEWEST, FEWEST_NUMBERS = 30, 10  # occurrences that a rule needs; numbers with unambiguous marks are rarer


class NumberMarks(NamedTuple):
    """The usual way to write numbers on one side. None means too little evidence, or no usual form."""

    decimal: str | None
    group: str | None
    minimum: int | None  # digits before the first group mark: 1 for `1,234`; 2 for `1234` and `12,345`
    zero: str | None  # the digit zero: `0`, or another script's


@dataclass(frozen=True)
class PairCounts:
    """Counts over the training pairs. `copied` counts, per Kind, how often the translation is `verbatim` or `changed`.

    Each side counts its `decimal` and `group` marks, the zeros of its `digits`, `thousands` (`grouped` or `plain`),
    `quotes` (an opening and a closing mark, each with or without a space), and `headings` (`titles`, with every long
    word capitalised, or `others`).
    """

    copied: Table
    src: Table
    tgt: Table

    @classmethod
    def of(cls, record: Any) -> PairCounts | None:
        """Returns the counts from their `dataclasses.asdict` record, or None for anything else."""
        try:
            parts = (record[part].items() for part in ("copied", "src", "tgt"))
            return cls(*({name: {key: index(n) for key, n in row.items()} for name, row in part} for part in parts))
        except (AttributeError, KeyError, TypeError):
            return None

    def over(self, older: PairCounts | None) -> PairCounts:
        """Returns these counts, with `older` ones where these are too few for a rule."""
        sides = zip(vars(self).values(), vars(older or self).values(), strict=True)
        return PairCounts(*({**new, **old, **_enough(new)} for new, old in sides))

    def copies(self, kind: Kind) -> bool:
        """Whether the pair copies text of this kind."""
        return _usual(self.copied, kind) == "verbatim"

    def marks(self, side: Side) -> NumberMarks:
        """Returns the usual way to write numbers on a side."""
        table: Table = getattr(self, side)
        decimal, group, thousands = (_usual(table, question) for question in ("decimal", "group", "thousands"))
        minimum = {"grouped": 1, "plain": 2}.get(thousands or "")
        return NumberMarks(decimal, group, minimum, _usual(table, "digits"))

    def quotes(self, side: Side) -> tuple[str, str] | None:
        """Returns the usual opening and closing quotation marks of a side, each with its inner space if any."""
        marks = _usual(getattr(self, side), "quotes")
        return (marks[: len(marks) // 2], marks[len(marks) // 2 :]) if marks else None

    def titles(self, side: Side) -> bool | None:
        """Whether the long words of headings are capitalised. None means that neither form is usual."""
        usual = _usual(getattr(self, side), "headings")
        return None if usual is None else usual == "titles"


def number_marks(code: str, counts: PairCounts | None, side: Side) -> Marks | None:
    """Returns the marks of a side's numbers: counted marks, completed by CLDR. Returns None if the decimal or the group
    mark was not counted and CLDR does not have the language `code`, which may be ""."""
    counted = counts.marks(side)._asdict() if counts else {}
    known = {name: value for name, value in counted.items() if value is not None}
    given = cldr_marks(code) or (Marks("", "") if {"decimal", "group"} <= known.keys() else None)
    return given and replace(given, **known)


def _enough(table: Table) -> Table:
    """Returns the counts that are large enough for a rule."""
    least = dict.fromkeys(("decimal", "group", "thousands", "digits"), FEWEST_NUMBERS)
    return {question: row for question, row in table.items() if sum(row.values()) >= least.get(question, FEWEST)}


def _usual(table: Table, question: str) -> str | None:
    """Returns the answer with at least a share USUAL of the counts, or None."""
    row = _enough(table).get(question, {})
    return next((answer for answer, count in row.items() if count >= USUAL * sum(row.values())), None)
