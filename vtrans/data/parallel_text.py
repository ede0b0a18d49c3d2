"""Parallel text as prepare-bpe reads it, streamed from its files in every pass: what it holds, which pairs are held out
for validation, which are drawn to learn from, and which validation pairs the training text repeats.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrans.console import Console
from vtrans.data.encode import Encoded, Pair, hash_of
from vtrans.errors import InputError
from vtrans.text import LineReport, OnBadUtf8, open_bytes, printable, read_lines

HELD_OUT_SOURCES = 1000
"""Source sentences held out for validation where the user gives none ..."""
HELD_OUT_SHARE = 0.05
"""... with all their pairs, which are at most this share of all (but at least one sentence)."""

_BLOCK = 1 << 20  # bytes hashed at a time


def survey(
    train: Corpus, valid: Corpus | None, inputs: dict[str, Any], seed: int, console: Console
) -> tuple[Survey, Survey | None, dict[int, int]]:
    """What the training text, and the validation text if there is one, hold; what is held out if there is none,
    as hashes with their numbers of pairs. Each file's number of lines is noted in `inputs`."""
    candidates = None if valid else HeldOut(seed)
    found = train.survey(console, "training text", candidates)
    valid_survey = valid.survey(console, "validation text", None) if valid else None
    held_out = candidates.chosen(found.usable) if candidates else {}
    if candidates:
        console.info(
            f"no --valid-src: {len(held_out):,} random source sentences with all their "
            f"{sum(held_out.values()):,} pairs are held out for validation."
        )
    for name, counts in (("train", found.lines), ("valid", valid_survey.lines if valid_survey else [])):
        for facts, n in zip(inputs[name] or (), counts, strict=True):
            facts["src"]["lines"] = facts["tgt"]["lines"] = n
    return found, valid_survey, held_out


@dataclass
class Survey:
    """What the first pass over a corpus found."""

    lines: list[int]
    """Lines of each pair of files."""
    usable: int
    """Pairs with no blank side."""
    odd_line_ends: dict[str, int]
    replacements: dict[str, int]

    @property
    def pairs(self) -> int:
        return sum(self.lines)


class Corpus:
    """Pairs of files, read pair by pair."""

    def __init__(self, src: Sequence[str | Path], tgt: Sequence[str | Path], on_bad_utf8: OnBadUtf8) -> None:
        self.files = [(Path(s), Path(t)) for s, t in zip(src, tgt, strict=True)]
        self.on_bad_utf8 = on_bad_utf8
        for path in itertools.chain.from_iterable(self.files):
            if path.exists() and not path.is_file() and not path.is_dir():
                raise InputError(f"{path} is a pipe or device; prepare-bpe reads its files several times.")
            with open_bytes(path):
                pass
        self._before = self._stats()

    def _stats(self) -> list[tuple[int, int]]:
        """What a change to a file would change: size and time of each."""
        stats = [path.stat() for path in itertools.chain.from_iterable(self.files)]
        return [(stat.st_size, stat.st_mtime_ns) for stat in stats]

    def check_unchanged(self) -> None:
        """InputError if a file was written to since the start: the passes would not agree."""
        if self._stats() != self._before:
            raise InputError("an input file has changed while being read; run the command again.")

    def hashed(self, console: Console) -> list[dict[str, Any]]:
        """Name, size and hash of every file, pair by pair."""
        paths = list(itertools.chain.from_iterable(self.files))
        facts = []
        total = sum(path.stat().st_size for path in paths)
        with console.progress("reading the files", total, "bytes") as progress:
            for path in paths:
                digest = hashlib.sha256()
                with path.open("rb") as file:
                    while block := file.read(_BLOCK):
                        digest.update(block)
                        progress.advance(len(block))
                facts.append({"name": printable(path.name), "bytes": path.stat().st_size, "sha256": digest.hexdigest()})
        return [{"src": s, "tgt": t} for s, t in zip(facts[::2], facts[1::2], strict=True)]

    def survey(self, console: Console, what: str, candidates: HeldOut | None) -> Survey:
        """Count and check every line; show the source of every usable pair to `candidates`."""
        reports = {"src": LineReport(), "tgt": LineReport()}
        lines: list[int] = []
        usable = 0
        with console.progress(f"counting the {what}", None, "pairs") as progress:
            for src_path, tgt_path in self.files:
                counts = [0, 0]
                src_lines, tgt_lines = (
                    self._open(src_path, reports["src"]),
                    self._open(tgt_path, reports["tgt"]),
                )
                for src, tgt in itertools.zip_longest(src_lines, tgt_lines):
                    for side, line in enumerate((src, tgt)):
                        if line is None:
                            continue
                        counts[side] += 1
                        if "\0" in line:
                            path = (src_path, tgt_path)[side]
                            raise InputError(
                                f"{path}: line {counts[side]} holds a NUL byte, so it is a binary file "
                                "or UTF-16; give a text file in UTF-8."
                            )
                    if counts[0] == counts[1] and src.strip() and tgt.strip():
                        usable += 1
                        if candidates:
                            candidates.show(src)
                    progress.advance()
                for path, count in zip((src_path, tgt_path), counts, strict=True):
                    if not count:
                        raise InputError(f"{path} is empty; give a file with a sentence a line.")
                if counts[0] != counts[1]:
                    raise InputError(
                        f"{src_path} has {counts[0]:,} lines, but {tgt_path} has {counts[1]:,}; "
                        "line n of one must be the translation of line n of the other."
                    )
                lines.append(counts[0])
        if not usable:
            raise InputError(f"every pair of {self.files[0][0]} and {self.files[0][1]} has an empty side.")
        return Survey(
            lines,
            usable,
            {side: report.odd_line_ends for side, report in reports.items()},
            {side: report.replacements for side, report in reports.items()},
        )

    def pairs(self) -> Iterator[Pair]:
        """All pairs, in order."""
        return itertools.chain.from_iterable(self.by_corpus())

    def by_corpus(self) -> Iterator[Iterator[Pair]]:
        """The pairs of each pair of files, which are to be read before those of the next are."""
        return itertools.starmap(self._pairs, self.files)

    def _pairs(self, src_path: Path, tgt_path: Path) -> Iterator[Pair]:
        try:
            yield from zip(self._open(src_path), self._open(tgt_path), strict=True)
        except ValueError:
            raise InputError(f"{src_path} or {tgt_path} has changed while being read; run the command again.") from None

    def _open(self, path: Path, report: LineReport | None = None) -> Iterator[str]:
        with open_bytes(path) as stream:
            yield from read_lines(stream, str(path), on_bad_utf8=self.on_bad_utf8, report=report)


class HeldOut:
    """Random source sentences with the number of their pairs, in one pass and bounded memory.

    The HELD_OUT_SOURCES sentences of the smallest hash are kept. A sentence that is not among the
    smallest so far can never be later, so the counts are complete.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._pairs: dict[int, int] = {}
        self._largest: list[int] = []  # a heap of the negated hashes

    def show(self, src: str) -> None:
        key = hash_of(src, seed=self.seed)
        if key in self._pairs:
            self._pairs[key] += 1
        elif len(self._pairs) < HELD_OUT_SOURCES:
            heapq.heappush(self._largest, -key)
            self._pairs[key] = 1
        elif key < -self._largest[0]:
            del self._pairs[-heapq.heapreplace(self._largest, -key)]
            self._pairs[key] = 1

    def chosen(self, pairs: int) -> dict[int, int]:
        """Hash and number of pairs of the sentences held out, at most HELD_OUT_SHARE of all pairs."""
        result: dict[int, int] = {}
        room = int(pairs * HELD_OUT_SHARE)
        for key in sorted(self._pairs):
            if self._pairs[key] <= room:
                result[key] = self._pairs[key]
                room -= self._pairs[key]
        if not result:  # a tiny corpus: the one with the fewest pairs
            key = min(self._pairs, key=lambda k: (self._pairs[k], k))
            result = {key: self._pairs[key]}
        if sum(result.values()) == pairs:
            raise InputError(
                "the corpus has a single source sentence, so none can be held out for validation; "
                "give --valid-src and --valid-tgt, or more text."
            )
        return result


class TrainingText:
    """The training pairs of a corpus: those whose source sentence is not held out."""

    def __init__(self, corpus: Corpus, held_out: frozenset[int], seed: int) -> None:
        self.corpus, self.held_out, self.seed = corpus, held_out, seed

    def by_corpus(self) -> Iterator[Iterator[Pair]]:
        for pairs in self.corpus.by_corpus():
            yield (pair for pair in pairs if not self._is_held_out(pair))

    def pairs(self) -> Iterator[Pair]:
        return itertools.chain.from_iterable(self.by_corpus())

    def held_out_pairs(self) -> Iterator[Pair]:
        return (pair for pair in self.corpus.pairs() if self._is_held_out(pair))

    def _is_held_out(self, pair: Pair) -> bool:
        # Of a held-out sentence, a pair with a blank target is dropped from the training text as empty.
        return bool(self.held_out and pair[1].strip() and hash_of(pair[0], seed=self.seed) in self.held_out)


class Sample:
    """Sentences of `size` random training pairs out of `total` usable ones, the same at every iteration.

    Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S: in order, without holding them.
    """

    def __init__(self, source: TrainingText, side: str, size: int, total: int, seen: Callable[[], None]) -> None:
        self.source, self.side, self.size, self.total, self.seen = source, side, size, total, seen

    def __iter__(self) -> Iterator[str]:
        dice = random.Random(self.source.seed)
        wanted, left = min(self.size, self.total), self.total
        for src, tgt in self.source.pairs():
            if not src.strip() or not tgt.strip():
                continue
            if dice.random() * left < wanted:
                wanted -= 1
                if self.side != "tgt":
                    yield src
                if self.side != "src":
                    yield tgt
                self.seen()
            left -= 1


class Repeats:
    """How many validation pairs, and source sentences, are in the training text too.

    Eight bytes are remembered of each validation sentence and pair, nothing of the training text.
    """

    def __init__(self) -> None:
        self.pairs: Counter[int] = Counter()
        self.sources: Counter[int] = Counter()
        self._found_pairs: set[int] = set()
        self._found_sources: set[int] = set()

    def remember(self, pairs: Iterable[Pair]) -> None:
        for src, tgt in pairs:
            self.pairs[hash_of(src, tgt)] += 1
            self.sources[hash_of(src)] += 1

    def found(self, encoded: Encoded) -> None:
        """Takes note of what a batch of the training text has of them."""
        self._found_sources |= encoded.sources
        self._found_pairs |= encoded.pairs

    def report(self) -> dict[str, int]:
        return {
            "pairs_in_train": sum(self.pairs[key] for key in self._found_pairs),
            "sources_in_train": sum(self.sources[key] for key in self._found_sources),
        }
