"""Measure how many minutes of one core a recipe takes from two text files to a BLEU score, as `make speedrun` does.
README.md in this folder has the rules and the records."""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from recipes.experiment import text_of
from vtrans.apps.experiments.experiment_files import TextFiles
from vtrans.apps.experiments.work import run
from vtrans.config import DEFAULT_RECIPE
from vtrans.score.metrics import score
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.files import write_atomically
from vtrans.text.lines import lines_in

GOAL = 39.0  # BLEU on the test set, as the mean over the seeds
VALID, TEST = "val", "test_2016_flickr"
VOCABULARY = 8000


def processor_minutes() -> float:
    """Returns the processor time of all commands that have ended, in minutes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) / 60


def measured(text: TextFiles, recipe: str, changes: Sequence[str], seed: int, work: Path) -> dict[str, Any]:
    """Trains with one seed in the folder `work`. Returns BLEU on both sets, and the minutes of each stage."""
    data, model, minutes, bleu = str(work / "data"), str(work / "run"), dict[str, float](), dict[str, float]()
    threads = ["--threads", "1"]
    words = [word for change in (*changes, f"train.seed={seed}") for word in ("--set", change)]
    stages = {
        "prepare": ["prepare-bpe", *text.options, "--vocab-size", str(VOCABULARY), "--out", data, *threads],
        "train": ["train", "--data", data, "--out", model, "--recipe", recipe, *threads, *words],
        "average": ["average", model],
    }
    for name in (VALID, TEST):
        hypothesis = str(work / f"{name}.{text.languages[1]}")
        source = str(text.pairs[name][0])
        stages[name] = ["translate", "--model", model, "--input", source, "--out", hypothesis, *threads]
    for name, command in stages.items():
        before = processor_minutes()
        run(["vtrans", *command])
        minutes[name] = round(processor_minutes() - before, 2)
    for name in (VALID, TEST):
        lines = [list(lines_in(file)) for file in (work / f"{name}.{text.languages[1]}", text.pairs[name][1])]
        bleu[name] = round(score(lines[0], [lines[1]], ("bleu",))[0].value, 2)
    return {"seed": seed, "bleu": bleu, "minutes": minutes, "total": round(sum(minutes.values()), 2)}


def host() -> dict[str, str]:
    """Returns the processor, the versions and the commit of this run."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "torch": f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}",
        "commit": commit.stdout.strip() or "unknown",
    }


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Returns the runs as a table, a row for each seed and one for their means."""
    stages = list(runs[0]["minutes"])
    rows = [[str(r["seed"]), *(r["bleu"][n] for n in (VALID, TEST)), *r["minutes"].values(), r["total"]] for r in runs]
    rows.append(["mean", *(statistics.fmean(column) for column in list(zip(*rows, strict=True))[1:])])
    head = ["seed", f"BLEU {VALID}", f"BLEU {TEST}", *(f"{name}, min" for name in stages), "all, min"]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    lines += [[row[0], *(f"{value:.2f}" for value in row[1:])] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure minutes to a BLEU score; the Makefile describes the options.")
    for name in ("--data", "--work", "--recipe"):
        parser.add_argument(name)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seeds", action="append", type=int, default=[])
    options = parser.parse_args(arguments)
    work = Path(options.work or "work/speedrun")
    text = TextFiles.of(Path(options.data or text_of("multi30k", "en", "de")), "en", "de")
    recipe, seeds, runs = options.recipe or DEFAULT_RECIPE, options.seeds or [1, 2, 3], list[dict[str, Any]]()
    if work.exists():
        raise InputError(f"{work} exists, and a resumed training would be timed in part; delete it or set WORK=folder.")
    for seed in seeds:
        folder = work / f"seed-{seed}"
        folder.mkdir(parents=True)
        runs.append(measured(text, recipe, options.set, seed, folder))
        log = {"recipe": recipe, "set": options.set, "vocabulary": VOCABULARY, **host(), "runs": runs}
        write_atomically(work / "log.json", (json.dumps(log, indent=1) + "\n").encode())
    reached = statistics.fmean(each["bleu"][TEST] for each in runs)
    Console().info(f"\n{table(runs)}\n", f"BLEU {reached:.2f} of {GOAL}; the log is {work / 'log.json'}")
    return 0
