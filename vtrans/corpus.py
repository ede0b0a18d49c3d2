"""Parallel text to a data folder (store.py): the whole of `vtrans prepare-bpe`.

Text is streamed, several times over, and ids go to disk as they are made: memory is
bounded by the sample from which the vocabulary is learnt (0.4 kB a line for BPE, 1 kB for unigram),
not by the corpus: beside it 0.2 GB at 200,000 pairs and at 2 million, and 0.05 GB for a process that encodes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import heapq
import itertools
import json
import os
import random
import shlex
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vtrans.config import DEFAULT_VOCAB_SIZE, PrepareOptions
from vtrans.console import Console, duration
from vtrans.encode import RATIO_FREE_TOKENS, Encoded, Encoder, Pair, Task, encode, encoders, hash_of
from vtrans.errors import FileError, InputError, VtransError
from vtrans.scripts import SCRIPT_DEFINITION, SCRIPT_THRESHOLD, overlap_by_script, script_table
from vtrans.store import (
    FORMAT,
    OUR_FILES,
    REPORT_FILE,
    REVISION,
    STORE_FORMAT,
    TRAIN_FILE,
    VALID_FILE,
    Ragged,
    assemble,
    file_sha256,
    read_report,
)
from vtrans.text import LineReport, OnBadUtf8, open_bytes, read_lines, sync_folder, write_atomically
from vtrans.vocab import (
    JOINT_FILE,
    OVERLAP_DEFINITION,
    OVERLAP_THRESHOLDS,
    SPECIAL_PIECES,
    SRC_FILE,
    TGT_FILE,
    SizeError,
    Vocabulary,
    check_symbols,
    learn,
    overlap,
    subword_counts,
)

HELD_OUT_SOURCES = 1000
"""Source sentences held out for validation where the user gives none ..."""
HELD_OUT_SHARE = 0.05
"""... with all their pairs, which are at most this share of all (but at least one sentence)."""

REHEARSED = 20_000
"""Random training pairs that a dry run learns from and encodes."""

_BATCH_PAIRS, _BATCH_CHARACTERS = 4096, 1 << 22  # encoded together, and sent to a process
_BLOCK = 1 << 20  # bytes hashed at a time
_STAGING = ".preparing"


# ---------------------------------------------------------------------------------------- preparing


def prepare(options: PrepareOptions, console: Console, *, dry_run: bool = False) -> dict[str, Any]:
    """Make the data folder `options.out` and return its report, the content of data.json.

    Returns the standing report if the folder was made from the same inputs and options and is
    whole. With `dry_run` it says what making it will take, returns that, and writes nothing. Raises
    InputError or FileError for whatever is at fault with inputs, options or folder; then the folder
    is as it was.
    """
    options = options.checked()
    check_symbols(options.symbols)
    out = Path(options.out)
    began = time.monotonic()
    train = _Corpus(options.src, options.tgt, options.on_bad_utf8)
    valid = _Corpus(options.valid_src, options.valid_tgt, options.on_bad_utf8) if options.valid_src else None
    inputs = {"train": train.hashed(console), "valid": valid.hashed(console) if valid else None}
    standing = _standing(out, inputs, options, console)
    if standing is not None:
        return standing
    if dry_run:
        return _Preparation(options, train, valid, out, console).rehearse(inputs, began)
    try:
        with _staging(out) as staging:
            report = _Preparation(options, train, valid, staging, console).run(inputs)
            for corpus in (train, valid):
                if corpus:
                    corpus.check_unchanged()
            _put_in_place(staging, out, report)
    except OSError as error:
        raise VtransError(f"{out} can't be written: {error.strerror or error}.") from error
    _show(report, out, console)
    return report


def _standing(out: Path, inputs: dict[str, Any], options: PrepareOptions, console: Console) -> dict[str, Any] | None:
    """The report of a folder that is up to date; None if it is to be made; FileError if it must not."""
    if not out.exists():
        return None
    if not out.is_dir():
        raise FileError(f"{out} is a file; --out names a folder to make.")
    names = sorted(file.name for file in out.iterdir())
    report = read_report(out)
    if report is None:
        # An interrupted run leaves its staging folder and perhaps some files in place, but no report.
        if not names or (_STAGING in names and REPORT_FILE not in names):
            return None
        raise FileError(
            f"{out} is not empty and no data folder of this version of vtrans (it holds {names[0]}); "
            "name a new folder with --out."
        )
    # A folder of a version that did not know an option yet was made with its default.
    before = PrepareOptions(src=(), tgt=()).identity() | report["options"]
    differing = [
        f"{_flag(name)} was {_said(before[name])} and is {_said(value)}"
        for name, value in options.identity().items()
        if before[name] != value
    ]
    if _content(report["inputs"]) != _content(inputs):
        differing.insert(0, "the input files differ")
    if differing and not options.force:
        raise InputError(
            f"{out} was made from other inputs or options ({'; '.join(differing)}); "
            "name another folder with --out, or replace it with --force."
        )
    # A version before this one did not record which pairs are of which corpus: --force makes up for it.
    unrecorded = len(inputs["train"]) > 1 and "corpora" not in report["train"]
    if differing or (unrecorded and options.force):
        return None
    damaged = [name for name, facts in report["files"].items() if file_sha256(out / name) != facts["sha256"]]
    if damaged:
        console.warn(f"{out} was damaged ({', '.join(damaged)}) and is made anew.")
        return None
    console.info(f"{out} is up to date: made from the same files with the same options.")
    return report


def _flag(name: str) -> str:
    """The flag of an option."""
    return "--symbol" if name == "symbols" else f"--{name.replace('_', '-')}"


def _said(value: Any) -> str:
    """An option's value, for people."""
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)


def _content(inputs: dict[str, Any]) -> list[Any]:
    """The part of the inputs that decides what the data is: contents, not names."""
    return [
        [[pair[side]["sha256"] for side in ("src", "tgt")] for pair in inputs[part] or ()]
        for part in ("train", "valid")
    ]


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """A folder inside `out` to write in; gone afterwards, and with it `out` if nothing came of it.

    It stays if the run ends in the middle of the renames: it is the sign that the files are ours.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    staging = out / _STAGING
    try:
        if staging.exists():
            shutil.rmtree(staging)
        try:
            staging.mkdir(parents=True)
        except OSError as error:
            raise FileError(f"the folder {out} can't be made: {error.strerror}; name another with --out.") from None
        yield staging
    finally:
        if (out / REPORT_FILE).exists() or not any((out / name).exists() for name in OUR_FILES):
            shutil.rmtree(staging, ignore_errors=True)
        for folder in made:
            with suppress(OSError):  # not empty: it is whole
                folder.rmdir()


def _put_in_place(staging: Path, out: Path, report: dict[str, Any]) -> None:
    """Rename all files into `out`, the report last: without it a folder is not a data folder."""
    (out / REPORT_FILE).unlink(missing_ok=True)
    for name in OUR_FILES[1:]:
        if name in report["files"]:
            (staging / name).replace(out / name)
        else:
            (out / name).unlink(missing_ok=True)
    sync_folder(out)
    text = json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False)
    write_atomically(out / REPORT_FILE, text.encode() + b"\n")


def _existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there."""
    return next(folder for folder in (path, *path.absolute().parents) if folder.exists())


class _Preparation:
    """One run: survey, learn, encode. Every pass streams the text from the files again."""

    def __init__(
        self,
        options: PrepareOptions,
        train: _Corpus,
        valid: _Corpus | None,
        staging: Path,
        console: Console,
    ) -> None:
        self.options, self.train, self.valid = options, train, valid
        self.staging, self.console = staging, console
        self.threads = options.threads or os.cpu_count() or 1

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        options, console = self.options, self.console
        survey, valid_survey, held_out = self._survey(inputs)
        source = _Training(self.train, frozenset(held_out), options.seed)
        vocabularies = self._learn(source, survey.usable - sum(held_out.values()))
        src_vocab, tgt_vocab = vocabularies[0], vocabularies[-1]
        largest = max(len(v) for v in vocabularies)
        if options.vocab_size is None and any(len(v) != DEFAULT_VOCAB_SIZE for v in vocabularies):
            sizes = " and ".join(f"{len(v):,}" for v in vocabularies)
            console.info(f"the text allows {sizes} pieces instead of {DEFAULT_VOCAB_SIZE:,}.")
        seen = _Overlap()

        everything = Task(src_vocab.proto, tgt_vocab.proto, largest)
        valid_part = _Part(self.staging / VALID_FILE, everything, len(src_vocab), len(tgt_vocab), with_text=True)
        pairs = self.valid.pairs() if self.valid else source.held_out_pairs()
        total = valid_survey.pairs if valid_survey else survey.pairs
        with console.progress("encoding the validation text", total, "pairs") as progress:
            encoder = Encoder(everything)
            for batch in _batches(pairs):
                seen.remember(valid_part.add(encoder(batch, self.threads), batch))
                progress.advance(len(batch))
        if not valid_part.kept:
            raise InputError("every validation pair has an empty side; give other --valid-src and --valid-tgt.")

        task = dataclasses.replace(
            everything,
            max_tokens=options.max_tokens,
            max_ratio=options.max_ratio,
            sources=frozenset(seen.sources),
            pairs=frozenset(seen.pairs),
        )
        train_part = _Part(self.staging / TRAIN_FILE, task, len(src_vocab), len(tgt_vocab), len(options.src))
        corpus_of = deque[int]()  # of each batch under way

        def batches() -> Iterator[list[Pair]]:
            for number, pairs in enumerate(source.by_corpus()):
                for batch in _batches(pairs):
                    corpus_of.append(number)
                    yield batch

        with (
            console.progress("encoding the training text", survey.pairs, "pairs") as progress,
            closing(encode(batches(), task, survey.pairs, self.threads)) as stream,
        ):
            for encoded in stream:
                train_part.add(encoded, corpus=corpus_of.popleft())
                seen.found(encoded)
                progress.advance(encoded.read)
        if not train_part.kept:
            reasons = _dropped_words(train_part.dropped, options.identity())
            raise InputError(f"no training pair is left of {survey.pairs:,}: {reasons}.")

        files = {}
        for part in (train_part, valid_part):
            files[part.path.name] = part.finish()
        names = (JOINT_FILE,) if len(vocabularies) == 1 else (SRC_FILE, TGT_FILE)
        for name, vocabulary in zip(names, vocabularies, strict=True):
            write_atomically(self.staging / name, vocabulary.proto)
            files[name] = {"bytes": len(vocabulary.proto), "sha256": vocabulary.digest}
        src_counts = subword_counts(src_vocab, train_part.src_counts.tolist())
        tgt_counts = subword_counts(tgt_vocab, train_part.tgt_counts.tolist())
        return {
            "format": FORMAT,
            "revision": REVISION,
            "options": options.identity(),
            "ratio_free_tokens": RATIO_FREE_TOKENS,
            "inputs": inputs,
            "files": files,
            "held_out": None if self.valid else {"sources": len(held_out), "pairs": sum(held_out.values())},
            "vocabulary": {
                "joint": len(vocabularies) == 1,
                "src_pieces": len(src_vocab),
                "tgt_pieces": len(tgt_vocab),
                "normalization": src_vocab.normalization,
                "symbols": {
                    symbol: {
                        side: int(counts[len(SPECIAL_PIECES) + place])
                        for side, counts in (("src", train_part.src_counts), ("tgt", train_part.tgt_counts))
                    }
                    for place, symbol in enumerate(options.symbols)
                },
            },
            "train": {"read": survey.pairs, **train_part.report(), "corpora": train_part.corpora},
            "valid": {
                "read": valid_survey.pairs if valid_survey else sum(held_out.values()),
                **valid_part.report(),
                **seen.report(),
            },
            "characters": {
                part: {"odd_line_ends": s.odd_line_ends, "replacements": s.replacements}
                for part, s in (("train", survey), ("valid", valid_survey))
                if s is not None
            },
            "overlap": {
                "definition": OVERLAP_DEFINITION,
                "rows": [dataclasses.asdict(row) for row in overlap(src_counts, tgt_counts)],
                "script_definition": SCRIPT_DEFINITION,
                "scripts": [
                    dataclasses.asdict(row) for row in overlap_by_script(src_counts, tgt_counts, OVERLAP_THRESHOLDS)
                ],
            },
        }

    def _survey(self, inputs: dict[str, Any]) -> tuple[_Survey, _Survey | None, dict[int, int]]:
        """What the training text, and the validation text if there is one, hold; what is held out if there is none."""
        options, console = self.options, self.console
        candidates = None if self.valid else _HeldOut(options.seed)
        survey = self.train.survey(console, "training text", candidates)
        valid_survey = self.valid.survey(console, "validation text", None) if self.valid else None
        held_out = candidates.chosen(survey.usable) if candidates else {}
        if candidates:
            console.info(
                f"no --valid-src: {len(held_out):,} random source sentences with all their "
                f"{sum(held_out.values()):,} pairs are held out for validation."
            )
        for name, counts in (("train", survey.lines), ("valid", valid_survey.lines if valid_survey else [])):
            for facts, n in zip(inputs[name] or (), counts, strict=True):
                facts["src"]["lines"] = facts["tgt"]["lines"] = n
        return survey, valid_survey, held_out

    def rehearse(self, inputs: dict[str, Any], began: float) -> dict[str, Any]:
        """A dry run: says what making the folder will take, from all lines and a few pairs encoded."""
        options, say = self.options, self.console.info
        survey, valid_survey, held_out = self._survey(inputs)
        names = [files["src"]["name"] for files in inputs["train"]]
        for name, lines in zip(names, survey.lines, strict=True):
            say(f"{name}: {lines:,} pairs")
        say(f"training text: {survey.pairs:,} pairs, of which {survey.pairs - survey.usable:,} have a blank side")
        if valid_survey:
            say(f"validation text: {valid_survey.pairs:,} pairs")
        said = ", ".join(f"{_flag(n)} {_said(v)}" for n, v in options.identity().items() if n != "vocab_size")
        say(f"options: {said}, --threads {self.threads}")
        pairs = survey.usable - sum(held_out.values())
        size = DEFAULT_VOCAB_SIZE if options.vocab_size is None else options.vocab_size
        drawn, sample = min(options.sample, pairs), min(REHEARSED, options.sample, pairs)
        say(
            f"vocabulary: {'one a side' if options.separate else 'one for both sides'}, {size:,} pieces are asked"
            + (" (fewer if the text allows no more)" if options.vocab_size is None else "")
            + f", learnt from {drawn:,} pairs"
        )

        start = surveyed = time.monotonic()
        source = _Training(self.train, frozenset(held_out), options.seed)
        with self.console.progress("reading some pairs", sample, "pairs") as progress:
            lines_read = list(_Sample(source, "both", sample, pairs, progress.advance))
        reading = time.monotonic() - start
        batch = list(zip(lines_read[::2], lines_read[1::2], strict=True))
        say(f"learning from {sample:,} pairs ...")
        half, _ = self._learn_some(batch[: -(-sample // 2)])
        whole, vocabularies = self._learn_some(batch)
        if sample == drawn == pairs:  # these are all that there are, so a size that they refuse will be refused
            vocabularies = self._learn(source, pairs)
        learning = whole + max(0.0, whole - half) * (drawn - sample) / max(1, sample // 2)
        task = Task(
            vocabularies[0].proto, vocabularies[-1].proto, size, max_tokens=options.max_tokens,
            max_ratio=options.max_ratio,
        )  # fmt: skip
        start = time.monotonic()
        encoded = Encoder(task)(batch)
        encoding = (time.monotonic() - start) / sample * pairs / encoders(pairs, self.threads)

        kept, scale = len(encoded.kept) / sample, pairs / sample
        tokens = {"src": round(len(encoded.src.ids) * scale), "tgt": round(len(encoded.tgt.ids) * scale)}
        sides = [n * (4 if task.wide else 2) for n in tokens.values()]
        stored = sum(sides) + 16 * round(kept * pairs) + sum(len(v.proto) for v in vocabularies)
        validation = valid_survey.pairs if valid_survey else sum(held_out.values())
        # Of validation pairs the text is stored too.
        characters = sum(len(line.encode()) for line in lines_read) / sample
        stored += round(validation * (sum(sides) / (kept * pairs or 1) + 32 + characters))
        # While a store is put together, what it is made of is there as well, a column at a time less.
        peak, free = stored + max(sides), shutil.disk_usage(_existing(self.staging)).free
        # The text is read as often again as it was now; held-out pairs take a pass of their own.
        seconds = (surveyed - began) + reading * (1 if self.valid else 2) + learning + max(reading, encoding)
        estimate = {
            "pairs": survey.pairs,
            "corpora": survey.lines,
            "blank": survey.pairs - survey.usable,
            "held_out": None if self.valid else sum(held_out.values()),
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
            self.console.warn(f"there is too little room for {options.out}; name another place with --out.")
        say(f"time: about {duration(seconds)}, of which {duration(learning)} for the vocabulary")
        say("dry run: nothing was written")
        return estimate

    def _learn_some(self, batch: Sequence[Pair]) -> tuple[float, list[Vocabulary]]:
        """The seconds that a vocabulary from these pairs takes, or one a side, and what came of it: if the pairs
        are too few for the size that is asked, with the size that they allow."""
        options, start, vocabularies = self.options, time.monotonic(), []
        sides = [[src for src, _ in batch], [tgt for _, tgt in batch]]
        for lines in sides if options.separate else [[*sides[0], *sides[1]]]:
            size = options.vocab_size
            while True:
                try:
                    vocabularies.append(self._learn_from(lines, size, "the training text"))
                    break
                except SizeError as error:
                    size = None if size == error.works else error.works
        return time.monotonic() - start, vocabularies

    def _learn_from(self, lines: Iterable[str], size: int | None, name: str) -> Vocabulary:
        options = self.options
        return learn(
            lines,
            size=size,
            kind=options.subword,
            coverage=options.character_coverage,
            normalization=options.normalization,
            symbols=options.symbols,
            name=name,
        )

    def _learn(self, source: _Training, pairs: int) -> list[Vocabulary]:
        """The vocabulary of both sides, or one a side."""
        sides = ("src", "tgt") if self.options.separate else ("both",)
        size, works = self.options.vocab_size, self.options.vocab_size
        tried, refused = set(), None
        while works not in tried:  # what one side allows may be too much or too little for the other
            tried.add(works)
            try:
                vocabularies = [self._learn_side(source, side, pairs, works) for side in sides]
            except SizeError as error:
                works, refused = error.works, refused or error
                continue
            if refused is None:
                return vocabularies
            assert size is not None
            assert works is not None
            raise refused if refused.works == works else SizeError(size, works, "the pair of sides")
        raise InputError(f"--vocab-size {size} does not fit both sides, and no size does; leave it unset.")

    def _learn_side(self, source: _Training, side: str, pairs: int, size: int | None) -> Vocabulary:
        options = self.options
        name = {"src": "the source side", "tgt": "the target side"}.get(side, "the training text")
        drawn = min(options.sample, pairs)
        with self.console.progress(f"reading {name} for its vocabulary", drawn, "pairs") as progress:
            read = 0

            def seen() -> None:
                nonlocal read
                read += 1
                progress.advance()
                if read == drawn:  # SentencePiece learns when it has read all, and says nothing meanwhile
                    self.console.info(f"learning the vocabulary of {name} from {drawn:,} pairs ...")

            return self._learn_from(_Sample(source, side, options.sample, pairs, seen), size, name)


@dataclass
class _Survey:
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


class _Corpus:
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
                facts.append({"name": path.name, "bytes": path.stat().st_size, "sha256": digest.hexdigest()})
        return [{"src": s, "tgt": t} for s, t in zip(facts[::2], facts[1::2], strict=True)]

    def survey(self, console: Console, what: str, candidates: _HeldOut | None) -> _Survey:
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
        return _Survey(
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


class _HeldOut:
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


class _Training:
    """The training pairs of a corpus: those whose source sentence is not held out."""

    def __init__(self, corpus: _Corpus, held_out: frozenset[int], seed: int) -> None:
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


class _Sample:
    """Sentences of `size` random training pairs out of `total` usable ones, the same at every iteration.

    Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S: in order, without holding them.
    """

    def __init__(self, source: _Training, side: str, size: int, total: int, seen: Callable[[], None]) -> None:
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


class _Overlap:
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


# ------------------------------------------------------------------------------------------ writing


def _batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Pairs in lists bounded by number and by characters."""
    batch: list[Pair] = []
    characters = 0
    for src, tgt in pairs:
        batch.append((src, tgt))
        characters += len(src) + len(tgt)
        if len(batch) >= _BATCH_PAIRS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class _Part:
    """The pairs of one store on their way to disk, counted."""

    def __init__(
        self, path: Path, task: Task, src_pieces: int, tgt_pieces: int, corpora: int = 1, *, with_text: bool = False
    ) -> None:
        self.path, self.task, self.with_text = path, task, with_text
        self.corpora = [0] * corpora  # pairs kept of each
        self.dropped = {"empty": 0, "too_long": 0, "odd_ratio": 0}
        self.longest = 0
        self.characters = {"src": 0, "tgt": 0}
        self.src_counts = np.zeros(src_pieces, np.int64)
        self.tgt_counts = np.zeros(tgt_pieces, np.int64)
        dtype = "I32" if task.wide else "U16"
        self._ids = {side: Ragged(path, f"{side}_ids", f"{side}_offsets", dtype) for side in ("src", "tgt")}
        self._texts = (
            {side: Ragged(path, f"{side}_text", f"{side}_text_offsets", "U8") for side in ("src", "tgt")}
            if with_text
            else {}
        )

    @property
    def kept(self) -> int:
        return sum(self.corpora)

    def add(self, encoded: Encoded, batch: Sequence[Pair] = (), corpus: int = 0) -> list[Pair]:
        """Writes what a batch became; of one with text, the pairs that were kept are returned."""
        for reason, n in encoded.dropped.items():
            self.dropped[reason] += n
        pairs = [batch[i] for i in encoded.kept] if self.with_text else []
        for side, ours, counts, text in (
            ("src", encoded.src, self.src_counts, [p[0] for p in pairs]),
            ("tgt", encoded.tgt, self.tgt_counts, [p[1] for p in pairs]),
        ):
            counts += np.bincount(ours.ids, minlength=len(counts))
            self._ids[side].add(ours.ids, ours.lengths)
            self.longest = max(self.longest, int(ours.lengths.max(initial=0)))
            self.characters[side] += ours.characters
            if self.with_text:
                raw = [line.encode() for line in text]
                lengths = np.array([len(r) for r in raw], np.int64)
                self._texts[side].add(np.frombuffer(b"".join(raw), np.uint8), lengths)
        self.corpora[corpus] += len(encoded.kept)
        return pairs

    def finish(self) -> dict[str, Any]:
        """Assemble the store; its size and hash."""
        columns = [*self._ids.values(), *self._texts.values()]
        parts = [part for column in columns for part in column.parts()]
        metadata = {"format": STORE_FORMAT, "revision": REVISION, "pairs": self.kept}
        return assemble(self.path, parts, metadata)

    def report(self) -> dict[str, Any]:
        tokens = {side: int(self._ids[side].size) for side in ("src", "tgt")}
        return {
            "kept": self.kept,
            "dropped": {r: n for r, n in self.dropped.items() if r == "empty" or self.task.max_tokens is not None},
            "tokens": tokens,
            "characters": self.characters,
            "characters_a_token": {s: round(self.characters[s] / tokens[s], 3) for s in tokens},
            "longest": self.longest,
        }


# ---------------------------------------------------------------------------------------- reporting


def _dropped_words(dropped: dict[str, int], options: dict[str, Any]) -> str:
    words = {
        "empty": "with an empty side",
        "too_long": f"longer than {options['max_tokens']} tokens",
        "odd_ratio": f"with a length ratio above {options['max_ratio']:g} "
        f"(where the longer side has more than {RATIO_FREE_TOKENS} tokens)",
    }
    return ", ".join(f"{n:,} {words[reason]}" for reason, n in dropped.items())


def _show(report: dict[str, Any], out: Path, console: Console) -> None:
    """The report for people."""
    train, valid, vocabulary, options = (report[k] for k in ("train", "valid", "vocabulary", "options"))
    for part, facts in (("training", train), ("validation", valid)):
        dropped = _dropped_words(facts["dropped"], options)
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
    console.table(
        "vocabulary overlap",
        [
            (row["threshold"], f"{row['both']:,}", f"{row['either']:,}", f"{row['share']:.0%}",
             f"{row['token_share']:.0%}")
            for row in report["overlap"]["rows"]
        ],
        header=("N", "both", "either", "overlap", "tokens"),
    )  # fmt: skip
    console.info(f"({report['overlap']['definition']}.)")
    rows, header = script_table(report["overlap"]["scripts"])
    console.table(f"by script, N = {SCRIPT_THRESHOLD}", rows, header=header)
    console.info(f"({report['overlap']['script_definition']}.)")
    console.info(f"the data folder is {out}; next: vtrans train --data {shlex.quote(str(out))}")
