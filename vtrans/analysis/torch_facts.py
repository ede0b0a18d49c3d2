"""What torch finds on this machine, as JSON on stdout: `python -m vtrans.analysis.torch_facts`.

`machine.py` runs it as a process of its own, so that a torch that crashes or hangs takes nothing else with it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys

import torch

from vtrans.analysis.machine import Torch
from vtrans.config import KERNELS_VARIABLE, Recipe
from vtrans.data.options import DEFAULT_VOCAB_SIZE
from vtrans.data.vocabulary import PAD_ID
from vtrans.model import Transformer
from vtrans.runtime import kernels
from vtrans.runtime.devices import pick_device
from vtrans.runtime.kernels import LIBRARIES, Kernels
from vtrans.runtime.measuring import measured_attention, measured_products
from vtrans.runtime.products import HAS_ONEDNN, has_bfloat16
from vtrans.training.kernel_choice import fastest_precision
from vtrans.training.recipe import settled


def facts() -> Torch:
    """Returns what torch finds. On a CPU, it measures the kernels and the precision for the default recipe."""
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else ""
    build = build or (f"ROCm {torch.version.hip}" if torch.version.hip else "CPU")
    device = pick_device(None)
    recipe = settled(Recipe(), device, joint=True)
    precision, training, translating = recipe.train.precision, "", ""
    if device.type == "cpu":
        precision, training, translating = _measured(recipe)
    return Torch(
        version=torch.__version__,
        build=build,
        devices=[*_gpus(), "cpu"],
        device=str(device),
        threads=torch.get_num_threads(),
        instructions=torch.backends.cpu.get_cpu_capability(),
        onednn=HAS_ONEDNN,
        mkl=torch.backends.mkl.is_available(),  # type: ignore[no-untyped-call]  # of torch
        bfloat16=has_bfloat16(),
        precision=precision,
        training=training,
        translating=translating,
    )


def _gpus() -> list[str]:
    found = []
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            found.append(f"cuda:{number} ({properties.name}, {properties.total_memory / 1e9:.0f} GB)")
    return [*found, *(["mps"] if torch.backends.mps.is_available() else [])]


def _measured(recipe: Recipe) -> tuple[str, str, str]:
    """Returns the precision and the kernels of a training, and the kernels of a translation, as `auto` chooses them for
    a model of the recipe."""
    assert DEFAULT_VOCAB_SIZE
    model = Transformer(recipe.model, DEFAULT_VOCAB_SIZE, DEFAULT_VOCAB_SIZE, joint=True, pad_id=PAD_ID)
    library = Kernels.library if HAS_ONEDNN else "blas"
    bmm = measured_attention(recipe.model.heads, recipe.model.d_model)
    training = Kernels(library, measured_products(model.product_weights(), training=True), bmm)
    kernels.use(training)
    precision = fastest_precision(recipe, model)
    wanted = os.environ.get(KERNELS_VARIABLE)
    if wanted in LIBRARIES:
        translating = Kernels(wanted)
    else:
        translating = Kernels(library, measured_products(model.product_weights(), training=False))
    return precision, str(training), translating.products_text


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dataclasses.asdict(facts())))
