"""Reads parallel text for prepare-bpe: checks and hashes it, splits it into training and validation pairs, and samples
it.

The text is never held in memory. Every pass reads the files again.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from vtrans.config.keys import LONGEST_SHOWN
from vtrans.data.links import read_pharaoh
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.encode import TextPair
from vtrans.system.console import Console
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import printable, reason
from vtrans.text.lines import LineReport, OnBadUtf8, lines_in, open_bytes
from vtrans.text.normalization import NFC, source_text
from vtrans.text.vocabulary import Vocabulary

HELD_OUT_SOURCES = 1000
"""Number of source sentences to hold out for validation, with all their pairs, if there is no validation text."""
HELD_OUT_SHARE = 0.05
"""Maximum share of the pairs to hold out. At least one sentence is always held out."""

FILES = ("src", "tgt", "alignments")
"""The files of a corpus; `alignments` is optional."""

_LINES = 256  # checked or counted at a time
_BATCH_PAIRS, _BATCH_CHARACTERS = 4096, 1 << 22  # limits of a batch for encoding

HeldOutPair = tuple[int, int, TextPair]
"""The place of a pair among the usable pairs, its corpus, and the pair itself."""

T = TypeVar("T")


class Inputs:
    """The training text and, if the user gives one, the validation text."""

    def __init__(self, options: PrepareOptions) -> None:
        self.seed, vocabularies = options.seed, options.vocabularies
        rule = Vocabulary(vocabularies[0]).normalization if vocabularies else options.normalization
        self._simplifies = rule == NFC
        self.train = Corpus(options.src, options.tgt, options.on_bad_utf8, options.alignments)
        self.valid = Corpus(options.valid_src, options.valid_tgt, options.on_bad_utf8) if options.valid_src else None
        self.facts: dict[str, Any] = {}
        """For data.json: name, size, hash and, after `split`, number of lines of each file."""

    def hash(self, console: Console) -> None:
        """Reads all files and fills `facts`."""
        self.facts = {"train": self.train.hashed(console), "valid": self.valid and self.valid.hashed(console)}

    def split(self, console: Console) -> Split:
        """Checks and counts all lines. Without validation text, chooses the pairs to hold out."""
        candidates = None if self.valid else HeldOut(self.seed)
        train_survey = self.train.survey(console, "training text", candidates)
        valid_survey = self.valid.survey(console, "validation text", None) if self.valid else None
        held_out = candidates.chosen(train_survey.usable) if candidates else {}
        if candidates:
            console.info(
                "no validation text was given; held out for validation: "
                f"{sum(map(len, held_out.values())):,} pairs, all translations of {len(held_out):,} random sources."
            )
        for name, survey in (("train", train_survey), ("valid", valid_survey)):
            for facts, lines in zip(self.facts[name] or (), survey.lines if survey else (), strict=True):
                for file in facts.values():
                    file["lines"] = lines
        return Split(self.train, train_survey, self.valid, valid_survey, held_out, self.seed, self._simplifies)

    def check_unchanged(self) -> None:
        """Raises InputError if a file has changed since the start, because passes may then have read different text."""
        for corpus in (self.train, self.valid):
            if corpus:
                corpus.check_unchanged()


@dataclass
class Survey:
    """The counts of the first pass over a corpus."""

    lines: list[int]
    """Number of lines per pair of files."""
    usable: int
    """Number of pairs with text on both sides."""
    odd_line_ends: dict[str, int]
    replacements: dict[str, int]

    @property
    def pairs(self) -> int:
        return sum(self.lines)


class Corpus:
    """Pairs of files, each optionally with a file of word alignments, read pair by pair."""

    def __init__(
        self,
        src: Sequence[str | Path],
        tgt: Sequence[str | Path],
        on_bad_utf8: OnBadUtf8,
        alignments: Sequence[str | Path] = (),
    ) -> None:
        kinds = (src, tgt, alignments) if alignments else (src, tgt)
        self.files = [tuple(map(Path, files)) for files in zip(*kinds, strict=True)]
        self._paths = list(itertools.chain.from_iterable(self.files))
        self.on_bad_utf8 = on_bad_utf8
        for path in self._paths:
            if path.exists() and not path.is_file() and not path.is_dir():
                raise InputError(f"{path} is a pipe or a device, but the text is read several times; give a file.")
            with open_bytes(path):
                pass
        self._sizes_and_times = self._stat()

    def _stat(self) -> list[tuple[int, int]]:
        return [(stat.st_size, stat.st_mtime_ns) for stat in (path.stat() for path in self._paths)]

    def check_unchanged(self) -> None:
        """Raises InputError if a file has been modified since the start."""
        if self._stat() != self._sizes_and_times:
            raise InputError("an input file changed while being read; run the command again.")

    def hashed(self, console: Console) -> list[dict[str, Any]]:
        """Returns the name, size and SHA-256 of each file, one entry per pair of files. Raises FileError for an
        unreadable file."""
        facts: list[dict[str, Any]] = [{} for _ in self.files]
        with console.progress("reading the files", sum(path.stat().st_size for path in self._paths), "bytes") as bar:
            for number, files in enumerate(self.files):
                for name, path in zip(FILES, files, strict=False):
                    try:
                        with path.open("rb") as file:
                            digest = hashlib.file_digest(file, "sha256").hexdigest()
                    except OSError as error:
                        raise FileError(f"{path} cannot be read to its end: {reason(error)}.") from None
                    size = path.stat().st_size
                    facts[number][name] = {"name": printable(path.name), "bytes": size, "sha256": digest}
                    bar.advance(size)
        return facts

    def survey(self, console: Console, what: str, candidates: HeldOut | None) -> Survey:
        """Checks and counts all lines. Offers the source of each usable pair to `candidates`.

        Raises InputError for a NUL byte, an empty file, unequal numbers of lines, word alignments that are not in
        Pharaoh format or link a nonexistent word, or if no pair is usable.
        """
        reports = LineReport(), LineReport(), LineReport()
        lines, usable = [], 0
        with console.progress(f"counting the {what}", None, "pairs") as progress:
            for corpus, paths in enumerate(self.files):
                counts = [0] * len(paths)
                streams = [lines_in(path, self.on_bad_utf8, reports[i]) for i, path in enumerate(paths)]
                while any(blocks := [list(islice(stream, _LINES)) for stream in streams]):
                    for i, block in enumerate(blocks):
                        _check_text(paths[i], counts[i], block)
                    for number, pair in enumerate(zip(*blocks, strict=False), counts[0] + 1):
                        if len(pair) > 2:
                            _check_links(paths[2], number, pair)
                        if pair[0].strip() and pair[1].strip():
                            usable += 1
                            if candidates:
                                candidates.offer(usable, corpus, pair)
                    counts = [count + len(block) for count, block in zip(counts, blocks, strict=True)]
                    progress.advance(len(blocks[0]))
                _check_counts(paths, counts)
                lines.append(counts[0])
        if not usable:
            src_path, tgt_path, *_ = self.files[0]
            raise InputError(f"every pair of {src_path} and {tgt_path} has an empty side; give files with text.")
        return Survey(
            lines,
            usable,
            {side: report.odd_line_ends for side, report in zip(FILES[:2], reports[:2], strict=True)},
            {side: report.replacements for side, report in zip(FILES[:2], reports[:2], strict=True)},
        )

    def by_corpus(self) -> Iterator[Iterator[TextPair]]:
        """Yields an iterator over the sentence pairs of each pair of files. Exhaust each iterator before requesting the
        next."""
        return itertools.starmap(self._pairs, self.files)

    def _pairs(self, *paths: Path) -> Iterator[TextPair]:
        try:
            yield from zip(*(lines_in(path, self.on_bad_utf8) for path in paths), strict=True)
        except ValueError:
            raise InputError(
                f"{' or '.join(map(str, paths))} changed while being read; run the command again."
            ) from None


def _check_text(path: Path, first: int, lines: Sequence[str]) -> None:
    """Raises InputError if one of the lines after the `first` ones contains a NUL byte."""
    before, nul, _ = "\n".join(lines).partition("\0")
    if nul:
        raise InputError(
            f"{path}: line {first + before.count(chr(10)) + 1} contains a NUL byte, so the file is binary or UTF-16; "
            "give a text file in UTF-8."
        )


def _check_counts(paths: Sequence[Path], counts: Sequence[int]) -> None:
    for path, count in zip(paths, counts, strict=True):
        if not count:
            raise InputError(f"{path} is empty; give a file with one sentence per line.")
    if counts[0] != counts[1]:
        raise InputError(
            f"{paths[0]} has {counts[0]:,} lines, but {paths[1]} has {counts[1]:,}; "
            "each line of one must be the translation of the same line of the other."
        )
    if counts[-1] != counts[0]:
        raise InputError(
            f"{paths[2]} has {counts[2]:,} lines, but {paths[0]} has {counts[0]:,}; each line must have the word "
            "alignment of the same line of the text, and may be blank."
        )


def _check_links(path: Path, number: int, pair: TextPair) -> None:
    """Raises InputError unless line `number` is a word alignment of its pair."""
    src, tgt, line = pair
    try:
        links = read_pharaoh(line)
    except ValueError as error:
        raise InputError(
            f"{path}: line {number} must have links in Pharaoh format, such as 0-0 1-2, got "
            f"{printable(str(error))[:LONGEST_SHOWN]!r}; give the output of an aligner such as fast_align."
        ) from None
    sides = ((side, len(text.split())) for side, text in zip(("source", "target"), (src, tgt), strict=True))
    for i, (side, words) in enumerate(sides):
        if len(links) and (last := int(links[:, i].max())) >= words:
            raise InputError(
                f"{path}: line {number} links word {last} of a {side} line that has {words} words, counted from 0 and "
                "split at spaces; align the words of these same files, without further tokenization."
            )


class HeldOut:
    """Chooses random source sentences and collects their pairs, in one pass.

    It keeps the HELD_OUT_SOURCES sentences with the smallest hashes. A sentence that is not among the smallest so far
    can never be later, so the pairs are complete.
    """

    def __init__(self, seed: int) -> None:
        self._hash = hashlib.blake2b(digest_size=8, key=seed.to_bytes(8, "little"))
        self._pairs_of: dict[str, list[HeldOutPair]] = {}
        self._heap = list[tuple[int, str]]()  # negated hashes, so that the largest comes first, and sentences

    def offer(self, number: int, corpus: int, pair: TextPair) -> None:
        """Considers another pair. The arguments are the values of a HeldOutPair."""
        src = pair[0].strip()
        if src in self._pairs_of:
            self._pairs_of[src].append((number, corpus, pair))
            return
        digest = self._hash.copy()
        digest.update(src.encode())
        entry = -int.from_bytes(digest.digest(), "little"), src
        if len(self._heap) < HELD_OUT_SOURCES:
            heapq.heappush(self._heap, entry)
        elif entry > self._heap[0]:
            _, largest = heapq.heapreplace(self._heap, entry)
            del self._pairs_of[largest]
        else:
            return
        self._pairs_of[src] = [(number, corpus, pair)]

    def chosen(self, pairs: int) -> dict[str, list[HeldOutPair]]:
        """Returns the pairs of each sentence held out, at most HELD_OUT_SHARE of all `pairs`. Raises InputError if
        there is only one sentence."""
        result: dict[str, list[HeldOutPair]] = {}
        left = int(pairs * HELD_OUT_SHARE)
        sources = [src for _, src in sorted(self._heap, reverse=True)]
        for src in sources:
            if len(self._pairs_of[src]) <= left:
                result[src] = self._pairs_of[src]
                left -= len(result[src])
        if not result:  # a tiny corpus: hold out the sentence with the fewest pairs
            src = min(sources, key=lambda src: len(self._pairs_of[src]))
            result = {src: self._pairs_of[src]}
        if sum(map(len, result.values())) == pairs:
            raise InputError(
                "the corpus has only one source sentence, so none can be held out for validation; "
                "give `valid_src` and `valid_tgt`, or more text."
            )
        return result


@dataclass(frozen=True)
class Split:
    """The training and validation pairs of the input, and the counts of the first pass."""

    corpus: Corpus
    survey: Survey
    """The survey of the training text, including held-out pairs."""
    valid: Corpus | None
    valid_survey: Survey | None
    held_out: dict[str, list[HeldOutPair]]
    """The pairs of each held-out source sentence; empty if there is a validation text."""
    seed: int
    simplifies: bool = False
    """Whether `source_text` is applied to sources."""

    @property
    def usable(self) -> int:
        """The number of training pairs with text on both sides."""
        return self.survey.usable - sum(map(len, self.held_out.values()))

    @property
    def validation_size(self) -> int:
        """The number of validation pairs."""
        return self.valid_survey.pairs if self.valid_survey else sum(map(len, self.held_out.values()))

    def training_pairs(self) -> Iterator[Iterator[TextPair]]:
        """Yields the pairs that are not held out, like `Corpus.by_corpus`."""
        for pairs in self.corpus.by_corpus():
            # A pair with a blank target stays in the training text, where it is counted as empty and dropped.
            yield (self._read(pair) for pair in pairs if pair[0].strip() not in self.held_out or not pair[1].strip())

    def validation_pairs(self) -> Iterator[Iterator[TextPair]]:
        """Yields the validation pairs, or the pairs held out of each training corpus, like `Corpus.by_corpus`."""
        if self.valid:
            yield from (map(self._read, pairs) for pairs in self.valid.by_corpus())
            return
        held_out = sorted(itertools.chain(*self.held_out.values()))
        for corpus in range(len(self.survey.lines)):
            yield (self._read(pair) for _, number, pair in held_out if number == corpus)

    def _read(self, pair: TextPair) -> TextPair:
        """Returns a pair as the model reads it. If links refer to the source's words, their number does not change. A
        target of invisible characters becomes blank."""
        if not self.simplifies:
            return pair
        src, tgt, *links = pair
        text, target = source_text(src), tgt if tgt[:1].isalnum() or source_text(tgt).strip() else ""
        return (src if links and len(text.split()) != len(src.split()) else text, target, *links)


class Sample:
    """The sentences of up to `size` random training pairs, in order; the same in every iteration.

    `side` is "src", "tgt" or "both". `on_pairs` is called with numbers of pairs.
    """

    def __init__(self, split: Split, side: str, size: int, on_pairs: Callable[[int], None]) -> None:
        self.split, self.size, self.on_pairs = split, size, on_pairs
        self._sides = {"src": (0,), "tgt": (1,), "both": (0, 1)}[side]

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self.batches())

    def batches(self) -> Iterator[list[str]]:
        """Yields the sentences in lists of limited length."""
        pairs = itertools.chain.from_iterable(self.split.training_pairs())
        usable = (pair for pair in pairs if pair[0].strip() and pair[1].strip())
        for batch in batches_of(sampled(usable, self.split.usable, self.size, self.split.seed)):
            self.on_pairs(len(batch))
            yield [pair[side] for pair in batch for side in self._sides]


def batches_of(pairs: Iterable[TextPair]) -> Iterator[list[TextPair]]:
    """Yields the pairs in lists with limited numbers of pairs and characters."""
    pairs, batch, characters = iter(pairs), list[TextPair](), 0
    while some := list(islice(pairs, _LINES)):
        batch += some
        characters += sum(map(len, itertools.chain.from_iterable(some)))
        if len(batch) >= _BATCH_PAIRS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def sampled(items: Iterable[T], total: int, size: int, seed: int) -> Iterator[T]:
    """Yields up to `size` random items out of `total`, in order and without storing them (Knuth, The Art of Computer
    Programming 2, 3.4.2, algorithm S)."""
    if total <= size:
        yield from items
        return
    dice, left = random.Random(seed), total
    for item in items:
        if dice.random() * left < size:
            size -= 1
            yield item
        left -= 1


class Repeats:
    """Counts the validation pairs, and their source sentences, that also occur in the training text.

    Stores the validation text, and nothing of the training text. Spaces around a text do not matter.
    """

    def __init__(self) -> None:
        self._targets = defaultdict[str, Counter[str]](Counter)  # of each validation source
        self._found = defaultdict[str, set[str]](set)  # those in the training text

    def remember(self, pairs: Iterable[TextPair]) -> None:
        """Adds validation pairs."""
        for src, tgt, *_ in pairs:
            self._targets[src.strip()][tgt.strip()] += 1

    def note(self, pairs: Iterable[TextPair]) -> None:
        """Adds training pairs."""
        for src, tgt, *_ in pairs:
            if targets := self._targets.get(source := src.strip()):
                self._found[source] |= targets.keys() & {tgt.strip()}

    def report(self) -> dict[str, int]:
        """Returns the counts, as data.json records them."""
        return {
            "pairs_in_train": sum(self._targets[src][tgt] for src, targets in self._found.items() for tgt in targets),
            "sources_in_train": sum(self._targets[src].total() for src in self._found),
        }
