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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from vtrans.config.keys import output_affecting
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import named_os_errors, reason, replacing, write_atomically
from vtrans.text.lines import count_lines, open_bytes

if TYPE_CHECKING:
    from vtrans.translate.translation import TranslateOptions
    from vtrans.translate.translator import Translator

RECORD, FORMAT = "job.json", 4

Chunks = dict[Path, range]
"""The numbers of the lines of each chunk, by its file. The first line of a text is line 1."""


def shard_of(shard: str) -> slice:
    """Returns the chunks of job I of N, every N-th from the I-th. Raises InputError unless `shard` is I/N."""
    parts = re.fullmatch(r"(\d{1,9})/(\d{1,9})", shard, re.ASCII)
    if parts is None or not 1 <= int(parts[1]) <= int(parts[2]):
        raise InputError(
            f"`shard` must be I/N with I from 1 to N, such as 2/8, got {shard!r}; with a scheduler that counts from 0, "
            "give $((INDEX + 1))/N."
        )
    return slice(int(parts[1]) - 1, None, int(parts[2]))


def read_job(folder: Path) -> dict[str, Any] | None:
    """Returns the record of the job that a folder belongs to, or None if it has none. Raises FileError if the record is
    damaged."""
    path = folder / RECORD
    try:
        record: dict[str, Any] = json.loads(path.read_bytes())
        sizes = record["lines"] + 1, record["output_lines"], record["common"]["chunk_lines"]
        if record["format"] == FORMAT and min(sizes) > 0:
            return record
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason(error)}.") from None
    except (ValueError, KeyError, TypeError):
        pass
    raise FileError(f"{path} is damaged, or of another version of vtrans; translate into another folder.")


def chunks_of(folder: Path, job: Mapping[str, Any]) -> Chunks:
    """Returns the chunks of a job, in order."""
    key = hashlib.sha256(json.dumps(job["common"], sort_keys=True).encode()).hexdigest()[:12]
    stop, size = job["lines"] + 1, job["common"]["chunk_lines"]
    ranges = (range(first, min(first + size, stop)) for first in range(1, stop, size))
    return {folder / f"chunk-{number:08}.{key}": lines for number, lines in enumerate(ranges)}


def missing(chunks: Chunks, shard: slice = slice(None)) -> list[Path]:
    """Returns the chunks of a shard that are not there yet."""
    return [file for file in [*chunks][shard] if not file.exists()]


def join(
    folder: Path, texts: Mapping[str, Path], chunk_lines: int, output_lines: int, options: Mapping[str, Any]
) -> Chunks:
    """Returns the chunks of the folder's job, which it begins if the folder is new or empty.

    `texts` are files by the names of their options: `input`, and perhaps `prefixes` and `constraints`. A line of input
    gives `output_lines`. `options` are values for JSON by the names of their options: all others that change the
    translations. Raises InputError if these are not those of the job, and FileError if a text is not a regular file.
    """
    for path in texts.values():
        if path.exists() and not path.is_file():
            raise FileError(f"{path} must be a regular file, because jobs read it again; write the text to a file.")
    counted = {name: count_lines(path) for name, path in texts.items()}
    common = {"chunk_lines": chunk_lines, **{name: digest for name, (_, digest) in counted.items()}, **options}
    record = {"format": FORMAT, "lines": counted["input"][0], "output_lines": output_lines, "common": common}
    written = json.dumps(record, sort_keys=True)
    ours = json.loads(written)
    with named_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if read_job(folder) is None:
            if any(not path.name.startswith(".") for path in folder.iterdir()):
                raise InputError(
                    f"`output` must be a new or empty folder, or one with chunks of the same job, got {folder}."
                )
            write_atomically(folder / RECORD, written.encode() + b"\n")
    job = read_job(folder) or ours  # perhaps that of another job, which began at the same time
    for name in {**ours["common"], **job["common"]}:
        here, there = (each["common"].get(name) for each in (ours, job))
        if here != there:
            raise InputError(
                f"the chunks in {folder} were made with another `{name}` ({_shown(there)}, not {_shown(here)}); use "
                "the same for all jobs, or choose another `output`."
            )
    return chunks_of(folder, job)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else "none" if value is None else json.dumps(value)
    return text if len(text) < 60 else f"{text[:16]}..."


def settings_of(translator: Translator, options: TranslateOptions) -> dict[str, Any]:
    """Returns the settings that change the translations, apart from the model's, by the names of their options."""
    recorded = {name: value for name, value in asdict(options).items() if name != "abandoned"}  # no setting
    return {**output_affecting(translator.search), **recorded, "engine": translator.engine.name}


def translate_chunks(
    translator: Translator,
    chunks: Chunks,
    wanted: Collection[Path],
    parts: Sequence[Iterator[Any] | None],
    options: TranslateOptions,
    **settings: Any,
) -> None:
    """Translates the wanted chunks, in order. Raises InputError if the text has too few lines for them.

    `parts` are the first arguments of `lines_of`, and the settings those of `translate_windows`.
    """
    from vtrans.translate.steps.line import lines_of
    from vtrans.translate.stream import translate_stream

    last = max((lines.stop for file, lines in chunks.items() if file in wanted), default=0)
    for file, numbers in chunks.items():
        parts_of_chunk: list[Any] = [part and islice(part, len(numbers)) for part in parts]
        if numbers.stop > last:
            return
        if file not in wanted:
            for part in parts_of_chunk:
                deque(part or (), maxlen=0)  # reads it to its end
            continue
        before = translator.counts.lines
        with replacing(file) as stream:
            translate_stream(translator, lines_of(*parts_of_chunk, first=numbers.start), stream, options, **settings)
            if (written := translator.counts.lines - before) != len(numbers):
                raise InputError(f"{file} needs {len(numbers):,} lines, but {written:,} were left; was the text cut?")


def collect(folder: Path, stream: BinaryIO) -> int:
    """Writes the translations of all lines in order, and returns their number, after it has checked that all are there.
    Removes what jobs that were killed have left behind.

    Raises InputError if a chunk is missing, and FileError if one has too few or too many lines.
    """
    job = read_job(folder)
    if job is None:
        raise FileError(f"{folder} has no {RECORD}; give a folder that a translation in chunks has written.")
    chunks, again = chunks_of(folder, job), "run the job again, which translates what is missing"
    if absent := missing(chunks):
        lines = chunks[absent[0]]
        raise InputError(
            f"{len(absent):,} of {len(chunks):,} chunks are not in {folder}, the first of them lines "
            f"{lines.start:,} to {lines.stop - 1:,}; {again}."
        )
    for file, lines in chunks.items():
        expected, actual = len(lines) * job["output_lines"], sum(block.count(b"\n") for block in _blocks(file))
        if actual != expected:
            raise FileError(f"{file} must have {expected:,} lines, but has {actual:,}; delete it and {again}.")
    for file in chunks:
        stream.writelines(_blocks(file))
    stream.flush()
    for leftover in folder.glob(".chunk-*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)
    return int(job["lines"])


def _blocks(file: Path) -> Iterator[bytes]:
    with open_bytes(file) as stream:
        while block := stream.read(1 << 20):
            yield block
