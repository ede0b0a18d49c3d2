"""Prints the report of a data folder: kept and dropped pairs, the vocabulary, and the overlap of the two sides."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, get_args

from vtrans.data.preparation.coverage import show_coverage
from vtrans.data.preparation.encode import RATIO_FREE_TOKENS
from vtrans.data.preparation.overlap import show_overlap
from vtrans.storage.pair_counts import Kind, PairCounts, Side
from vtrans.system.console import Console
from vtrans.text.languages import language_name, languages_from
from vtrans.text.normalization import NFC


def shown(value: Any) -> str:
    """Returns the value of an option as text."""
    if value is None:
        return "unset"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)


def dropped_pairs(dropped: dict[str, int], options: dict[str, Any]) -> str:
    """Returns a text with the number of dropped pairs per reason. `options` are the options in the report."""
    reasons = {
        "empty": "with an empty side",
        "too_long": f"longer than {options['max_tokens']} tokens",
        "odd_ratio": f"with a length ratio above {options['max_ratio']:g} "
        f"(if the longer side has more than {RATIO_FREE_TOKENS} tokens)",
    }
    return ", ".join(f"{n:,} {reasons[reason]}" for reason, n in dropped.items() if n) or "none"


def show(report: dict[str, Any], out: Path, console: Console) -> None:
    """Prints the report and the next command."""
    for pair in languages_from(report["languages"]):
        tag = report["tags"].get(pair.tgt)
        console.info(f"languages: {' to '.join(map(language_name, pair))}{f', tag {tag}' if tag else ''}")
    _show_pairs(report, console)
    _show_vocabulary(report, console)
    train = report["train"]
    console.table(
        "training tokens",
        [
            (
                name,
                f"{train['tokens'][side]:,}",
                f"{train['characters'][side]:,}",
                f"{train['characters_a_token'][side]:.2f}",
            )
            for name, side in (("source", "src"), ("target", "tgt"))
        ],
        header=("side", "tokens", "characters", "characters per token"),
    )
    if console.advises:  # the overlap is for the choice of a vocabulary
        show_overlap(report["overlap"], console)
        if counts := PairCounts.of(report.get("pair")):
            _show_forms(counts, console)
    console.info(f"the data folder is {out}", f"next: vtrans train --data {shlex.quote(str(out))}")


def _show_pairs(report: dict[str, Any], console: Console) -> None:
    train, valid, options = report["train"], report["valid"], report["options"]
    for part, facts in (("training", train), ("validation", valid)):
        dropped = dropped_pairs(facts["dropped"], options)
        held_out = f"; {valid['read']:,} held out" if report["held_out"] and part == "training" else ""
        console.info(f"{part}: {facts['kept']:,} of {facts['read']:,} pairs kept; dropped: {dropped}{held_out}.")
    if "matches" in train:
        console.info(f"{train['matches']:,} training pairs are in the data a second time, with a fuzzy match.")
    if len(train["corpora"]) > 1:
        names = [files["src"]["name"] for files in report["inputs"]["train"]]
        counts = ", ".join(f"{name} {n:,}" for name, n in zip(names, train["corpora"], strict=True))
        console.info(
            f"training pairs by corpus: {counts}",
            "weight them with train.corpus_weights or train.corpus_temperature in the recipe.",
        )
    for part, facts in report["characters"].items():
        for side in ("src", "tgt"):
            if n := facts["odd_line_ends"][side]:
                console.warn(f"{part} {side}: {n:,} characters that other tools read as line ends are now spaces.")
            if n := facts["replacements"][side]:
                console.warn(f"{part} {side}: {n:,} U+FFFD replace bytes that are not UTF-8.")
    if valid["longest"] > options["max_tokens"]:
        console.warn(
            f"the longest validation sentence has {valid['longest']:,} tokens, more than the limit of "
            f"{options['max_tokens']:,} for training; no validation pair is dropped for its length."
        )
    if valid["sources_in_train"]:
        console.warn(
            f"the training text also contains the source sentences of {valid['sources_in_train']:,} of the "
            f"{valid['kept']:,} validation pairs, {valid['pairs_in_train']:,} of them with the same translation; "
            "validation scores may be too high."
        )


def _show_vocabulary(report: dict[str, Any], console: Console) -> None:
    vocabulary, options = report["vocabulary"], report["options"]
    kind = "one joint vocabulary" if vocabulary["joint"] else "two vocabularies"
    sizes = sorted({vocabulary["src_pieces"], vocabulary["tgt_pieces"]})
    console.info(
        f"{kind} of {' and '.join(f'{n:,}' for n in sizes)} pieces ({options['subword']}, "
        f"normalization {vocabulary['normalization']}, character coverage {options['character_coverage']})."
    )
    rule = options["normalization"]
    can_change = rule != NFC and not rule.endswith("_cf") and not options.get("vocabularies")
    show_coverage(report["train"], console, remedy=can_change)
    for symbol, n in vocabulary["symbols"].items():
        if n["src"] or n["tgt"]:
            console.info(f"symbol {symbol}: {n['src']:,} in the training source, {n['tgt']:,} in the training target.")
        else:
            console.warn(
                f"symbol {symbol} does not occur in the training text; a model trained on it does not learn the symbol."
            )


def _show_forms(counts: PairCounts, console: Console) -> None:
    """Prints the forms of the language pair that were counted in the training text."""
    rows = []
    for kind in get_args(Kind):
        row = counts.copied.get(kind, {})
        rows.append((kind, f"{sum(row.values()):,}", f"{row.get('verbatim', 0):,}", counts.copies(kind)))
    console.table("copied text", rows, header=("kind", "in the source", "also in the target", "is copied"))
    rows = []
    for side in get_args(Side):
        values = (*counts.marks(side), "".join(counts.quotes(side) or "") or None, counts.titles(side))
        rows.append((side, *("-" if value is None else repr(value) for value in values)))
    header = ("side", "decimal mark", "group mark", "digits before it", "zero", "quotation marks", "titles in capitals")
    console.table("forms of the training text (-: not known)", rows, header=header)
