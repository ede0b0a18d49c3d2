"""Writes a token store (store.py) as its pairs are encoded; no more than a batch is in memory."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vtrans.data.encode import Encoded, Pair, Task
from vtrans.data.store import REVISION, STORE_FORMAT

_BLOCK = 1 << 20  # bytes copied at a time

_NUMPY = {"U8": np.uint8, "U16": np.uint16, "I32": np.int32, "I64": np.int64}


class Ragged:
    """Rows of unequal length on disk: all their values, and where each row begins."""

    def __init__(self, store: Path, values: str, offsets: str, dtype: str) -> None:
        self._dtype = dtype
        self._values, self._offsets = store.with_suffix(f".{values}"), store.with_suffix(f".{offsets}")
        self.size = self._rows = 0
        self._values.write_bytes(b"")
        self._offsets.write_bytes(np.zeros(1, np.int64).tobytes())

    def add(self, values: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> None:
        ends = self.size + np.cumsum(lengths.astype(np.int64))
        with self._values.open("ab") as file:
            file.write(values.astype(_NUMPY[self._dtype]).tobytes())
        with self._offsets.open("ab") as file:
            file.write(ends.tobytes())
        self.size += len(values)
        self._rows += len(lengths)

    def parts(self) -> list[tuple[str, str, int, Path]]:
        """Name, dtype, number of elements and file of both tensors."""
        return [
            (self._offsets.suffix[1:], "I64", self._rows + 1, self._offsets),
            (self._values.suffix[1:], self._dtype, self.size, self._values),
        ]


def assemble(path: Path, parts: list[tuple[str, str, int, Path]], metadata: dict[str, Any]) -> dict[str, Any]:
    """A safetensors file out of one file a tensor, which are deleted; its size and hash.

    The format (https://github.com/huggingface/safetensors#format) is 8 bytes of header length, a JSON
    header padded with spaces, the data. safetensors itself writes only what is in memory.
    """
    # Wide types first, so that every tensor begins at a multiple of its element size.
    parts = sorted(parts, key=lambda p: (-np.dtype(_NUMPY[p[1]]).itemsize, p[0]))
    header: dict[str, Any] = {"__metadata__": {"vtrans": json.dumps(metadata, sort_keys=True)}}
    at = 0
    for name, dtype, elements, _ in parts:
        end = at + elements * np.dtype(_NUMPY[dtype]).itemsize
        header[name] = {"dtype": dtype, "shape": [elements], "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with path.open("wb") as out:

        def write(block: bytes, out: BinaryIO = out) -> None:
            digest.update(block)
            out.write(block)

        write(len(text).to_bytes(8, "little"))
        write(text)
        for _, _, _, file in parts:
            with file.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    write(block)
            file.unlink()
        out.flush()
        os.fsync(out.fileno())
    return {"bytes": 8 + len(text) + at, "sha256": digest.hexdigest()}


class StoreWriter:
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
