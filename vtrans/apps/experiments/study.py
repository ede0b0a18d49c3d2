"""Trains the rows of a study with equal budgets, and tabulates their costs and their scores on the validation text.

`Study` and `Row` have the keys of the file. All rows run with one seed before the next seed. The figures of a finished
row are in OUT/ROW-SEED, and the table is OUT/table.md. A repeated call keeps the finished rows and resumes an
interrupted one.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vtrans.apps.experiments.experiment_files import (
    Text,
    TextFiles,
    checked,
    markdown_table,
    read_table,
    recipe_beside,
    write_recipe,
)
from vtrans.apps.experiments.work import Run, Stage, Work, averaged, run, training
from vtrans.config import DEFAULT_RECIPE, SECTIONS, Recipe
from vtrans.config.keys import text, texts
from vtrans.score.metrics import SIGNIFICANT, Comparison, compare
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.system.files import write_atomically
from vtrans.text.lines import lines_in
from vtrans.training.recipe import load_recipe, merged, with_overrides

MOST_STEPS = 10**9  # with a budget of minutes
HEAD = (
    "row", "what", "seeds", "parameters", "unshared", "file, MB", "tokens/s", "updates", "minutes", "sentences/s",
    "one at a time", "BLEU", "chrF",
)  # fmt: skip
EXPLAINED = (
    "Scores are those of the validation text, translated with {searches}; those of several seeds are given as mean ± "
    "standard deviation. Minutes are those of training with its validations. Speeds are those of the fastest seed, "
    "because other work on the machine can only slow a row down. Tokens are target tokens without padding. Sentences "
    "are translated by one process, in batches and one at a time, without loading the model. A star marks a score that "
    "differs significantly from the one of the first row: p < {level} in the paired bootstrap test of `vtrans score`. "
    "Its samples have the same lines of every seed; it does not know how much another seed changes a score."
)
LIMITS = ("train.max_steps", "train.max_minutes")  # which the budget sets

Found = tuple[str, str, Mapping[str, Any]]
"""The name of a row, its description, and the figures that measure.py wrote for one seed."""


@dataclass(frozen=True)
class Row:
    """A model to train and measure. `values` are overrides of its recipe, by section and key."""

    name: str
    words: str = text("", "What the table says about the row.")
    prepare: tuple[str, ...] = texts("Options of prepare-bpe, such as --separate.")
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """The content of a study file. `rows` are in the order of the file."""

    corpus: Text
    rows: Mapping[str, Row]
    recipe: str = text(DEFAULT_RECIPE, "Recipe of all rows, or a file that ends in .toml, relative to the study file.")


def load_study(file: Path, given: Mapping[str, Any]) -> Study:
    """Returns the study in a file; `given` overrides its section [text]. Raises InputError for an unknown key or a
    wrong value. Recipe values are not checked here."""
    read = read_table(file, ("text", "recipe", "rows"))
    if not isinstance(read.get("rows"), dict) or not read["rows"]:
        raise InputError(f"{file}: there are no rows; write a table [rows.NAME] per row.")
    rows = {name: _row(name, values, f"{file}: rows.{name}") for name, values in read["rows"].items()}
    made = checked(Study, {key: read[key] for key in read if key == "recipe"}, str(file))
    return Study(Text.of(read, file, given), rows, **made)


def _row(name: str, values: Any, where: str) -> Row:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise InputError(f"{where}: a row's name must consist of letters, digits and - _ ., because it names a folder.")
    made = checked(Row, values, where, SECTIONS)
    if not made.get("words") or "|" in made["words"]:
        raise InputError(f"{where}.words must be a text without |, which the table shows, got {made.get('words')!r}.")
    recipe = {section: values[section] for section in SECTIONS if section in values}
    for key in (*LIMITS, "train.seed"):
        if key.removeprefix("train.") in recipe.get("train", ()):
            raise InputError(f"{where}.{key} is the same for all rows; remove it, and give the study a budget.")
    return Row(name, **made, values=recipe)


@dataclass(frozen=True)
class Budget:
    """The training budget of each row: a number of updates or, if that is 0, minutes, including validation."""

    steps: int = 0
    minutes: float = 0.0

    def __str__(self) -> str:
        return f"{self.steps} updates" if self.steps else f"{self.minutes:g} minutes"

    def settings(self, recipe: Recipe) -> list[str]:
        """Returns the recipe overrides for this budget. The warm-up takes at most a quarter of the updates, and the
        averaged checkpoints at most the second half."""
        if not self.steps:
            return [f"train.max_steps={MOST_STEPS}", f"train.max_minutes={self.minutes}"]
        steps, train = self.steps, recipe.train
        short = {"warmup": steps // 4, "checkpoint_every": steps // (2 * train.keep_last)}
        shortened = [f"train.{key}={max(1, most)}" for key, most in short.items() if getattr(train, key) > most]
        return [f"train.max_steps={steps}", "train.max_minutes=0", *shortened]

    @classmethod
    def of(cls, steps: int | None, minutes: float | None, recipe: Recipe) -> Budget:
        """Returns the user's budget, or else the recipe's."""
        if steps is not None and minutes is not None:
            raise InputError("`steps` and `minutes` exclude each other; run the study twice.")
        minutes = minutes or (0 if steps else recipe.train.max_minutes)
        return cls(0 if minutes else steps or recipe.train.max_steps, minutes)


def recipes_of(rows: Sequence[Row], recipe: Recipe, budget: Budget) -> dict[str, Recipe]:
    """Returns the recipe of each row by name. Raises RecipeError for a wrong value."""
    made = {}
    for row in rows:
        chosen = merged(recipe, row.values, f"row {row.name}")
        made[row.name] = with_overrides(chosen, budget.settings(chosen), f"row {row.name}")
    return made


def prepared(row: Row, text: TextFiles, size: int) -> Stage:
    """Returns the stage that makes the data folder of a row. Rows with the same options use the same folder."""
    # Two separate vocabularies together have as many subwords as a joint one.
    words = ["--vocab-size", str(size // (2 if "--separate" in row.prepare else 1)), *row.prepare]
    out = quote("-".join(["data", *(word.lstrip("-") for word in row.prepare)]), safe="")
    inputs = [file for name in (*text.train, text.valid) for file in text.pairs[name]]
    command = ["vtrans", "prepare-bpe", *text.options, *words, "--out", out, "--quiet"]
    return Stage(out, [command], inputs, [out])


def measuring(place: str, valid: Sequence[str]) -> Stage:
    """Returns the stage that measures the model of the run `place`/run with the validation text."""
    run, figures = f"{place}/run", f"{place}/figures.json"
    (model,) = averaged([run])
    measure = ["python", "-m", "vtrans.apps.experiments.measure", model, run, *valid, figures]
    return Stage(f"figures of {place}", [measure], [model, *valid], [figures, f"{place}/translations.txt"])


def compared(
    rows: Sequence[Row], texts: Mapping[str, Mapping[str, Sequence[str]]], refs: Sequence[str]
) -> list[list[Comparison]]:
    """Returns the comparisons of all rows with the first one, per metric; an empty list if the first one failed.
    `texts` are the translations by row and seed."""
    systems = {row.name: texts[row.name] for row in rows if row.name in texts}
    return compare(systems, [refs]) if len(systems) > 1 and rows[0].name in systems else []


def run_study(
    file: Path, console: Console, *, text: Mapping[str, Any], recipe: str | None = None, overrides: Sequence[str] = (),
    steps: int | None = None, minutes: float | None = None, seeds: Sequence[int] = (1,), only: Sequence[str] = (),
    out: Path | None = None, start: Run = run,
) -> str:  # fmt: skip
    """Runs the study in `file`, each command by `start`, and returns its table. `text` overrides the section [text],
    `only` names the rows to train, and `out` is the folder of the results. Raises InputError for a wrong value. If a
    row fails, runs the others, then raises VtransError."""
    study = load_study(file, text)
    if unknown := [name for name in only if name not in study.rows]:
        raise InputError(f"`only` must be among {', '.join(study.rows)}; got {unknown[0]}.")
    rows = [row for row in study.rows.values() if not only or row.name in only]
    name = recipe or recipe_beside(file, study.recipe)
    refused = {"train.seed": "`seeds`"} | (dict.fromkeys(LIMITS, "`steps` or `minutes`") if steps or minutes else {})
    for key in (word.partition("=")[0].strip() for word in overrides):
        if key in refused:
            raise InputError(f"{key} cannot be set, because {refused[key]} sets it; leave one of them out.")
    base = load_recipe(name, overrides)
    budget = Budget.of(steps, minutes, base)
    recipes = recipes_of(rows, base, budget)
    files = TextFiles.of(study.corpus.folder, study.corpus.src, study.corpus.tgt, tested=False)
    size, title = study.corpus.vocab_size, f"{file.stem}-{budget}".replace(" ", "-")
    work = Work(out or Path("work") / title, title, console, start)
    with work.lock:
        written = {row.name: write_recipe(recipes[row.name], work.folder / f"{row.name}.toml") for row in rows}
        data = {row.name: prepared(row, files, size) for row in rows}
        work.run(list({stage.name: stage for stage in data.values()}.values()))
        about = f"Recipe {name}, {budget} per row, {size:,} subwords in all, {' to '.join(files.languages)}."
        found, failed, texts = list[Found](), list[str](), dict[str, dict[str, list[str]]]()
        valid = files.pairs[files.valid]
        for row, seed in ((row, seed) for seed in dict.fromkeys(seeds) for row in rows):
            place, options = f"{row.name}-{seed}", ["--set", f"train.seed={seed}", *study.corpus.options]
            train = training(place, f"{place}/run", data[row.name].name, written[row.name], options)
            measure = measuring(place, valid)
            try:
                work.run([train, measure])
            except VtransError as error:  # the next rows may succeed
                console.error(f"{place}: {error}")
                failed.append(place)
            else:
                figures, translations = (work.folder / output for output in measure.outputs)
                found.append((row.name, row.words, json.loads(figures.read_bytes())))
                texts.setdefault(row.name, {})[place] = list(lines_in(translations))
                write_atomically(work.folder / "table.md", table(found, about).encode())  # a preview of the result
        made = table(found, about, compared(rows, texts, list(lines_in(valid[1]))))
        write_atomically(work.folder / "table.md", made.encode())
    if failed:
        raise VtransError(f"these failed: {', '.join(failed)}; run the same command again to retry them.")
    return made


def table(found: Sequence[Found], about: str, tests: Sequence[Sequence[Comparison]] = ()) -> str:
    """Returns the table in Markdown, with notes that explain its figures. `about` describes the common settings, and
    `tests` are the comparisons of the rows per score."""
    every = [figures for _, _, figures in found]
    searches = dict.fromkeys(
        "beam {beam}, alpha {alpha} and the engine {engine}".format(**each["search"]) for each in every
    )
    notes = [
        f"{about} {EXPLAINED.format(searches=' or '.join(searches), level=SIGNIFICANT)}",
        *dict.fromkeys(f"{score['name']} {score['signature']}" for each in every for score in each["scores"]),
        *dict.fromkeys(each["host"] for each in every),
    ]
    return "".join([markdown_table(HEAD, 2, _lines(found, tests)), "\n", *(f"- {note}\n" for note in notes)])


def _lines(found: Sequence[Found], tests: Sequence[Sequence[Comparison]]) -> Iterator[list[str]]:
    marked = {(test.system, n) for n, rows in enumerate(tests) for test in rows[1:] if test.p_value < SIGNIFICANT}
    for name, words in dict.fromkeys((name, words) for name, words, _ in found):
        seeds = [figures for other, _, figures in found if other == name]
        first, updates = seeds[0], [each["updates"] for each in seeds]
        fastest = [
            f"{max(each[key] for each in seeds):,.0f}"
            for key in ("train_tokens_a_second", "sentences_a_second", "singles_a_second")
        ]
        yield [
            name,
            words,
            str(len(seeds)),
            f"{first['parameters']:,}",
            f"{first['parameters_without_sharing']:,}",
            f"{first['bytes'] / 1e6:.1f}",
            fastest[0],
            "-".join(dict.fromkeys(f"{end:,}" for end in (min(updates), max(updates)))),
            f"{statistics.fmean(each['seconds'] for each in seeds) / 60:.1f}",
            *fastest[1:],
            *(
                _spread([each["scores"][n]["value"] for each in seeds]) + "*" * ((name, n) in marked)
                for n in range(len(first["scores"]))
            ),
        ]


def _spread(values: Sequence[float]) -> str:
    deviation = f" ±{statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{deviation}"
