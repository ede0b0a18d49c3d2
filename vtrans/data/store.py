"""Data folders and the memory-mapped token stores in them, which `vtrans prepare-bpe` writes and training reads.

A data folder contains the SentencePiece model(s), `train.safetensors`, `valid.safetensors` and the report `data.json`.

A token store is a safetensors file. `src_ids` and `tgt_ids` (U16, or I32 for a vocabulary above 65,536) are the
concatenated subwords of all sentences, without special ids. `src_offsets` and `tgt_offsets` (I64 [N + 1]) say
where each sentence begins: sentence i is `ids[offsets[i] : offsets[i + 1]]`. `valid.safetensors` also has the raw lines
(UTF-8 as U8, with offsets), which are the references of BLEU. The pairs of several corpora follow each other in order;
`data.json` records how many each has.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from vtrans.data.vocabulary import JOINT_FILE, SRC_FILE, TGT_FILE, Vocabulary, have_one_table
from vtrans.errors import FileError, InputError
from vtrans.files import check_path, file_sha256
from vtrans.languages import languages_from

FORMAT, REVISION = "vtrans data", 1
STORE_FORMAT = "vtrans tokens"

TRAIN_FILE, VALID_FILE, REPORT_FILE = "train.safetensors", "valid.safetensors", "data.json"
OUR_FILES = (REPORT_FILE, TRAIN_FILE, VALID_FILE, JOINT_FILE, SRC_FILE, TGT_FILE)


class TokenStore:
    """N sentence pairs as subword ids, memory-mapped.

    Only the lengths are in memory, 8 bytes per pair. Epochs are shuffled as a whole, so the pairs of a batch are spread
    over the file. If it is larger than memory, reading a pair takes 30 microseconds longer (2 million pairs, a virtual
    disk), in the thread that makes batches in advance.

    `src_lengths` and `tgt_lengths` are int32 [N], in subwords without special ids.
    """

    def __init__(self, path: Path, tensors: dict[str, Tensor]) -> None:
        self.path = path
        self.src_ids, self.tgt_ids = tensors["src_ids"], tensors["tgt_ids"]
        self.src_offsets, self.tgt_offsets = tensors["src_offsets"], tensors["tgt_offsets"]
        # Views of the same memory: slicing a tensor takes ten times as long.
        self._src = self.src_ids.numpy(), self.src_offsets.numpy()
        self._tgt = self.tgt_ids.numpy(), self.tgt_offsets.numpy()
        self._text = tensors if "src_text" in tensors else None
        self.src_lengths, self.tgt_lengths = _lengths(self.src_offsets), _lengths(self.tgt_offsets)

    @classmethod
    def open(cls, path: str | Path) -> TokenStore:
        """Opens a store. Raises FileError if the file is missing, truncated or not a store."""
        path = Path(path)
        try:
            with safe_open(path, framework="pt") as file:
                header = json.loads((file.metadata() or {}).get("vtrans", "{}"))
                if header.get("format") != STORE_FORMAT or header.get("revision") != REVISION:
                    raise FileError(f"{path} is not a token store of this version of vtrans; {_MAKE_AGAIN}.")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
        except FileNotFoundError:
            raise FileError(f"there is no file {path}; {_MAKE_AGAIN}.") from None
        except (SafetensorError, OSError, ValueError, AttributeError, RecursionError) as error:
            reason = str(error).rstrip(".")
            raise FileError(f"{path} is truncated or not a token store ({reason}); {_MAKE_AGAIN}.") from None
        sides = [("src_ids", "src_offsets"), ("tgt_ids", "tgt_offsets")]
        if "src_text" in tensors:
            sides += [("src_text", "src_text_offsets"), ("tgt_text", "tgt_text_offsets")]
        if not all(_fits(tensors, *names) for names in sides):
            raise FileError(f"{path} has inconsistent tensors; {_MAKE_AGAIN}.")
        return cls(path, tensors)

    def __len__(self) -> int:
        return len(self.src_offsets) - 1

    def src(self, i: int) -> Tensor:
        """Returns the source ids of pair i, int32 [S]."""
        return self._ids(*self._src, i)

    def tgt(self, i: int) -> Tensor:
        """Returns the target ids of pair i, int32 [T]."""
        return self._ids(*self._tgt, i)

    def src_text(self, i: int) -> str:
        """Returns the source line of pair i as it was read."""
        return self._line("src", i)

    def tgt_text(self, i: int) -> str:
        """Returns the target line of pair i as it was read."""
        return self._line("tgt", i)

    def _ids(self, ids: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], i: int) -> Tensor:
        i = range(len(offsets) - 1)[i]
        return torch.from_numpy(ids[offsets[i] : offsets[i + 1]].astype(np.int32))

    def _line(self, side: str, i: int) -> str:
        assert self._text is not None, "a store without text"
        i = range(len(self))[i]
        offsets = self._text[f"{side}_text_offsets"]
        raw = self._text[f"{side}_text"][int(offsets[i]) : int(offsets[i + 1])]
        return raw.numpy().tobytes().decode("utf-8")


def _lengths(offsets: Tensor) -> Tensor:
    """Returns the lengths, int32 [N], for offsets, int64 [N + 1], without temporary memory."""
    places, lengths = offsets.numpy(), np.empty(len(offsets) - 1, np.int32)
    np.subtract(places[1:], places[:-1], out=lengths, casting="unsafe")
    return torch.from_numpy(lengths)


def _fits(tensors: dict[str, Tensor], values: str, offsets: str) -> bool:
    """Returns whether both tensors have the right types, and the offsets rise from 0 to the number of values."""
    if not {values, offsets, "src_offsets"} <= tensors.keys() or tensors[values].dtype not in _STORED:
        return False
    bounds = tensors[offsets]
    if bounds.dtype != torch.int64 or [tensors[values].dim(), bounds.dim()] != [1, 1]:
        return False
    if len(bounds) != len(tensors["src_offsets"]) or not len(bounds):
        return False
    ends_match = int(bounds[0]) == 0 and int(bounds[-1]) == tensors[values].numel()
    return ends_match and not bool((bounds[1:] < bounds[:-1]).any())


_STORED = (torch.uint8, torch.uint16, torch.int32)  # text; subwords
_MAKE_AGAIN = "make the data folder again with `vtrans prepare-bpe`"


class DataFolder:
    """A data folder: two stores, one or two vocabularies, and the report.

    Every file is compared with its hash in the report. Without this check, an id beyond the vocabulary would end
    training at some later step, and other damage would stay unnoticed. The check reads the stores once, at 1 GB per
    second on a processor with SHA-256 instructions.

    `languages` are those of the two sides, if known. `corpora` are the numbers of training pairs of each corpus, in the
    order of the store.
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
        self.languages = languages_from(report.get("languages"))  # earlier versions did not record them
        if JOINT_FILE in files:
            self.src_vocab = self.tgt_vocab = self._vocabulary(JOINT_FILE)
        else:
            self.src_vocab, self.tgt_vocab = self._vocabulary(SRC_FILE), self._vocabulary(TGT_FILE)
        self.joint = have_one_table(self.src_vocab, self.tgt_vocab)
        self.train = TokenStore.open(path / TRAIN_FILE)
        self.valid = TokenStore.open(path / VALID_FILE)
        # Earlier versions did not record them. The store does not hold them, because a run recognises its data by
        # `digest`, which contains the hash of the store.
        self.corpora = tuple(report["train"].get("corpora", [len(self.train)]))
        if sum(self.corpora) != len(self.train):
            raise FileError(f"{path / REPORT_FILE} does not match {TRAIN_FILE}; {_MAKE_AGAIN}.")
        hashes = json.dumps({name: facts["sha256"] for name, facts in sorted(files.items())})
        self.digest = hashlib.sha256(hashes.encode()).hexdigest()

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

    def check_unchanged(self) -> None:
        """Raises FileError if another program has changed a store in place while it was open. A store that was removed
        or replaced by a rename can still be read."""
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
        """Returns what identifies a file, its size and the time of its last change; None if there is none."""
        try:
            found = (self.path / name).stat()
        except OSError:
            return None
        return (found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns

    def _vocabulary(self, name: str) -> Vocabulary:
        file = self.path / name
        return Vocabulary(file.read_bytes(), str(file))


def read_report(folder: Path) -> dict[str, Any] | None:
    """Returns the content of data.json, or None if it is missing or not ours."""
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
    """Returns whether a report has all values that are read later. A wrong shape may raise KeyError, TypeError or
    AttributeError, wrong languages InputError."""
    files, inputs, rows = report["files"], report["inputs"], report["overlap"]["rows"]
    corpora = report["train"].get("corpora", [0])  # earlier versions did not record it
    languages_from(report.get("languages"))
    pairs = [pair[side] for pair in [*inputs["train"], *(inputs["valid"] or ())] for side in ("src", "tgt")]
    return (
        {TRAIN_FILE, VALID_FILE} <= files.keys() <= set(OUR_FILES)
        and (JOINT_FILE in files or {SRC_FILE, TGT_FILE} <= files.keys())
        and all(type(facts["bytes"]) is int and isinstance(facts["sha256"], str) for facts in files.values())
        and all(isinstance(file["name"], str) and isinstance(file["sha256"], str) for file in pairs)
        and all(isinstance(row["share"], float) and isinstance(row["threshold"], int) for row in rows)
        and isinstance(report["options"], dict)
        and isinstance(corpora, list)
        and all(type(count) is int and count >= 0 for count in corpora)
    )
