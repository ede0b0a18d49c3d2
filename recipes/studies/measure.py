"""Measure a trained model: its size, its training, its translations of a text, and how fast it makes them.

    python -m recipes.studies.measure MODEL RUN SRC REF OUT

Sentences are translated in batches, then up to 100 of them one at a time, by one process; loading the model does not
count. OUT is a JSON file; the translations are written beside it.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vtrans
from recipes.experiment import lines_of
from recipes.running import run_program
from vtrans.system.files import write_atomically
from vtrans.system.process import configure_process
from vtrans.text.lines import write_lines

if TYPE_CHECKING:
    import torch

    from vtrans.translate.translator import Translator

SINGLES = 100  # sentences that are translated one at a time


def measured(model: Path, src: Path, ref: Path) -> dict[str, Any]:
    """Returns the figures of a model file, and its `translations`."""
    from vtrans.apps.analysis.inspection import Inspection
    from vtrans.model.checkpoint import load_model
    from vtrans.score.metrics import score
    from vtrans.system.devices import pick_device
    from vtrans.translate.loading import load

    inspection = Inspection(model, "", load_model(model))
    # Every model is measured by one search: a second one for loops would help the weakest models most.
    translator = load(model, retry=False)
    lines = lines_of(src)
    translations, batches = timed(translator, [lines])
    _, singles = timed(translator, [[line] for line in lines[:: max(1, len(lines) // SINGLES)][:SINGLES]])
    return {
        "parameters": inspection.parameters,
        "parameters_without_sharing": inspection.parameters_without_sharing,
        "bytes": inspection.bytes()["file"],
        "sentences_a_second": batches,
        "singles_a_second": singles,
        "scores": [result.as_dict() for result in score(translations, [lines_of(ref)], ["bleu", "chrf"])],
        "search": {"beam": translator.search.beam, "alpha": translator.search.alpha},
        "host": host(pick_device(None)),
        "translations": translations,
    }


def timed(translator: Translator, texts: Sequence[Sequence[str]]) -> tuple[list[str], float]:
    """Returns the translations of texts, which are translated one after the other, and the sentences per second."""
    before = translator.counts.seconds
    translations = [translation for lines in texts for translation in translator.translate(lines)]
    return translations, len(translations) / (translator.counts.seconds - before)


def trained(run: Path) -> dict[str, Any]:
    """Returns the figures of a run: updates, seconds with validations, and target tokens per second without them."""
    from vtrans.storage.run_folder import RunFolder
    from vtrans.storage.states import read_progress
    from vtrans.training.progress import records_of

    folder = RunFolder(run)
    progress = read_progress(folder.state_file(folder.state_steps()[-1]))
    lines = list(records_of(folder.metrics.read_bytes(), folder.metrics))
    tokens, seconds = (sum(x[key] for x in lines if x["kind"] == "train") for key in ("tgt_tokens", "seconds"))
    return {"updates": progress["step"], "seconds": progress["seconds"], "train_tokens_a_second": tokens / seconds}


def host(device: torch.device) -> str:
    """Returns a description of the machine and the software."""
    import torch

    count = torch.get_num_threads()
    cpu = f"{platform.processor() or platform.machine()}, {count} thread{'' if count == 1 else 's'}"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{cpu} of {os.cpu_count()} processors"
    return f"{name}, torch {torch.__version__}, vtrans {vtrans.__version__}"


def main(arguments: Sequence[str]) -> int:
    model, run, src, ref, out = map(Path, arguments)
    if "torch" not in sys.modules:  # a program that calls main() may have loaded it
        configure_process()
    figures = measured(model, src, ref)
    write_lines(out.with_name("translations.txt"), figures.pop("translations"))
    figures = trained(run) | figures
    write_atomically(out, (json.dumps(figures, ensure_ascii=False, indent=2) + "\n").encode())
    return 0


if __name__ == "__main__":
    run_program(lambda: main(sys.argv[1:]))
