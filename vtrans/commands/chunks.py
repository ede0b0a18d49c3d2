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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from vtrans.config.keys import output_affecting
from vtrans.system.errors import FileError, InputError, VtransError
from vtrans.system.files import named_os_errors, reason, replacing, write_atomically
from vtrans.text.lines import count_lines, open_bytes

if TYPE_CHECKING:
    from vtrans.translate.translation import TranslateOptions
    from vtrans.translate.translator import Translator

RECORD = "job.json"
FORMAT = 3


def chunks_of(shard: str) -> slice:
    """Returns the chunks of job I of N, every N-th from the I-th. Raises InputError unless `shard` is I/N."""
    parts = re.fullmatch(r"(\d{1,9})/(\d{1,9})", shard, re.ASCII)
    if parts is None or not 1 <= int(parts[1]) <= int(parts[2]):
        raise InputError(
            f"`shard` must be I/N with I from 1 to N, such as 2/8, got {shard!r}; with a scheduler that counts from 0, "
            "give $((INDEX + 1))/N."
        )
    return slice(int(parts[1]) - 1, None, int(parts[2]))


@dataclass(frozen=True)
class ChunkJob:
    """A folder with the chunks of a translation, which count from 0, and the content of its `job.json`."""

    folder: Path
    lines: int
    chunk_lines: int
    output_lines: int
    """Lines of output per line of input."""
    common: Mapping[str, Any]
    """Values that must be equal in all jobs that write to this folder, by the names of their options."""
    seen: Mapping[Path, Any] = field(default_factory=dict)
    """The texts as they were before they were read. They are not recorded."""

    @cached_property
    def chunks(self) -> range:
        return range(-(-self.lines // self.chunk_lines))

    @cached_property
    def _key(self) -> str:
        return hashlib.sha256(json.dumps(self.common, sort_keys=True).encode()).hexdigest()[:12]

    def file(self, chunk: int) -> Path:
        return self.folder / f"chunk-{chunk:08}.{self._key}"

    def lines_of(self, chunk: int) -> range:
        """The numbers of the lines of a chunk; the first line of the text is line 1."""
        first = chunk * self.chunk_lines + 1
        return range(first, min(first + self.chunk_lines, self.lines + 1))

    def missing(self, shard: slice = slice(None)) -> list[int]:
        """The chunks of a shard that are not there yet."""
        return [chunk for chunk in self.chunks[shard] if not self.file(chunk).exists()]

    def check_texts(self) -> None:
        """Raises InputError if a text has changed since this process began."""
        for path, seen in self.seen.items():
            if _size_and_time(path) != seen:
                raise InputError(f"{path} was changed during the translation; all chunks need the same text.")


def _size_and_time(path: Path) -> tuple[int, int] | None:
    try:
        return path.stat().st_size, path.stat().st_mtime_ns
    except OSError:
        return None


def read_job(folder: Path) -> ChunkJob | None:
    """Returns the job that a folder belongs to, or None if it has none. Raises FileError for a damaged record."""
    path = folder / RECORD
    try:
        record = json.loads(path.read_bytes())
        if record.pop("format") != FORMAT:
            raise FileError(f"{path} is of another version of vtrans; use that version, or translate to a new folder.")
        return ChunkJob(folder, **record)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason(error)}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FileError(f"{path} is damaged; restore it, or translate into another folder.") from None


def join(
    folder: Path, texts: Mapping[str, Path], chunk_lines: int, output_lines: int, options: Mapping[str, Any]
) -> ChunkJob:
    """Returns the job of the folder, which it begins if the folder is new or empty.

    `texts` are files by the names of their options: `input`, and perhaps `prefixes` and `constraints`. `options` are
    values for JSON by the names of their options: all others that change the translations. Raises InputError if these
    are not those of the job, and FileError if a text is not a regular file.
    """
    seen = {path: _size_and_time(path) for path in texts.values()}
    for path in seen:
        if path.exists() and not path.is_file():
            raise FileError(f"{path} must be a regular file, because jobs read it again; write the text to a file.")
    counted = {name: count_lines(path) for name, path in texts.items()}
    common = {"chunk_lines": chunk_lines, **{name: digest for name, (_, digest) in counted.items()}, **options}
    record = {"lines": counted["input"][0], "chunk_lines": chunk_lines, "output_lines": output_lines, "common": common}
    ours = ChunkJob(folder, **json.loads(json.dumps(record)))
    with named_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if read_job(folder) is None:
            if any(not path.name.startswith(".") for path in folder.iterdir()):
                raise InputError(
                    f"`output` must be a new or empty folder, or one with chunks of the same job, got {folder}."
                )
            write_atomically(folder / RECORD, json.dumps({"format": FORMAT, **record}, sort_keys=True).encode() + b"\n")
    job = read_job(folder) or ours  # perhaps that of another job, which began at the same time
    for name in {**ours.common, **job.common}:
        here, there = (each.common.get(name) for each in (ours, job))
        if here != there:
            raise InputError(
                f"the chunks in {folder} were made with another `{name}` ({_shown(there)}, not {_shown(here)}); use "
                "the same for all jobs, or choose another `output`."
            )
    return replace(job, seen=seen)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else "none" if value is None else json.dumps(value)
    return text if len(text) < 60 else f"{text[:16]}..."


def settings_of(translator: Translator, options: TranslateOptions) -> dict[str, Any]:
    """Returns the settings that change the translations, apart from the model's, by the names of their options."""
    recorded = {name: value for name, value in asdict(options).items() if name != "abandoned"}  # no setting
    return {**output_affecting(translator.search), **recorded, "engine": translator.engine.name}


def translate_chunks(
    translator: Translator,
    job: ChunkJob,
    chunks: Sequence[int],
    parts: Sequence[Iterator[Any] | None],
    options: TranslateOptions,
    **settings: Any,
) -> None:
    """Translates these chunks, in order. Raises InputError if a text changes.

    `parts` are the first arguments of `lines_of`, and the settings those of `translate_windows`.
    """
    from vtrans.translate.steps.line import lines_of
    from vtrans.translate.stream import translate_stream

    for chunk in range(max(chunks, default=-1) + 1):
        numbers, before = job.lines_of(chunk), translator.counts.lines
        parts_of_chunk: list[Any] = [part and islice(part, len(numbers)) for part in parts]
        if chunk not in chunks:
            for part in parts_of_chunk:
                deque(part or (), maxlen=0)  # reads it to its end
            continue
        with replacing(job.file(chunk)) as stream:
            translate_stream(translator, lines_of(*parts_of_chunk, first=numbers.start), stream, options, **settings)
            job.check_texts()
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
    again = "run the job again, which translates what is missing"
    if missing := job.missing():
        lines = job.lines_of(missing[0])
        raise InputError(
            f"{len(missing):,} of {len(job.chunks):,} chunks are not in {folder}, the first of them lines "
            f"{lines.start:,} to {lines.stop - 1:,}; {again}."
        )
    for chunk in job.chunks:
        expected = len(job.lines_of(chunk)) * job.output_lines
        actual = sum(block.count(b"\n") for block in _blocks(job.file(chunk)))
        if actual != expected:
            raise FileError(
                f"{job.file(chunk)} must have {expected:,} lines, but has {actual:,}; delete it and {again}."
            )
    for chunk in job.chunks:
        stream.writelines(_blocks(job.file(chunk)))
    stream.flush()
    for leftover in folder.glob(".chunk-*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)
    return job.lines


def _blocks(file: Path) -> Iterator[bytes]:
    with open_bytes(file) as stream:
        while block := stream.read(1 << 20):
            yield block
