"""Whether `vtrans export` takes the student of a chain and its options, found out before any training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from vtrans.checkpoint import LoadedModel, save_model
from vtrans.config import resolve_tie
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.model import Transformer
from vtrans.storage.model_file import read_vocabularies
from vtrans.storage.run_folder import shipped_models
from vtrans.text.vocabulary import BOS_ID, PAD_ID
from vtrans.training.optimization.job import keep_zero

from ..studies.jobs import Job, Process, Start, run_jobs
from .chain import Student

SAMPLE = "A dog.\n"


def random_model(student: Student) -> LoadedModel:
    """Returns a student as its training begins, with the vocabulary of a model that ships with vtrans."""
    vocab, _ = read_vocabularies(next(iter(shipped_models().values())))
    config = student.resolved.model
    config = dataclasses.replace(config, tie=resolve_tie(config.tie, joint=True))
    model = Transformer(config, len(vocab), len(vocab), joint=True, pad_id=PAD_ID)
    if config.positions == "marian":
        keep_zero(model.tgt_embedding.weight, BOS_ID)
    return LoadedModel(model.eval(), vocab, vocab, student.resolved.search, {"step": 0})


def dry_export(student: Student, start: Start, console: Console) -> None:
    """Exports a random model with the options of the student, and removes the export.

    Raises InputError if that is refused, or if the options read a file that a later stage makes. A difference between
    the two programs is no reason: with random weights, the rounding of an export may change many translations.
    """
    with TemporaryDirectory(prefix="vtrans-") as name:
        model, sample, out = (Path(name, file) for file in ("random.safetensors", "sample", "export"))
        save_model(model, random_model(student))
        sample.write_text(SAMPLE)
        words = ["vtrans", "export", str(model), "--to", student.export, "--out", str(out)]
        words += ["--sample-file", str(sample), *student.export_options]
        started = list[Process]()

        def noted(words: Sequence[str], log: Path | None) -> Process:
            started.append(start(words, log))
            return started[-1]

        run_jobs([Job("dry export", iter([words]))], 1, noted, console)
        code = started[0].wait()
    if code == InputError.exit_code:
        raise InputError(
            "student.export_options are refused by the command above, which exports random weights; correct them in "
            "the chain file."
        )
    if code:
        console.warn("the dry export failed, perhaps because its weights are random; the chain continues.")
