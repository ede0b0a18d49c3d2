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
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from vtrans.errors import FileError, InputError, VtransError
from vtrans.files import explained, file_sha256, reason, replacing, write_atomically
from vtrans.keys import decisive
from vtrans.text.lines import count_lines, open_bytes

if TYPE_CHECKING:
    from vtrans.translate.stream import Workers
    from vtrans.translate.translation import TranslateOptions
    from vtrans.translate.translator import Translator

RECORD = "job.json"
FORMAT = 2


def chunks_of(shard: str) -> slice:
    """Returns the chunks of job I of N, every N-th from the I-th. Raises InputError unless `shard` is I/N."""
    parts = re.fullmatch(r"(\d{1,9})/(\d{1,9})", shard, re.ASCII)
    if parts is None or not 1 <= int(parts[1]) <= int(parts[2]):
        raise InputError(
            f"`shard` must be I/N with I from 1 to N, such as 2/8, got {shard!r}; with a scheduler that counts from 0, "
            "give $((INDEX + 1))/N."
        )
    return slice(int(parts[1]) - 1, None, int(parts[2]))


class ChunkedTexts:
    """Texts whose translations go to a folder in chunks, by the names of their options: `input`, and perhaps `prefixes`
    and `constraints`.

    Raises InputError if they differ in their number of lines, and FileError if one is not a regular file.
    """

    def __init__(self, folder: Path, paths: Mapping[str, Path], chunk_lines: int) -> None:
        self.folder, self.chunk_lines = folder, chunk_lines
        self._seen = {path: _size_and_time(path) for path in paths.values()}
        self._texts: dict[str, dict[str, Any]] = {}
        for name, path in paths.items():
            if path.exists() and not path.is_file():
                raise FileError(f"{path} must be a regular file, because jobs read it again; write the text to a file.")
            count, digest = count_lines(path)
            self._texts[name] = {"sha256": digest, "lines": count}
            if count != (lines := self._texts["input"]["lines"]):
                raise InputError(
                    f"{paths['input']} has {lines:,} lines, but {path} has {count:,}; both must have the same number "
                    "of lines."
                )

    def join(self, models: Sequence[Path], options: Mapping[str, Any], output_lines: int) -> ChunkJob:
        """Returns the job of the folder, which it begins if the folder is new or empty.

        `models` are those of `vtrans.load`, and `options` are values for JSON by the names of their options: all that
        change the translations. Raises InputError if they, or the texts, are not those of the job.
        """
        from vtrans.storage.run_folder import choose_model

        folder = self.folder
        record = {
            "format": FORMAT,
            "chunk_lines": self.chunk_lines,
            "output_lines": output_lines,
            "models": [file_sha256(choose_model(path).file) for path in models],
            "options": options,
            "texts": self._texts,
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
        for name in {**wanted.common, **job.common}:
            ours, theirs = (_shown(each.common.get(name)) for each in (wanted, job))
            if wanted.common.get(name) != job.common.get(name):
                raise InputError(
                    f"the chunks in {folder} were made with another `{name}` ({theirs}, not {ours}); use the same for "
                    "all jobs, or choose another `output`."
                )
        return job

    def check(self) -> None:
        """Raises InputError if a file has changed since this process began."""
        for path, seen in self._seen.items():
            if _size_and_time(path) != seen:
                raise InputError(f"{path} was changed during the translation; all chunks need the same text.")


def _size_and_time(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


class ChunkJob:
    """A folder with the chunks of a translation, which count from 0. `record` is the content of its `job.json`."""

    def __init__(self, folder: Path, record: Mapping[str, Any]) -> None:
        self.folder = folder
        self.lines: int = record["texts"]["input"]["lines"]
        self.chunk_lines: int = record["chunk_lines"]
        self.chunks = -(-self.lines // self.chunk_lines)
        self.output_lines: int = record["output_lines"]  # per line of input
        texts = {name: text["sha256"] for name, text in record["texts"].items()}
        # What all jobs that write to this folder must have in common, by the names of their options.
        self.common = {"chunk_lines": self.chunk_lines, "model": record["models"], **texts, **record["options"]}
        self._key = hashlib.sha256(json.dumps(self.common, sort_keys=True).encode()).hexdigest()[:12]

    def file(self, chunk: int) -> Path:
        return self.folder / f"chunk-{chunk:08}.{self._key}"

    def lines_of(self, chunk: int) -> range:
        """The numbers of the lines of a chunk; the first line of the text is line 1."""
        first = chunk * self.chunk_lines + 1
        return range(first, min(first + self.chunk_lines, self.lines + 1))

    def lines_in(self, chunks: Sequence[int]) -> int:
        """The number of lines of these chunks."""
        return sum(len(self.lines_of(chunk)) for chunk in chunks)

    def missing(self, shard: slice = slice(None)) -> list[int]:
        """The chunks of a shard that are not there yet."""
        return [chunk for chunk in range(self.chunks)[shard] if not self.file(chunk).exists()]


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


def settings_of(translator: Translator, options: TranslateOptions) -> dict[str, Any]:
    """Returns the settings that change the translations, apart from the model's, by the names of their options."""
    recorded = {name: value for name, value in asdict(options).items() if name != "abandoned"}  # no setting
    return {**decisive(translator.search), **recorded, "engine": translator.engine.name}


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else "none" if value is None else json.dumps(value)
    return text if len(text) < 60 else f"{text[:16]}..."


def translate_chunks(
    translator: Translator,
    job: ChunkJob,
    shard: slice,
    texts: ChunkedTexts,
    parts: Sequence[Iterator[Any] | None],
    options: TranslateOptions,
    *,
    advance: Callable[[int], None] = lambda size: None,
    workers: Workers[bytes] | None = None,
) -> None:
    """Translates the chunks of the shard that are not there yet.

    `parts` are the first arguments of `lines_of`. The other arguments are those of `translate_windows`. Raises
    InputError if a text changes.
    """
    from vtrans.lines.line import lines_of
    from vtrans.translate.stream import translate_stream

    missing = set(job.missing(shard))
    for chunk in range(max(missing, default=-1) + 1):
        numbers, before = job.lines_of(chunk), translator.counts.lines
        parts_of_chunk: list[Any] = [part and islice(part, len(numbers)) for part in parts]
        if chunk not in missing:
            for part in parts_of_chunk:
                deque(part or (), maxlen=0)  # reads it to its end
            continue
        lines = lines_of(*parts_of_chunk, first=numbers.start)
        with replacing(job.file(chunk)) as stream:
            translate_stream(translator, lines, stream, options, advance=advance, workers=workers)
            texts.check()
            if (written := translator.counts.lines - before) != len(numbers):
                raise VtransError(f"chunk {chunk} has {len(numbers):,} lines, but {written:,} were translated.")


def collect(folder: Path, stream: BinaryIO) -> int:
    """Writes the translations of all lines in order, and returns their number, after it has checked that all are there.
    Removes what jobs that were killed have left behind.

    Raises InputError if a chunk is missing, and FileError if one has too few or too many lines.
    """
    job = read_job(folder)
    if job is None:
        raise FileError(f"{folder} has no {RECORD}; give a folder that a translation in chunks has written.")
    if missing := job.missing():
        lines = job.lines_of(missing[0])
        raise InputError(
            f"{len(missing):,} of {job.chunks:,} chunks are not in {folder}, the first of them lines {lines.start:,} "
            f"to {lines.stop - 1:,}; run the job again, which translates what is missing."
        )
    for chunk in range(job.chunks):
        expected = len(job.lines_of(chunk)) * job.output_lines
        actual = sum(block.count(b"\n") for block in _blocks(job.file(chunk)))
        if actual != expected:
            raise FileError(
                f"{job.file(chunk)} must have {expected:,} lines, but has {actual:,}; delete it and run the job again, "
                "which translates what is missing."
            )
    for chunk in range(job.chunks):
        stream.writelines(_blocks(job.file(chunk)))
    stream.flush()
    for leftover in folder.glob(".chunk-*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)
    return job.lines


def _blocks(file: Path) -> Iterator[bytes]:
    with open_bytes(file) as stream:
        while block := stream.read(1 << 20):
            yield block
