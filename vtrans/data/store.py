"""Data folders and their token stores, which `vtrans prepare-bpe` writes and training reads.

A data folder contains the SentencePiece model(s), `train.safetensors`, `valid.safetensors` and the report `data.json`.

A token store is a safetensors file. `src_ids` and `tgt_ids` (U16, or I32 for a vocabulary above 65,536) are the
concatenated subwords of all sentences, without special ids. `src_offsets` and `tgt_offsets` (I64 [N + 1]) say where
each sentence begins: sentence i is `ids[offsets[i] : offsets[i + 1]]`. `valid.safetensors` also has the raw lines
(UTF-8 as U8, with offsets), which are the references of BLEU. `train.safetensors` has word alignments if the user gave
them: `links` (U16 or I32, with offsets) holds alternating source and target positions of linked subwords. Corpora
follow each other in order; `data.json` records the number of pairs in each.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vtrans.storage.pair_counts import PairCounts
from vtrans.storage.tensors import mapped_arrays
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import check_path, file_sha256
from vtrans.text.languages import languages_from, tags_from
from vtrans.text.vocabulary import JOINT_FILE, SRC_FILE, TGT_FILE, Vocabulary, have_one_table

if TYPE_CHECKING:
    from torch import Tensor

FORMAT, REVISION = "vtrans data", 1
STORE_FORMAT = "vtrans tokens"

TRAIN_FILE, VALID_FILE, REPORT_FILE = "train.safetensors", "valid.safetensors", "data.json"
OUR_FILES = (REPORT_FILE, TRAIN_FILE, VALID_FILE, JOINT_FILE, SRC_FILE, TGT_FILE)


class TokenStore:
    """N sentence pairs as subword ids, on disk.

    Only the lengths are in memory, 8 bytes per pair; the file is mapped. Epochs are shuffled as a whole, so the pairs
    of a batch are spread over the file.

    `src_lengths` and `tgt_lengths` are int32 [N], in subwords without special ids.
    """

    def __init__(self, path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
        """`columns` are the tensors of a store. Raises FileError if they are inconsistent."""
        self.path = path
        wanted = {"src", "tgt"} | ({"src_text", "tgt_text"} if "src_text" in columns else set())
        wanted |= {"links"} & columns.keys()
        try:
            self._rows = {name: _Rows(*(columns[column] for column in _ROWS[name])) for name in _ROWS if name in wanted}
            if len({len(rows.lengths) for rows in self._rows.values()}) > 1:
                raise ValueError("rows of another number of pairs")
        except (KeyError, ValueError):
            raise FileError(f"{path} has inconsistent tensors; {_MAKE_AGAIN}.") from None
        self.src_lengths, self.tgt_lengths = (_tensor(self._rows[side].lengths) for side in ("src", "tgt"))

    @classmethod
    def open(cls, path: str | Path) -> TokenStore:
        """Opens a store. Raises FileError if the file is missing, truncated or not a store."""
        path = Path(path)
        try:
            metadata, columns = mapped_arrays(path)
            header = json.loads(metadata["vtrans"])
            known = header["format"], header["revision"]
        except (KeyError, TypeError, ValueError, RecursionError):
            known = None, None
        if known != (STORE_FORMAT, REVISION):
            raise FileError(f"{path} is not a token store of this version of vtrans; {_MAKE_AGAIN}.")
        return cls(path, columns)

    def __len__(self) -> int:
        return len(self.src_lengths)

    def src(self, i: int) -> Tensor:
        """Returns the source ids of pair i, int32 [S]."""
        return _tensor(self._rows["src"][i].astype(np.int32))

    def tgt(self, i: int) -> Tensor:
        """Returns the target ids of pair i, int32 [T]."""
        return _tensor(self._rows["tgt"][i].astype(np.int32))

    @property
    def has_links(self) -> bool:
        """Whether the store has word alignments."""
        return "links" in self._rows

    def linked(self, links: NDArray[np.int64], counts: NDArray[np.int64]) -> TokenStore:
        """Returns the same pairs with word alignments in memory, given as by `vtrans.data.aligner.aligned`."""
        store = copy.copy(self)
        ends = np.concatenate((np.zeros(1, np.int64), counts.cumsum()))
        store._rows = self._rows | {"links": _Rows(links.astype(np.int32), ends)}
        return store

    def links(self, i: int) -> NDArray[np.int64]:
        """Returns the links of pair i, int64 [L, 2]: positions in the source and in the target."""
        assert self.has_links, "a store without word alignments"
        return self._rows["links"][i].astype(np.int64).reshape(-1, 2)

    def text(self, side: str, i: int) -> str:
        """Returns the raw line of a side of pair i."""
        assert f"{side}_text" in self._rows, "a store without text"
        return self._rows[f"{side}_text"][i].tobytes().decode("utf-8")

    def joined(self, side: str, numbers: Tensor | NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the concatenated ids of these sentences of a side, and their lengths. The side "links" gives the
        pairs' links."""
        rows = [self._rows[side][i] for i in numbers.tolist()]
        return np.concatenate(rows).astype(np.int32), np.fromiter(map(len, rows), np.int64, len(rows))

    def counts(self, side: str, size: int) -> NDArray[np.int64]:
        """Returns the number of occurrences of each id on a side [size]."""
        ids, counts = self._rows[side].values, np.zeros(size, np.int64)
        for start in range(0, len(ids), _READ_ELEMENTS):
            counts += np.bincount(ids[start : start + _READ_ELEMENTS], minlength=size)
        return counts


def _tensor(array: NDArray[np.int32]) -> Tensor:
    import torch  # takes two seconds, and preparing a folder needs no tensors

    return torch.from_numpy(array)


class _Rows:
    """Rows of unequal length: their concatenated values, and the N + 1 offsets at which they begin and end. Raises
    ValueError if these are inconsistent. `lengths` are int32 [N]."""

    def __init__(self, values: NDArray[Any], offsets: NDArray[np.int64]) -> None:
        self.values, self.offsets = values, offsets
        if values.dtype not in _STORED or offsets.dtype != np.int64:
            raise ValueError("a wrong type")
        if (values.ndim, offsets.ndim) != (1, 1) or not len(offsets):
            raise ValueError("a wrong shape")
        lengths = np.diff(offsets)
        if offsets[0] != 0 or offsets[-1] != len(values) or (lengths < 0).any():
            raise ValueError("offsets that do not rise from 0 to the number of values")
        self.lengths: NDArray[np.int32] = lengths.astype(np.int32)

    def __getitem__(self, i: int) -> NDArray[Any]:
        i = range(len(self.lengths))[i]
        start, end = self.offsets[i : i + 2].tolist()
        return self.values[start:end]


# The tensors of each kind of rows: values and offsets.
_ROWS = {
    "src": ("src_ids", "src_offsets"),
    "tgt": ("tgt_ids", "tgt_offsets"),
    "src_text": ("src_text", "src_text_offsets"),
    "tgt_text": ("tgt_text", "tgt_text_offsets"),
    "links": ("links", "links_offsets"),
}
_STORED = (np.uint8, np.uint16, np.int32)  # text; subwords and links
_READ_ELEMENTS = 1 << 20  # elements read at a time
_MAKE_AGAIN = "make the data folder again with `vtrans prepare-bpe`"


class LengthLimit(NamedTuple):
    """The maximum usual target length: `ratio` subwords per source subword, both including EOS, plus `more`."""

    ratio: float
    more: int

    def of(self, length: int) -> int:
        """Returns the limit, including EOS, for a source of `length` subwords without EOS."""
        return math.ceil(self.ratio * (length + 1)) + self.more

    def __str__(self) -> str:
        return f"{self.ratio:g} x source + {self.more}"


class DataFolder:
    """A data folder: two stores, one or two vocabularies, and the report.

    Opening compares every file with its hash in the report. Without this check, an id beyond the vocabulary would end
    training at some later step, and other damage would go unnoticed. The check reads the stores once, at 1 GB per
    second on a processor with SHA-256 instructions.

    `languages` are the language pairs of the text, if known. `tags` maps target languages to the subword with which
    their sources begin, if any. `matches` says whether some sources begin with a fuzzy match (matches.py). `corpora`
    are the numbers of training pairs per corpus, in the order of the store. `pair` holds counts from the text, if it
    has one language pair.
    """

    def __init__(self, path: Path, report: dict[str, Any]) -> None:
        self.path, self.report = path, report
        files = report["files"]
        for name, facts in files.items():
            file = path / name
            if not file.is_file():
                raise FileError(f"{path} lacks {name}; {_MAKE_AGAIN}.")
            if file.stat().st_size != facts["bytes"]:
                raise FileError(
                    f"{file} has {file.stat().st_size:,} bytes instead of {facts['bytes']:,}; {_MAKE_AGAIN}."
                )
            digest = file_sha256(file)
            if digest is None:
                raise FileError(f"{file} cannot be read; change its permissions, or {_MAKE_AGAIN}.")
            if digest != facts["sha256"]:
                raise FileError(f"{file} has changed since the data was prepared; {_MAKE_AGAIN}.")
        self._opened = {name: self._state(name) for name in (TRAIN_FILE, VALID_FILE)}
        self.languages = languages_from(report["languages"])
        if JOINT_FILE in files:
            self.src_vocab = self.tgt_vocab = self._vocabulary(JOINT_FILE)
        else:
            self.src_vocab, self.tgt_vocab = self._vocabulary(SRC_FILE), self._vocabulary(TGT_FILE)
        self.tags = tags_from(report["tags"], self.src_vocab.tags)
        self.matches = bool(report["train"].get("matches"))
        self.pair = PairCounts.of(report.get("pair"))
        self.joint = have_one_table(self.src_vocab, self.tgt_vocab)
        self.train = TokenStore.open(path / TRAIN_FILE)
        self.valid = TokenStore.open(path / VALID_FILE)
        self.corpora = tuple(report["train"]["corpora"])
        if sum(self.corpora) != len(self.train):
            raise FileError(f"{path / REPORT_FILE} does not match {TRAIN_FILE}; {_MAKE_AGAIN}.")
        identity: dict[str, Any] = {name: facts["sha256"] for name, facts in sorted(files.items())}
        if len(self.corpora) > 1:
            identity["corpora"] = self.corpora
        self.digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    @classmethod
    def open(cls, path: str | Path) -> DataFolder:
        """Opens a data folder. Raises FileError if it is missing, foreign, incomplete or damaged."""
        path = Path(path)
        check_path(path)
        if not path.is_dir():
            raise FileError(f"there is no data folder {path}; make one with `vtrans prepare-bpe`.")
        report = read_report(path)
        if report is None:
            raise FileError(
                f"{path} is not a data folder of this version of vtrans (it has no valid {REPORT_FILE}); "
                "make one with `vtrans prepare-bpe`."
            )
        return cls(path, report)

    @cached_property
    def length_limit(self) -> LengthLimit:
        """The mean length ratio of the training pairs, and an excess that suffices for 99% of the pairs of each
        corpus."""
        src_N, tgt_N = (lengths.numpy() + 1 for lengths in (self.train.src_lengths, self.train.tgt_lengths))
        src_N = src_N - bool(self.tags)
        ratio = round(float(tgt_N.sum() / src_N.sum()), 2)
        beyond_N = tgt_N - np.ceil(ratio * src_N)
        ends = accumulate(self.corpora, initial=0)
        needed = [np.quantile(beyond_N[start:end], 0.99) for start, end in pairwise(ends) if start < end]
        return LengthLimit(ratio, max(0, math.ceil(max(needed))))

    def check_unchanged(self) -> None:
        """Raises FileError if another program has changed a store in place while it was open. A store that was removed
        or renamed over can still be read."""
        for name, before in self._opened.items():
            now = self._state(name)
            if now is None or before is None or now == before or now[0] != before[0]:
                continue
            if file_sha256(self.path / name) != self.report["files"][name]["sha256"]:
                raise FileError(
                    f"{self.path / name} has changed while it was in use; restore it, or {_MAKE_AGAIN}, and run the "
                    "same command again, which resumes from the last checkpoint."
                )

    def _state(self, name: str) -> tuple[tuple[int, int], int, int] | None:
        """Returns the identity, size and modification time of a file; None if it is missing."""
        try:
            status = (self.path / name).stat()
        except OSError:
            return None
        return (status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns

    def _vocabulary(self, name: str) -> Vocabulary:
        file = self.path / name
        return Vocabulary(file.read_bytes(), str(file))


def read_report(folder: Path) -> dict[str, Any] | None:
    """Returns the content of data.json, or None if it is missing or not a valid report of this version."""
    try:
        report = json.loads((folder / REPORT_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(report, dict) or (report.get("format"), report.get("revision")) != (FORMAT, REVISION):
        return None
    try:
        return report if _sound(report) else None
    except (KeyError, TypeError, AttributeError, InputError):
        return None


def _sound(report: dict[str, Any]) -> bool:
    """Returns whether a report has all values that are read later. May raise KeyError, TypeError or AttributeError for
    a wrong structure, and InputError for wrong languages."""
    files, inputs, rows = report["files"], report["inputs"], report["overlap"]["rows"]
    corpora = report["train"]["corpora"]
    languages_from(report["languages"])
    pairs = [pair[side] for pair in [*inputs["train"], *(inputs["valid"] or ())] for side in ("src", "tgt")]
    return (
        {TRAIN_FILE, VALID_FILE} <= files.keys() <= set(OUR_FILES)
        and (JOINT_FILE in files or {SRC_FILE, TGT_FILE} <= files.keys())
        and all(type(facts["bytes"]) is int and isinstance(facts["sha256"], str) for facts in files.values())
        and all(isinstance(file["name"], str) and isinstance(file["sha256"], str) for file in pairs)
        and all(isinstance(row["share"], float) and isinstance(row["threshold"], int) for row in rows)
        and isinstance(report["options"], dict)
        and isinstance(report["tags"], dict)
        and isinstance(corpora, list)
        and all(type(count) is int and count >= 0 for count in corpora)
    )
