"""The table of a study: a line per row, from the figures of its seeds, as JSON or Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

CLOSE = 1.0  # BLEU: rows within it of another row need a second seed
RATES = ("train_tokens_a_second", "sentences_a_second", "singles_a_second")
HEAD = (
    "row", "what", "seeds", "parameters", "unshared", "file, MB", "tokens/s", "updates", "minutes", "sentences/s",
    "one at a time", "BLEU", "chrF",
)  # fmt: skip

Figures = Mapping[str, Any]
"""The figures of a row and a seed."""


def table(found: Sequence[Figures]) -> list[dict[str, Any]]:
    """Returns a line per row: figures that do not depend on the seed, and the mean, minimum and maximum of others."""
    groups: dict[str, list[Figures]] = {}
    for each in found:
        groups.setdefault(each["name"], []).append(each)
    lines = []
    for name, seeds in groups.items():
        same = {key: seeds[0][key] for key in ("words", "parameters", "parameters_without_sharing", "bytes")}
        values = {key: [each[key] for each in seeds] for key in (*RATES, "updates", "seconds")}
        for number, metric in enumerate(("bleu", "chrf")):
            values[metric] = [each["scores"][number]["value"] for each in seeds]
        spread = {
            key: {"mean": statistics.fmean(numbers), "least": min(numbers), "most": max(numbers)}
            for key, numbers in values.items()
        }
        lines.append({"name": name, **same, "seeds": [each["made"]["seed"] for each in seeds], **spread})
    return lines


def close_rows(found: Sequence[Figures]) -> list[str]:
    """Returns the rows whose BLEU with their first seed is within a point of that of another row."""
    first = {each["name"]: each["scores"][0]["value"] for each in reversed(found)}
    return [
        each["name"]
        for each in table(found)
        if any(name != each["name"] and abs(bleu - first[each["name"]]) <= CLOSE for name, bleu in first.items())
    ]


def markdown(found: Sequence[Figures], budget: str) -> str:
    """Returns the table and the notes that explain its figures."""
    out = [f"| {' | '.join(HEAD)} |", "|---|---|" + "---:|" * (len(HEAD) - 2)]
    for line in table(found):
        cells = [
            line["name"],
            line["words"],
            str(len(line["seeds"])),
            f"{line['parameters']:,}",
            f"{line['parameters_without_sharing']:,}",
            f"{line['bytes'] / 1e6:.1f}",
            f"{line['train_tokens_a_second']['most']:,.0f}",
            "-".join(dict.fromkeys(f"{line['updates'][end]:,}" for end in ("least", "most"))),
            f"{line['seconds']['mean'] / 60:.1f}",
            *(f"{line[key]['most']:,.0f}" for key in RATES[1:]),
            *(_spread(line[metric]) for metric in ("bleu", "chrf")),
        ]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join([*out, "", *(f"- {note}" for note in _notes(found, budget)), ""])


def _notes(found: Sequence[Figures], budget: str) -> list[str]:
    made = found[0]["made"]
    searches = dict.fromkeys(f"beam {each['search']['beam']}, alpha {each['search']['alpha']}" for each in found)
    notes = [
        f"Recipe {found[0]['recipe']}, {budget} per row, {made['vocab_size']:,} subwords in all, "
        f"{made['languages'][0]} to {made['languages'][1]}. Scores are those of the validation text, translated with "
        f"{' or '.join(searches)}; those of several seeds are given as mean (minimum to maximum). Minutes are those of "
        "training with its validations. Speeds are those of the fastest seed, because other work on the machine can "
        "only slow a row down. Tokens are target tokens without padding. Sentences are translated by one process, in "
        "batches and one at a time, without loading the model.",
        *dict.fromkeys(f"{score['name']} {score['signature']}" for each in found for score in each["scores"]),
        *dict.fromkeys(each["host"] for each in found),
    ]
    single = {line["name"] for line in table(found) if len(line["seeds"]) == 1}
    if close := [name for name in close_rows(found) if name in single]:
        notes.append(f"Within {CLOSE:g} BLEU of another row, but with one seed: {', '.join(close)}.")
    return notes


def _spread(numbers: Mapping[str, float]) -> str:
    if numbers["least"] == numbers["most"]:
        return f"{numbers['mean']:.1f}"
    return f"{numbers['mean']:.1f} ({numbers['least']:.1f} to {numbers['most']:.1f})"
