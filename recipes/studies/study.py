"""Train the rows of a study alike, and tabulate what each costs and how good it is on the validation text.

Its argument is a study of this folder or a TOML file (rows.py describes it). `--data` names a folder with train and
valid files; without it, the text of the study's experiment is downloaded. All rows of one seed precede those of the
next. A finished row has its figures and its comparison with the first row in WORK/ROW-SEED, and the table is
WORK/table.md. Run the same command again to resume: it keeps the finished rows and resumes an interrupted training.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from vtrans.config import Recipe
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.system.files import write_atomically
from vtrans.training.recipe import load_recipe

from ..experiment import EXPERIMENTS, TextFiles, fetched, parser_of
from ..running import INTO
from ..work import Stage, Starter, Work, recipe_toml, starter
from .rows import SHIPPED, Row, StudyFile, load_study, names_in
from .table import Found, table

MOST_STEPS = 10**9  # with a budget of minutes


@dataclass(frozen=True)
class Budget:
    """The training budget of each row: a number of updates or, if that is 0, minutes, including validation."""

    steps: int = 0
    minutes: float = 0.0

    def __str__(self) -> str:
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

    @classmethod
    def of(cls, steps: int | None, minutes: float | None, recipe: Recipe) -> Budget:
        """Returns the budget that the user gives, else that of the recipe."""
        if steps is not None and minutes is not None:
            raise InputError("--steps and --minutes exclude each other; run the study twice.")
        if any(given is not None and given <= 0 for given in (steps, minutes)):
            raise InputError("--steps and --minutes must be greater than 0.")
        if steps is None and minutes is None:
            return cls(0, recipe.train.max_minutes) if recipe.train.max_minutes else cls(recipe.train.max_steps)
        return cls(steps or 0, minutes or 0)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Returns the options of the command line. Their defaults and their values are not checked yet."""
    parser = parser_of("Train the rows of a study with the same budget, and compare them.")
    parser.add_argument("study", help=f"a study ({', '.join(names_in(SHIPPED))}) or a TOML file", metavar="NAME|FILE")
    parser.add_argument("--steps", type=int, help="number of updates per row (default: the recipe's budget)")
    parser.add_argument("--minutes", type=float, help="minutes of training per row")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="seeds of every row (default: 1)")
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help="train only these rows")
    parser.add_argument("--vocab-size", type=int, help="number of subwords of both sides together")
    return parser.parse_args(arguments)


def rows_of(file: StudyFile, only: Sequence[str]) -> list[Row]:
    """Returns the rows of a study that the user chose."""
    if unknown := [name for name in only if name not in file.rows]:
        raise InputError(f"the rows of --only must be among {', '.join(file.rows)}; got {unknown[0]}.")
    return [row for row in file.rows.values() if not only or row.name in only]


def recipes_of(rows: Sequence[Row], recipe: str, changes: Sequence[str], budget: Budget) -> dict[str, Recipe]:
    """Returns the recipe of each row by name. Raises RecipeError for a wrong value."""
    chosen = {row.name: [*changes, *row.settings] for row in rows}
    budgets = {name: budget.settings(load_recipe(recipe, settings)) for name, settings in chosen.items()}
    return {name: load_recipe(recipe, [*settings, *budgets[name]]) for name, settings in chosen.items()}


def prepared(row: Row, text: TextFiles, size: int) -> Stage:
    """Returns the stage that makes the data folder of a row, which rows with the same options share."""
    # Two vocabularies have as many subwords in all as a joint one.
    words = ["--vocab-size", str(size // (2 if "--separate" in row.prepare else 1)), *row.prepare]
    out = quote("-".join(["data", *(word.lstrip("-") for word in row.prepare)]), safe="")
    inputs = [str(path) for name in (*text.train, text.valid) for path in text.pairs[name]]
    command = ["vtrans", "prepare-bpe", *text.options, *words, "--out", out, "--quiet"]
    return Stage(out, [command], inputs, [out])


def trained(row: Row, seed: int, data: str, text: TextFiles, first: str) -> list[Stage]:
    """Returns the stages that train and measure a row, and compare it with the one in the folder `first`, if any."""
    place, recipe = f"{row.name}-{seed}", f"{row.name}.toml"
    run, model, figures = f"{place}/run", f"{place}/model.safetensors", f"{place}/figures.json"
    valid = [str(path) for path in text.pairs[text.valid]]
    train = ["vtrans", "train", "--data", data, "--out", run, "--recipe", recipe, "--set", f"train.seed={seed}"]
    average = ["vtrans", "average", run, "--out", model, "--quiet"]
    measure = ["python", "-m", "recipes.studies.measure", model, run, *valid, figures]
    ours, others, tests = f"{place}/translations.txt", f"{first}/translations.txt", f"{place}/tests.json"
    compare = ["vtrans", "score", valid[1], "--hyp", ours, "--baseline", others, "--json", INTO, tests]
    stages = [
        Stage(place, [train, average], [data, recipe], [model], [run], True),
        Stage(f"figures of {place}", [measure], [model, *valid], [figures, ours]),
        Stage(f"tests of {place}", [compare], [valid[1], ours, others], [tests]),
    ]
    return stages if first else stages[:2]


def main(arguments: Sequence[str] | None = None, starter: Starter = starter) -> int:
    """Runs a study; `starter` gives what runs its commands."""
    given, console = parsed(arguments), Console()
    file = load_study(given.study)
    rows, experiment, name = rows_of(file, given.only), EXPERIMENTS[file.experiment], given.recipe or file.recipe
    if any(word.partition("=")[0].strip() == "train.seed" for word in given.set):
        raise InputError("--set train.seed has no effect, because --seeds gives the seeds of all rows; use --seeds.")
    budget = Budget.of(given.steps, given.minutes, load_recipe(name, given.set))
    recipes = recipes_of(rows, name, given.set, budget)
    languages = (given.src or experiment.languages[0], given.tgt or experiment.languages[1])
    size = given.vocab_size or experiment.vocab_size
    study = f"{file.name}-{budget.folder}"
    work = Work(given.work or Path("work") / study, study, starter, console)
    with work.lock:
        folder = given.data or fetched(experiment, work.folder / "text", *languages, console)
        text = TextFiles.of(folder.resolve(), *languages, tested=False)
        for row in rows:
            write_atomically(work.folder / f"{row.name}.toml", recipe_toml(recipes[row.name]).encode())
        data = {row.name: prepared(row, text, size) for row in rows}
        work.run(list({stage.name: stage for stage in data.values()}.values()))
        about = f"Recipe {name}, {budget} per row, {size:,} subwords in all, {languages[0]} to {languages[1]}."
        found, failed = list[Found](), list[str]()
        for seed in dict.fromkeys(given.seeds):
            first = ""  # the folder of the first row
            for row in rows:
                stages = trained(row, seed, data[row.name].name, text, first)
                try:
                    work.run(stages)
                except (SystemExit, VtransError) as error:  # the next rows may succeed
                    console.error(
                        f"{stages[0].name}: {error if isinstance(error, VtransError) else 'its command failed'}"
                    )
                    failed.append(stages[0].name)
                    continue
                figures, *tests = (json.loads((work.folder / stage.outputs[0]).read_bytes()) for stage in stages[1:])
                found.append((row, seed, figures, *(tests or [[]])))
                first = stages[0].name if row == rows[0] else first
                write_atomically(work.folder / "table.md", table(found, about).encode())
    if found:
        sys.stdout.write(table(found, about))
    if failed:
        raise VtransError(f"these failed: {', '.join(failed)}; run the same command again to retry them.")
    return 0
