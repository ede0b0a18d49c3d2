"""Translates a large file in chunks of lines, which several jobs may divide, and collects the result.

The output is a folder. The translation of a chunk is a file of its own, which appears when it is complete, and a job
translates those of its chunks that are not there yet. So a job that was killed resumes where it was, and jobs need
neither a connection nor a lock: two that translate the same chunk replace a file by an equal one. `job.json` records
what all jobs must have in common. A digest of it is part of each chunk's name, so that chunks of another input, model
or option are never taken for those of this job.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from vtrans.errors import FileError, InputError, VtransError
from vtrans.files import explained, file_sha256, reason, replacing, write_atomically
from vtrans.keys import decisive, keys_of
from vtrans.search.options import Mbr, Sampling
from vtrans.text.lines import LineIndex, LineReport, OnBadUtf8, index_lines, open_bytes, read_lines

if TYPE_CHECKING:
    from vtrans.translate.stream import Workers
    from vtrans.translate.translation import TranslateOptions
    from vtrans.translate.translator import Translator

RECORD = "job.json"
FORMAT = 1
COPIED_BYTES = 1 << 20  # bytes


@dataclass(frozen=True)
class Shard:
    """The chunks of one job among `of` jobs: every `of`-th, beginning with that of its number. Jobs count from 1."""

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise InputError(
                f"`shard` must be I/N with I from 1 to N, got {self.number}/{self.of}; with a scheduler that counts "
                "from 0, give $((INDEX + 1))/N."
            )

    @classmethod
    def parsed(cls, text: str) -> Shard:
        """Returns the shard that is written I/N. Raises InputError if there is none."""
        parts = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
        if parts is None:
            raise InputError(f"`shard` must be I/N, such as 2/8, got {text!r}.")
        return cls(int(parts[1]), int(parts[2]))


@dataclass(frozen=True)
class IndexedText:
    """A file whose lines are divided into chunks."""

    path: Path
    index: LineIndex
    seen: tuple[int, int]  # the file's size in bytes and its time in nanoseconds

    @classmethod
    def of(cls, path: Path, chunk_lines: int, known: tuple[LineIndex, tuple[int, ...]] | None = None) -> IndexedText:
        """Returns the source with the index that a job has recorded, if the file still has the size and time recorded
        with it, and otherwise reads the whole file. Raises FileError for anything but a regular file.
        """
        try:
            seen = _size_and_time(path)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {reason(error)}.") from None
        if not path.is_file():
            raise FileError(f"{path} must be a regular file, because jobs read parts of it; write the text to a file.")
        index = known[0] if known and known[1] == seen else index_lines(path, chunk_lines)
        return cls(path, index, seen)

    def record(self) -> dict[str, Any]:
        index = self.index
        return {"sha256": index.sha256, "lines": index.lines, "starts": list(index.starts), "seen": list(self.seen)}

    def check(self) -> None:
        """Raises InputError if the file has changed since this process began."""
        try:
            same = _size_and_time(self.path) == self.seen
        except OSError:
            same = False
        if not same:
            raise InputError(f"{self.path} was changed during the translation; all chunks need the same text.")

    def lines(self, stream: BinaryIO, chunk: int, first: int, how: OnBadUtf8, report: LineReport) -> Iterator[str]:
        """Yields the lines of a chunk, whose first line has this number. `stream` is the file, open for reading."""
        start, end = self.index.starts[chunk : chunk + 2]
        part: Any = _Part(stream, start, end)
        return read_lines(part, str(self.path), on_bad_utf8=how, report=report, line=first, offset=start)


def _size_and_time(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


class _Part:
    """The bytes of a stream from `start` to `end`."""

    def __init__(self, stream: BinaryIO, start: int, end: int) -> None:
        self._stream, self._at, self._end = stream, start, end

    def read(self, size: int) -> bytes:
        self._stream.seek(self._at)
        block = self._stream.read(min(size, self._end - self._at))
        self._at += len(block)
        return block


class ChunkJob:
    """A folder with the chunks of a translation, which count from 0. `record` is the content of its `job.json`."""

    def __init__(self, folder: Path, record: Mapping[str, Any]) -> None:
        self.folder = folder
        self.texts = {
            name: (LineIndex(text["sha256"], text["lines"], tuple(text["starts"])), tuple(text["seen"]))
            for name, text in record["texts"].items()
        }
        self.lines = self.texts["input"][0].lines
        self.chunks = len(self.texts["input"][0].starts) - 1
        self.chunk_lines: int = record["chunk_lines"]
        self.output_lines: int = record["output_lines"]  # per line of input
        texts = {name: index.sha256 for name, (index, _) in self.texts.items()}
        # What all jobs that write to this folder must have in common, by the names of their options.
        self.common = {"chunk_lines": self.chunk_lines, "model": record["models"], **texts, **record["options"]}
        self._key = hashlib.sha256(json.dumps(self.common, sort_keys=True).encode()).hexdigest()[:12]

    def file(self, chunk: int) -> Path:
        return self.folder / f"chunk-{chunk:08}.{self._key}"

    def lines_of(self, chunk: int) -> range:
        """The numbers of the lines of a chunk; the first line of the text is line 1."""
        first = chunk * self.chunk_lines + 1
        return range(first, min(first + self.chunk_lines, self.lines + 1))

    def missing(self, shard: Shard) -> list[int]:
        """The chunks of a shard that are not there yet."""
        shard_chunks = range(shard.number - 1, self.chunks, shard.of)
        return [chunk for chunk in shard_chunks if not self.file(chunk).exists()]

    def clean(self) -> None:
        """Removes the temporary files that killed jobs left behind for chunks that are complete."""
        for leftover in self.folder.glob(".chunk-*.tmp"):
            if (self.folder / leftover.name[1:].rsplit(".", 2)[0]).exists():
                shutil.rmtree(leftover, ignore_errors=True)


def read_job(folder: Path) -> ChunkJob | None:
    """Returns the job that a folder belongs to, or None if it has none. Raises FileError for a damaged record."""
    path = folder / RECORD
    try:
        record = json.loads(path.read_bytes())
        if record["format"] > FORMAT:
            raise FileError(f"{path} has format {record['format']}, but this version reads {FORMAT}; update vtrans.")
        return ChunkJob(folder, record)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason(error)}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        raise FileError(f"{path} is damaged; restore it, or translate into another folder.") from None


def engine_of(folder: Path) -> str | None:
    """Returns the engine with which the job of this folder began, or None if there is no job yet. All its jobs use this
    engine: others round differently, and some machines lack a compiler."""
    job = read_job(folder)
    return None if job is None else job.common["engine"]


def indexed_texts(folder: Path, texts: Mapping[str, Path], chunk_lines: int) -> dict[str, IndexedText]:
    """Returns the texts of a job, by the names of their options: `input`, and perhaps `prefixes` and `constraints`.

    Raises InputError if they differ in their number of lines, and FileError if one is not a regular file.
    """
    job = read_job(folder)
    known = job.texts if job and job.chunk_lines == chunk_lines else {}
    sources = {name: IndexedText.of(path, chunk_lines, known.get(name)) for name, path in texts.items()}
    for source in sources.values():
        if source.index.lines != sources["input"].index.lines:
            first = sources["input"]
            raise InputError(
                f"{first.path} has {first.index.lines:,} lines, but {source.path} has {source.index.lines:,}; both "
                "must have the same number of lines."
            )
    return sources


def join_job(
    folder: Path,
    sources: Mapping[str, IndexedText],
    models: Sequence[Path],
    options: Mapping[str, Any],
    chunk_lines: int,
    output_lines: int,
) -> ChunkJob:
    """Returns the job of this folder, which it begins if the folder is new or empty.

    `models` are those of `vtrans.load`, and `options` are values for JSON by the names of their options: all that
    change the translations. Raises InputError if they, or the texts, are not those of the job.
    """
    from vtrans.storage.run_folder import choose_model

    record = {
        "format": FORMAT,
        "chunk_lines": chunk_lines,
        "output_lines": output_lines,
        "models": [file_sha256(choose_model(path).file) for path in models],
        "options": options,
        "texts": {name: source.record() for name, source in sources.items()},
    }
    wanted = ChunkJob(folder, json.loads(json.dumps(record)))
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if read_job(folder) is None:
            if any(not path.name.startswith(".") for path in folder.iterdir()):
                raise InputError(
                    f"`output` must be a new or empty folder, or one with chunks of the same job, got {folder}."
                )
            write_atomically(folder / RECORD, json.dumps(record, sort_keys=True).encode() + b"\n")
    job = read_job(folder)  # perhaps that of another job, which began at the same time
    if job is None:
        raise InputError(f"{folder / RECORD} was removed; run the same command again.")
    ours, theirs = (_by_option(dict(each.common)) for each in (wanted, job))
    if name := next((name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)), ""):
        raise InputError(
            f"the chunks in {folder} were made with another `{name}` ({_shown(theirs.get(name))}, not "
            f"{_shown(ours.get(name))}); use the same for all jobs, or choose another `output`."
        )
    return job


def settings_of(translator: Translator, options: TranslateOptions) -> dict[str, Any]:
    """Returns the settings that change the translations, apart from the model's, by the names of their options."""
    return {**decisive(translator.search), **_recorded(options), "engine": translator.engine.name}


def _recorded(options: TranslateOptions) -> dict[str, Any]:
    return {name: value for name, value in asdict(options).items() if name != "abandoned"}  # no setting


def _by_option(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns recorded settings by the names of their options, which may be several for one field."""
    form, protect, calibration = (settings.pop(name) for name in ("form", "protect", "calibration"))
    for name, kind in (("sampling", Sampling), ("mbr", Mbr)):
        values = settings.pop(name)
        settings[name] = values is not None
        settings |= {key.option or key_name: (values or {}).get(key_name) for key_name, key in keys_of(kind).items()}
    if form not in ("text", "confidence"):
        settings[form] = True
    given = isinstance(protect, dict)
    settings |= {"protect": given or protect, "protect_patterns": protect.get("more") if given else None}
    # `min_confidence`, which also needs a calibration, is compared before.
    return settings | {"confidence": calibration and {"columns": form == "confidence", **calibration}}


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) < 40 else f"{text[:16]}..."


def translate_chunks(
    translator: Translator,
    job: ChunkJob,
    shard: Shard,
    sources: Mapping[str, IndexedText],
    options: TranslateOptions,
    *,
    on_bad_utf8: OnBadUtf8 = "error",
    report: LineReport | None = None,
    progress: Callable[[float, float], None] = lambda lines, share: None,
    workers: Workers[bytes] | None = None,
) -> None:
    """Translates the chunks of the shard that are not there yet.

    `progress` is called with the lines translated so far, and their bytes as a share of the bytes to translate. The
    other arguments are those of `translate_stream`. Raises InputError if a text changes.
    """
    from vtrans.lines.line import lines_of
    from vtrans.translate.stream import translate_stream
    from vtrans.wording.phrases import read_constraints

    report = report or LineReport()
    missing, starts = job.missing(shard), sources["input"].index.starts
    sizes = {chunk: starts[chunk + 1] - starts[chunk] for chunk in missing}
    translated, size, whole = 0, 0, sum(sizes.values())
    with ExitStack() as stack:
        streams = {name: stack.enter_context(open_bytes(source.path)) for name, source in sources.items()}
        for chunk in missing:
            numbers, before = job.lines_of(chunk), translator.counts.lines
            parts = {
                name: source.lines(streams[name], chunk, numbers.start, on_bad_utf8, report)
                for name, source in sources.items()
            }
            constraints = None
            if "constraints" in parts:
                constraints = read_constraints(parts["constraints"], str(sources["constraints"].path), numbers.start)
            lines = lines_of(parts["input"], parts.get("prefixes"), constraints, first=numbers.start)
            with _completed(job.file(chunk)) as stream:
                translate_stream(
                    translator,
                    lines,
                    stream,
                    options,
                    patient=True,
                    progress=partial(_further, progress, translated, size, whole),
                    workers=workers,
                )
                for source in sources.values():
                    source.check()
                if (written := translator.counts.lines - before) != len(numbers):
                    raise VtransError(f"chunk {chunk} has {len(numbers):,} lines, but {written:,} were translated.")
            translated, size = translated + len(numbers), size + sizes[chunk]
    job.clean()


def _further(
    progress: Callable[[float, float], None], lines: int, size: int, whole: int, more: float, read: float
) -> None:
    progress(lines + more, min(1.0, (size + read) / whole))


@contextmanager
def _completed(file: Path) -> Iterator[BinaryIO]:
    """Yields a stream whose content becomes the file when the block ends."""
    try:
        with replacing(file) as stream:
            yield stream
    except FileError:
        # Another job with the same shard has completed the chunk, and removed what looked like the rest of a dead job.
        if not file.exists():
            raise


def collect(folder: Path, stream: BinaryIO) -> int:
    """Writes the translations of all lines in order, and returns their number, after it has checked that all are there.

    Raises InputError if a chunk is missing, and FileError if one has too few or too many lines.
    """
    job = read_job(folder)
    if job is None:
        raise FileError(f"{folder} has no {RECORD}; give a folder that a translation in chunks has written.")
    if missing := job.missing(Shard()):
        lines = job.lines_of(missing[0])
        raise InputError(
            f"{len(missing):,} of {job.chunks:,} chunks are not in {folder}, the first of them lines {lines.start:,} "
            f"to {lines.stop - 1:,}; run the job again, which translates what is missing."
        )
    files = {job.file(chunk): len(job.lines_of(chunk)) * job.output_lines for chunk in range(job.chunks)}
    for file, expected in files.items():
        actual = sum(block.count(b"\n") for block in _blocks(file))
        if actual != expected:
            raise FileError(
                f"{file} must have {expected:,} lines, but has {actual:,}; delete it and run the job again, which "
                "translates what is missing."
            )
    for file in files:
        for block in _blocks(file):
            stream.write(block)
    stream.flush()
    return job.lines


def _blocks(file: Path) -> Iterator[bytes]:
    with open_bytes(file) as stream:
        while block := stream.read(COPIED_BYTES):
            yield block
