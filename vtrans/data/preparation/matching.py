"""Adds training pairs with fuzzy matches, for `prepare-bpe --fuzzy`. Holds all texts in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from vtrans.data.matches import SEPARATOR_ID, Matches
from vtrans.data.preparation.encode import Encoded, Side
from vtrans.data.preparation.store_writer import StoreWriter
from vtrans.data.store import TokenStore
from vtrans.system.console import Console
from vtrans.text.vocabulary import Vocabulary

_BATCH = 4096  # pairs written at a time

Row = tuple[int, list[int]]
"""The number of a pair, and the subwords to insert before its source, after a tag."""


def with_matches(
    plain: StoreWriter, path: Path, src_vocab: Vocabulary, tgt_vocab: Vocabulary, console: Console
) -> StoreWriter:
    """Returns the writer of a store with the pairs of `plain`, whose file is removed. Each corpus is followed by a copy
    of its pairs that have a match, with the match: the source begins with the translation of the most similar other
    source and a separator."""
    plain.finish()
    store, tags = TokenStore.open(plain.path), int(bool(plain.tags))
    sizes = (len(plain.counts["src"]), len(plain.counts["tgt"]))
    writer = StoreWriter(path, plain.task, *sizes, len(plain.corpora), with_links=store.has_links)
    with console.progress("searching for fuzzy matches", len(store), "pairs") as progress:
        matches = _matches(store, tags, src_vocab, tgt_vocab, plain.task.max_tokens or 0, progress.advance)
    begin = 0
    for corpus, pairs in enumerate(plain.corpora):
        numbers = range(begin, begin + pairs)
        begin += pairs
        rows = [*((i, []) for i in numbers), *((i, matches[i]) for i in numbers if i in matches)]
        for start in range(0, len(rows), _BATCH):
            writer.add(_encoded(store, tags, rows[start : start + _BATCH]), corpus=corpus)
    del store  # Windows cannot remove a mapped file
    plain.path.unlink()
    return writer


def _matches(
    store: TokenStore,
    tags: int,
    src_vocab: Vocabulary,
    tgt_vocab: Vocabulary,
    longest: int,
    done: Callable[[], None],
) -> dict[int, list[int]]:
    """Returns the matches by pair number, as subwords with the separator. A match must have the same target language,
    and must not make the source longer than `longest` subwords."""
    groups = defaultdict[tuple[int, ...], list[int]](list)
    for i in range(len(store)):
        groups[tuple(store.src(i)[:tags].tolist())].append(i)
    matches: dict[int, list[int]] = {}
    for group in groups.values():
        pairs = [(src_vocab.decode(store.src(i).tolist()), tgt_vocab.decode(store.tgt(i).tolist())) for i in group]
        index = Matches(pairs)
        for i, (source, _) in zip(group, pairs, strict=True):
            if found := index.best(source, other=True):
                match = [*src_vocab.encode(found[0]), SEPARATOR_ID]
                if len(match) + len(store.src(i)) <= longest:
                    matches[i] = match
            done()
    return matches


def _encoded(store: TokenStore, tags: int, rows: Sequence[Row]) -> Encoded:
    """Returns pairs of a store, with subwords inserted at the beginning of their sources, after the tag."""
    sources, targets, links = [], [store.tgt(i).numpy() for i, _ in rows], None
    for i, more in rows:
        ids = store.src(i).numpy()
        sources.append(np.concatenate((ids[:tags], np.array(more, np.int32), ids[tags:])))
    if store.has_links:
        moved = [(store.links(i) + np.array([len(more), 0])).flatten() for i, more in rows]
        links = np.concatenate(moved), np.array([len(some) for some in moved], np.int64)
    src, tgt = (
        Side(np.concatenate(side), np.array([len(ids) for ids in side], np.int64), 0) for side in (sources, targets)
    )
    return Encoded(len(rows), [*range(len(rows))], Counter(), src, tgt, links)
