"""`vtrans calibrate`: fits the confidence of translations."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from vtrans.commands.generated import Given, Models, argument, generated
from vtrans.commands.lines import read_both
from vtrans.commands.shared_options import STORED, BadUtf8, Ensemble, Quiet, Threads, To
from vtrans.config import EngineConfig, SearchConfig
from vtrans.config.threads import set_threads
from vtrans.system.console import Console
from vtrans.system.files import destination


@generated
def calibrate(
    *,
    named: Annotated[list[Path], Models(Ensemble.HELP, several=True)],
    src: Annotated[Path, argument("Text that the model has not learned from, such as the validation text.", "SRC")],
    ref: Annotated[Path, argument("Its reference translations, one per line.", "REF")],
    ensemble: Ensemble,
    engine: EngineConfig,
    threads: Threads = None,
    search: Annotated[dict[str, Any], Given(SearchConfig, otherwise=STORED)],
    to: To = None,
    on_bad_utf8: BadUtf8 = "error",
    quiet: Quiet = False,
) -> None:
    """Fit the confidence of translations to a text with references.

    Translates SRC and writes confidence.json beside the (first) model file, for `vtrans translate --confidence`. A
    sentence counts as right if its chrF is at least 60, and a word if the reference has it. Give the options with
    which you will translate.
    """
    models = replace(ensemble, model=named)
    console = Console(quiet=quiet)
    lines, references = read_both(src, ref, "reference", on_bad_utf8, console)
    set_threads(threads)
    from vtrans.apps.analysis.calibration import calibrate
    from vtrans.translate.confidence import Calibration, made_with
    from vtrans.translate.loading import load

    files = models.files
    out = destination(Calibration.path(files), "file")
    translator = load(models.paths, weights=list(models.weights) or None, console=console, **asdict(engine), **search)
    best = console.counted(translator.nbest(lines, to=to, raw=True), "translated", len(lines), "sentences")
    translations = [translation for translations in best for translation in translations]
    settings = made_with(translator.search, engine, models.weights)
    calibration, reports = calibrate(lines, translations, references, files, translator.tgt_vocab, settings)
    calibration.save(out)
    for name, report in reports.items():
        console.info(
            f"{report.examples:,} {name}s, {report.right:.0%} of them right; in cross-validation, AUROC "
            f"{report.auroc:.3f} and calibration error {report.error:.3f}"
        )
    console.info(f"the calibration is {out}; next: vtrans translate --confidence")
