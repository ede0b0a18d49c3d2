"""`vtrans adapt`: fine-tunes a model on one's own translations, and keeps the better model."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vtrans.apps.documents.command_line import check_packages, take
from vtrans.commands.generated import Models, generated, option
from vtrans.commands.lines import print_line, read_all, read_both
from vtrans.commands.shared_options import BadUtf8, Device, Json, Quiet, To, TrainProcesses, TrainThreads
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.signals import ended_by_signals
from vtrans.text.languages import Languages
from vtrans.text.lines import OnBadUtf8

if TYPE_CHECKING:
    from vtrans.apps.adapting.adapt import Adapted, Pairs

PAIRS = (
    "Document with translations (PO, XLIFF, TMX, Xcode or Qt), or a folder of them, whose translated entries are the "
    "new pairs. May be repeated."
)
SRC = "Source text of new pairs, one sentence per line."
TGT = "Translation of `--src`, line by line."
OLD_SRC = "Source text of the kind that the model was trained on. Training uses as many old pairs as new ones."
OLD_TGT = "Translation of `--old-src`.  [default: the model translates it]"
OLD_TEST_SRC = (
    "Source text of old pairs that the model has not learned from, which measure what it forgets.  [default: a part of "
    "`--old-src` and `--old-tgt`]"
)
OLD_TEST_TGT = "Translation of `--old-test-src`."
GUARD = "Maximum loss on held-out old pairs, in BLEU (or chrF, where it decides), for an adapted model to be kept."
FROM = "Source language of the pairs, if the model has several or does not record its own."
KEPT = {
    "adapted": "the adapted model",
    "mean": "the mean of the old and the adapted model, because the adapted one alone does not gain or loses too much",
    "given": "the old model, because neither the adapted one nor the mean of both is good enough",
}
OUT = "Folder to write. If it holds an adaptation of the same model to the same pairs, that is resumed."
SET = "Replace a value of the training, such as train.learning_rate=0.0001. May be repeated."


@generated
def adapt(
    model: Annotated[Path, Models()],
    pairs: Annotated[list[Path] | None, option(PAIRS, "FILE|FOLDER", "Text")] = None,
    src: Annotated[Path | None, option(SRC, "FILE", "Text")] = None,
    tgt: Annotated[Path | None, option(TGT, "FILE", "Text")] = None,
    old_src: Annotated[Path | None, option(OLD_SRC, "FILE", "Text")] = None,
    old_tgt: Annotated[Path | None, option(OLD_TGT, "FILE", "Text")] = None,
    old_test_src: Annotated[Path | None, option(OLD_TEST_SRC, "FILE", "Text")] = None,
    old_test_tgt: Annotated[Path | None, option(OLD_TEST_TGT, "FILE", "Text")] = None,
    on_bad_utf8: BadUtf8 = "error",
    from_: Annotated[str | None, option(FROM, "CODE", "Text", flag="--from")] = None,
    to: To = None,
    out: Annotated[Path, option(OUT, "FOLDER", "Output")] = Path("adapted"),
    guard: Annotated[float, option(GUARD, "BLEU", "Output", min=0)] = 1.0,
    overrides: Annotated[list[str] | None, option(SET, "section.key=value", "Training", flag="--set")] = None,
    device: Device = None,
    processes: TrainProcesses = None,
    threads: TrainThreads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Adapt a model to your own translations.

    Trains on most of the new pairs and on old ones, so that the model forgets little, and translates held-out pairs
    before and after. OUT/model.safetensors is the first of these that gains on the new pairs and loses at most --guard
    on the old ones: the adapted model, or its mean with the old model; or else the old model.
    """
    texts = (
        ("--tgt", src, tgt),
        ("--src", tgt, src),
        ("--old-src", old_tgt or old_test_src, old_src),
        ("--old-test-src", old_test_tgt, old_test_src),
        ("--old-test-tgt", old_test_src, old_test_tgt),
    )
    for name, given, other in texts:
        if given and not other:
            raise InputError(f"{name} is missing: each text needs its translation, and old pairs need --old-src.")
    if not (pairs or src):
        raise InputError("there are no pairs to adapt to; name documents with --pairs, or text with --src and --tgt.")
    console = Console(quiet=quiet, advises=False)
    from vtrans.apps.adapting.adapt import AdaptOptions, OldText
    from vtrans.apps.adapting.adapt import adapt as run_adapt
    from vtrans.training.parts import TrainOptions

    found = _of_documents(pairs, model, Languages(from_ or "", to or ""), console) if pairs else []
    if src and tgt:
        found += _of_text(src, tgt, on_bad_utf8, console)
    old = None
    if old_src:
        sources, targets = _old_text(old_src, old_tgt, on_bad_utf8, console)
        held_out = _of_text(old_test_src, old_test_tgt, on_bad_utf8, console) if old_test_src and old_test_tgt else []
        old = OldText(sources, targets, held_out)
    training = TrainOptions(overrides=overrides or [], device=device, processes=processes, threads=threads)
    options = AdaptOptions(model, out, guard, from_, to, training)
    with ended_by_signals():
        made = run_adapt(options, found, old, console)
    _show(made, guard, console)
    if as_json:
        print_line(json.dumps(asdict(made), default=str, indent=2))


def _show(made: Adapted, guard: float, console: Console) -> None:
    """Shows the scores before and after, and says which model is kept and why."""
    console.info(", ".join(f"{name} {count:,}" for name, count in made.counts.items()))
    rows = [(kind, f"{before:.1f}", f"{after:.1f}") for kind, (before, after) in made.scores.items()]
    name = {"bleu": "BLEU", "chrf": "chrF"}[made.metric]
    console.table(f"{name} of the test pairs", rows, header=("", "before", "after"))
    if "old" not in made.scores:
        console.warn(
            "what the model forgets was not measured; give pairs of its old text with --old-test-src and --old-test-tgt"
        )
    (new, gained), (old_score, left) = made.scores["new"], made.scores.get("old", (0.0, 0.0))
    needed = math.ceil(10 * (old_score - left)) / 10
    refused = made.kept == "given" and gained > new and needed > guard
    advice = f"; to take the mean, repeat the command with --guard {needed}" if refused else ""
    console.info(f"{made.file}: {KEPT[made.kept]}{advice}")


def _of_documents(files: list[Path], model: Path, wanted: Languages, console: Console) -> Pairs:
    """Returns the pairs of documents, in the languages of the model as far as it records them, and otherwise in those
    that are `wanted`."""
    check_packages("`pairs`")
    from vtrans.apps.documents.pairs import PairCollector
    from vtrans.storage.model_file import read_blueprint
    from vtrans.storage.run_folder import choose_model

    known = read_blueprint(choose_model(model).file).languages
    named = [pair for pair in known if wanted.src in ("", pair.src) and wanted.tgt in ("", pair.tgt)]
    found: Pairs = []
    for file in files:
        collector = PairCollector(named[0] if len(named) == 1 else wanted)
        take(file, collector)
        console.info(f"{file}: {collector}")
        found += collector.pairs
    return found


def _old_text(
    src: Path, tgt: Path | None, how: OnBadUtf8, console: Console
) -> tuple[Sequence[str], Sequence[str] | None]:
    """Returns the old sources, and their translations if there are any. Raises InputError without a source."""
    read = _of_text(src, tgt, how, console) if tgt else [(source, "") for source in read_all(src, how, console)]
    if not any(source.strip() for source, _ in read):
        raise InputError(f"`old_src` must have text, but {src} has none.")
    sources, targets = zip(*read, strict=True)
    return sources, targets if tgt else None


def _of_text(src: Path, tgt: Path, how: OnBadUtf8, console: Console) -> Pairs:
    """Returns the pairs of two files. Raises InputError if they have different numbers of lines."""
    return list(zip(*read_both(src, tgt, "translation", how, console), strict=True))
