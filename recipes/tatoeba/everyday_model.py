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

from recipes.experiment import EXPERIMENTS, fetched, lines_of, score
from recipes.formality import labelled
from recipes.tatoeba import phrases
from recipes.tatoeba.joined import joined
from vtrans.apps.experiments.experiment_files import TextFiles
from vtrans.apps.experiments.work import run
from vtrans.system.console import Console
from vtrans.text.lines import write_lines
from vtrans.text.vocabulary import FORMALITY

SRC, TGT = "en", "de"
NOISE, UPDATES = 0.4, (8_000, 13_000)
"""Values that replace the recipe's: the share of disturbed lines, and the updates at which the training ends first and
last. In between, it resumes with a learning rate that falls to zero again."""
JOINED = 40_000
"""How many long lines are joined from the pairs."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train the model to try; the Makefile describes the options.")
    parser.add_argument("--data")
    parser.add_argument("--pairs")
    parser.add_argument("--work", default="work/everyday-model")
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args(arguments)

    work = Path(options.work)
    folder = options.data or fetched(EXPERIMENTS["tatoeba"], work / "tatoeba", SRC, TGT, Console())
    text = TextFiles.of(Path(folder), SRC, TGT)
    pairs = [pair for name in text.train for pair in zip(*map(lines_of, text.pairs[name]), strict=True)]
    pairs += phrases.pairs()
    src, tgt = zip(*pairs, *joined(pairs, JOINED), strict=True)
    train = (str(work / f"train.{SRC}"), str(work / f"train.{TGT}"))
    work.mkdir(parents=True, exist_ok=True)
    write_lines(train[0], labelled(src, tgt))
    write_lines(train[1], tgt)
    text = dataclasses.replace(text, pairs={**text.pairs, "train": train}, train=["train"])

    catalogues = ["--pairs", options.pairs] if options.pairs else []
    symbols = [word for symbol in FORMALITY.values() for word in ("--symbol", symbol)]
    data, model = str(work / "data"), str(work / "model" / f"{SRC}-{TGT}.safetensors")
    languages = ["--src-lang", SRC, "--tgt-lang", TGT]
    run(["vtrans", "prepare-bpe", *text.options, *catalogues, *languages, *symbols, "--out", data])
    trained = str(work / "run")
    for updates in UPDATES:
        settings = [f"train.noise={NOISE}", f"train.max_steps={updates}", *options.set]
        changes = [word for setting in settings for word in ("--set", setting)]
        run(["vtrans", "train", "--data", data, "--out", trained, "--recipe", "tatoeba-cpu", *changes])
    Path(model).parent.mkdir(exist_ok=True)
    run(["vtrans", "average", trained, "--float16", "--out", model])
    run(["vtrans", "calibrate", *text.pairs[text.valid], "--model", model])
    score(text, text.tests, model, work)
    return 0
