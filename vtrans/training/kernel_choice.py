"""The kernels of a run: measured at its start, the same on all ranks, and the same again when the run resumes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from vtrans.errors import RecipeError
from vtrans.model import Transformer
from vtrans.runtime import kernels
from vtrans.runtime.kernels import KEYS, Kernels
from vtrans.runtime.measuring import measured_attention, measured_products
from vtrans.runtime.products import HAS_ONEDNN
from vtrans.training.job import Job


def choose_kernels(job: Job, model: Transformer, recorded: Mapping[str, Any] | None) -> None:
    """Makes the choice of kernels for training on a CPU: what the recipe fixes, else what the state of the run records,
    else what rank 0 measures. `recorded` is None for a new run.

    Raises RecipeError if the recipe asks for a library that this build of torch lacks.
    """
    if job.device.type != "cpu":
        return
    before = None if recorded is None else Kernels.from_record(recorded)
    chosen = _chosen(job, model, before) if job.leads else Kernels()
    record = json.loads(job.ranks.all_texts(json.dumps(chosen.record()))[0])
    kernels.use(Kernels.from_record(record))
    if before not in (None, kernels.current()):
        job.console.warn("resuming, but not bit-exactly: other kernels than in the run so far")


def _chosen(job: Job, model: Transformer, before: Kernels | None) -> Kernels:
    config = job.recipe.train
    if config.kernels == "onednn" and not HAS_ONEDNN:
        raise RecipeError("train.kernels must be auto or blas, got onednn, which this build of torch lacks.")
    if config.kernels != "auto":
        chosen = Kernels(config.kernels)
    elif before is not None and (HAS_ONEDNN or not before.uses_onednn):
        chosen = before
    else:
        library = Kernels.library if HAS_ONEDNN else "blas"
        chosen = Kernels(library, measured_products(model.product_weights(), training=True))
    if config.attention != "auto":
        bmm = frozenset(range(len(KEYS)) if config.attention == "bmm" else ())
    else:
        bmm = measured_attention(model.config.heads, model.config.d_model) if before is None else before.bmm
    return dataclasses.replace(chosen, bmm=bmm)
