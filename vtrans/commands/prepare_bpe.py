"""`vtrans prepare-bpe`: the options of a PrepareOptions, which `prepare` checks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import generated, option
from vtrans.commands.lines import print_line
from vtrans.commands.options import Json, Quiet
from vtrans.console import Console
from vtrans.data.options import PrepareOptions
from vtrans.errors import InputError

VOCAB_FROM = "Use the vocabulary of this model instead of learning one, to fine-tune it."
DRY_RUN = "Write nothing. Count all lines, encode some, and print the time and space needed."


@generated
def prepare_bpe(
    *,
    options: PrepareOptions,
    vocab_from: Annotated[Path | None, option(VOCAB_FROM, "RUN|FILE", "Vocabulary")] = None,
    dry_run: Annotated[bool, option(DRY_RUN, panel="Output", flag="--dry-run")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn subwords from parallel text and encode it.

    The files --src and --tgt contain one sentence per line, each line the translation of the other. The result is a
    data folder for `vtrans train`: a vocabulary and the encoded pairs. Files may be compressed (.gz, .xz, .bz2).
    """
    if dry_run and quiet and not as_json:
        raise InputError("--dry-run prints an estimate, which --quiet hides; leave out one of them, or add --json.")
    from vtrans.data.preparation.prepare import prepare

    if vocab_from is not None:
        from vtrans.checkpoint import choose_model, read_vocabularies

        vocabularies = tuple(vocabulary.proto for vocabulary in read_vocabularies(choose_model(vocab_from).file))
        options = dataclasses.replace(options, vocabularies=vocabularies)
    report = prepare(options, Console(quiet=quiet), dry_run=dry_run)
    if as_json:
        print_line(json.dumps(report, ensure_ascii=False, indent=2, sort_keys=True))
