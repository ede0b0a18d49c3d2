"""`vtrans study`: trains variants of a recipe alike, and compares them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from vtrans.apps.experiments.experiment_files import Text
from vtrans.commands.generated import Given, argument, generated, option
from vtrans.commands.lines import print_line
from vtrans.system.console import Console

FILE = "TOML file with a table [rows.NAME] for each variant. The documentation describes it."
STEPS = "Number of updates of each row.  [default: the budget of the recipe]"
MINUTES = "Minutes of training of each row, instead of a number of updates."
SEED = "Seed of every row. May be repeated, for means and deviations.  [default: 1]"
ONLY = "Train only this row. May be repeated."
RECIPE = "Recipe of all rows, instead of the one of the file."
SET = "Replace a value of all rows, such as train.dropout=0.2. May be repeated."
OUT = "Folder to write. If it holds this study, that is resumed.  [default: work/STUDY-BUDGET]"
TextOptions = Annotated[dict[str, Any], Given(Text, otherwise="the file's value, else ")]


@generated
def study(
    file: Annotated[Path, argument(FILE, "FILE")],
    text: TextOptions,
    steps: Annotated[int | None, option(STEPS, "N", "Training", min=1)] = None,
    minutes: Annotated[float | None, option(MINUTES, "X", "Training", min=0.001)] = None,
    seeds: Annotated[list[int] | None, option(SEED, "N", "Training", flag="--seed")] = None,
    only: Annotated[list[str] | None, option(ONLY, "ROW", "Training", flag="--only")] = None,
    recipe: Annotated[str | None, option(RECIPE, "NAME|FILE", "Training")] = None,
    overrides: Annotated[list[str] | None, option(SET, "section.key=value", "Training", flag="--set")] = None,
    out: Annotated[Path | None, option(OUT, "FOLDER", "Output")] = None,
) -> None:
    """Train variants of a recipe alike, and compare them.

    Prints a table of their sizes, speeds and scores on the validation text, and tests whether they differ from the
    first. The same command again resumes.
    """
    from vtrans.apps.experiments.study import run_study

    table = run_study(
        file, Console(), text=text, recipe=recipe, overrides=overrides or [], steps=steps, minutes=minutes,
        seeds=seeds or [1], only=only or [], out=out,
    )  # fmt: skip
    print_line(table.rstrip("\n"))
