"""Measure a trained model: its size, its training, its translations of a text, and how fast it makes them.

    python recipes/studies/measure.py MODEL --run RUN --src val.en --ref val.de --out figures.json

Sentences are translated in batches, then up to 100 of them one at a time, by one process; loading the model does not
count. The translations are written beside --out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recipes.experiment import lines_of
from vtrans.console import Console
from vtrans.errors import VtransError
from vtrans.files import write_atomically
from vtrans.processes.process import configure_process

if TYPE_CHECKING:
    import torch

    from vtrans.translate.translator import Translator

SINGLES = 100  # sentences that are translated one at a time


def measured(model: Path, src: Path, ref: Path, device: str | None) -> dict[str, Any]:
    """Returns the figures of a model file, and its `translations`."""
    from vtrans.analysis.inspection import Inspection
    from vtrans.checkpoint import load_model
    from vtrans.numerics.devices import pick_device
    from vtrans.score import score
    from vtrans.translate.loading import load

    inspection = Inspection(model, "", load_model(model))
    # Every model is measured by one search: a second one for loops would help the weakest models most.
    translator = load(model, device=device, retry=False)
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
        "host": host(pick_device(device)),
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
    return f"{name}, torch {torch.__version__}, vtrans {importlib.import_module('vtrans').__version__}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--run", type=Path, required=True, help="the run folder of the model")
    parser.add_argument("--src", type=Path, required=True, help="text to translate")
    parser.add_argument("--ref", type=Path, required=True, help="its translation")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--device", help="device, as for vtrans translate")
    options = parser.parse_args(arguments)
    if "torch" not in sys.modules:  # a program that calls main() may have loaded it
        configure_process()
    try:
        figures = measured(options.model, options.src, options.ref, options.device)
        text = "".join(f"{line}\n" for line in figures.pop("translations"))
        write_atomically(options.out.with_name("translations.txt"), text.encode())
        figures = trained(options.run) | figures
        write_atomically(options.out, (json.dumps(figures, ensure_ascii=False, indent=2) + "\n").encode())
    except VtransError as error:
        Console().error(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
