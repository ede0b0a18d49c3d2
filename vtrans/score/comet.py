"""COMET, a learned metric (Rei et al. 2020; 2022), computed by the optional package unbabel-comet with a model on disk.

A model is a folder with `hparams.yaml` and `checkpoints/model.ckpt`, as its authors publish it. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vtrans.score.metrics import Score, check_counts
from vtrans.system.errors import FileError, InputError, need_packages

PACKAGE = "unbabel-comet"
BATCH = 16  # lines, the default of the package
WORKERS = 0  # processes that prepare batches; more would fork a process in which torch has been used


def comet_score(
    model: Path, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> Score:
    """Returns the mean score of all lines, usually from 0 to 1; higher is better.

    A model that estimates quality without references ignores them (`nrefs:0`); any other needs exactly one. Raises
    InputError for unequal line counts, a wrong number of references, or if the package is not installed; FileError if
    the model, or the tokenizer that it names, is not on disk.
    """
    check_counts(
        hypotheses, [*references, sources], "the hypothesis", [*["a reference"] * len(references), "the source"]
    )
    checkpoint = _checkpoint(model)
    need_packages(f"`comet` needs the package {PACKAGE}, which is not installed", "comet", "comet")
    import torch
    from comet import __version__, load_from_checkpoint

    try:
        scorer = load_from_checkpoint(str(checkpoint), local_files_only=True)
    except OSError as error:  # from Transformers' tokenizer
        reason = " ".join(str(error).split())
        raise FileError(f"{checkpoint} cannot be loaded: {reason}") from None
    needed = int(scorer.requires_references())
    if needed and len(references) != 1:
        raise InputError(f"`comet` needs one reference with this model, got {len(references)}.")
    columns = {"src": sources, "mt": hypotheses} | ({"ref": references[0]} if needed else {})
    samples = [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]
    prediction = scorer.predict(
        samples, batch_size=BATCH, gpus=int(torch.cuda.is_available()), num_workers=WORKERS, progress_bar=False
    )
    value, signature = (
        float(prediction.system_score),
        f"model:{checkpoint.parents[1].name}|nrefs:{needed}|version:{__version__}",
    )
    return Score("COMET", value, signature, f"COMET|{signature} = {value:.4f}")


def _checkpoint(model: Path) -> Path:
    """Returns the checkpoint in a model's folder, or the given checkpoint. Raises FileError if a file is missing."""
    path = (model / "checkpoints" / "model.ckpt" if model.is_dir() else model).resolve()
    settings = path.parent.parent / "hparams.yaml"
    for file in (path, settings):
        if not file.is_file():
            raise FileError(
                f"{model} must be the folder of a COMET model, with hparams.yaml and checkpoints/model.ckpt, but there "
                f"is no file {file}."
            )
    return path
