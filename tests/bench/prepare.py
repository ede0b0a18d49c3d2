"""Print the encoding speed for several numbers of processors, and the memory that planning an epoch takes.

    python tests/bench/prepare.py train.en train.de --threads 1 2 4 8

Learns a vocabulary from the first 20,000 pairs, encodes all pairs with each number of processors (reading, filtering
and writing included), and checks that the output bytes are equal. Then opens the store and plans an epoch.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import tempfile
import time
import tracemalloc
from pathlib import Path

from vtrans.data.batches import plan_epoch
from vtrans.data.preparation.encode import Task, encode
from vtrans.data.preparation.learn_vocabulary import learn
from vtrans.data.preparation.parallel_text import Corpus
from vtrans.data.preparation.prepare import batches_of
from vtrans.data.preparation.store_writer import StoreWriter
from vtrans.data.store import TokenStore


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("src", type=Path)
    parser.add_argument("tgt", type=Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    corpus = Corpus((arguments.src,), (arguments.tgt,), "error")
    some = list(itertools.chain.from_iterable(itertools.islice(next(corpus.by_corpus()), 20_000)))
    vocabulary = learn(some, size=None, kind="bpe", coverage=0.9999, normalization="nmt_nfkc")
    total = sum(1 for _ in next(corpus.by_corpus()))
    task = Task(vocabulary.proto, vocabulary.proto, len(vocabulary), max_tokens=250, max_ratio=4.0)
    digests, first = set(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        for threads in arguments.threads:
            part = StoreWriter(Path(folder) / "train.safetensors", task, len(vocabulary), len(vocabulary))
            wall, own = time.perf_counter(), time.process_time()
            before = os.times()
            for encoded in encode(batches_of(next(corpus.by_corpus())), task, total, threads):
                part.add(encoded)
            wall, own = time.perf_counter() - wall, time.process_time() - own
            children = os.times().children_user - before.children_user
            first = first or wall
            part.finish()
            digests.add(hashlib.sha256(part.path.read_bytes()).hexdigest())
            print(
                f"{threads:3} processors: {total / wall:9,.0f} pairs/s, {first / wall:.2f} times the first; "
                f"CPU per pair: {own / total * 1e6:.1f} us here, {children / total * 1e6:.1f} us in the workers"
            )
        assert len(digests) == 1, "the output depends on the number of processors"
        tracemalloc.start()
        store = TokenStore.open(part.path)
        plan_epoch(store.src_lengths, store.tgt_lengths, 4096, 1, 1)
        print(f"planning an epoch takes {tracemalloc.get_traced_memory()[1] / len(store):.0f} bytes per pair")


if __name__ == "__main__":
    main()
