"""The folder of a model for Bergamot: the names of its files, and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from vtrans.checkpoint import LoadedModel

SETTINGS = "config.intgemm8bitalpha.yml"
ALPHA = "_QuantMultA"  # after the name of a matrix
RATIO = 2.0  # target subwords per source subword in Firefox
# Firefox's settings. The engine's worker replaces the lengths and the sizes of batches by its own, which are the same.
FIREFOX = {
    "beam-size": "1",
    "normalize": "1.0",
    "word-penalty": "0",
    "max-length-break": "128",
    "mini-batch-words": "1024",
    "workspace": "128",
    "max-length-factor": str(RATIO),
    "skip-cost": "true",
    "cpu-threads": "0",
    "gemm-precision": "int8shiftAlphaAll",
    "alignment": "soft",
    "quiet": "true",
    "quiet-translation": "true",
}


class Names(NamedTuple):
    """The names of the files. The vocabularies are equal if one file is both."""

    model: str
    src_vocab: str
    tgt_vocab: str
    shortlist: str | None


def names_of(loaded: LoadedModel) -> Names:
    """Returns Firefox's names, such as `model.ende.intgemm.alphas.bin`, or names without a pair of languages."""
    pair = f".{''.join(loaded.languages[0])}" if len(loaded.languages) == 1 else ""
    src, tgt = ("", "") if loaded.src_vocab is loaded.tgt_vocab else ("src", "trg")
    shortlist = f"lex{pair}.s2t.bin" if loaded.shortlist else None
    return Names(f"model{pair}.intgemm.alphas.bin", f"{src}vocab{pair}.spm", f"{tgt}vocab{pair}.spm", shortlist)


def write_settings(folder: Path, names: Names) -> None:
    """Writes the settings. Lists have one item per line, because the engine's worker reads no others."""
    lists = {"models": [names.model], "vocabs": [names.src_vocab, names.tgt_vocab]}
    if names.shortlist:
        lists["shortlist"] = [names.shortlist, "false"]
    lines = ["relative-paths: true"]
    for key, items in lists.items():
        lines += [f"{key}:", *(f"  - {item}" for item in items)]
    lines += [f"{key}: {value}" for key, value in FIREFOX.items()]
    (folder / SETTINGS).write_bytes(("\n".join(lines) + "\n").encode())
