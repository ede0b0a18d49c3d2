"""What `vtrans inspect` says of a model file: its facts, its parts and what they share, as JSON or as tables."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrans.analysis.parts import part_rows, parts_of, shared_groups, shared_rows
from vtrans.checkpoint import LoadedModel, weights_of
from vtrans.config import SearchConfig
from vtrans.console import Console
from vtrans.model import count_parameters
from vtrans.storage.columns import ColumnFile
from vtrans.storage.model_file import VOCABULARIES
from vtrans.text.vocabulary import FORMALITY, Vocabulary

WIDTH = 112  # the most columns that the facts fill


@dataclass(frozen=True)
class Inspection:
    """A model file and what was read from it."""

    file: Path
    chosen: str  # why this file of a run folder; "" if the user named the file
    loaded: LoadedModel

    @property
    def parameters(self) -> int:
        return count_parameters(self.loaded.model)

    @property
    def parameters_without_sharing(self) -> int:
        """The number of parameters if every part had weights of its own."""
        return self.parameters + sum(group.saved for group in shared_groups(self.loaded.model))

    def bytes(self) -> dict[str, int]:
        """Returns the size of the file and of its contents, by kind."""
        tensors = {name: column.nbytes for name, column in ColumnFile(self.file).columns.items()}
        total = self.file.stat().st_size
        weights = sum(tensors[name] for name in weights_of(self.loaded.model))
        vocabulary = sum(size for name, size in tensors.items() if name in VOCABULARIES)
        sizes = {"file": total, "weights": weights, "vocabulary": vocabulary, "header": total - sum(tensors.values())}
        shortlist = sum(tensors.values()) - weights - vocabulary
        return sizes | ({"shortlist": shortlist} if shortlist else {})

    def as_dict(self) -> dict[str, Any]:
        loaded = self.loaded
        return {
            "file": str(self.file),
            "chosen": self.chosen or None,
            "bytes": self.bytes(),
            **loaded.record(),
            "tags": dict(loaded.tags),
            "vocabulary": {
                "joint": loaded.joint,
                "src": _vocabulary_facts(loaded.src_vocab),
                "tgt": _vocabulary_facts(loaded.tgt_vocab),
                "pieces_in_both": len(_subwords(loaded.src_vocab) & _subwords(loaded.tgt_vocab)),
            },
            "parameters": self.parameters,
            "parameters_without_sharing": self.parameters_without_sharing,
            "shared": [
                {"places": list(group.places), "parameters": group.parameters, "saved": group.saved}
                for group in shared_groups(loaded.model)
            ],
            "parts": [dataclasses.asdict(part) for part in parts_of(loaded.model)],
        }

    def show(self, console: Console, width: int | None = None) -> None:
        """Prints the facts, wrapped at `width` columns, the parts, and what they share."""
        for name, text in self._facts().items():
            lines = textwrap.wrap(
                text, min(WIDTH, width or WIDTH), initial_indent=f"{name:<14}", subsequent_indent=" " * 14,
                break_on_hyphens=False, break_long_words=False,
            )  # fmt: skip
            console.info("\n".join(lines))
        rows = part_rows(parts_of(self.loaded.model))
        console.table("parts", rows, header=("part", "parameters", "shape in the file"))
        if groups := shared_groups(self.loaded.model):
            console.table("shared", shared_rows(groups), header=("parameters", "saved", "places"))

    def _facts(self) -> dict[str, str]:
        report, defaults = self.as_dict(), dataclasses.asdict(SearchConfig())
        sizes = ", ".join(f"{kind} {size:,}" for kind, size in report["bytes"].items() if kind != "file")
        parameters, unshared = report["parameters"], report["parameters_without_sharing"]
        sharing = "nothing is shared"
        if unshared > parameters:
            sharing = f"{unshared:,} without sharing, which saves {1 - parameters / unshared:.0%}"
        return {
            "file": f"{self.file} ({self.chosen})" if self.chosen else str(self.file),
            "bytes": f"{report['bytes']['file']:,}: {sizes}",
            "parameters": f"{parameters:,}; {sharing}",
            "model": _settings(report["model"]),
            "training": _settings(report["training"]) or "unknown",
            "languages": ", ".join(" to ".join(pair) for pair in self.loaded.languages) or "unknown",
            "tags": ", ".join(f"{tag} for {code}" for code, tag in report["tags"].items()) or "none",
            "fuzzy matches": "used" if self.loaded.matches else "not used",
            "codes": "learned: protected text is copied by default" if self.loaded.codes else "not learned",
            "usual length": f"{self.loaded.usual_length:,} subwords" if self.loaded.usual_length else "unknown",
            "formality": " and ".join(FORMALITY.values()) if self.loaded.src_vocab.formality else "not learned",
            "search": _settings({k: v for k, v in report["search"].items() if v != defaults[k]}) or "the defaults",
            "vocabulary": _vocabulary_text(report["vocabulary"]),
        }


def _vocabulary_facts(vocabulary: Vocabulary) -> dict[str, Any]:
    return {"pieces": len(vocabulary), "normalization": vocabulary.normalization, "sha256": vocabulary.digest}


def _vocabulary_text(facts: Mapping[str, Any]) -> str:
    src, tgt = (
        f"{side['pieces']:,} pieces, normalization {side['normalization']}, sha256 {side['sha256'][:12]}"
        for side in (facts["src"], facts["tgt"])
    )
    if facts["joint"]:
        return f"joint, {src}"
    return f"source {src}; target {tgt}; {facts['pieces_in_both']:,} subwords are in both"


def _subwords(vocabulary: Vocabulary) -> set[str]:
    return {vocabulary.piece(i) for i in range(len(vocabulary)) if vocabulary.is_subword(i)}


def _settings(values: Mapping[str, Any]) -> str:
    texts = {key: " ".join(map(str, v)) if isinstance(v, list) else str(v).lower() for key, v in values.items()}
    return ", ".join(f"{key} {text}" for key, text in texts.items())
