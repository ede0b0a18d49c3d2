"""Estimates the cost of preparing, for `prepare-bpe --dry-run`: counts all lines and encodes a sample of pairs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrans.data.options import DEFAULT_VOCAB_SIZE, PrepareOptions
from vtrans.data.preparation.encode import Encoded, Encoder, Task, TextPair, encoders
from vtrans.data.preparation.learn_vocabulary import SizeError, given_vocabularies, learn, learn_vocabularies
from vtrans.data.preparation.parallel_text import Inputs, Sample, Split
from vtrans.data.preparation.report import shown
from vtrans.system.console import Console, duration
from vtrans.text.vocabulary import Vocabulary

SAMPLE = 20_000
"""Number of random training pairs from which a dry run learns and which it encodes."""


@dataclass(frozen=True)
class _Trial:
    """Measurements of learning from and encoding `pairs` random training pairs."""

    pairs: int
    task: Task
    encoded: Encoded
    text_bytes: int  # of both sides
    reading: float  # seconds for one pass over the training text
    learning: float  # seconds for the vocabulary, extrapolated to the full sample
    encoding: float  # seconds for all training pairs, extrapolated


def estimate(options: PrepareOptions, inputs: Inputs, began: float, console: Console) -> dict[str, Any]:
    """Prints and returns an estimate of the time and disk space for preparing.

    `began` is the time.monotonic() at which reading the inputs began.
    """
    split = inputs.split(console)
    surveying = time.monotonic() - began
    _show_inputs(options, inputs, split, console)
    trial = _try(options, split, console)
    # Every pass reads the whole text again. Encoding the held-out pairs takes another pass.
    passes = 1 if split.valid else 2
    seconds = surveying + passes * trial.reading + trial.learning + max(trial.reading, trial.encoding)
    figures = _figures(options, split, trial, seconds)

    say = console.info
    about = "about " if trial.pairs < split.usable else ""
    tokens = figures["tokens"]
    say(
        f"tokens: {about}{tokens['src']:,} source and {tokens['tgt']:,} target in {about}{figures['kept']:,} "
        f"training pairs (measured on {trial.pairs:,} pairs)"
    )
    stored, peak = figures["bytes"], figures["bytes_meanwhile"]
    there = next(folder for folder in (Path(options.out), *Path(options.out).absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    say(
        f"disk: about {stored / 1e6:,.1f} MB, up to {peak / 1e6:,.1f} MB while preparing; {free / 1e6:,.0f} MB are free"
    )
    if peak > free:
        console.warn(f"the disk of {options.out} does not have enough free space; choose a folder on another disk.")
    aligning = ", excluding word alignment" if options.align else ""
    say(f"time: about {duration(seconds)}, including {duration(trial.learning)} for the vocabulary{aligning}")
    say("dry run: nothing was written")
    return figures


def _show_inputs(options: PrepareOptions, inputs: Inputs, split: Split, console: Console) -> None:
    survey, say = split.survey, console.info
    for files, lines in zip(inputs.facts["train"], survey.lines, strict=True):
        say(f"{files['src']['name']}: {lines:,} pairs")
    say(f"training text: {survey.pairs:,} pairs; {survey.pairs - survey.usable:,} of them have a blank side")
    if split.valid_survey:
        say(f"validation text: {split.valid_survey.pairs:,} pairs")
    named = ", ".join(f"{name} {shown(value)}" for name, value in options.identity().items() if name != "vocab_size")
    say(f"options: {named}, threads {options.threads}")
    if options.vocabularies:
        say("vocabulary: that of a model")
        return
    say(
        f"vocabulary: {'one per side' if options.separate else 'one for both sides'}, {_size(options):,} pieces"
        + (", or fewer if the text does not allow as many" if options.vocab_size is None else "")
        + f", learned from {min(options.sample, split.usable):,} pairs"
    )


def _try(options: PrepareOptions, split: Split, console: Console) -> _Trial:
    """Reads, learns from and encodes a random sample of the training pairs."""
    drawn = min(options.sample, split.usable)
    size = min(SAMPLE, drawn)
    start = time.monotonic()
    with console.progress("reading some pairs", size, "pairs") as progress:
        lines = list(Sample(split, "both", size, progress.advance))
    reading = time.monotonic() - start
    pairs = list(zip(lines[::2], lines[1::2], strict=True))
    console.info(f"learning from {size:,} pairs ...")
    half, _ = _learn(pairs[: -(-size // 2)], options)
    whole, (src, tgt) = _learn(pairs, options)
    if size == split.usable:  # these are all pairs, so refuse an impossible size, as preparing does
        src, tgt = learn_vocabularies(split, options, console)
    learning = whole + max(0.0, whole - half) * (drawn - size) / max(1, size // 2)
    pieces = max(len(src), len(tgt)) if options.vocabularies else _size(options)
    task = Task(src.proto, tgt.proto, pieces, max_tokens=options.max_tokens, max_ratio=options.max_ratio)
    start = time.monotonic()
    encoded = Encoder(task)(pairs)
    encoding = (time.monotonic() - start) / size * split.usable / encoders(split.usable, options.threads)
    return _Trial(size, task, encoded, sum(len(line.encode()) for line in lines), reading, learning, encoding)


def _learn(pairs: Sequence[TextPair], options: PrepareOptions) -> tuple[float, tuple[Vocabulary, Vocabulary]]:
    """Returns the seconds for learning from these pairs, and the vocabularies of the two sides.

    If the pairs do not allow the size in the options, the vocabularies have the nearest size that they allow.
    """
    if options.vocabularies:
        return 0.0, given_vocabularies(options)
    start, vocabularies = time.monotonic(), []
    sides = [[pair[0] for pair in pairs], [pair[1] for pair in pairs]]
    for lines in sides if options.separate else [[*sides[0], *sides[1]]]:
        try:
            vocabularies.append(learn(lines, options.vocab_size, options))
        except SizeError as error:
            vocabularies.append(learn(lines, error.nearest, options))
    return time.monotonic() - start, (vocabularies[0], vocabularies[-1])


def _figures(options: PrepareOptions, split: Split, trial: _Trial, seconds: float) -> dict[str, Any]:
    """Returns the estimate, as `prepare-bpe --dry-run --json` prints it."""
    encoded, task, scale = trial.encoded, trial.task, split.usable / trial.pairs
    kept = len(encoded.kept) * scale
    tagged = len(encoded.kept) if options.tags else 0  # one tag per source
    tokens = {"src": round((len(encoded.src.ids) + tagged) * scale), "tgt": round(len(encoded.tgt.ids) * scale)}
    columns = [n * (4 if task.wide else 2) for n in tokens.values()]
    models = sum(map(len, {task.src_proto, task.tgt_proto}))
    # A pair takes its ids and two 8-byte offsets; a validation pair also its text with two offsets.
    validation = split.validation_size * (sum(columns) / (kept or 1) + 32 + trial.text_bytes / trial.pairs)
    stored = sum(columns) + 16 * round(kept) + models + round(validation)
    if options.align or options.alignments:  # about one link per target subword, of two 2-byte numbers
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
        "seconds": round(seconds, 3),
        "measured_on": trial.pairs,
    }


def _size(options: PrepareOptions) -> int:
    return DEFAULT_VOCAB_SIZE if options.vocab_size is None else options.vocab_size
