"""How much of their subwords two sides have in common, before any training.

The sides are two text files, which need not be parallel, under a joint vocabulary that is learnt from both or
one that exists; or the training pairs of a data folder.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtrans.config import PrepareOptions
from vtrans.console import Console
from vtrans.data.store import DataFolder
from vtrans.data.vocabulary import (
    OVERLAP_DEFINITION,
    OVERLAP_THRESHOLDS,
    Vocabulary,
    learn,
    overlap,
    overlap_table,
    subword_counts,
    tying_advice,
)
from vtrans.data.writing_systems import SCRIPT_DEFINITION, SCRIPT_THRESHOLD, overlap_by_script, script_table
from vtrans.errors import FileError, InputError
from vtrans.text import OnBadUtf8, open_bytes, printable, read_lines

LINES = 10_000  # encoded at a time
SHARED = 15  # of the shared types, how many are named


@dataclass(frozen=True)
class Side:
    """The text of one side, and how often it has each surface piece of its vocabulary."""

    name: str
    lines: int
    characters: int | None  # None: of a data folder, which holds subwords
    tokens: int  # single bytes counted, of which `counts` has none
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Overlap:
    """Two sides under one vocabulary, or one each. `vocabulary` says which."""

    vocabulary: str
    src: Side
    tgt: Side

    def as_dict(self) -> dict[str, Any]:
        src, tgt = self.src.counts, self.tgt.counts
        rows = [dataclasses.asdict(row) for row in overlap(src, tgt)]
        return {
            "vocabulary": self.vocabulary,
            "sides": {
                key: {
                    "name": side.name,
                    "lines": side.lines,
                    "characters": side.characters,
                    "tokens": side.tokens,
                    "types": len(side.counts),
                }
                for key, side in (("src", self.src), ("tgt", self.tgt))
            },
            "definition": OVERLAP_DEFINITION,
            "rows": rows,
            "advice": tying_advice(rows),
            "script_definition": SCRIPT_DEFINITION,
            "scripts": [dataclasses.asdict(row) for row in overlap_by_script(src, tgt, OVERLAP_THRESHOLDS)],
            "shared": [{"piece": piece, "src": src[piece], "tgt": tgt[piece]} for piece in self.most_shared(SHARED)],
        }

    def most_shared(self, count: int) -> list[str]:
        """The pieces that the side which has them less often has most often, as a share of its tokens."""
        src, tgt = self.src.counts, self.tgt.counts
        n, m = max(1, sum(src.values())), max(1, sum(tgt.values()))
        return sorted(src.keys() & tgt.keys(), key=lambda p: (-min(src[p] / n, tgt[p] / m), p))[:count]

    def show(self, console: Console) -> None:
        """For people."""
        report = self.as_dict()
        console.info(f"vocabulary: {self.vocabulary}")
        console.table(
            "text",
            [
                (
                    side["name"],
                    f"{side['lines']:,}",
                    f"{side['tokens']:,}",
                    f"{side['types']:,}",
                    f"{side['characters'] / max(1, side['tokens']):.2f}" if side["characters"] is not None else "",
                )
                for side in report["sides"].values()
            ],
            header=("side", "lines", "tokens", "types", "characters a token"),
        )
        rows, header = overlap_table(report["rows"])
        console.table("overlap", rows, header=header)
        console.info(f"({OVERLAP_DEFINITION}.)")
        rows, header = script_table(report["scripts"])
        console.table(f"by script, N = {SCRIPT_THRESHOLD}", rows, header=header)
        console.info(f"({SCRIPT_DEFINITION}.)")
        console.info(report["advice"])
        if report["shared"]:
            console.info(f"most shared: {'  '.join(each['piece'] for each in report['shared'])}")


@dataclass(frozen=True)
class Given:
    """The vocabularies of the two sides, a joint one twice, and `words` for them."""

    src: Vocabulary
    tgt: Vocabulary
    words: str


def overlap_of_files(
    src: Path,
    tgt: Path,
    console: Console,
    *,
    given: Given | None = None,
    vocab_size: int | None = PrepareOptions.vocab_size,
    on_bad_utf8: OnBadUtf8 = PrepareOptions.on_bad_utf8,
) -> Overlap:
    """Of two text files, plain or compressed, under vocabularies that are `given`, or a joint one of
    `vocab_size` pieces that is learnt from both files as prepare-bpe learns it, and thrown away."""
    if given is None:
        options = PrepareOptions((src,), (tgt,), vocab_size=vocab_size).checked()
        text = _Text((src, tgt), on_bad_utf8, console)
        joint = learn(
            text,
            size=vocab_size,
            kind=options.subword,
            coverage=options.character_coverage,
            normalization=options.normalization,
            name=f"{src} and {tgt}",
        )
        given = Given(joint, joint, f"{len(joint):,} pieces, joint, learnt from these files for now")
    sides = []
    for path, vocabulary in ((src, given.src), (tgt, given.tgt)):
        with console.progress(f"encoding {path}", unit="lines") as progress:
            sides.append(_counted(path, vocabulary, on_bad_utf8, progress.advance))
    return Overlap(given.words, *sides)


def overlap_of_data(folder: DataFolder) -> Overlap:
    """Of the training pairs of a data folder."""
    store = folder.train
    sides = []
    for name, vocabulary, ids in (
        ("source", folder.src_vocab, store.src_ids),
        ("target", folder.tgt_vocab, store.tgt_ids),
    ):
        counts = np.zeros(len(vocabulary), np.int64)
        for at in range(0, len(ids), 1 << 24):
            counts += np.bincount(ids[at : at + (1 << 24)].numpy(), minlength=len(vocabulary))
        sides.append(_side(f"{name} of {folder.path}", len(store), None, counts, vocabulary))
    return Overlap(_of(folder).words, *sides)


def vocabularies_of(data: Path | None, vocab: Path | None) -> Given:
    """Those of a data folder, or of the file of a joint one."""
    if vocab is None:
        assert data is not None
        return _of(DataFolder.open(data))
    with open_bytes(vocab) as stream:
        joint = Vocabulary(stream.read(), str(vocab))
    return Given(joint, joint, f"{len(joint):,} pieces, joint, of {printable(vocab)}")


def _of(folder: DataFolder) -> Given:
    sizes = " and ".join(f"{len(v):,}" for v in dict.fromkeys((folder.src_vocab, folder.tgt_vocab)))
    words = f"{sizes} pieces, {'joint' if folder.joint else 'separate'}, of {folder.path}"
    return Given(folder.src_vocab, folder.tgt_vocab, words)


def _lines(path: Path, on_bad_utf8: OnBadUtf8) -> Iterator[str]:
    with open_bytes(path) as stream:
        yield from read_lines(stream, str(path), on_bad_utf8=on_bad_utf8)


def _counted(path: Path, vocabulary: Vocabulary, on_bad_utf8: OnBadUtf8, done: Callable[[float], None]) -> Side:
    counts, number, characters = np.zeros(len(vocabulary), np.int64), 0, 0
    lines = _lines(path, on_bad_utf8)
    while batch := list(islice(lines, LINES)):
        for ids in vocabulary.encode_batch(batch, os.cpu_count() or 1):
            counts += np.bincount(ids, minlength=len(vocabulary)) if ids else 0
        number, characters = number + len(batch), characters + sum(map(len, batch))
        done(len(batch))
    if not counts.any():
        raise InputError(f"{path} holds no text to count.")
    return _side(printable(path), number, characters, counts, vocabulary)


def _side(name: str, lines: int, characters: int | None, counts: NDArray[np.int64], vocabulary: Vocabulary) -> Side:
    return Side(name, lines, characters, int(counts.sum()), subword_counts(vocabulary, counts.tolist()))


class _Text:
    """The lines of both files, or as many of each, drawn at random, as prepare-bpe draws pairs to learn from;
    the same at every iteration (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S)."""

    def __init__(self, paths: tuple[Path, ...], on_bad_utf8: OnBadUtf8, console: Console) -> None:
        self.paths, self.on_bad_utf8, self.console = paths, on_bad_utf8, console
        for path in paths:
            if path.exists() and not path.is_dir() and not path.is_file():
                raise FileError(f"{path} can be read only once, but a vocabulary is learnt from it first; give a file.")
        self.totals = [sum(1 for _ in _lines(path, on_bad_utf8)) for path in paths]

    def __iter__(self) -> Iterator[str]:
        sizes = " and ".join(f"{min(n, PrepareOptions.sample):,}" for n in self.totals)
        self.console.info(f"learning a joint vocabulary from {sizes} lines ...")
        for path, left in zip(self.paths, self.totals, strict=True):
            dice, wanted = random.Random(PrepareOptions.seed), PrepareOptions.sample
            for line in _lines(path, self.on_bad_utf8):
                if dice.random() * left < wanted:
                    wanted -= 1
                    yield line
                left -= 1
