"""From parallel text to a small translation model: `make student`.

Its argument is a chain of this folder, or a TOML file (chain.py describes it). Each command is printed before it runs
in WORK, the folder of the chain. Run the same command again to resume: a stage is skipped if its commands and the
contents of its files are those of its last run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.files import write_atomically

from ..experiment import EXPERIMENTS, fetched
from ..studies.rows import file_of, names_in
from ..work import Stage, Starter, Work, markdown_table, recipe_toml, starter
from .chain import SHIPPED, Chain, load_chain
from .stages import EXPORT, Files, Stages, averages, copied_models


def text_of(chain: Chain, file: Path, data: str | None, work: Work) -> Path:
    """Returns the folder with the text: what the user names, the one that the chain file names, or a download."""
    if data or chain.text.folder:
        return Path(data or file.parent / chain.text.folder)
    if not chain.text.experiment:
        raise InputError(f"{file}: text.folder is missing; name the folder with the text there, or with --data.")
    experiment = EXPERIMENTS[chain.text.experiment]
    return fetched(experiment, work.folder / "text", chain.text.src, chain.text.tgt, work.console)


def report(chain: Chain, tests: Sequence[str], work: Work, stages: Sequence[Stage]) -> str:
    """Returns the scores, sizes and times of a finished chain as tables in Markdown."""
    times = {stage.name: work.minutes(stage) for stage in stages}
    times["all stages"] = sum(times.values())
    head = ("model", "test", "BLEU", "chrF2", "files, MB")
    scores = markdown_table(head, 2, _scores(chain, tests, work.folder))
    minutes = markdown_table(("stage", "minutes"), 1, ([name, f"{taken:.1f}"] for name, taken in times.items()))
    return f"{scores}\n{minutes}"


def _scores(chain: Chain, tests: Sequence[str], folder: Path) -> Iterator[list[str]]:
    models = {"teachers": averages(chain.teacher_names)} if chain.teachers else {}
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


def main(arguments: Sequence[str] | None = None, starter: Starter = starter) -> int:
    parser = argparse.ArgumentParser(description="Train a small translation model, from parallel text to its export.")
    parser.add_argument("chain", help=f"{', '.join(names_in(SHIPPED))}, or a TOML file")
    parser.add_argument("--data", help="folder with train, valid and test files (default: what the chain file names)")
    parser.add_argument("--work", help="folder of the chain (default: work/student-CHAIN)")
    options = parser.parse_args(arguments)

    file = file_of(options.chain, SHIPPED, "chain")
    chain = load_chain(file)
    work = Work(Path(options.work or f"work/student-{file.stem}"), file.stem, starter, Console())
    with work.lock:
        files = Files.of(chain, text_of(chain, file, options.data, work))
        for section, model in chain.models.items():
            write_atomically(work.folder / f"{section}.toml", recipe_toml(model.resolved).encode())
        stages = [*files.copied(work.folder), *copied_models(chain, work.folder), *Stages(chain, files).all()]
        work.run(stages)
        made = report(chain, list(files.tests), work, stages)
        write_atomically(work.folder / "report.md", made.encode())
        sys.stdout.write(f"\n{made}")
    return 0
