"""Trains the model to try, as `make everyday-model` does, on Tatoeba, on what the templates make, on long
lines of both, and, with --pairs, on catalogues of your own.

A model that learned catalogues must not be passed on without a look at their licences. The one that comes with vtrans
learned none.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from recipes.experiment import EXPERIMENTS, TextFiles, fetched, lines_of
from recipes.formality import labelled
from recipes.running import run
from recipes.tatoeba import phrases
from recipes.tatoeba.joined import joined
from vtrans.system.console import Console
from vtrans.text.lines import write_lines
from vtrans.text.vocabulary import FORMALITY

SRC, TGT = "en", "de"
LATER = ("train.noise=0.3", "train.warmup=100", "train.learning_rate=0.002")
STAGES = {
    "run": ("train.noise=0.4", "train.max_steps=9000"),
    "second": (*LATER, "train.max_steps=3000"),
    "third": (*LATER, "train.max_steps=4200"),
    "fourth": (*LATER, "train.max_steps=900"),
    "fifth": (*LATER, "train.max_steps=1800"),
    "sixth": (*LATER, "train.max_steps=2400"),
    "seventh": (*LATER, "train.noise=0.4", "train.learning_rate=0.0015", "train.max_steps=2000", "train.seed=2"),
}
"""The folder of each training, and what it changes in the recipe. Each begins with the result of the one before."""
MEANS = {"third": 1, "fourth": 2, "fifth": 2, "sixth": 2, "seventh": 1}
"""The trainings whose result is the mean with the one before, and how often it counts. A mean gains BLEU over both: the
long lines of the third cost a model 1 BLEU on short sentences, and the mean nothing."""
JOINED = 40_000
"""How many long lines are joined from the pairs."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train the model to try.")
    parser.add_argument("--data", help="folder with train, valid and test files (default: download Tatoeba)")
    parser.add_argument("--pairs", help="document with translations, or a folder of them, to learn as well")
    parser.add_argument("--work", default="work/everyday-model", help="folder for all results (default: %(default)s)")
    parser.add_argument(
        "--set", action="append", default=[], help="section.key=value for vtrans train; may be repeated"
    )
    options = parser.parse_args(arguments)

    work = Path(options.work)
    folder = options.data or fetched(EXPERIMENTS["tatoeba"], work / "tatoeba", SRC, TGT, Console())
    text = TextFiles.of(Path(folder), SRC, TGT)
    pairs = [pair for name in text.train for pair in zip(*map(lines_of, text.pairs[name]), strict=True)]
    pairs += phrases.pairs()
    src, tgt = zip(*pairs, *joined(pairs, JOINED), strict=True)
    train = (work / f"train.{SRC}", work / f"train.{TGT}")
    work.mkdir(parents=True, exist_ok=True)
    write_lines(train[0], labelled(src, tgt))
    write_lines(train[1], tgt)
    text = dataclasses.replace(text, pairs={**text.pairs, "train": train}, train=["train"])

    catalogues = ["--pairs", options.pairs] if options.pairs else []
    symbols = [word for symbol in FORMALITY.values() for word in ("--symbol", symbol)]
    data, model = str(work / "data"), str(work / "model" / f"{SRC}-{TGT}.safetensors")
    languages = ["--src-lang", SRC, "--tgt-lang", TGT]
    run(["vtrans", "prepare-bpe", *text.options, *catalogues, *languages, "--align", *symbols, "--out", data])
    results = list[str]()
    for name, own in STAGES.items():
        folder = str(work / name)
        start = ["--init-from", results[-1]] if results else []
        changes = [word for change in (*own, *options.set) for word in ("--set", change)]
        run(["vtrans", "train", "--data", data, *start, "--out", folder, "--recipe", "tatoeba-cpu", *changes])
        results.append(f"{folder}.safetensors")
        run(["vtrans", "average", folder, "--out", results[-1]])
        if name in MEANS:
            both = [results[-2], *results[-1:] * MEANS[name]]
            run(["vtrans", "average", *both, "--out", f"{folder}-mean.safetensors"])
            results.append(f"{folder}-mean.safetensors")
    Path(model).parent.mkdir(exist_ok=True)
    run(["vtrans", "average", results[-1], "--float16", "--out", model])
    run(["vtrans", "calibrate", *map(str, text.pairs[text.valid]), "--model", model])
    text.score(text.tests, model, work)
    return 0
