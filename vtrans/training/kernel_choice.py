"""The kernels and the precision of a run on a CPU: measured at its start, the same on all ranks, and the same again
when the run resumes."""

from __future__ import annotations

import dataclasses
import json
from functools import partial

import torch

from vtrans.config import PRECISIONS, Recipe
from vtrans.data.batches import collate
from vtrans.data.vocabulary import EOS_ID
from vtrans.errors import RecipeError
from vtrans.model import Transformer
from vtrans.runtime import kernels
from vtrans.runtime.kernels import KEYS, Kernels, fastest
from vtrans.runtime.measuring import measured_attention, measured_products
from vtrans.runtime.products import HAS_ONEDNN, has_bfloat16
from vtrans.training.job import Job
from vtrans.training.loss import Objective, products
from vtrans.training.progress import Progress

# bfloat16 has to be faster by this factor, so that noise does not choose it. Its models are as good: on val, three
# trainings of multi30k-10min reached BLEU 36.6 to 37.0 in bfloat16, and two in float32 36.3 and 36.9.
GAIN = 1.1
# The batch that measures it: subwords per sentence, sentences, and the floating-point operations that it should take.
# With those, measuring takes about a second on two cores.
LENGTH, SENTENCES, OPERATIONS = 16, (8, 32), 2e10


def choose_kernels(job: Job, model: Transformer, saved: Progress | None) -> None:
    """Makes the choice of kernels for training on a CPU: what the recipe fixes, else what the state of the run records,
    else what rank 0 measures. `saved` is None for a new run.

    Raises RecipeError if the recipe asks for a library that this build of torch lacks.
    """
    if job.device.type != "cpu":
        return
    before = None if saved is None or not _on_cpu(saved) else Kernels.from_record(saved.kernels)
    chosen = _chosen(job, model, before) if job.leads else Kernels()
    record = json.loads(job.ranks.all_texts(json.dumps(chosen.record()))[0])
    kernels.use(Kernels.from_record(record))
    if before not in (None, kernels.current()):
        job.console.warn("resuming, but not bit-exactly: other kernels than in the run so far")


def _on_cpu(saved: Progress) -> bool:
    return bool(saved.environment.get("device") == "cpu")


def with_precision(job: Job, model: Transformer, saved: Progress | None) -> Job:
    """Returns the job with the precision that `auto` stands for on a CPU: that of the run so far, else bfloat16 if rank
    0 measures that it is faster by GAIN."""
    recipe = job.recipe
    if recipe.train.precision != "auto":
        return job
    if saved is not None and _on_cpu(saved):
        precision = saved.recipe["train"]["precision"]
    else:
        own = fastest_precision(recipe, model) if job.leads else ""
        precision = job.ranks.all_texts(own)[0]
    train = dataclasses.replace(recipe.train, precision=precision)
    return dataclasses.replace(job, recipe=dataclasses.replace(recipe, train=train))


def fastest_precision(recipe: Recipe, model: Transformer) -> str:
    """Returns the precision in which this CPU computes a gradient of the model faster, with the kernels in use."""
    if not has_bfloat16():
        return PRECISIONS[0]
    objective = Objective(model.train(), recipe.train.label_smoothing)
    least, most = SENTENCES
    sentence_operations = 6 * LENGTH * sum(weight.numel() for weight in model.product_weights())
    B = max(least, min(most, int(OPERATIONS / sentence_operations)))
    ids = torch.full((min(LENGTH, model.max_length or LENGTH) - 1,), EOS_ID)
    batch = collate([ids] * B, [ids] * B)

    def gradient(precision: str) -> None:
        with products(model.device, precision):
            loss, _ = objective(batch)
        loss.backward()
        model.zero_grad(set_to_none=True)

    return PRECISIONS[fastest([partial(gradient, precision) for precision in PRECISIONS], margin=GAIN)]


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
