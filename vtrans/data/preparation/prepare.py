"""Prepares a data folder (store.py) from parallel text, for `vtrans prepare-bpe`.

Text is streamed from its files in several passes, and ids are written to disk immediately. Memory therefore depends on
the sample for learning the vocabulary, not on the size of the corpus: on its different words for BPE with the rule nfc
(0.22 GB in all for 1 million short pairs and two workers), otherwise on its sentences (about 1 kB per line).
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from vtrans.data.matches import check_package
from vtrans.data.options import DEFAULT_VOCAB_SIZE, PrepareOptions
from vtrans.data.preparation.added_subwords import with_added
from vtrans.data.preparation.dry_run import estimate
from vtrans.data.preparation.encode import RATIO_FREE_TOKENS, Task, TextPair, encode
from vtrans.data.preparation.learn_vocabulary import check_symbols, learn_vocabularies
from vtrans.data.preparation.matching import with_matches
from vtrans.data.preparation.output_folder import current_report, publish, staging_folder
from vtrans.data.preparation.overlap import overlap_report, subword_counts
from vtrans.data.preparation.parallel_text import Inputs, Repeats, Split, batches_of
from vtrans.data.preparation.report import dropped_pairs, show
from vtrans.data.preparation.store_writer import StoreWriter
from vtrans.data.store import FORMAT, REPORT_FILE, REVISION, TRAIN_FILE, VALID_FILE
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.files import check_path, named_os_errors, write_atomically
from vtrans.system.resources import usable_processors
from vtrans.text.languages import languages_record
from vtrans.text.vocabulary import JOINT_FILE, SRC_FILE, TGT_FILE, Vocabulary, have_one_table

PLAIN_FILE = "plain.safetensors"  # the training pairs without matches, temporary


def prepare(
    options: PrepareOptions, console: Console, *, dry_run: bool = False, documents: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Makes the data folder `options.out` and returns its report, the content of data.json.

    If the folder is intact and was made from the same inputs and options, returns its report. With `dry_run`, prints
    and returns an estimate of the cost, and writes nothing. `documents`, which the report records, are the documents
    from which the inputs were extracted, with their counts. Raises InputError or FileError if inputs, options or folder
    are at fault; the folder is then unchanged.
    """
    options = options.checked()
    options = dataclasses.replace(options, threads=options.threads or usable_processors())
    check_path(options.out)
    check_symbols(options)
    if options.fuzzy:
        check_package()
    out = Path(options.out)
    began = time.monotonic()
    inputs = Inputs(options)
    inputs.hash(console)
    is_new = not (out / REPORT_FILE).exists()
    replacing = dataclasses.replace(options, force=options.force or dry_run)
    report = current_report(out, inputs.facts, replacing, console)
    if report is not None:
        return report
    if dry_run:
        return estimate(options, inputs, began, console)
    with named_os_errors(out), staging_folder(out) as staging:
        if is_new:  # another process may have made it meanwhile
            report = current_report(out, inputs.facts, options, console)
            if report is not None:
                return report
        report = _make(options, inputs, staging, console)
        if documents:
            report["documents"] = dict(documents)
        inputs.check_unchanged()
        publish(staging, out, report)
    show(report, out, console)
    return report


def _make(options: PrepareOptions, inputs: Inputs, staging: Path, console: Console) -> dict[str, Any]:
    """Writes all files of the folder except its report to `staging`. Returns the report."""
    split = inputs.split(console)
    src, tgt = learn_vocabularies(split, options, console)
    if options.vocab_add:
        src, tgt = with_added((src, tgt), split, options, console)
    vocabularies = {JOINT_FILE: src} if src is tgt else {SRC_FILE: src, TGT_FILE: tgt}
    sizes = [len(vocabulary) for vocabulary in vocabularies.values()]
    if options.vocab_size is None and not options.vocabularies and any(size != DEFAULT_VOCAB_SIZE for size in sizes):
        allowed = " and ".join(f"{size:,}" for size in sizes)
        console.info(f"the text allows {allowed} pieces instead of {DEFAULT_VOCAB_SIZE:,}.")
    task = Task(src.proto, tgt.proto, max(sizes))
    repeats = Repeats()
    corpora, tags = len(options.valid_src or options.src), _ids(src, options.tags_of_validation())
    valid = StoreWriter(staging / VALID_FILE, task, len(src), len(tgt), corpora, tags, with_text=True)
    pairs = split.validation_pairs(), split.validation_size
    repeats.remember(_encode(valid, *pairs, "validation", options.threads, console))
    counted = split.usable if len(options.languages()) < 2 else 0
    task = dataclasses.replace(task, max_tokens=options.max_tokens, max_ratio=options.max_ratio, counted=counted)
    corpora, tags, linked = len(options.src), _ids(src, options.tags), bool(options.alignments)
    file = PLAIN_FILE if options.fuzzy else TRAIN_FILE
    plain = train = StoreWriter(staging / file, task, len(src), len(tgt), corpora, tags, with_links=linked)
    pairs = split.training_pairs(), split.survey.pairs
    repeats.note(_encode(train, *pairs, "training", options.threads, console))
    _check_kept(train, valid, split.survey.pairs, options)
    if options.fuzzy:
        train = with_matches(plain, staging / TRAIN_FILE, src, tgt, console)
    files = {writer.path.name: writer.finish() for writer in (train, valid)}
    for name, vocabulary in vocabularies.items():
        write_atomically(staging / name, vocabulary.proto)
        files[name] = {"bytes": len(vocabulary.proto), "sha256": vocabulary.digest}
    return {
        "format": FORMAT,
        "revision": REVISION,
        "options": options.identity(),
        "ratio_free_tokens": RATIO_FREE_TOKENS,
        "languages": languages_record(options.languages()),
        "tags": options.tags_by_language(),
        "inputs": inputs.facts,
        "files": files,
        **_counts(split, plain, train, valid, repeats),
        **_subwords(options, src, tgt, plain),
        **({"pair": dataclasses.asdict(plain.counting.counts())} if counted else {}),
    }


def _encode(
    writer: StoreWriter, corpora: Iterable[Iterable[TextPair]], total: int, what: str, threads: int, console: Console
) -> Iterator[TextPair]:
    """Encodes the pairs of each corpus and writes them. Yields the kept ones."""
    in_flight = deque[tuple[int, list[TextPair]]]()  # the batches being encoded, with their corpora

    def batches() -> Iterator[list[TextPair]]:
        for number, pairs in enumerate(corpora):
            for batch in batches_of(pairs):
                in_flight.append((number, batch))
                yield batch

    with (
        console.progress(f"encoding the {what} text", total, "pairs") as progress,
        closing(encode(batches(), writer.task, total, threads)) as stream,
    ):
        for encoded in stream:
            number, batch = in_flight.popleft()
            kept = [batch[i] for i in encoded.kept]
            writer.add(encoded, kept, number)
            progress.advance(encoded.read)
            yield from kept


def _check_kept(train: StoreWriter, valid: StoreWriter, total: int, options: PrepareOptions) -> None:
    """Raises InputError if no pair of a part is left."""
    if not valid.kept:
        raise InputError(
            "every validation pair has an empty side; give other validation text, or other `valid_src` and `valid_tgt`."
        )
    if not train.kept:
        reasons = dropped_pairs(train.dropped, options.identity())
        raise InputError(
            f"no training pair is left of {total:,} (dropped: {reasons}); raise `max_tokens` or `max_ratio`, or give "
            "other text."
        )


def _counts(
    split: Split, plain: StoreWriter, train: StoreWriter, valid: StoreWriter, repeats: Repeats
) -> dict[str, Any]:
    """Returns the part of the report on pairs and characters. `plain` are the training pairs without matches."""
    surveys = {"train": split.survey, "valid": split.valid_survey}
    matches = {"matches": train.kept - plain.kept} if train is not plain else {}
    return {
        "held_out": None if split.valid else {"sources": len(split.held_out), "pairs": split.validation_size},
        "train": {"read": split.survey.pairs, **plain.report(), "corpora": train.corpora, **matches},
        "valid": {"read": split.validation_size, **valid.report(), **repeats.report()},
        "characters": {
            part: {"odd_line_ends": survey.odd_line_ends, "replacements": survey.replacements}
            for part, survey in surveys.items()
            if survey
        },
    }


def _subwords(options: PrepareOptions, src: Vocabulary, tgt: Vocabulary, train: StoreWriter) -> dict[str, Any]:
    """Returns the part of the report on the vocabularies and their overlap."""
    src_counts = subword_counts(src, train.counts["src"].tolist())
    tgt_counts = subword_counts(tgt, train.counts["tgt"].tolist())
    return {
        "vocabulary": {
            "joint": have_one_table(src, tgt),
            "src_pieces": len(src),
            "tgt_pieces": len(tgt),
            "normalization": src.normalization,
            "symbols": {
                symbol: {
                    side: int(train.counts[side][_ids(vocab, [symbol])[0]])
                    for side, vocab in (("src", src), ("tgt", tgt))
                }
                for symbol in options.symbols
            },
        },
        "overlap": overlap_report(src_counts, tgt_counts),
    }


def _ids(vocabulary: Vocabulary, pieces: Iterable[str]) -> list[int]:
    """Returns the ids of the pieces that are in the vocabulary."""
    return [id for piece in pieces if (id := vocabulary.id_of(piece)) is not None]
