"""The table of a study: a line per row, from the figures of its seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vtrans.score.metrics import SIGNIFICANT

from ..work import markdown_table
from .rows import Row

HEAD = (
    "row", "what", "seeds", "parameters", "unshared", "file, MB", "tokens/s", "updates", "minutes", "sentences/s",
    "one at a time", "BLEU", "chrF",
)  # fmt: skip
EXPLAINED = (
    "Scores are those of the validation text, translated with {searches}; those of several seeds are given as mean "
    "(minimum to maximum). Minutes are those of training with its validations. Speeds are those of the fastest seed, "
    "because other work on the machine can only slow a row down. Tokens are target tokens without padding. Sentences "
    "are translated by one process, in batches and one at a time, without loading the model. A star marks a score that "
    "differs significantly from the one of the first row: p < {level} with every seed, in the paired bootstrap test of "
    "`vtrans score --baseline`. The test does not know how much another seed changes a score."
)

Found = tuple[Row, int, Mapping[str, Any], Sequence[Mapping[str, Any]]]
"""A row, its seed, the figures that measure.py wrote, and for each score a comparison with the first row, if any."""


def table(found: Sequence[Found], about: str) -> str:
    """Returns the table in Markdown, and the notes that explain its figures. `about` says what all rows have."""
    every = [figures for _, _, figures, _ in found]
    searches = dict.fromkeys(f"beam {each['search']['beam']}, alpha {each['search']['alpha']}" for each in every)
    notes = [
        f"{about} {EXPLAINED.format(searches=' or '.join(searches), level=SIGNIFICANT)}",
        *dict.fromkeys(f"{score['name']} {score['signature']}" for each in every for score in each["scores"]),
        *dict.fromkeys(each["host"] for each in every),
    ]
    return "".join([markdown_table(HEAD, 2, _lines(found)), "\n", *(f"- {note}\n" for note in notes)])


def _lines(found: Sequence[Found]) -> Iterator[list[str]]:
    for row in dict.fromkeys(row for row, *_ in found):
        seeds = [figures for other, _, figures, _ in found if other == row]
        tests = [compared for other, _, _, compared in found if other == row]
        first, updates = seeds[0], [each["updates"] for each in seeds]
        fastest = [
            f"{max(each[key] for each in seeds):,.0f}"
            for key in ("train_tokens_a_second", "sentences_a_second", "singles_a_second")
        ]
        yield [
            row.name,
            row.words,
            str(len(seeds)),
            f"{first['parameters']:,}",
            f"{first['parameters_without_sharing']:,}",
            f"{first['bytes'] / 1e6:.1f}",
            fastest[0],
            "-".join(dict.fromkeys(f"{end:,}" for end in (min(updates), max(updates)))),
            f"{statistics.fmean(each['seconds'] for each in seeds) / 60:.1f}",
            *fastest[1:],
            *(_spread([each["scores"][n]["value"] for each in seeds]) + _star(tests, n) for n in (0, 1)),
        ]


def _star(tests: Sequence[Sequence[Mapping[str, Any]]], number: int) -> str:
    """Returns a star if the comparisons of all seeds find the same significant difference of a score."""
    if not all(test and test[number]["p_value"] < SIGNIFICANT for test in tests):
        return ""
    better = {test[number]["value"] > test[number]["baseline_value"] for test in tests}
    return "*" if len(better) == 1 else ""


def _spread(values: Sequence[float]) -> str:
    mean, least, most = statistics.fmean(values), min(values), max(values)
    return f"{mean:.1f}" if least == most else f"{mean:.1f} ({least:.1f} to {most:.1f})"
