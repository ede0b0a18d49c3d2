"""`vtrans prepare-bpe --dry-run`: what making the folder will take, from all lines counted and a few pairs encoded."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vtrans.config import DEFAULT_VOCAB_SIZE, PrepareOptions
from vtrans.console import Console, duration
from vtrans.data.encode import Encoder, Pair, Task, encoders
from vtrans.data.learn_vocabulary import SizeError, learn_from, learn_sides
from vtrans.data.parallel_text import Corpus, Sample, TrainingText, survey
from vtrans.data.report import flag, said
from vtrans.data.vocabulary import Vocabulary

REHEARSED = 20_000
"""Random training pairs that a dry run learns from and encodes."""


def rehearse(
    options: PrepareOptions,
    train: Corpus,
    valid: Corpus | None,
    inputs: dict[str, Any],
    began: float,
    console: Console,
) -> dict[str, Any]:
    """Says what making the folder will take, and returns that; `began` is when the reading of the inputs began."""
    say = console.info
    found, valid_found, held_out = survey(train, valid, inputs, options.seed, console)
    names = [files["src"]["name"] for files in inputs["train"]]
    for name, lines in zip(names, found.lines, strict=True):
        say(f"{name}: {lines:,} pairs")
    say(f"training text: {found.pairs:,} pairs, of which {found.pairs - found.usable:,} have a blank side")
    if valid_found:
        say(f"validation text: {valid_found.pairs:,} pairs")
    named = ", ".join(f"{flag(n)} {said(v)}" for n, v in options.identity().items() if n != "vocab_size")
    say(f"options: {named}, --threads {options.threads}")
    pairs = found.usable - sum(held_out.values())
    size = DEFAULT_VOCAB_SIZE if options.vocab_size is None else options.vocab_size
    drawn, sample = min(options.sample, pairs), min(REHEARSED, options.sample, pairs)
    say(
        f"vocabulary: {'one a side' if options.separate else 'one for both sides'}, {size:,} pieces are asked"
        + (" (fewer if the text allows no more)" if options.vocab_size is None else "")
        + f", learnt from {drawn:,} pairs"
    )

    start = surveyed = time.monotonic()
    source = TrainingText(train, frozenset(held_out), options.seed)
    with console.progress("reading some pairs", sample, "pairs") as progress:
        lines_read = list(Sample(source, "both", sample, pairs, progress.advance))
    reading = time.monotonic() - start
    batch = list(zip(lines_read[::2], lines_read[1::2], strict=True))
    say(f"learning from {sample:,} pairs ...")
    half, _ = _learn_some(batch[: -(-sample // 2)], options)
    whole, vocabularies = _learn_some(batch, options)
    if sample == drawn == pairs:  # these are all that there are, so a size that they refuse will be refused
        vocabularies = learn_sides(source, pairs, options, console)
    learning = whole + max(0.0, whole - half) * (drawn - sample) / max(1, sample // 2)
    task = Task(
        vocabularies[0].proto, vocabularies[-1].proto, size, max_tokens=options.max_tokens,
        max_ratio=options.max_ratio,
    )  # fmt: skip
    start = time.monotonic()
    encoded = Encoder(task)(batch)
    encoding = (time.monotonic() - start) / sample * pairs / encoders(pairs, options.threads)

    kept, scale = len(encoded.kept) / sample, pairs / sample
    tokens = {"src": round(len(encoded.src.ids) * scale), "tgt": round(len(encoded.tgt.ids) * scale)}
    sides = [n * (4 if task.wide else 2) for n in tokens.values()]
    stored = sum(sides) + 16 * round(kept * pairs) + sum(len(v.proto) for v in vocabularies)
    validation = valid_found.pairs if valid_found else sum(held_out.values())
    # Of validation pairs the text is stored too.
    characters = sum(len(line.encode()) for line in lines_read) / sample
    stored += round(validation * (sum(sides) / (kept * pairs or 1) + 32 + characters))
    # While a store is put together, what it is made of is there as well, a column at a time less.
    peak, free = stored + max(sides), shutil.disk_usage(_existing(Path(options.out))).free
    # The text is read as often again as it was now; held-out pairs take a pass of their own.
    seconds = (surveyed - began) + reading * (1 if valid else 2) + learning + max(reading, encoding)
    estimate = {
        "pairs": found.pairs,
        "corpora": found.lines,
        "blank": found.pairs - found.usable,
        "held_out": None if valid else sum(held_out.values()),
        "vocab_size": size,
        "learnt_from": drawn,
        "kept": round(kept * pairs),
        "tokens": tokens,
        "bytes": stored,
        "bytes_meanwhile": peak,
        "seconds": round(seconds, 3),
        "measured_on": sample,
    }
    about = "about " if sample < pairs else ""
    say(
        f"tokens: {about}{tokens['src']:,} source and {tokens['tgt']:,} target in {about}{round(kept * pairs):,} "
        f"training pairs (from {sample:,} pairs)"
    )
    say(f"disk: about {stored / 1e6:,.1f} MB, {peak / 1e6:,.1f} MB meanwhile; {free / 1e6:,.0f} MB are free")
    if peak > free:
        console.warn(f"there is too little room for {options.out}; name another place with --out.")
    say(f"time: about {duration(seconds)}, of which {duration(learning)} for the vocabulary")
    say("dry run: nothing was written")
    return estimate


def _learn_some(batch: Sequence[Pair], options: PrepareOptions) -> tuple[float, list[Vocabulary]]:
    """The seconds that a vocabulary from these pairs takes, or one a side, and what came of it: if the pairs
    are too few for the size that is asked, with the size that they allow."""
    start, vocabularies = time.monotonic(), []
    sides = [[src for src, _ in batch], [tgt for _, tgt in batch]]
    for lines in sides if options.separate else [[*sides[0], *sides[1]]]:
        size = options.vocab_size
        while True:
            try:
                vocabularies.append(learn_from(lines, size, options, "the training text"))
                break
            except SizeError as error:
                size = None if size == error.works else error.works
    return time.monotonic() - start, vocabularies


def _existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there."""
    return next(folder for folder in (path, *path.absolute().parents) if folder.exists())
