"""`vtrans.load`: chooses the engine for a model and returns a Translator."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vtrans.config import DECODING_PRECISIONS, EngineConfig, SearchConfig, section_from
from vtrans.config.keys import idle_messages
from vtrans.config.threads import threads
from vtrans.engines.compiled.compiler import CompilerError
from vtrans.engines.compiled.decoder import compiled_decoder
from vtrans.engines.compiled.definitions import check_definitions
from vtrans.engines.compiled.weights import PRECISIONS
from vtrans.engines.compiled_engine import CompiledEngine
from vtrans.engines.engine import Engine, normalized
from vtrans.storage.model_file import needs_code, read_weights
from vtrans.storage.run_folder import ChosenModel, choose_model
from vtrans.system.console import Console
from vtrans.system.devices import on_cpu, pick_device
from vtrans.system.errors import InputError
from vtrans.translate.translator import Translator
from vtrans.translate.wording.glossary import Beside


def load(
    path: str | Path | Sequence[str | Path],
    *,
    device: str | None = None,
    console: Console | None = None,
    weights: Sequence[float] | None = None,
    engine: str | None = None,
    shortlist: bool = False,
    precision: str | None = None,
    code: str | Path | None = None,
    rules: Sequence[str | type[Any]] = (),
    steps: Sequence[str | type[Any]] = (),
    retry: bool = True,
    **search: Any,
) -> Translator:
    """Returns a Translator for a run folder, a model file, or a list of these (an ensemble).

    Further keyword arguments are fields of `SearchConfig`, and override the search settings stored with the model:
    `vtrans.load("run", beam=8)`.

    `device` is cpu, cuda, cuda:N or mps; by default the fastest available. `weights` are the weights of the models in
    an ensemble. `shortlist` uses the shortlist in the (first) model file. See `Translator` for `retry`. `console`
    receives warnings, and the choice of checkpoint and code.

    `engine` runs the model:

    - "compiled" is the decoder in C++, on a CPU in float32, bfloat16 or int8. It is the default where available. The
      threads of this process divide the sentences of a batch; a single sentence uses one thread. If vtrans was
      installed without compiled code, the C++ compiler ($CXX or else g++) compiles it once for all models into
      $VTRANS_CACHE or else ~/.cache/vtrans. Compiled code is not used if files of the network or the search have
      changed.
    - "torch" runs on any device and in any precision. It is the default otherwise, and needs the package torch.

    `precision` is the precision of matrix products: float32, bfloat16, float16 or int8. float16 needs the torch engine,
    int8 the compiled engine.

    `code` is the Python file that defines a user-defined network (`model.network` in the recipe). Such a model needs
    it. The file is executed, and the torch engine runs the model.

    `rules` and `steps` are user-defined classes, or names of them such as "mine.py:NotAfter": rules of the search, and
    steps that each line passes first. Their files are executed.

    `glossary.tsv` and `spellings.tsv` next to the (first) model file are used.

    Raises FileError if a path is not a model, and InputError for an invalid setting.
    """
    section_from(SearchConfig, "search", search, "load")  # fail before reading the models
    code = None if code is None else Path(code)
    EngineConfig(engine=engine, device=device, shortlist=shortlist, precision=precision, code=code)
    paths = [Path(path)] if isinstance(path, (str, Path)) else [Path(p) for p in path]
    normalized(weights, len(paths))
    on = "cpu" if on_cpu(device) else str(pick_device(device))  # imports torch only if there may be a GPU
    chosen = [choose_model(p) for p in paths]
    rounding = precision or DECODING_PRECISIONS[0]
    made: Engine
    if library := _compiled(engine, precision, on, code, console):
        models = [read_weights(model.file) for model in chosen]
        for choice, read in zip(chosen, models, strict=True):
            if read.model.config.is_own:
                raise needs_code(choice.file, read.model.config)
        made = CompiledEngine(models, library, weights, shortlist=shortlist, precision=rounding)
    else:
        made = _torch_engine(chosen, on, weights, shortlist, rounding, code)
    for model in chosen:
        if console:
            console.info(f"{model.words}, on {on}")
    settings = section_from(SearchConfig, "search", search, "load", made.settings)
    for name, message in idle_messages(settings, "search").items():
        if console and name in search:
            console.warn(message)
    return Translator(made, settings, console, retry=retry, beside=Beside.of(chosen[0].file), rules=rules, steps=steps)


def _compiled(
    engine: str | None, precision: str | None, device: str, code: Path | None, console: Console | None
) -> ctypes.CDLL | None:
    """Returns the compiled decoder, or None if torch must run the model. Raises InputError if compiled code cannot be
    used, and the user requires it or lacks torch."""
    unfit = ""
    if precision not in (None, *PRECISIONS):
        unfit = f"`precision` must be one of {', '.join(PRECISIONS)} for the compiled engine, got {precision}"
    elif device != "cpu":
        unfit = f"`device` must be cpu for the compiled engine, got {device}"
    elif code is not None:
        unfit = f"`code` needs the torch engine, got {code} for the compiled engine"
    if unfit and engine == "compiled":
        raise InputError(f"{unfit}; leave it out, or choose `engine` torch.")
    if unfit or engine == "torch":
        return None
    try:
        check_definitions("engines", "model", "search")
        return compiled_decoder(console)
    except CompilerError as error:
        if engine or find_spec("torch") is None:
            otherwise = "the torch engine does the same, and needs the package torch"
            raise InputError(f"`engine` compiled cannot be used: {error}; {otherwise}.") from None
        if console:
            console.info(f"engine: torch. The faster compiled engine cannot be used: {error}.")
        return None


def _torch_engine(
    chosen: Sequence[ChosenModel],
    device: str,
    weights: Sequence[float] | None,
    shortlist: bool,
    precision: str,
    code: Path | None,
) -> Engine:
    wanted = threads()
    import torch

    torch.set_num_threads(wanted)
    from vtrans.engines.torch_engine import TorchEngine
    from vtrans.model.automatic import use_automatic_library
    from vtrans.model.checkpoint import load_model

    if device == "cpu":
        use_automatic_library()
    models = [load_model(model.file, device, code) for model in chosen]
    if code and not any(loaded.model.config.is_own for loaded in models):
        raise InputError(f"{chosen[0].file} needs no code; leave out `code`, got {code}.")
    for loaded in models:
        loaded.model.requires_grad_(False)
    return TorchEngine(models, weights, shortlist=shortlist, precision=precision)
