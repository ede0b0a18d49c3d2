"""Train the rows of a study alike, and tabulate what each costs and how good it is on the validation text.

Its argument is a study of this folder or a TOML file (rows.py describes it). `--data` names a folder with train and
valid files; without it, the text of the study's experiment is downloaded. With `--steps` and `--minutes` every row is
trained twice, once per budget, and there are two tables. All rows of one seed precede those of the next. A finished row
is stored in WORK/BUDGET/ROW-SEED/figures.json, and table.md and table.json in WORK/BUDGET are updated. Run the same
command again to resume: it keeps the finished rows and resumes an interrupted training.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vtrans.config import SECTIONS, Recipe
from vtrans.console import Console, duration
from vtrans.errors import FileError, InputError, VtransError
from vtrans.files import file_sha256, write_atomically
from vtrans.keys import toml_value
from vtrans.text.lines import open_bytes
from vtrans.training.recipe import load_recipe

from ..experiment import EXPERIMENTS, TextFiles, fetched, parser_of
from ..running import Run, run_quietly
from .rows import Row, StudyFile, load_study, study_names
from .table import markdown, table

MEASURE = str(Path(__file__).with_name("measure.py"))
MOST_STEPS = 10**9  # with a budget of minutes


@dataclass(frozen=True)
class Budget:
    """What each row may use: a number of updates or, if that is 0, minutes of training with its validations."""

    steps: int = 0
    minutes: float = 0.0

    @property
    def words(self) -> str:
        return f"{self.steps:,} updates" if self.steps else f"{self.minutes:g} minutes of training"

    @property
    def folder(self) -> str:
        return f"{self.steps}-updates" if self.steps else f"{self.minutes:g}-minutes"

    def settings(self, recipe: Recipe) -> list[str]:
        """Returns the overrides that give a row with this recipe the budget. With few updates the warm-up takes at most
        a quarter of them, and the averaged checkpoints the second half."""
        if not self.steps:
            return [f"train.max_steps={MOST_STEPS}", f"train.max_minutes={self.minutes}"]
        steps, train = self.steps, recipe.train
        short = {"warmup": steps // 4, "checkpoint_every": steps // (2 * train.keep_last)}
        shortened = [f"train.{key}={max(1, most)}" for key, most in short.items() if getattr(train, key) > most]
        return [f"train.max_steps={steps}", "train.max_minutes=0", *shortened]


@dataclass(frozen=True)
class Options:
    """What the user chose for all rows."""

    work: Path
    text: Path
    languages: tuple[str, str]
    recipe: str
    overrides: tuple[str, ...]
    vocab_size: int


class Study:
    """The rows of a study trained with one budget, and their folder."""

    def __init__(self, file: StudyFile, budget: Budget, options: Options, console: Console) -> None:
        self.file, self.budget, self.options, self.console = file, budget, options, console
        self.folder = options.work / budget.folder
        self.text = TextFiles.of(options.text, *options.languages, tested=False)
        first: dict[Path, Row] = {}
        for row in file.rows.values():
            other = first.setdefault(self.data(row), row)
            if (row.prepare, row.target) != (other.prepare, other.target):
                raise InputError(
                    f"rows.{row.name} and rows.{other.name} need different data folders, but both are called "
                    f"{self.data(row).name}; let `prepare` differ in letters or digits, and give programs different "
                    "names."
                )

    # Text.

    def text_of(self, row: Row, *, renew: bool = False) -> TextFiles:
        """Returns the text of a row. The target goes through the row's program the first time, and again with
        `renew`."""
        if not row.target:
            return self.text
        pairs = {}
        for name in (*self.text.train, self.text.valid):
            source, target = self.text.pairs[name]
            changed = self.options.work / Path(row.target).stem / f"{name}.{self.options.languages[1]}"
            if renew or not changed.exists():
                changed.parent.mkdir(parents=True, exist_ok=True)
                with open_bytes(target) as stream:
                    done = subprocess.run(
                        [sys.executable, row.target], input=stream.read(), stdout=subprocess.PIPE, check=False
                    )
                if done.returncode:
                    raise VtransError(f"{row.target} ended with exit code {done.returncode}.")
                write_atomically(changed, done.stdout)
            pairs[name] = (source, changed)
        return dataclasses.replace(self.text, pairs=pairs)

    def data(self, row: Row) -> Path:
        """Returns the data folder of a row, which rows with the same text and options share."""
        words = [str(self.options.vocab_size), *([Path(row.target).stem] if row.target else []), *row.prepare]
        return self.options.work / re.sub("[^A-Za-z0-9]+", "-", "-".join(["data", *words])).strip("-")

    def prepare(self, row: Row) -> list[str]:
        """Returns the command that makes the data folder. It leaves the folder as it is if it is up to date."""
        text = self.text_of(row, renew=True)  # the program or the text may have changed
        # Two vocabularies have as many subwords in all as a joint one.
        size = self.options.vocab_size // (2 if "--separate" in row.prepare else 1)
        out = ["--vocab-size", str(size), *row.prepare, "--out", str(self.data(row)), "--quiet"]
        return ["vtrans", "prepare-bpe", *text.options, *out]

    # One row.

    def place(self, row: Row | str, seed: int) -> Path:
        return self.folder / f"{row if isinstance(row, str) else row.name}-{seed}"

    def overrides(self, row: Row, seed: int) -> list[str]:
        """Returns the `--set` values of a training."""
        chosen = [*self.options.overrides, *row.overrides]
        recipe = load_recipe(self.options.recipe, chosen)
        return [*chosen, *self.budget.settings(recipe), f"train.seed={seed}"]

    def recipe(self, row: Row, seed: int) -> Recipe:
        """Returns the recipe with which the model of a row is trained; RecipeError if it is invalid."""
        return load_recipe(self.options.recipe, self.overrides(self.file.rows[row.run_of or row.name], seed))

    @cached_property
    def valid_digest(self) -> str | None:
        return file_sha256(self.text.pairs[self.text.valid][1])

    def made(self, row: Row, seed: int) -> dict[str, Any]:
        """Returns the settings that the figures of a row depend on. Recipe keys that a later version adds are not
        among them as long as they have their defaults."""
        recipe, default = self.recipe(row, seed), Recipe()
        trained = self.file.rows[row.run_of or row.name]
        return {
            "recipe": {
                f"{section}.{key}": toml_value(value)
                for section in SECTIONS
                for key, value in vars(getattr(recipe, section)).items()
                if value != getattr(getattr(default, section), key)
            },
            "seed": seed,
            "vocab_size": self.options.vocab_size,
            "prepare": list(trained.prepare),
            "target": Path(trained.target).name,
            "languages": list(self.options.languages),
            "valid": self.valid_digest,
            "run_of": row.run_of,
            "average": row.average,
        }

    def finished(self, row: Row, seed: int) -> dict[str, Any] | None:
        """Returns the figures of a finished row, or None; InputError if it was made with other settings."""
        file = self.place(row, seed) / "figures.json"
        if not file.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(file.read_bytes())
            made = {**found["made"]}
        except (ValueError, KeyError, TypeError):
            raise FileError(f"{file} is damaged; delete it to make the row again.") from None
        wanted = self.made(row, seed)
        if made != wanted:
            different = ", ".join(
                f"{key} {made.get(key)} -> {value}" for key, value in wanted.items() if made.get(key) != value
            )
            raise InputError(
                f"{file} was made with other settings ({different}); use another --work, or delete {file.parent} to "
                "train the row again."
            )
        return {**found, "name": row.name, "words": row.words}

    def commands(self, row: Row, seed: int) -> Iterator[list[str]]:
        """Yields the commands that train and measure a row, and stores its figures."""
        place, made = self.place(row, seed), self.made(row, seed)
        run, model, measured = (
            self.place(row.run_of or row, seed) / "run",
            place / "model.safetensors",
            place / "new.json",
        )
        place.mkdir(parents=True, exist_ok=True)
        if not row.run_of:
            changes = [word for change in self.overrides(row, seed) for word in ("--set", change)]
            where = ["--data", str(self.data(row)), "--out", str(run), "--recipe", self.options.recipe]
            yield ["vtrans", "train", *where, *changes]
        last = ["--last", str(row.average)] if row.average else []
        yield ["vtrans", "average", str(run), *last, "--out", str(model), "--quiet"]
        source, target = self.text_of(self.file.rows[row.run_of or row.name]).pairs[self.text.valid]
        yield ["python", MEASURE, *map(str, (model, run, source, target, measured))]
        found = {"recipe": self.options.recipe, "made": made, **json.loads(measured.read_bytes())}
        write_atomically(place / "figures.json", (json.dumps(found, ensure_ascii=False, indent=2) + "\n").encode())
        measured.unlink()
        self.write_table()
        bleu = found["scores"][0]["value"]
        self.console.info(f"{place.name}: BLEU {bleu:.2f} after {duration(found['seconds'])} of training")

    # All rows.

    def found(self) -> list[dict[str, Any]]:
        """Returns the figures of all finished rows, in the order of the file and of their seeds."""
        found = []
        for row in self.file.rows.values():
            seeds = [path.parent.name.removeprefix(f"{row.name}-") for path in self.folder.glob("*/figures.json")]
            found += [self.finished(row, seed) for seed in sorted(int(seed) for seed in seeds if seed.isdecimal())]
        return [each for each in found if each]

    def write_table(self) -> None:
        found = self.found()
        write_atomically(self.folder / "table.md", markdown(found, self.budget.words).encode())
        report = {"budget": dataclasses.asdict(self.budget), "table": table(found), "rows": found}
        text = json.dumps(report, ensure_ascii=False, indent=2) + "\n"
        write_atomically(self.folder / "table.json", text.encode())

    def make(self, rows: Sequence[Row], seeds: Sequence[int], run: Run) -> list[str]:
        """Trains and measures the rows that are not finished, and returns the names of those that failed. A failure
        stops only the rows that need the failed one."""
        todo = [(row, seed) for seed in seeds for row in self.needed(rows) if not self.finished(row, seed)]
        for row in {self.data(row): row for row, _ in todo if not row.run_of}.values():
            run(self.prepare(row))
        failed: list[str] = []
        for row, seed in todo:
            name = self.place(row, seed).name
            try:
                if row.run_of and self.place(row.run_of, seed).name in failed:
                    raise VtransError(f"it needs {self.place(row.run_of, seed).name}, which failed")
                for words in self.commands(row, seed):
                    run(words)
            except (SystemExit, VtransError) as error:
                self.console.error(f"{name}: {error if isinstance(error, VtransError) else 'its command failed'}")
                failed.append(name)
        return failed

    def needed(self, rows: Sequence[Row]) -> list[Row]:
        """Returns these rows and those that they depend on, in the order of the file."""
        names = {name for row in rows for name in (row.name, row.run_of)}
        return [row for row in self.file.rows.values() if row.name in names]


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Returns the options of the command line. Their defaults and their values are not checked yet."""
    parser = parser_of("Train the rows of a study with the same budget, and compare them.")
    parser.add_argument("study", help=f"a study ({', '.join(study_names())}) or a TOML file", metavar="NAME|FILE")
    parser.add_argument("--steps", type=int, help="number of updates per row (default: the recipe's budget)")
    parser.add_argument("--minutes", type=float, help="minutes of training per row; with --steps, a second table")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="seeds of every row (default: 1)")
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help="train only these rows")
    parser.add_argument("--vocab-size", type=int, help="number of subwords of both sides together")
    return parser.parse_args(arguments)


def budgets_of(steps: int | None, minutes: float | None, recipe: Recipe) -> list[Budget]:
    """Returns the budgets that the user gives, else that of the recipe."""
    if any(given is not None and given <= 0 for given in (steps, minutes)):
        raise InputError("--steps and --minutes must be greater than 0.")
    train = recipe.train
    if steps is None and minutes is None:
        return [Budget(0, train.max_minutes) if train.max_minutes else Budget(train.max_steps)]
    return [*([Budget(steps)] if steps else []), *([Budget(0, minutes)] if minutes else [])]


def main(arguments: Sequence[str] | None = None, run: Run = run_quietly) -> int:
    """Runs a study; `run` runs its commands."""
    given, console = parsed(arguments), Console()
    file = load_study(given.study)
    if unknown := [name for name in given.only if name not in file.rows]:
        raise InputError(f"the rows of --only must be among {', '.join(file.rows)}; got {unknown[0]}.")
    rows = [row for row in file.rows.values() if not given.only or row.name in given.only]
    experiment = EXPERIMENTS[file.experiment]
    languages = (given.src or experiment.languages[0], given.tgt or experiment.languages[1])
    work, name = given.work or Path("work") / file.name, given.recipe or file.recipe
    budgets = budgets_of(given.steps, given.minutes, load_recipe(name, given.set))
    if any(word.partition("=")[0].strip() == "train.seed" for word in given.set):
        raise InputError("--set train.seed has no effect, because --seeds gives the seeds of all rows; use --seeds.")
    for row in rows:  # refuse invalid settings before any download
        trained = file.rows[row.run_of or row.name]
        kept = load_recipe(name, [*given.set, *trained.overrides]).train.keep_last
        if row.average > kept:
            raise InputError(
                f"rows.{row.name}.average must be at most {kept}, the checkpoints that train.keep_last keeps, got "
                f"{row.average}; lower it, or set train.keep_last."
            )
    text = given.data or fetched(experiment, work / f"text-{'-'.join(languages)}", *languages, console)
    size = given.vocab_size or experiment.vocab_size
    options = Options(work, text, languages, name, tuple(given.set), size)
    work.mkdir(parents=True, exist_ok=True)
    failed = []
    for study in [Study(file, budget, options, console) for budget in budgets]:
        study.found()  # refuse results that were made with other settings
        missing = study.make(rows, list(dict.fromkeys(given.seeds)), run)
        failed += [f"{name} ({study.budget.words})" for name in missing]
        if study.found():
            study.write_table()
            sys.stdout.write(markdown(study.found(), study.budget.words))
    if failed:
        raise VtransError(f"these failed: {', '.join(failed)}; run the same command again to retry them.")
    return 0
