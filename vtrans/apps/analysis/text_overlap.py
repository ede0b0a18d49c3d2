"""Subword overlap of two texts, measured before any training. The texts need not be parallel."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.learn_vocabulary import learn
from vtrans.data.preparation.overlap import overlap_report, show_overlap, subword_counts
from vtrans.data.preparation.parallel_text import Corpus, sampled
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.files import printable
from vtrans.text.lines import OnBadUtf8, lines_in

LINES = 10_000  # encoded at a time


def overlap_of_files(src: Path, tgt: Path, console: Console, on_bad_utf8: OnBadUtf8) -> dict[str, Any]:
    """Returns the overlap of two text files, plain or compressed. Raises InputError for a file without text.

    The joint vocabulary is learned from both files with the defaults of prepare-bpe.
    """
    Corpus((src,), (tgt,), on_bad_utf8)  # raises an error unless they can be read several times
    options, lines = PrepareOptions((src,), (tgt,)), list[str]()
    for path in (src, tgt):
        total = sum(1 for _ in lines_in(path, on_bad_utf8))
        lines += sampled(lines_in(path, on_bad_utf8), total, options.sample, options.seed)
    console.info(f"learning a joint vocabulary from {len(lines):,} lines ...")
    vocabulary = learn(lines, None, options, f"{src} and {tgt}")
    sides, counts = {}, []
    for side, path in (("src", src), ("tgt", tgt)):
        counted, number, characters = np.zeros(len(vocabulary), np.int64), 0, 0
        text = lines_in(path, on_bad_utf8)
        with console.progress(f"encoding {path}", unit="lines") as progress:
            while batch := list(islice(text, LINES)):
                for ids in vocabulary.encode_batch(batch):
                    counted += np.bincount(ids, minlength=len(vocabulary)) if ids else 0
                number, characters = number + len(batch), characters + sum(map(len, batch))
                progress.advance(len(batch))
        if not counted.any():
            raise InputError(f"{path} holds no text.")
        counts.append(subword_counts(vocabulary, counted.tolist()))
        facts = {"name": printable(path), "lines": number, "characters": characters, "tokens": int(counted.sum())}
        sides[side] = facts | {"types": len(counts[-1])}
    return {"vocabulary": len(vocabulary), "sides": sides, **overlap_report(*counts)}


def show(report: Mapping[str, Any], console: Console) -> None:
    """Prints the report."""
    rows = [
        (side["name"], f"{side['lines']:,}", f"{side['tokens']:,}", f"{side['types']:,}",
         f"{side['characters'] / side['tokens']:.2f}")
        for side in report["sides"].values()
    ]  # fmt: skip
    header = ("side", "lines", "tokens", "types", "characters per token")
    console.table(f"text, in a joint vocabulary of {report['vocabulary']:,} pieces", rows, header=header)
    show_overlap(report, console)
