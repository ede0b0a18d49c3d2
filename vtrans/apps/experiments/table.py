"""Markdown tables, and the table of a study: one line per row, summarising its seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vtrans.score.metrics import SIGNIFICANT, Comparison

HEAD = (
    "row", "what", "seeds", "parameters", "unshared", "file, MB", "tokens/s", "updates", "minutes", "sentences/s",
    "one at a time", "BLEU", "chrF",
)  # fmt: skip
EXPLAINED = (
    "Scores are those of the validation text, translated with {searches}; those of several seeds are given as mean ± "
    "standard deviation. Minutes are those of training with its validations. Speeds are those of the fastest seed, "
    "because other work on the machine can only slow a row down. Tokens are target tokens without padding. Sentences "
    "are translated by one process, in batches and one at a time, without loading the model. A star marks a score that "
    "differs significantly from the one of the first row: p < {level} in the paired bootstrap test of `vtrans score`. "
    "Its samples have the same lines of every seed; it does not know how much another seed changes a score."
)

Found = tuple[str, str, Mapping[str, Any]]
"""The name of a row, its description, and the figures that measure.py wrote for one seed."""


def table(found: Sequence[Found], about: str, tests: Sequence[Sequence[Comparison]] = ()) -> str:
    """Returns the table in Markdown, with notes that explain its figures. `about` describes the common settings, and
    `tests` are the comparisons of the rows per score."""
    every = [figures for _, _, figures in found]
    searches = dict.fromkeys(
        "beam {beam}, alpha {alpha} and the engine {engine}".format(**each["search"]) for each in every
    )
    notes = [
        f"{about} {EXPLAINED.format(searches=' or '.join(searches), level=SIGNIFICANT)}",
        *dict.fromkeys(f"{score['name']} {score['signature']}" for each in every for score in each["scores"]),
        *dict.fromkeys(each["host"] for each in every),
    ]
    return "".join([markdown_table(HEAD, 2, _lines(found, tests)), "\n", *(f"- {note}\n" for note in notes)])


def _lines(found: Sequence[Found], tests: Sequence[Sequence[Comparison]]) -> Iterator[list[str]]:
    marked = {(test.system, n) for n, rows in enumerate(tests) for test in rows[1:] if test.p_value < SIGNIFICANT}
    for name, words in dict.fromkeys((name, words) for name, words, _ in found):
        seeds = [figures for other, _, figures in found if other == name]
        first, updates = seeds[0], [each["updates"] for each in seeds]
        fastest = [
            f"{max(each[key] for each in seeds):,.0f}"
            for key in ("train_tokens_a_second", "sentences_a_second", "singles_a_second")
        ]
        yield [
            name,
            words,
            str(len(seeds)),
            f"{first['parameters']:,}",
            f"{first['parameters_without_sharing']:,}",
            f"{first['bytes'] / 1e6:.1f}",
            fastest[0],
            "-".join(dict.fromkeys(f"{end:,}" for end in (min(updates), max(updates)))),
            f"{statistics.fmean(each['seconds'] for each in seeds) / 60:.1f}",
            *fastest[1:],
            *(
                _spread([each["scores"][n]["value"] for each in seeds]) + "*" * ((name, n) in marked)
                for n in range(len(first["scores"]))
            ),
        ]


def _spread(values: Sequence[float]) -> str:
    deviation = f" ±{statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{deviation}"


def markdown_table(head: Sequence[str], texts: int, rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown. The first `texts` columns contain text, the others numbers."""
    lines = [head, ["---"] * texts + ["---:"] * (len(head) - texts), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
