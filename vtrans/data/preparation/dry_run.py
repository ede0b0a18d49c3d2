"""Estimates the cost of preparing, for `prepare-bpe --dry-run`: counts all lines and encodes a sample of pairs."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from vtrans.data.options import DEFAULT_VOCAB_SIZE, PrepareOptions
from vtrans.data.preparation.encode import Encoded, Encoder, Task, encoders
from vtrans.data.preparation.learn_vocabulary import SizeError, learn_vocabularies
from vtrans.data.preparation.parallel_text import Inputs, Sample, Split
from vtrans.system.console import Console, duration

SAMPLE = 20_000
"""Number of random training pairs from which a dry run learns and which it encodes."""


def estimate(options: PrepareOptions, inputs: Inputs, began: float, console: Console) -> dict[str, Any]:
    """Prints and returns an estimate of the time and disk space for preparing.

    `began` is the time.monotonic() at which reading the inputs began.
    """
    split = inputs.split(console)
    surveying = time.monotonic() - began
    drawn = min(options.sample, split.usable)
    size = min(SAMPLE, drawn)

    start = time.monotonic()
    with console.progress("reading some pairs", size, "pairs") as progress:
        lines = list(Sample(split, "both", size, progress.advance))
    reading = time.monotonic() - start

    start = time.monotonic()
    sampled = replace(options, sample=size)
    try:
        src, tgt = learn_vocabularies(split, sampled, console)
    except SizeError:
        if size == split.usable:
            raise
        src, tgt = learn_vocabularies(split, replace(sampled, vocab_size=None), console)
    learned = time.monotonic() - start
    passes = min(learned, reading * (2 if options.separate else 1))  # over the whole text, for any sample size
    learning = passes + (learned - passes) * drawn / size

    wanted = DEFAULT_VOCAB_SIZE if options.vocab_size is None else options.vocab_size
    pieces = max(len(src), len(tgt)) if options.vocabularies else wanted
    task = Task(src.proto, tgt.proto, pieces, max_tokens=options.max_tokens, max_ratio=options.max_ratio)
    start = time.monotonic()
    encoded = Encoder(task)(list(zip(lines[::2], lines[1::2], strict=True)))
    encoding = (time.monotonic() - start) / size * split.usable / encoders(split.usable, options.threads)

    seconds = surveying + learning + max(reading, encoding)  # every pass reads the whole text
    text_bytes = sum(len(line.encode()) for line in lines)
    figures = _figures(options, split, task, encoded, text_bytes) | {"seconds": round(seconds, 3)}
    _show(figures, options, inputs, split, console)
    console.info(f"time: about {duration(seconds)}, including {duration(learning)} for the vocabulary")
    console.info("dry run: nothing was written")
    return figures


def _figures(options: PrepareOptions, split: Split, task: Task, encoded: Encoded, text_bytes: int) -> dict[str, Any]:
    """Returns the estimate that `prepare-bpe --dry-run --json` prints, except the time. `text_bytes` is the size of the
    encoded pairs' text."""
    scale = split.usable / encoded.read
    kept = len(encoded.kept) * scale
    tagged = len(encoded.kept) if options.tags else 0  # one tag per source
    tokens = {"src": round((len(encoded.src.ids) + tagged) * scale), "tgt": round(len(encoded.tgt.ids) * scale)}
    columns = [n * (4 if task.wide else 2) for n in tokens.values()]
    models = sum(map(len, {task.src_proto, task.tgt_proto}))
    # A pair takes its ids and two 8-byte offsets; a validation pair also its text with two offsets.
    validation = split.validation_size * (sum(columns) / (kept or 1) + 32 + text_bytes / encoded.read)
    stored = sum(columns) + 16 * round(kept) + models + round(validation)
    if options.alignments:  # about one link per target subword, of two 2-byte numbers
        stored += 4 * tokens["tgt"] + 8 * round(kept)
    return {
        "pairs": split.survey.pairs,
        "corpora": split.survey.lines,
        "blank": split.survey.pairs - split.survey.usable,
        "held_out": None if split.valid else split.validation_size,
        "vocab_size": task.pieces,
        "learnt_from": min(options.sample, split.usable),
        "kept": round(kept),
        "tokens": tokens,
        "bytes": stored,
        # A store is assembled from one file per column, which is deleted after being copied.
        "bytes_meanwhile": stored + max(columns),
        "measured_on": encoded.read,
    }


def _show(figures: dict[str, Any], options: PrepareOptions, inputs: Inputs, split: Split, console: Console) -> None:
    say, about = console.info, "about " if figures["measured_on"] < split.usable else ""
    for files, lines in zip(inputs.facts["train"], figures["corpora"], strict=True):
        say(f"{files['src']['name']}: {lines:,} pairs")
    say(f"training text: {figures['pairs']:,} pairs; {figures['blank']:,} of them have a blank side")
    if split.valid_survey:
        say(f"validation text: {split.valid_survey.pairs:,} pairs")
    sides = "one per side" if options.separate else "one for both sides"
    fewer = ", or fewer if the text does not allow as many" if options.vocab_size is None else ""
    learned = f"{sides}, {figures['vocab_size']:,} pieces{fewer}, learned from {figures['learnt_from']:,} pairs"
    say(f"vocabulary: {'that of a model' if options.vocabularies else learned}")
    tokens = figures["tokens"]
    say(
        f"tokens: {about}{tokens['src']:,} source and {tokens['tgt']:,} target in {about}{figures['kept']:,} "
        f"training pairs (measured on {figures['measured_on']:,} pairs)"
    )
    stored, peak = figures["bytes"], figures["bytes_meanwhile"]
    there = next(folder for folder in (Path(options.out), *Path(options.out).absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    say(
        f"disk: about {stored / 1e6:,.1f} MB, up to {peak / 1e6:,.1f} MB while preparing; {free / 1e6:,.0f} MB are free"
    )
    if peak > free:
        console.warn(f"the disk of {options.out} does not have enough free space; choose a folder on another disk.")
