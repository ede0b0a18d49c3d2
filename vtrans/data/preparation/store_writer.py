"""Writes a token store (store.py) batch by batch, while its pairs are being encoded."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vtrans.data.preparation.counting import Counting
from vtrans.data.preparation.coverage import Coverage
from vtrans.data.preparation.encode import Encoded, Side, Task, TextPair
from vtrans.data.store import REVISION, STORE_FORMAT, TokenStore
from vtrans.storage.tensors import NUMPY

_COPIED_BYTES = 1 << 20  # bytes copied at a time

Column = tuple[str, str, int, Path]  # a tensor: name, dtype, number of elements, file with the data


class StoreWriter:
    """Writes the pairs of one store, and counts pairs, tokens, characters and dropped pairs.

    `tags`, if given, holds one id per corpus, which is put before each of the corpus's sources.
    """

    def __init__(
        self,
        path: Path,
        task: Task,
        src_pieces: int,
        tgt_pieces: int,
        corpora: int = 1,
        tags: Sequence[int] = (),
        *,
        with_text: bool = False,
        with_links: bool = False,
    ) -> None:
        self.path, self.task, self.tags, self.with_text = path, task, tags, with_text
        self.corpora = [0] * corpora
        """Number of kept pairs per corpus."""
        self.dropped = Counter(empty=0, too_long=0, odd_ratio=0)
        self.longest = 0
        self.characters = {"src": 0, "tgt": 0}
        self.coverage = {"src": Coverage(), "tgt": Coverage()}
        self.counts = {"src": np.zeros(src_pieces, np.int64), "tgt": np.zeros(tgt_pieces, np.int64)}
        """Number of occurrences of each id."""
        self.counting = Counting(task.counted)
        dtype = "I32" if task.wide else "U16"
        self._ids = {side: Ragged(path, f"{side}_ids", f"{side}_offsets", dtype) for side in ("src", "tgt")}
        self._texts = {
            side: Ragged(path, f"{side}_text", f"{side}_text_offsets", "U8")
            for side in (("src", "tgt") if with_text else ())
        }
        # Positions fit into two bytes unless sentences may be very long.
        dtype = "U16" if task.max_tokens is not None and task.max_tokens <= 1 << 16 else "I32"
        self.links = Ragged(path, "links", "links_offsets", dtype) if with_links else None
        """The links of each pair: alternating source and target positions of subwords."""

    @property
    def kept(self) -> int:
        return sum(self.corpora)

    def add(self, encoded: Encoded, pairs: Sequence[TextPair] = (), corpus: int = 0) -> None:
        """Writes an encoded batch. With text, `pairs` are its kept pairs."""
        self.dropped.update(encoded.dropped)
        src = _tagged(encoded.src, self.tags[corpus]) if self.tags else encoded.src
        for i, (name, side) in enumerate((("src", src), ("tgt", encoded.tgt))):
            self.counts[name] += np.bincount(side.ids, minlength=len(self.counts[name]))
            self._ids[name].add(side.ids, side.lengths)
            self.longest = max(self.longest, int(side.lengths.max(initial=0)))
            self.characters[name] += side.characters
            self.coverage[name].add(side.coverage)
            if self.with_text:
                raw = [pair[i].encode() for pair in pairs]
                lengths = np.array([len(r) for r in raw], np.int64)
                self._texts[name].add(np.frombuffer(b"".join(raw), np.uint8), lengths)
        if self.links is not None and encoded.links is not None:
            values, lengths = encoded.links
            if self.tags:
                values[::2] += 1  # the tag before the source
            self.links.add(values, lengths)
        if encoded.counting:
            self.counting.merge(encoded.counting)
        self.corpora[corpus] += len(encoded.kept)

    def finish(self) -> dict[str, Any]:
        """Assembles the store. Returns its size in bytes and its SHA-256."""
        ragged = (*self._ids.values(), *self._texts.values(), *([self.links] if self.links else []))
        columns = [column for some in ragged for column in some.columns()]
        return assemble(self.path, columns, {"format": STORE_FORMAT, "revision": REVISION, "pairs": self.kept})

    def report(self) -> dict[str, Any]:
        """Returns the counts, as data.json records them."""
        tokens = {side: int(ids.size) for side, ids in self._ids.items()}
        return {
            "kept": self.kept,
            "dropped": {r: n for r, n in self.dropped.items() if r == "empty" or self.task.max_tokens is not None},
            "tokens": tokens,
            "characters": self.characters,
            "coverage": {side: coverage.report() for side, coverage in self.coverage.items()},
            "characters_a_token": {side: round(self.characters[side] / n, 3) for side, n in tokens.items()},
            "longest": self.longest,
        }


def _tagged(side: Side, tag: int) -> Side:
    """Returns the sources, each preceded by a tag."""
    starts = np.cumsum(side.lengths) - side.lengths
    return Side(np.insert(side.ids, starts, tag), side.lengths + 1, side.characters)


class Ragged:
    """Rows of unequal length on disk: a file of their values, and a file of the offsets at which rows begin."""

    def __init__(self, store: Path, values: str, offsets: str, dtype: str) -> None:
        self._names, self._dtype = (values, offsets), dtype
        self._values, self._offsets = store.with_suffix(f".{values}"), store.with_suffix(f".{offsets}")
        self.size = self._rows = 0
        self._values.write_bytes(b"")
        self._offsets.write_bytes(np.zeros(1, np.int64).tobytes())

    def add(self, values: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> None:
        """Appends rows, given as concatenated values and the length of each row."""
        ends = self.size + np.cumsum(lengths.astype(np.int64))
        with self._values.open("ab") as file:
            file.write(values.astype(NUMPY[self._dtype]).tobytes())
        with self._offsets.open("ab") as file:
            file.write(ends.tobytes())
        self.size += len(values)
        self._rows += len(lengths)

    def columns(self) -> list[Column]:
        values, offsets = self._names
        return [
            (offsets, "I64", self._rows + 1, self._offsets),
            (values, self._dtype, self.size, self._values),
        ]


def unfinished(path: Path, sides: Iterable[Ragged]) -> TokenStore:
    """Returns a store of the rows written so far, with memory-mapped tensors."""
    columns = [column for ragged in sides for column in ragged.columns()]
    # A slice of a memmap takes 2 µs, one of a plain array 0.1 µs.
    maps = {name: np.memmap(file, NUMPY[dtype], "r", shape=(n,)) for name, dtype, n, file in columns}
    return TokenStore(path, {name: np.asarray(values) for name, values in maps.items()})


def assemble(path: Path, columns: Sequence[Column], metadata: dict[str, Any]) -> dict[str, Any]:
    """Writes a safetensors file from one file per tensor, and deletes these. Returns its size in bytes and its SHA-256.

    The format (https://github.com/huggingface/safetensors#format) is 8 bytes of header length, a JSON header padded
    with spaces, and the data. The safetensors package can only write tensors that are in memory.
    """
    # Wide types come first, so that every tensor is aligned to its element size.
    columns = sorted(columns, key=lambda column: (-np.dtype(NUMPY[column[1]]).itemsize, column[0]))
    header: dict[str, Any] = {"__metadata__": {"vtrans": json.dumps(metadata, sort_keys=True)}}
    end = 0
    for name, dtype, elements, _ in columns:
        start, end = end, end + elements * np.dtype(NUMPY[dtype]).itemsize
        header[name] = {"dtype": dtype, "shape": [elements], "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    begin = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(begin)
    with path.open("wb") as out:
        out.write(begin)
        for *_, source in columns:
            with source.open("rb") as stream:
                while block := stream.read(_COPIED_BYTES):
                    digest.update(block)
                    out.write(block)
            source.unlink()
        out.flush()
        os.fsync(out.fileno())
    return {"bytes": len(begin) + end, "sha256": digest.hexdigest()}
