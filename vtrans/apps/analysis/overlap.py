"""The overlap of the subwords of two texts, before any training.

The two sides are text files, which need not be parallel, or the training pairs of a data folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.learn_vocabulary import learn
from vtrans.data.preparation.overlap import overlap_report, show_overlap, subword_counts, tying_advice
from vtrans.data.preparation.parallel_text import sampled
from vtrans.data.store import DataFolder
from vtrans.system.console import Console
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import printable
from vtrans.text.lines import OnBadUtf8, lines_in, open_bytes
from vtrans.text.vocabulary import Vocabulary

LINES = 10_000  # encoded at a time
MOST_SHARED = 15  # pieces that the report names


@dataclass(frozen=True)
class Vocabularies:
    """The vocabularies of the two sides, which are the same object if there is a joint one."""

    src: Vocabulary
    tgt: Vocabulary
    description: str

    @classmethod
    def joint(cls, vocabulary: Vocabulary, origin: str) -> Vocabularies:
        return cls(vocabulary, vocabulary, f"{len(vocabulary):,} pieces, joint, {origin}")

    @classmethod
    def of_file(cls, path: Path) -> Vocabularies:
        with open_bytes(path) as stream:
            return cls.joint(Vocabulary(stream.read(), str(path)), f"from {printable(path)}")

    @classmethod
    def of_data(cls, data: DataFolder) -> Vocabularies:
        if data.joint:
            return cls.joint(data.src_vocab, f"from {data.path}")
        sizes = f"{len(data.src_vocab):,} and {len(data.tgt_vocab):,}"
        return cls(data.src_vocab, data.tgt_vocab, f"{sizes} pieces, separate, from {data.path}")


@dataclass(frozen=True)
class Side:
    """The text of one side, and how often it has each surface piece of its vocabulary."""

    name: str
    lines: int
    characters: int | None  # None for a data folder, which holds only subwords
    tokens: int  # includes single-byte pieces, which `counts` leaves out
    counts: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        facts = {"name": self.name, "lines": self.lines, "characters": self.characters, "tokens": self.tokens}
        return facts | {"types": len(self.counts)}


@dataclass(frozen=True)
class Overlap:
    """The report of `vtrans overlap`. `vocabulary` describes the vocabularies of the sides."""

    vocabulary: str
    src: Side
    tgt: Side

    def as_dict(self) -> dict[str, Any]:
        src, tgt = self.src.counts, self.tgt.counts
        report = overlap_report(src, tgt)
        return {
            "vocabulary": self.vocabulary,
            "sides": {"src": self.src.as_dict(), "tgt": self.tgt.as_dict()},
            **report,
            "advice": tying_advice(report["rows"]),
            "shared": [{"piece": p, "src": src[p], "tgt": tgt[p]} for p in self.most_shared(MOST_SHARED)],
        }

    def most_shared(self, count: int) -> list[str]:
        """Returns the pieces that are the most frequent on both sides, by the smaller of their two frequencies."""
        src, tgt = self.src.counts, self.tgt.counts
        n, m = max(1, sum(src.values())), max(1, sum(tgt.values()))
        return sorted(src.keys() & tgt.keys(), key=lambda p: (-min(src[p] / n, tgt[p] / m), p))[:count]

    def show(self, console: Console, width: int | None = None) -> None:
        """Prints the report, with sentences wrapped at `width` columns."""
        report = self.as_dict()
        console.info(f"vocabulary: {self.vocabulary}")
        sides = []
        for side in (self.src, self.tgt):
            per_token = "" if side.characters is None else f"{side.characters / max(1, side.tokens):.2f}"
            sides.append((side.name, f"{side.lines:,}", f"{side.tokens:,}", f"{len(side.counts):,}", per_token))
        console.table("text", sides, header=("side", "lines", "tokens", "types", "characters per token"))
        show_overlap(report, console, width)
        if report["shared"]:
            console.info(f"most shared: {'  '.join(each['piece'] for each in report['shared'])}")


def overlap_of_data(data: DataFolder) -> Overlap:
    """Returns the overlap of the training pairs of a data folder."""
    sides = []
    for name, side, vocabulary in (("source", "src", data.src_vocab), ("target", "tgt", data.tgt_vocab)):
        counts = data.train.counts(side, len(vocabulary))
        sides.append(_side(f"{name} of {data.path}", len(data.train), None, counts, vocabulary))
    return Overlap(Vocabularies.of_data(data).description, *sides)


def overlap_of_files(
    src: Path, tgt: Path, vocabularies: Vocabularies, console: Console, on_bad_utf8: OnBadUtf8 = "error"
) -> Overlap:
    """Returns the overlap of two text files, plain or compressed. Raises InputError for a file without text."""
    sides = []
    for path, vocabulary in ((src, vocabularies.src), (tgt, vocabularies.tgt)):
        counts, number, characters = np.zeros(len(vocabulary), np.int64), 0, 0
        lines = lines_in(path, on_bad_utf8)
        with console.progress(f"encoding {path}", unit="lines") as progress:
            while batch := list(islice(lines, LINES)):
                for ids in vocabulary.encode_batch(batch, os.cpu_count() or 1):
                    counts += np.bincount(ids, minlength=len(vocabulary)) if ids else 0
                number, characters = number + len(batch), characters + sum(map(len, batch))
                progress.advance(len(batch))
        if not counts.any():
            raise InputError(f"{path} holds no text.")
        sides.append(_side(printable(path), number, characters, counts, vocabulary))
    return Overlap(vocabularies.description, *sides)


def learn_joint(
    src: Path, tgt: Path, console: Console, vocab_size: int | None = None, on_bad_utf8: OnBadUtf8 = "error"
) -> Vocabularies:
    """Returns a joint vocabulary, learned from both files with the defaults of prepare-bpe.

    Without `vocab_size`, it has the default number of pieces, or fewer if the text does not allow as many.
    """
    options = PrepareOptions((src,), (tgt,), vocab_size=vocab_size).checked()
    text = SampledText((src, tgt), on_bad_utf8, console)
    vocabulary = learn(text, vocab_size, options, f"{src} and {tgt}")
    return Vocabularies.joint(vocabulary, "learned from these files and not kept")


class SampledText:
    """The lines of several files, the same in every iteration. A file with more than PrepareOptions.sample lines is
    sampled."""

    def __init__(self, paths: tuple[Path, ...], on_bad_utf8: OnBadUtf8, console: Console) -> None:
        self.paths, self.on_bad_utf8, self.console = paths, on_bad_utf8, console
        for path in paths:
            if path.exists() and not path.is_dir() and not path.is_file():
                raise FileError(f"{path} must be a regular file, because learning a vocabulary reads it twice.")
        self.totals = [sum(1 for _ in lines_in(path, on_bad_utf8)) for path in paths]

    def __iter__(self) -> Iterator[str]:
        sizes = " and ".join(f"{min(n, PrepareOptions.sample):,}" for n in self.totals)
        self.console.info(f"learning a joint vocabulary from {sizes} lines ...")
        for path, total in zip(self.paths, self.totals, strict=True):
            yield from sampled(lines_in(path, self.on_bad_utf8), total, PrepareOptions.sample, PrepareOptions.seed)


def _side(name: str, lines: int, characters: int | None, counts: NDArray[np.int64], vocabulary: Vocabulary) -> Side:
    return Side(name, lines, characters, int(counts.sum()), subword_counts(vocabulary, counts.tolist()))
