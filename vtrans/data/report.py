"""The report of a data folder in words: what was kept and dropped, what the two sides share."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from vtrans.console import Console
from vtrans.data.encode import RATIO_FREE_TOKENS
from vtrans.data.overlap import overlap_table, tying_advice
from vtrans.data.writing_systems import SCRIPT_THRESHOLD, script_table


def flag(name: str) -> str:
    """The flag of an option."""
    return "--symbol" if name == "symbols" else f"--{name.replace('_', '-')}"


def said(value: Any) -> str:
    """An option's value, for people."""
    if value is None:
        return "unset"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)


def dropped_words(dropped: dict[str, int], options: dict[str, Any]) -> str:
    """How many pairs were dropped for each reason; of the options, their identity()."""
    words = {
        "empty": "with an empty side",
        "too_long": f"longer than {options['max_tokens']} tokens",
        "odd_ratio": f"with a length ratio above {options['max_ratio']:g} "
        f"(where the longer side has more than {RATIO_FREE_TOKENS} tokens)",
    }
    return ", ".join(f"{n:,} {words[reason]}" for reason, n in dropped.items())


def show(report: dict[str, Any], out: Path, console: Console) -> None:
    """The report for people."""
    train, valid, vocabulary, options = (report[k] for k in ("train", "valid", "vocabulary", "options"))
    for part, facts in (("training", train), ("validation", valid)):
        dropped = dropped_words(facts["dropped"], options)
        console.info(f"{part}: {facts['kept']:,} of {facts['read']:,} pairs kept; dropped {dropped}.")
    if len(train["corpora"]) > 1:
        names = [files["src"]["name"] for files in report["inputs"]["train"]]
        counts = ", ".join(f"{name} {n:,}" for name, n in zip(names, train["corpora"], strict=True))
        console.info(f"training pairs by corpus: {counts}; train.corpus_weights can weigh them.")
    for part, facts in report["characters"].items():
        for side in ("src", "tgt"):
            if n := facts["odd_line_ends"][side]:
                console.warn(f"{part} {side}: {n:,} characters that other tools take for line ends are now spaces.")
            if n := facts["replacements"][side]:
                console.warn(f"{part} {side}: {n:,} U+FFFD stand for bytes that are not UTF-8.")
    if valid["longest"] > options["max_tokens"]:
        console.warn(
            f"the longest validation sentence has {valid['longest']:,} tokens, "
            f"above the {options['max_tokens']:,} of --max-tokens; validation pairs are all kept."
        )
    if valid["sources_in_train"]:
        console.warn(
            f"of {valid['kept']:,} validation pairs {valid['pairs_in_train']:,} are in the training text, "
            f"and the source sentences of {valid['sources_in_train']:,}: scores on them say less."
        )
    kind = "one joint vocabulary" if vocabulary["joint"] else "two vocabularies"
    sizes = sorted({vocabulary["src_pieces"], vocabulary["tgt_pieces"]})
    console.info(
        f"{kind} of {' and '.join(f'{n:,}' for n in sizes)} pieces ({options['subword']}, "
        f"normalization {vocabulary['normalization']}, character coverage {options['character_coverage']})."
    )
    for symbol, n in vocabulary["symbols"].items():
        if n["src"] or n["tgt"]:
            console.info(f"symbol {symbol}: {n['src']:,} in the source and {n['tgt']:,} in the target of the training.")
        else:
            console.warn(f"symbol {symbol} is nowhere in the training text; a model will not learn what it means.")
    console.table(
        "training tokens",
        [
            (
                side,
                f"{train['tokens'][key]:,}",
                f"{train['characters'][key]:,}",
                f"{train['characters_a_token'][key]:.2f}",
            )
            for side, key in (("source", "src"), ("target", "tgt"))
        ],
        header=("side", "tokens", "characters", "characters a token"),
    )
    rows, header = overlap_table(report["overlap"]["rows"])
    console.table("vocabulary overlap", rows, header=header)
    console.info(f"({report['overlap']['definition']}.)")
    rows, header = script_table(report["overlap"]["scripts"])
    console.table(f"by script, N = {SCRIPT_THRESHOLD}", rows, header=header)
    console.info(f"({report['overlap']['script_definition']}.)")
    console.info(tying_advice(report["overlap"]["rows"]))
    console.info(f"the data folder is {out}; next: vtrans train --data {shlex.quote(str(out))}")
