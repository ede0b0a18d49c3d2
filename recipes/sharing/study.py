"""Train every variant of weight sharing on the same text with the same budget, and tabulate cost and quality.

    python recipes/sharing/study.py [--data FOLDER] [--work FOLDER] [--steps N | --minutes N] [--seeds 1 2]

`--data` names a folder with train, valid and test files, as for recipes/experiment.py; without it, Multi30k is
downloaded. Each row of the table is a training, and all rows of one seed precede those of the next. A finished row is
stored in WORK/rows, and WORK/table.md and table.json are updated. Run the same command again to resume: it keeps the
finished rows and resumes an interrupted training. The last rows use the same text with its target side in Cyrillic
letters (transliterate.py), which the source does not use.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: make the package importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    __package__ = "recipes.sharing"
    importlib.import_module(__package__)

from vtrans.config import Recipe
from vtrans.console import Console, duration
from vtrans.data.options import DEFAULT_VOCAB_SIZE
from vtrans.errors import FileError, InputError, VtransError
from vtrans.files import write_atomically
from vtrans.text import open_bytes, read_lines
from vtrans.training.recipe import load_recipe

from ..experiment import EXPERIMENTS, fetched, files_of, pairs_of
from .transliterate import transliterated

RECIPE = "multi30k-10min"
SEEDS = (1, 2)
CALIBRATION = 50  # updates that measure the speed, to convert a budget from minutes to updates


@dataclass(frozen=True)
class Row:
    """A row of the table: a model trained on `text` with `settings` that override the recipe."""

    name: str
    words: str
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    text: str = "joint"


def rows(recipe: Recipe) -> list[Row]:
    """Returns every row, in the order of training."""
    depth = recipe.model.encoder_layers + recipe.model.decoder_layers
    one_stack = {"model.architecture": "decoder-only", "model.encoder_layers": 0, "model.decoder_layers": depth}
    learned = {"model.positions": "learned"}

    def deep(encoder: int, decoder: int) -> dict[str, object]:
        return {"model.encoder_layers": encoder, "model.decoder_layers": decoder}

    ties = [
        ("three-way", "one matrix E: both embeddings and the projection", "src-tgt-softmax"),
        ("two-way", "target embedding = projection", "tgt-softmax"),
        ("embeddings", "source embedding = target embedding", "src-tgt"),
        ("untied", "three matrices", "none"),
    ]
    return [
        *(Row(name, words, {"model.tie": tie}) for name, words, tie in ties),
        Row(
            "separate", "a vocabulary per side, target embedding = projection", {"model.tie": "tgt-softmax"}, "separate"
        ),
        Row("learned-positions", "learned positions, a table per side", learned),
        Row("shared-positions", "learned positions, one table", {**learned, "model.share_positions": True}),
        *(
            Row(f"layers-{part}", f"the layers of a stack share {words}", {"model.share_layers": part})
            for part, words in (("attention", "attention"), ("feed-forward", "feed-forward"), ("all", "everything"))
        ),
        Row("stacks", "encoder layer i = decoder layer i except cross-attention", {"model.share_stacks": True}),
        Row(
            "one-stack-prefix", f"decoder-only, {depth} layers, source positions attend to the whole source", one_stack
        ),
        Row(
            "one-stack-causal",
            f"decoder-only, {depth} layers, causal everywhere",
            {**one_stack, "model.source_mask": "causal"},
        ),
        *(
            Row(f"depth-{encoder}-{decoder}", f"{encoder} encoder and {decoder} decoder layers", deep(encoder, decoder))
            for encoder, decoder in ((6, 6), (12, 1), (1, 12))
        ),
        Row("no-scaling", "without sqrt(D) on the embeddings", {"model.scale_embedding": False}),
        Row(
            "no-cross-residual",
            "without the residual around cross-attention",
            {"model.cross_attention_residual": False},
        ),
        *(Row(f"other-letters-{n}", f"target in Cyrillic letters: {w}", {"model.tie": t}, "other") for n, w, t in ties),
        Row(
            "other-letters-separate",
            "target in Cyrillic letters: a vocabulary per side, target embedding = projection",
            {"model.tie": "tgt-softmax"},
            "other-separate",
        ),
    ]


@dataclass(frozen=True)
class Budget:
    """The budget of each row: updates, or minutes of training time without validation."""

    steps: int
    minutes: float | None = None

    @property
    def words(self) -> str:
        return f"{self.steps:,} updates" if self.minutes is None else f"{self.minutes:g} minutes of training"


class Study:
    """One study and its folder."""

    def __init__(
        self, work: Path, text: Path, languages: tuple[str, str], recipe: str, overrides: Sequence[str], budget: Budget,
        vocab_size: int, device: str | None,
    ) -> None:  # fmt: skip
        self.work, self.text, (self.src, self.tgt) = work, text, languages
        self.recipe, self.overrides, self.budget = recipe, list(overrides), budget
        self.vocab_size, self.device = vocab_size, device
        self.train, self.valid, self.tests = pairs_of(text, self.src, self.tgt)

    # Text.

    def sides(self, text: str) -> tuple[dict[str, Path], dict[str, Path]]:
        """Returns the files of the two sides by stem. Transliterated files are written the first time."""
        source, target = files_of(self.text, self.src), files_of(self.text, self.tgt)
        if text.startswith("other"):
            folder = self.work / "other-letters"
            folder.mkdir(parents=True, exist_ok=True)
            latin, target = target, {}
            for stem in (*self.train, self.valid, *self.tests):
                target[stem] = folder / f"{stem}.{self.tgt}"
                if not target[stem].exists():
                    with open_bytes(latin[stem]) as stream:
                        lines = [transliterated(line) for line in read_lines(stream, str(latin[stem]))]
                    write_atomically(target[stem], "".join(line + "\n" for line in lines).encode())
        return source, target

    def prepare(self, text: str) -> Path:
        """Returns the data folder of the text. prepare-bpe leaves it as it is if it is up to date."""
        source, target = self.sides(text)
        out, separate = self.work / f"data-{text}", text.endswith("separate")
        corpora = [word for s in self.train for word in ("--src", str(source[s]), "--tgt", str(target[s]))]
        held = ["--valid-src", str(source[self.valid]), "--valid-tgt", str(target[self.valid])]
        size = ["--vocab-size", str(self.vocab_size // 2 if separate else self.vocab_size)]
        vtrans(
            "prepare-bpe", *corpora, *held, *size, *(["--separate"] if separate else []), "--out", str(out), "--quiet"
        )
        return out

    # One row.

    def finished(self, row: Row, seed: int) -> dict[str, Any] | None:
        """Returns the figures of a finished row, or None; InputError if it was made with another budget or recipe."""
        file = self.row_file(row, seed)
        if not file.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(file.read_bytes())
            made = found["made"]
        except (ValueError, KeyError, TypeError):
            raise FileError(f"{file} is damaged; delete it to train the row again.") from None
        wanted = self.made(row, seed)
        if made != wanted:
            different = ", ".join(
                f"{key} {made.get(key)} -> {wanted[key]}" for key in wanted if made.get(key) != wanted[key]
            )
            raise InputError(
                f"{file} was made with other settings ({different}); use another --work, or delete it to train the "
                "row again."
            )
        return found

    def row_file(self, row: Row, seed: int) -> Path:
        return self.work / "rows" / f"{row.name}-{seed}.json"

    def made(self, row: Row, seed: int) -> dict[str, Any]:
        """Returns the settings that the figures of a row depend on."""
        return {
            "recipe": self.recipe,
            "set": [*self.overrides, *(f"{key}={toml(value)}" for key, value in row.settings.items())],
            "seed": seed,
            "budget": self.budget.words,
            "vocab_size": self.vocab_size,
            "text": row.text,
            "languages": [self.src, self.tgt],
        }

    def make(self, row: Row, seed: int) -> dict[str, Any]:
        """Trains a row, averages its checkpoints, translates the test sets, and stores the figures."""
        made, data, run = self.made(row, seed), self.prepare(row.text), self.work / "runs" / f"{row.name}-{seed}"
        steps = self.train_to_end(data, run, [*made["set"], f"train.seed={seed}"])
        vtrans("average", str(run), "--quiet")
        figures = self.measure(row, data, run)
        found = {"name": row.name, "words": row.words, "made": made, "steps": steps, **figures}
        file = self.row_file(row, seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, (json.dumps(found, ensure_ascii=False, indent=2) + "\n").encode())
        return found

    def train_to_end(self, data: Path, run: Path, changes: Sequence[str]) -> int:
        """Trains a run to its end and returns the number of updates."""
        steps = self.budget.steps
        if self.budget.minutes is not None:
            known = run.with_suffix(".steps")  # a resumed run keeps the number from its calibration
            if not known.exists():
                self.train_until(CALIBRATION, data, run, changes)
                seconds, done = (sum(line[key] for line in train_lines(run)) for key in ("seconds", "updates"))
                known.write_text(f"{max(CALIBRATION, int(60 * self.budget.minutes * done / seconds))}\n")
            steps = int(known.read_text())
        self.train_until(steps, data, run, changes)
        return steps

    def train_until(self, steps: int, data: Path, run: Path, changes: Sequence[str]) -> None:
        device = ["--device", self.device] if self.device else []
        words = [word for change in (*changes, f"train.max_steps={steps}") for word in ("--set", change)]
        vtrans("train", "--data", str(data), "--out", str(run), "--recipe", self.recipe, *words, *device)

    def measure(self, row: Row, data: Path, run: Path) -> dict[str, Any]:
        from vtrans.analysis.inspection import Inspection
        from vtrans.checkpoint import choose_model, load_model
        from vtrans.data.store import DataFolder
        from vtrans.decoding.loading import load
        from vtrans.decoding.torch_engine import models_of
        from vtrans.score import score

        source, target = self.sides(row.text)
        file, _ = choose_model(run)
        inspection, folder = Inspection(file, "", load_model(file)), DataFolder.open(data)
        lines = train_lines(run)
        scores, sentences, seconds = {}, 0, 0.0
        for test in self.tests:
            # Every row is measured by one search: a second one for loops would help the weakest rows most.
            translator = load(file, device=self.device, retry=False)
            hypotheses = list(translator.translate(lines_of(source[test])))
            sentences, seconds = sentences + translator.counts.lines, seconds + translator.counts.seconds
            scores[test] = [
                result.as_dict() for result in score(hypotheses, [lines_of(target[test])], ["bleu", "chrf"])
            ]
        return {
            "parameters": inspection.parameters,
            "parameters_without_sharing": inspection.parameters_without_sharing,
            "bytes": inspection.bytes()["file"],
            "train_seconds": sum(line["seconds"] for line in lines),
            "train_tokens_a_second": sum(line["tgt_tokens"] for line in lines) / sum(line["seconds"] for line in lines),
            "sentences_a_second": sentences / seconds,
            "scores": scores,
            "search": dataclasses.asdict(translator.search),
            "overlap": folder.report["overlap"]["rows"],
            "host": host(models_of(translator.engine)[0].model.device),
        }


def vtrans(*words: str) -> None:
    """Prints a command and runs it; VtransError if it fails."""
    sys.stderr.write(f"\n$ {shlex.join(['vtrans', *words])}\n")
    sys.stderr.flush()
    code = subprocess.run([sys.executable, "-m", "vtrans", *words], check=False, stdout=sys.stderr).returncode
    if code:
        raise VtransError(f"`vtrans {words[0]}` ended with exit code {code}")


def lines_of(path: Path) -> list[str]:
    with open_bytes(path) as stream:
        return list(read_lines(stream, str(path)))


def train_lines(run: Path) -> list[dict[str, Any]]:
    """Returns the training records of metrics.jsonl, each with the number of `updates` that it covers."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_bytes().split(b"\n") if line]
    lines, before = [record for record in records if record["kind"] == "train"], 0
    for line in lines:
        line["updates"], before = line["step"] - before, line["step"]
    return lines


def toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def host(device: Any) -> str:
    """Returns a description of the machine and the software."""
    import torch

    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text("utf-8").split("\n") if "model name" in line]
        name = names[0] if names else name
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    threads = "" if device.type == "cuda" else f", {torch.get_num_threads()} threads of {os.cpu_count()} processors"
    return f"{name}{threads}, torch {torch.__version__}, vtrans {importlib.import_module('vtrans').__version__}"


# The table.


def table(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns a line per row: figures that do not depend on the seed, and the mean, minimum and maximum of others."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for each in found:
        groups.setdefault(each["name"], []).append(each)
    lines = []
    for name, seeds in groups.items():
        first = seeds[0]
        values: dict[str, list[float]] = {
            "train_tokens_a_second": [each["train_tokens_a_second"] for each in seeds],
            "sentences_a_second": [each["sentences_a_second"] for each in seeds],
        }
        for test in first["scores"]:
            for number, metric in enumerate(("bleu", "chrf")):
                values[f"{metric} {test}"] = [each["scores"][test][number]["value"] for each in seeds]
        same = {key: first[key] for key in ("words", "parameters", "parameters_without_sharing", "bytes")}
        spread = {
            key: {"mean": statistics.fmean(numbers), "least": min(numbers), "most": max(numbers)}
            for key, numbers in values.items()
        }
        steps = sorted({each["steps"] for each in seeds})
        lines.append(
            {"name": name, **same, "seeds": [each["made"]["seed"] for each in seeds], "steps": steps, **spread}
        )
    return lines


def markdown(found: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table and the notes that explain its figures."""
    lines = table(found)
    tests = list(found[0]["scores"])
    scores = [f"{metric} {test}" for test in tests for metric in ("bleu", "chrf")]
    titles = [f"{'BLEU' if s.startswith('bleu') else 'chrF'}{'' if len(tests) == 1 else s[4:]}" for s in scores]
    head = ["row", "what", "seeds", "updates", "parameters", "unshared", "file, MB", "training tokens/s", "sentences/s"]
    out = [f"| {' | '.join([*head, *titles])} |", "|---|---|" + "---:|" * (len(head) + len(titles) - 2)]
    for line in lines:
        cells = [
            line["name"],
            line["words"],
            str(len(line["seeds"])),
            "-".join(f"{n:,}" for n in dict.fromkeys((line["steps"][0], line["steps"][-1]))),
            f"{line['parameters']:,}",
            f"{line['parameters_without_sharing']:,}",
            f"{line['bytes'] / 1e6:.1f}",
            *(f"{line[key]['most']:,.0f}" for key in ("train_tokens_a_second", "sentences_a_second")),
            *(_spread(line[score]) for score in scores),
        ]
        out.append(f"| {' | '.join(cells)} |")
    made, search = found[0]["made"], found[0]["search"]
    notes = [
        f"Recipe {made['recipe']}, {made['budget']} per row, {made['vocab_size']:,} subwords in all, "
        f"{made['languages'][0]} to {made['languages'][1]}. The average of the last checkpoints translates with beam "
        f"{search['beam']}, alpha {search['alpha']}. Scores of several seeds are given as mean (minimum to maximum). "
        "Speeds are those of the fastest seed, because other work on the machine can only slow a row down. Training "
        "tokens are target tokens without padding; sentences are those of the test set, without loading the model.",
        *dict.fromkeys(
            f"{score['name']} {score['signature']}"
            for each in found
            for test in tests
            for score in each["scores"][test]
        ),
        *dict.fromkeys(each["host"] for each in found),
    ]
    return "\n".join([*out, "", *(f"- {note}" for note in notes), ""])


def _spread(numbers: Mapping[str, float]) -> str:
    if numbers["least"] == numbers["most"]:
        return f"{numbers['mean']:.1f}"
    return f"{numbers['mean']:.1f} ({numbers['least']:.1f} to {numbers['most']:.1f})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Train every variant of weight sharing with the same budget, and compare."
    )
    parser.add_argument(
        "--data", type=Path, help="folder with train, valid and test files (default: download Multi30k)"
    )
    parser.add_argument("--src", help="source language, which is the suffix of its files")
    parser.add_argument("--tgt", help="target language, likewise")
    parser.add_argument("--work", type=Path, default=Path("work/sharing"), help="folder for all results")
    parser.add_argument("--recipe", default=RECIPE)
    parser.add_argument("--set", action="append", default=[], help="section.key=value for every row; may be repeated")
    parser.add_argument("--steps", type=int, help="number of updates per row (default: the recipe's)")
    parser.add_argument("--minutes", type=float, help="minutes of training per row, instead of --steps")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help="train only these rows")
    parser.add_argument(
        "--vocab-size", type=int, default=DEFAULT_VOCAB_SIZE, help="number of subwords of both sides together"
    )
    parser.add_argument("--device", help="device, as for vtrans train")
    options = parser.parse_args(arguments)

    experiment, console = EXPERIMENTS["multi30k"], Console()
    languages = (options.src or experiment.languages[0], options.tgt or experiment.languages[1])
    if options.steps is not None and options.minutes is not None:
        raise InputError("--steps and --minutes both set the budget; give one of them.")
    if any(given is not None and given <= 0 for given in (options.steps, options.minutes)):
        raise InputError("--steps and --minutes must be greater than 0.")
    overrides, recipe = list(options.set), load_recipe(options.recipe, options.set)
    steps = options.steps or recipe.train.max_steps
    if options.steps:  # a short run must also warm up and write several checkpoints
        short = {"warmup": max(1, steps // 4), "checkpoint_every": max(1, steps // 5), "log_every": max(1, steps // 5)}
        overrides += [f"train.{key}={most}" for key, most in short.items() if getattr(recipe.train, key) > most]
    every = rows(recipe)
    if unknown := set(options.only) - {row.name for row in every}:
        raise InputError(
            f"the rows of --only must be among {', '.join(row.name for row in every)}; got {unknown.pop()}."
        )
    chosen = [row for row in every if not options.only or row.name in options.only]
    for row in chosen:  # refuse invalid settings before any training
        load_recipe(options.recipe, [*overrides, *(f"{key}={toml(value)}" for key, value in row.settings.items())])
    text = options.data or fetched(experiment, options.work / f"text-{'-'.join(languages)}", *languages, console)
    options.work.mkdir(parents=True, exist_ok=True)
    budget = Budget(steps, options.minutes)
    study = Study(options.work, text, languages, options.recipe, overrides, budget, options.vocab_size, options.device)

    return train_rows(study, chosen, options.seeds, console)


def train_rows(study: Study, chosen: Sequence[Row], seeds: Sequence[int], console: Console) -> int:
    """Trains the rows that are not finished and prints the table. A row that fails does not stop the others;
    VtransError names the failed rows at the end."""
    failed = []
    found = [done for seed in seeds for row in chosen if (done := study.finished(row, seed))]
    for seed in seeds:
        for row in chosen:
            if study.finished(row, seed):
                continue
            try:
                made = study.make(row, seed)
            except VtransError as error:
                console.error(f"{row.name}, seed {seed}: {error}")
                failed.append(f"{row.name}-{seed}")
                continue
            found.append(made)
            console.info(f"{row.name}, seed {seed}: trained for {duration(made['train_seconds'])}")
            write_table(study.work, ordered(found, chosen))
    if found:
        write_table(study.work, ordered(found, chosen))
        sys.stdout.write(markdown(ordered(found, chosen)))
    if failed:
        raise VtransError(f"these rows failed: {', '.join(failed)}; run the same command again to retry them.")
    return 0


def ordered(found: Sequence[dict[str, Any]], chosen: Sequence[Row]) -> list[dict[str, Any]]:
    names = [row.name for row in chosen]
    return sorted(found, key=lambda each: (names.index(each["name"]), each["made"]["seed"]))


def write_table(work: Path, found: Sequence[dict[str, Any]]) -> None:
    write_atomically(work / "table.md", markdown(found).encode())
    report = {"table": table(found), "rows": list(found)}
    write_atomically(work / "table.json", (json.dumps(report, ensure_ascii=False, indent=2) + "\n").encode())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except VtransError as error:
        Console().error(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
