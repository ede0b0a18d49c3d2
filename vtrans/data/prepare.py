"""Parallel text to a data folder (store.py): `vtrans prepare-bpe`, from the question whether the folder is up to date
to the renaming of its files into place.

Text is streamed, several times over, and ids go to disk as they are made: memory is
bounded by the sample from which the vocabulary is learnt (0.4 kB a line for BPE, 1 kB for unigram),
not by the corpus: beside it 0.2 GB at 200,000 pairs and at 2 million, and 0.05 GB for a process that encodes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from vtrans.config import DEFAULT_VOCAB_SIZE, PrepareOptions
from vtrans.console import Console
from vtrans.data.dry_run import rehearse
from vtrans.data.encode import RATIO_FREE_TOKENS, Encoder, Pair, Task, encode
from vtrans.data.learn_vocabulary import check_symbols, learn_sides
from vtrans.data.overlap import OVERLAP_DEFINITION, OVERLAP_THRESHOLDS, overlap, subword_counts
from vtrans.data.parallel_text import Corpus, Repeats, TrainingText, survey
from vtrans.data.report import dropped_words, flag, said, show
from vtrans.data.store import (
    FORMAT,
    OUR_FILES,
    REPORT_FILE,
    REVISION,
    TRAIN_FILE,
    VALID_FILE,
    file_sha256,
    read_report,
)
from vtrans.data.store_writer import StoreWriter
from vtrans.data.vocabulary import JOINT_FILE, SPECIAL_PIECES, SRC_FILE, TGT_FILE
from vtrans.data.writing_systems import SCRIPT_DEFINITION, overlap_by_script
from vtrans.errors import FileError, InputError, VtransError
from vtrans.text import check_path, sync_folder, write_atomically

_BATCH_PAIRS, _BATCH_CHARACTERS = 4096, 1 << 22  # encoded together, and sent to a process
_STAGING = ".preparing"


def prepare(options: PrepareOptions, console: Console, *, dry_run: bool = False) -> dict[str, Any]:
    """Make the data folder `options.out` and return its report, the content of data.json.

    Returns the standing report if the folder was made from the same inputs and options and is
    whole. With `dry_run` it says what making it will take, returns that, and writes nothing. Raises
    InputError or FileError for whatever is at fault with inputs, options or folder; then the folder
    is as it was.
    """
    options = options.checked()
    options = dataclasses.replace(options, threads=options.threads or os.cpu_count() or 1)
    check_path(options.out)
    check_symbols(options.symbols)
    out = Path(options.out)
    began = time.monotonic()
    train = Corpus(options.src, options.tgt, options.on_bad_utf8)
    valid = Corpus(options.valid_src, options.valid_tgt, options.on_bad_utf8) if options.valid_src else None
    inputs = {"train": train.hashed(console), "valid": valid.hashed(console) if valid else None}
    standing = _standing(out, inputs, options, console)
    if standing is not None:
        return standing
    if dry_run:
        return rehearse(options, train, valid, inputs, began, console)
    try:
        with _staging(out) as staging:
            report = _make(options, train, valid, inputs, staging, console)
            for corpus in (train, valid):
                if corpus:
                    corpus.check_unchanged()
            _put_in_place(staging, out, report)
    except OSError as error:
        raise VtransError(f"{out} can't be written: {error.strerror or error}.") from error
    show(report, out, console)
    return report


def _standing(out: Path, inputs: dict[str, Any], options: PrepareOptions, console: Console) -> dict[str, Any] | None:
    """The report of a folder that is up to date; None if it is to be made; FileError if it must not."""
    if not out.exists():
        return None
    if not out.is_dir():
        raise FileError(f"{out} is a file; --out names a folder to make.")
    names = sorted(file.name for file in out.iterdir())
    report = read_report(out)
    if report is None:
        # An interrupted run leaves its staging folder and perhaps some files in place, but no report.
        if not names or (_STAGING in names and REPORT_FILE not in names):
            return None
        raise FileError(
            f"{out} is not empty and no data folder of this version of vtrans (it holds {names[0]}); "
            "name a new folder with --out."
        )
    # A folder of a version that did not know an option yet was made with its default.
    before = PrepareOptions(src=(), tgt=()).identity() | report["options"]
    differing = [
        f"{flag(name)} was {said(before[name])} and is {said(value)}"
        for name, value in options.identity().items()
        if before[name] != value
    ]
    if _content(report["inputs"]) != _content(inputs):
        differing.insert(0, "the input files differ")
    if differing and not options.force:
        raise InputError(
            f"{out} was made from other inputs or options ({'; '.join(differing)}); "
            "name another folder with --out, or replace it with --force."
        )
    # A version before this one did not record which pairs are of which corpus: --force makes up for it.
    unrecorded = len(inputs["train"]) > 1 and "corpora" not in report["train"]
    if differing or (unrecorded and options.force):
        return None
    damaged = [name for name, facts in report["files"].items() if file_sha256(out / name) != facts["sha256"]]
    if damaged:
        console.warn(f"{out} was damaged ({', '.join(damaged)}) and is made anew.")
        return None
    console.info(f"{out} is up to date: made from the same files with the same options.")
    return report


def _content(inputs: dict[str, Any]) -> list[Any]:
    """The part of the inputs that decides what the data is: contents, not names."""
    return [
        [[pair[side]["sha256"] for side in ("src", "tgt")] for pair in inputs[part] or ()]
        for part in ("train", "valid")
    ]


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """A folder inside `out` to write in; gone afterwards, and with it `out` if nothing came of it.

    It stays if the run ends in the middle of the renames: it is the sign that the files are ours.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    staging = out / _STAGING
    try:
        if staging.exists():
            shutil.rmtree(staging)
        try:
            staging.mkdir(parents=True)
        except OSError as error:
            raise FileError(f"the folder {out} can't be made: {error.strerror}; name another with --out.") from None
        yield staging
    finally:
        if (out / REPORT_FILE).exists() or not any((out / name).exists() for name in OUR_FILES):
            shutil.rmtree(staging, ignore_errors=True)
        for folder in made:
            with suppress(OSError):  # not empty: it is whole
                folder.rmdir()


def _put_in_place(staging: Path, out: Path, report: dict[str, Any]) -> None:
    """Rename all files into `out`, the report last: without it a folder is not a data folder."""
    text = json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"
    (out / REPORT_FILE).unlink(missing_ok=True)
    for name in OUR_FILES[1:]:
        if name in report["files"]:
            (staging / name).replace(out / name)
        else:
            (out / name).unlink(missing_ok=True)
    sync_folder(out)
    write_atomically(out / REPORT_FILE, text)


def _make(
    options: PrepareOptions,
    train: Corpus,
    valid: Corpus | None,
    inputs: dict[str, Any],
    staging: Path,
    console: Console,
) -> dict[str, Any]:
    """Survey, learn, encode: all files of the folder but its report, which is returned. Every pass streams the text
    from its files again."""
    found, valid_found, held_out = survey(train, valid, inputs, options.seed, console)
    source = TrainingText(train, frozenset(held_out), options.seed)
    vocabularies = learn_sides(source, found.usable - sum(held_out.values()), options, console)
    src_vocab, tgt_vocab = vocabularies[0], vocabularies[-1]
    largest = max(len(v) for v in vocabularies)
    if options.vocab_size is None and any(len(v) != DEFAULT_VOCAB_SIZE for v in vocabularies):
        sizes = " and ".join(f"{len(v):,}" for v in vocabularies)
        console.info(f"the text allows {sizes} pieces instead of {DEFAULT_VOCAB_SIZE:,}.")
    seen = Repeats()

    everything = Task(src_vocab.proto, tgt_vocab.proto, largest)
    valid_part = StoreWriter(staging / VALID_FILE, everything, len(src_vocab), len(tgt_vocab), with_text=True)
    pairs = valid.pairs() if valid else source.held_out_pairs()
    total = valid_found.pairs if valid_found else found.pairs
    with console.progress("encoding the validation text", total, "pairs") as progress:
        encoder = Encoder(everything)
        for batch in batches_of(pairs):
            seen.remember(valid_part.add(encoder(batch, options.threads), batch))
            progress.advance(len(batch))
    if not valid_part.kept:
        raise InputError("every validation pair has an empty side; give other --valid-src and --valid-tgt.")

    task = dataclasses.replace(
        everything,
        max_tokens=options.max_tokens,
        max_ratio=options.max_ratio,
        sources=frozenset(seen.sources),
        pairs=frozenset(seen.pairs),
    )
    train_part = StoreWriter(staging / TRAIN_FILE, task, len(src_vocab), len(tgt_vocab), len(options.src))
    corpus_of = deque[int]()  # of each batch under way

    def batches() -> Iterator[list[Pair]]:
        for number, pairs in enumerate(source.by_corpus()):
            for batch in batches_of(pairs):
                corpus_of.append(number)
                yield batch

    with (
        console.progress("encoding the training text", found.pairs, "pairs") as progress,
        closing(encode(batches(), task, found.pairs, options.threads)) as stream,
    ):
        for encoded in stream:
            train_part.add(encoded, corpus=corpus_of.popleft())
            seen.found(encoded)
            progress.advance(encoded.read)
    if not train_part.kept:
        reasons = dropped_words(train_part.dropped, options.identity())
        raise InputError(f"no training pair is left of {found.pairs:,}: {reasons}.")

    files = {}
    for part in (train_part, valid_part):
        files[part.path.name] = part.finish()
    names = (JOINT_FILE,) if len(vocabularies) == 1 else (SRC_FILE, TGT_FILE)
    for name, vocabulary in zip(names, vocabularies, strict=True):
        write_atomically(staging / name, vocabulary.proto)
        files[name] = {"bytes": len(vocabulary.proto), "sha256": vocabulary.digest}
    src_counts = subword_counts(src_vocab, train_part.src_counts.tolist())
    tgt_counts = subword_counts(tgt_vocab, train_part.tgt_counts.tolist())
    return {
        "format": FORMAT,
        "revision": REVISION,
        "options": options.identity(),
        "ratio_free_tokens": RATIO_FREE_TOKENS,
        "inputs": inputs,
        "files": files,
        "held_out": None if valid else {"sources": len(held_out), "pairs": sum(held_out.values())},
        "vocabulary": {
            "joint": len(vocabularies) == 1,
            "src_pieces": len(src_vocab),
            "tgt_pieces": len(tgt_vocab),
            "normalization": src_vocab.normalization,
            "symbols": {
                symbol: {
                    side: int(counts[len(SPECIAL_PIECES) + place])
                    for side, counts in (("src", train_part.src_counts), ("tgt", train_part.tgt_counts))
                }
                for place, symbol in enumerate(options.symbols)
            },
        },
        "train": {"read": found.pairs, **train_part.report(), "corpora": train_part.corpora},
        "valid": {
            "read": valid_found.pairs if valid_found else sum(held_out.values()),
            **valid_part.report(),
            **seen.report(),
        },
        "characters": {
            part: {"odd_line_ends": s.odd_line_ends, "replacements": s.replacements}
            for part, s in (("train", found), ("valid", valid_found))
            if s is not None
        },
        "overlap": {
            "definition": OVERLAP_DEFINITION,
            "rows": [dataclasses.asdict(row) for row in overlap(src_counts, tgt_counts)],
            "script_definition": SCRIPT_DEFINITION,
            "scripts": [
                dataclasses.asdict(row) for row in overlap_by_script(src_counts, tgt_counts, OVERLAP_THRESHOLDS)
            ],
        },
    }


# ------------------------------------------------------------------------------------------ writing


def batches_of(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Pairs in lists bounded by number and by characters."""
    batch: list[Pair] = []
    characters = 0
    for src, tgt in pairs:
        batch.append((src, tgt))
        characters += len(src) + len(tgt)
        if len(batch) >= _BATCH_PAIRS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
