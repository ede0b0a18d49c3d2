"""`vtrans shortlist`: learns likely translations of subwords, and writes them into a model file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import Models, generated, option
from vtrans.commands.shared_options import Quiet
from vtrans.config import DEFAULT_FREQUENT, DEFAULT_TRANSLATIONS
from vtrans.data.options import PrepareOptions
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.files import destination

DATA = "Data folder that the model was trained on."
OUT = "File to write.  [default: the same file, or the average of a run]"
TRANSLATIONS = "Number of target subwords listed per source subword."
FREQUENT = "Number of frequent target subwords listed for every sentence."


@generated
def shortlist(
    model: Annotated[Path, Models()],
    data: Annotated[Path, option(DATA, "FOLDER")] = Path(PrepareOptions.out),
    out: Annotated[Path | None, option(OUT, "FILE")] = None,
    translations: Annotated[int, option(TRANSLATIONS, "N", min=1)] = DEFAULT_TRANSLATIONS,
    frequent: Annotated[int, option(FREQUENT, "N", min=0)] = DEFAULT_FREQUENT,
    quiet: Quiet = False,
) -> None:
    """Learn likely translations of subwords, for `vtrans translate --shortlist`.

    They are learned from the training pairs by IBM model 1 in both directions, and written into the model file; its
    weights stay as they are. Checkpoints cannot hold a shortlist, because training replaces them.
    """
    from vtrans.data.aligner import learn_shortlist
    from vtrans.data.store import DataFolder
    from vtrans.model.checkpoint import add_shortlist
    from vtrans.storage.model_file import read_blueprint
    from vtrans.storage.run_folder import choose_model, run_of

    console = Console(quiet=quiet)
    if out:
        destination(out, "model")  # before the work
    chosen = choose_model(model)
    file = chosen.file
    target = out or file
    run = run_of(target)
    if run and os.path.realpath(target) != str(run.averaged):
        raise InputError(
            f"{target} belongs to `vtrans train`, which may replace it; run `vtrans average` first, whose result can "
            "hold a shortlist, or choose another --out."
        )
    console.info(chosen.words)
    loaded, folder = read_blueprint(file), DataFolder.open(data)
    if (folder.src_vocab.digest, folder.tgt_vocab.digest) != (loaded.src_vocab.digest, loaded.tgt_vocab.digest):
        raise InputError(f"{data} has another vocabulary than {file}; give --data the folder that it was trained on.")
    sizes = len(folder.src_vocab), len(folder.tgt_vocab)
    tags = [id for tag in folder.tags.values() if (id := folder.src_vocab.id_of(tag)) is not None]
    with console.progress("learning from the training pairs", unit="links") as counter:
        learned = learn_shortlist(folder.train, *sizes, translations, frequent, counter.update, tags=tags)
    add_shortlist(file, learned, target)
    console.info(
        f"{target} now has a shortlist: {translations} translations per source subword and the "
        f"{len(learned.frequent):,} most frequent target subwords; `vtrans translate --shortlist` uses it"
    )
