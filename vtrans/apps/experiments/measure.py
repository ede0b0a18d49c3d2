"""Measures a trained model: size, training, translations of a text, and translation speed.

    python -m vtrans.apps.experiments.measure MODEL RUN SRC REF OUT

One process translates the sentences in batches, then up to 100 of them one at a time; loading the model is not timed.
OUT is a JSON file; the translations are written next to it. User-defined code that the model names is run.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import vtrans
from vtrans.apps.analysis.inspection import Inspection
from vtrans.score.metrics import DEFAULT_METRICS, score
from vtrans.storage.model_file import read_blueprint
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import read_progress
from vtrans.system.devices import pick_device
from vtrans.system.errors import VtransError
from vtrans.system.files import write_atomically
from vtrans.system.process import manage_memory
from vtrans.text.lines import lines_in, write_lines
from vtrans.training.progress import records_of
from vtrans.translate.loading import load

TRANSLATIONS = "translations.txt"
SINGLES = 100  # sentences that are translated one at a time


def measured(model: Path, src: Path, ref: Path) -> dict[str, Any]:
    """Returns the figures of a model file, and its `translations`."""
    config = read_blueprint(model).model.config
    code = Path(config.network.rpartition(":")[0]) if config.is_own else None
    inspection = Inspection.of(model, code)
    # No second search: retrying degenerate translations would help the weakest models most.
    translator = load(model, code=code, retry=False)
    lines = list(lines_in(src))
    translations = list(translator.translate(lines))
    seconds = translator.counts.seconds
    singles = lines[:: max(1, len(lines) // SINGLES)][:SINGLES]
    for line in singles:
        list(translator.translate([line]))
    return {
        "parameters": inspection.parameters,
        "parameters_without_sharing": inspection.parameters_without_sharing,
        "bytes": inspection.bytes()["file"],
        "sentences_a_second": len(lines) / seconds,
        "singles_a_second": len(singles) / (translator.counts.seconds - seconds),
        "scores": [asdict(result) for result in score(translations, [list(lines_in(ref))], DEFAULT_METRICS)],
        "search": {"beam": translator.search.beam, "alpha": translator.search.alpha, "engine": translator.engine.name},
        "host": f"{_processor()}, torch {torch.__version__}, vtrans {vtrans.__version__}",
        "translations": translations,
    }


def trained(run: RunFolder) -> dict[str, Any]:
    """Returns the figures of a run: updates, seconds including validations, target tokens per second excluding them."""
    progress = read_progress(run.state_file(run.state_steps()[-1]))
    lines = list(records_of(run.metrics.read_bytes(), run.metrics))
    tokens, seconds = (sum(x[key] for x in lines if x["kind"] == "train") for key in ("tgt_tokens", "seconds"))
    return {"updates": progress["step"], "seconds": progress["seconds"], "train_tokens_a_second": tokens / seconds}


def _processor() -> str:
    if pick_device(None).type == "cuda":
        return torch.cuda.get_device_name()
    threads = f"{torch.get_num_threads()} of {os.cpu_count()} processors"
    return f"{platform.processor() or platform.machine()}, {threads}"


def main(arguments: Sequence[str]) -> None:
    model, run, src, ref, out = map(Path, arguments)
    figures = trained(RunFolder(run)) | measured(model, src, ref)
    write_lines(out.with_name(TRANSLATIONS), figures.pop("translations"))
    write_atomically(out, (json.dumps(figures, ensure_ascii=False, indent=2) + "\n").encode())


if __name__ == "__main__":
    manage_memory()
    try:
        main(sys.argv[1:])
    except VtransError as error:
        sys.exit(f"error: {error}")
