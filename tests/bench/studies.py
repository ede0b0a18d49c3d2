"""Print the speed of every row of a study, measured in turns on the same machine.

    python tests/bench/studies.py [STUDY] [--recipe NAME] [--updates 8] [--sentences 128] [--only ROW ...]

STUDY is a name or a file, as for recipes/studies/study.py; the default is sharing. Rows that train nothing or have
another target text are left out.

Weights and ids are random, sentences have the length distribution of captions, and the vocabularies have 8,000
subwords in all. Training: real target tokens per second over batches of the recipe's size. Decoding: sentences per
second with beam 4, each stopped after 15 subwords. Prints medians without the first turn, and the ratios to the first
row of the file.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import statistics
import time

import torch
from scaling import Subject

from recipes.studies.rows import Row, load_study
from vtrans.config import SearchConfig, resolve_tie
from vtrans.engines.incremental import IncrementalDecoder
from vtrans.processes.memory import manage_memory
from vtrans.search.beam import beam_search
from vtrans.search.loop import SearchTask
from vtrans.text.vocabulary import EOS_ID
from vtrans.training.recipe import load_recipe

VOCAB, STEPS = 8000, 15


class Contender:
    """A row's model in training, and a frozen copy for decoding."""

    def __init__(self, row: Row, recipe: str, updates: int) -> None:
        changed = load_recipe(recipe, row.overrides)
        joint = "--separate" not in row.prepare
        vocab = VOCAB if joint else VOCAB // 2
        config = dataclasses.replace(changed.model, tie=resolve_tie(changed.model.tie, joint))
        self.name, self.vocab, self.rates = row.name, vocab, list[float]()
        self.training = Subject(row.name, config, vocab, updates, changed.train.batch_tokens, joint=joint)
        self.weights = sum(p.numel() for p in self.training.model.parameters())
        self.decoder = IncrementalDecoder(copy.deepcopy(self.training.model).eval().requires_grad_(False))

    def decode(self, sentences: int) -> None:
        torch.manual_seed(1)
        sources = [[*torch.randint(4, self.vocab, (14,)).tolist(), EOS_ID] for _ in range(sentences)]
        limits, began = [STEPS] * sentences, time.perf_counter()
        with torch.inference_mode():
            search = SearchConfig(beam=4)
            list(beam_search(self.decoder, SearchTask(sources, limits, search, 1)))
        self.rates.append(sentences / (time.perf_counter() - began))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="?", default="sharing")
    parser.add_argument("--recipe", help="recipe of all rows instead of the study's")
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW")
    options = parser.parse_args()
    manage_memory()
    study = load_study(options.study)
    known = [row for row in study.rows.values() if not (row.target or row.run_of)]
    contenders = [
        Contender(row, options.recipe or study.recipe, options.updates + 1)
        for row in known
        if row is known[0] or not options.only or row.name in options.only
    ]
    for turn in range(options.updates + 1):
        for contender in contenders:
            contender.training.update(contender.training.batches[turn])
            if turn <= options.updates // 2:
                contender.decode(options.sentences)
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{'row':20} {'weights':>10} {'training tokens/s':>18} {'':>5} {'sentences/s':>12}")
    first = None
    for contender in contenders:
        speeds = (
            1e6 / statistics.median(contender.training.times[1:]),  # times are milliseconds per 1,000 tokens
            statistics.median(contender.rates[1:]),
        )
        first = first or speeds
        training, decoding = (f"{speed:>12,.0f} {speed / base:5.2f}" for speed, base in zip(speeds, first, strict=True))
        print(f"{contender.name:20} {contender.weights:10,} {training:>24} {decoding:>18}", flush=True)


if __name__ == "__main__":
    main()
