"""`vtrans.load` chooses the engine for a path and returns a Translator."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vtrans.checkpoint import LoadedModel, load_model
from vtrans.compiled.compiler import CompilerError
from vtrans.compiled.decoder import compiled_decoder
from vtrans.compiled.weights import PRECISIONS
from vtrans.config import (
    DECODING_PRECISIONS,
    KERNELS,
    KERNELS_VARIABLE,
    EngineConfig,
    SearchConfig,
    section_from,
)
from vtrans.console import Console
from vtrans.engines.torch_engine import TorchEngine, normalized
from vtrans.errors import InputError
from vtrans.keys import check_value, idle_messages, keys_of
from vtrans.numerics.automatic import automatic_kernels
from vtrans.numerics.devices import pick_device
from vtrans.numerics.kernels import current, use
from vtrans.numerics.products import HAS_ONEDNN
from vtrans.storage.run_folder import choose_model
from vtrans.translate.translator import Translator


def load(
    path: str | Path | Sequence[str | Path],
    *,
    device: str | None = None,
    console: Console | None = None,
    weights: Sequence[float] | None = None,
    engine: str | None = None,
    shortlist: bool = False,
    precision: str | None = None,
    retry: bool = True,
    kernels: str | None = None,
    **search: Any,
) -> Translator:
    """Returns a Translator for a run folder, a model file, or a list of these (an ensemble).

    Further keyword arguments replace the search settings stored with the model, and are named as in `SearchConfig`:
    `vtrans.load("run", beam=8)`.

    `device` is cpu, cuda, cuda:N or mps; by default the fastest that is available. `weights` are those of an ensemble's
    average. `shortlist` uses the shortlist in the (first) model file. `retry` is that of `Translator`.
    `console` receives warnings, and says which checkpoint of a run and which code or kernels were chosen.

    `engine` runs the model:

    - "compiled", the decoder in C++, on a CPU in float32, bfloat16 or int8. It is the default where it is available.
      As many threads as torch has divide the sentences of a batch; a single sentence takes one. If vtrans was
      installed without it, the C++ compiler $CXX, else g++, compiles it once for all models; it is kept in
      $VTRANS_CACHE, else ~/.cache/vtrans.
    - "torch", on any device and in any precision. It is the default otherwise.

    `precision` is that of matrix products: float32, bfloat16, float16 or int8. float16 needs the engine torch, int8 a
    CPU. `kernels` is torch's library for float32 products on a CPU: onednn, blas, or auto, which chooses by the
    processor. Its default is the environment variable VTRANS_KERNELS, else auto. It holds for the whole process.

    Raises FileError for something that is not a model, and InputError for an invalid setting.
    """
    section_from(SearchConfig, "search", search, "load")  # before the models are read
    EngineConfig(engine=engine, device=device, shortlist=shortlist, precision=precision, kernels=kernels)
    library = kernels or os.environ.get(KERNELS_VARIABLE) or KERNELS[0]
    check_value(keys_of(EngineConfig)["kernels"], f"the environment variable {KERNELS_VARIABLE}", library)
    paths = [Path(path)] if isinstance(path, (str, Path)) else [Path(p) for p in path]
    normalized(weights, len(paths))
    on = pick_device(device)
    models = _models(paths, on, console)
    compiled = None
    if engine in (None, "compiled"):
        compiled = _compiled(engine is not None, precision, kernels, on, console)
    if compiled and console and kernels is None and library != KERNELS[0]:
        console.info(f"the engine is compiled, so {KERNELS_VARIABLE}={library} does not affect the search")
    rounding = precision or DECODING_PRECISIONS[0]
    made = TorchEngine(models, weights, shortlist=shortlist, precision=rounding, library=compiled)
    if on.type == "cpu":
        _choose_kernels(library, None if compiled else console)
    settings = section_from(SearchConfig, "search", search, "load", made.search)
    for name, message in idle_messages(settings, "search").items():
        if console and name in search:
            console.warn(message)
    return Translator(made, settings, console, retry=retry)


def _models(paths: Sequence[Path], device: torch.device, console: Console | None) -> list[LoadedModel]:
    """Returns the models on `device`, frozen."""
    models = []
    for path in paths:
        chosen = choose_model(path)
        models.append(load_model(chosen.file, device))
        models[-1].model.eval().requires_grad_(False)
        if console:
            console.info(f"{chosen.words}, on {device}")
    return models


def _compiled(
    required: bool, precision: str | None, kernels: str | None, device: torch.device, console: Console | None
) -> ctypes.CDLL | None:
    """Returns the compiled code of the decoder, or None if torch must run the model. Raises InputError for this if the
    user requires compiled code."""
    reasons = {
        f"`precision` must be one of {', '.join(PRECISIONS)} for the engine compiled, got {precision}": (
            precision not in (None, *PRECISIONS)
        ),
        f"`device` must be cpu for the engine compiled, got {device}": device.type != "cpu",
        f"`kernels` must be {KERNELS[0]} for the engine compiled, got {kernels}": kernels not in (None, KERNELS[0]),
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), None):
        if required:
            raise InputError(f"{reason}; leave it out, or choose `engine` torch.")
        return None
    try:
        return compiled_decoder(console)
    except CompilerError as error:
        if required:
            raise InputError(f"the `engine` compiled cannot be used: {error}.") from None
        if console:
            console.info(f"engine: torch. The faster engine compiled cannot be used: {error}.")
        return None


def _choose_kernels(kernels: str, console: Console | None) -> None:
    """Makes the choice of kernels for float32 products on a CPU."""
    if kernels == "onednn" and not HAS_ONEDNN:
        raise InputError("`kernels` must be auto or blas, got onednn, which this build of torch lacks.")
    if kernels == "auto":
        automatic = automatic_kernels()
        chosen = dataclasses.replace(current(), library=automatic.library, packed=automatic.packed)
    else:
        chosen = dataclasses.replace(current(), library=kernels, packed="")
    use(chosen)
    if console:
        console.info(f"kernels: {chosen.products_text}")
