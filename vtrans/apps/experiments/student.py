"""Runs a chain, from parallel text to a small translation model, and reports on its stages.

Every command runs in the folder of the chain, and writes to it with relative paths, so the folder may be moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtrans.apps.experiments.chain import Chain, Model, Student, Teachers, load_chain
from vtrans.apps.experiments.experiment_files import Pair, TextFiles, markdown_table, pair_options, write_recipe
from vtrans.apps.experiments.work import INTO, Run, Stage, Work, averaged, run, training
from vtrans.system.console import Console
from vtrans.system.errors import FileError
from vtrans.system.files import write_atomically

TAG = "<BT>"  # prefix of back-translated sources (Caswell et al. 2019)
CHUNK = "20000"  # lines; an interrupted translation resumes after its last chunk
EXPORT = "export"  # the folder of the export

Command = Sequence[str]


@dataclass
class Stages:
    """Makes the stages of a chain, in order. `recipes` has the files of each section: its recipe and user code."""

    chain: Chain
    text: TextFiles
    recipes: Mapping[str, Sequence[str]]
    made: list[Stage] = field(default_factory=list)

    def all(self) -> list[Stage]:
        chain, src = self.chain, self.chain.text.src
        pairs = self.clean() if chain.text.clean else [self.text.pairs[name] for name in self.text.train]
        words = ["--vocab-size", str(chain.text.vocab_size)]
        learning = chain.teachers if chain.teachers and not chain.teachers.models else None
        data = "vocabulary"
        if back := chain.back_translation:
            self.data("vocabulary", data, pairs, [*words, "--symbol", TAG])
            self.data("data of the back-translation model", "back-data", pairs, model=back, back=True)
            self.train("back-translation model", "back", "back-data", "back_translation")
            for name in back.text:
                source = str(chain.text.folder / name)
                made = self.translate(["back"], source, f"synthetic/{name}.{src}", back, TAG)
                pairs = [*pairs, (made, source)]
            data = self.data("data of the teachers", "teacher-data", pairs, model=learning)
        else:
            self.data("vocabulary", data, pairs, words)
        teachers, runs = chain.teacher_models, list[str]()
        if learning:
            runs += teachers
            for run, seed in zip(teachers, learning.seeds, strict=True):
                self.train(run.replace("-", " "), run, data, "teachers", "--set", f"train.seed={int(seed)}")
        if chain.teachers:
            self.test("teachers", teachers, chain.teachers.translate_options)
        if chain.student:
            runs.append("student")
            self.student(pairs[: len(self.text.train)], teachers, chain.student)
        if runs:
            command = ["vtrans", "report", *runs, "--out", "report.html"]
            self.made.append(Stage("report", [command], averaged(runs), ["report.html"]))
        return self.made

    def student(self, pairs: Sequence[Pair], teachers: Sequence[str], student: Student) -> None:
        """Adds the stages that prepare the student's text, and train, test and export the student."""
        corpora = list[Pair]()
        if how := self.chain.teachers:
            sources = [*(src for src, _ in pairs), *(str(self.chain.text.folder / name) for name in how.text)]
            for n, source in enumerate(sources, 1):
                corpora.append((source, self.translate(teachers, source, f"distilled/{n}.{self.chain.text.tgt}", how)))
        corpora += pairs if student.references or not how else []
        data = self.data("data of the student", "student-data", corpora, model=student)
        self.train("student", "student", data, "student")
        (model,), file = averaged(["student"]), "student.safetensors"
        command = ["vtrans", "shortlist", model, "--data", data, "--out", file]
        self.made.append(Stage("shortlist", [command], [model, data], [file]))
        if student.export != "none":
            sample, _ = self.text.pairs[self.text.valid]
            command = ["vtrans", "export", file, "--to", student.export, "--out", EXPORT, "--sample-file", sample]
            command += student.export_options
            self.made.append(Stage(f"export to {student.export}", [command], [file, sample], [EXPORT]))
        self.test("student", [file])
        self.test("student-int8", [file], ["--precision", "int8", "--shortlist"])

    def clean(self) -> list[Pair]:
        """Adds the stages that clean the corpora, and returns the pairs of cleaned files."""
        languages = ["--src-lang", self.chain.text.src, "--tgt-lang", self.chain.text.tgt]
        without = [word for rule in self.chain.text.without for word in ("--without", rule)]
        cleaned = []
        for n, (src, tgt) in enumerate((self.text.pairs[name] for name in self.text.train), 1):
            out = "clean" if len(self.text.train) == 1 else f"clean-{n}"
            command = ["vtrans", "clean", "--src", src, "--tgt", tgt, "--out", out, *languages, *without]
            self.made.append(Stage(f"clean {Path(src).name}", [command], [src, tgt], [out]))
            cleaned.append((f"{out}/{Path(src).name}", f"{out}/{Path(tgt).name}"))
        return cleaned

    def data(
        self, name: str, out: str, pairs: Sequence[Pair], words: Command = (), model: Model | None = None,
        *, back: bool = False,
    ) -> str:  # fmt: skip
        """Adds the stage that makes a data folder, and returns the folder. `back` swaps source and target. With a
        model, the folder uses the chain's vocabulary."""
        if model:
            words = ["--vocab-from", "vocabulary"]
        every = [*pairs, self.text.pairs[self.text.valid]]
        *train, valid = [(tgt, src) for src, tgt in every] if back else every
        command = ["vtrans", "prepare-bpe", *pair_options(train, valid), *words, "--out", out]
        inputs = [*(["vocabulary"] if model else []), *(file for pair in every for file in pair)]
        self.made.append(Stage(name, [command], inputs, [out]))
        return out

    def train(self, name: str, run: str, data: str, recipe: str, *words: str) -> None:
        """Adds the stage that trains a model with the recipe of a section."""
        self.made.append(training(name, run, data, self.recipes[recipe], [*words, *self.chain.text.options]))

    def translate(self, models: Sequence[str], source: str, out: str, how: Model, tag: str = "") -> str:
        """Adds the stage that translates a file in chunks and joins them, and returns the joined file. Each line begins
        with `tag`."""
        chunks, joined = f"{out}.chunks", f"{out}.plain" if tag else out
        options = ["--precision", how.precision, "--chunk-lines", CHUNK, *self.chain.text.options]
        options += how.translate_options if isinstance(how, Teachers) else ()
        commands = [
            ["vtrans", "translate", *_named(models), "--input", source, "--out", chunks, *options],
            ["vtrans", "collect", chunks, "--out", joined],
        ]
        if tag:
            commands.append(["sed", f"s/^/{tag} /", joined, INTO, out])
        inputs, scratch = [source, *averaged(models)], [chunks, joined]
        self.made.append(Stage(f"translation of {Path(source).name}", commands, inputs, [out], scratch, True))
        return out

    def test(self, name: str, models: Sequence[str], words: Command = ()) -> None:
        """Adds the stage that translates and scores the test sets."""
        commands, made, texts = list[Command](), list[str](), list[str]()
        for stem in self.text.tests:
            src, tgt = self.text.pairs[stem]
            out, scores = f"test/{stem}.{name}.{self.chain.text.tgt}", f"test/{stem}.{name}.json"
            options = ["--input", src, "--out", out, *words, *self.chain.text.options]
            commands.append(["vtrans", "translate", *_named(models), *options])
            commands.append(["vtrans", "score", tgt, "--hyp", out, "--json", INTO, scores])
            made += [out, scores]
            texts += [src, tgt]
        self.made.append(Stage(f"test of the {name}", commands, [*texts, *averaged(models)], made))


def _named(models: Iterable[str]) -> list[str]:
    return [word for model in models for word in ("--model", model)]


def report(chain: Chain, tests: Sequence[str], work: Work, stages: Sequence[Stage]) -> str:
    """Returns the scores, sizes and times of a finished chain as tables in Markdown."""
    times = {stage.name: work.minutes(stage) for stage in stages}
    times["all stages"] = sum(times.values())
    head = ("model", "test", "BLEU", "chrF2", "files, MB")
    scores = markdown_table(head, 2, _scores(chain, tests, work.folder))
    minutes = markdown_table(("stage", "minutes"), 1, ([name, f"{taken:.1f}"] for name, taken in times.items()))
    return f"{scores}\n{minutes}"


def _scores(chain: Chain, tests: Sequence[str], folder: Path) -> Iterator[list[str]]:
    models = {"teachers": averaged(chain.teacher_models)} if chain.teachers else {}
    if chain.student:
        models |= {"student": ["student.safetensors"], "student-int8": ["student.safetensors"]}
    for name, files in models.items():
        for test in tests:
            scores = json.loads((folder / f"test/{test}.{name}.json").read_bytes())
            values = [f"{score['value']:.2f}" for score in scores]
            yield [name, test, *values, _megabytes(folder / file for file in files)]
    if chain.student and chain.student.export != "none":
        yield [f"export to {chain.student.export}", "", "", "", _megabytes((folder / EXPORT).rglob("*"))]


def _megabytes(paths: Iterator[Path]) -> str:
    return f"{sum(path.stat().st_size for path in paths if path.is_file()) / 1e6:.1f}"


def run_chain(file: Path, given: Mapping[str, Any], out: Path | None, console: Console, start: Run = run) -> str:
    """Runs the chain in `file` in the folder `out`, each command by `start`, and returns the report. `given` overrides
    the section [text]. Raises InputError for a wrong value, FileError for a missing file, and CommandError if a command
    fails."""
    chain = load_chain(file, given)
    text = TextFiles.of(chain.text.folder, chain.text.src, chain.text.tgt)
    for section, model in chain.models.items():
        for name in model.text:
            if Path(name).name != name or not (chain.text.folder / name).is_file():
                raise FileError(f"{section}.text must name files in {chain.text.folder}, which has no file {name}.")
    work = Work(out or Path(f"work/student-{file.stem}"), file.stem, console, start)
    with work.lock:
        models = chain.models.items()
        recipes = {name: write_recipe(model.resolved, work.folder / f"{name}.toml") for name, model in models}
        stages = Stages(chain, text, recipes).all()
        work.run(stages)
        made = report(chain, text.tests, work, stages)
        write_atomically(work.folder / "report.md", made.encode())
    return made
