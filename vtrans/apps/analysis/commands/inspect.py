"""`vtrans inspect`: the parts of a model, or the embeddings nearest to a word or to the steps of a translation."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import Models, generated, option
from vtrans.commands.lines import print_json, print_line, result_console, terminal_width
from vtrans.commands.shared_options import Code, Json, To
from vtrans.config import NEAREST, NEAREST_OF_STEP
from vtrans.system.errors import FileError, InputError
from vtrans.text.lines import one_line

REPORT, NEAR = "The report", "Nearest embeddings, instead of the report"
DATA = "Data folder that the model was trained on; adds its vocabulary overlap to the report."
SENTENCE = "Translate a sentence and show the embeddings nearest to the decoder's output at each step."
COUNT = f"Number of nearest embeddings.  [default: {NEAREST} with --word, {NEAREST_OF_STEP} with --sentence]"
VERIFY = "Only compare the file, or each model file and training state of the run folder, with its checksums."


@generated
def inspect(
    model: Annotated[Path, Models()],
    data: Annotated[Path | None, option(DATA, "FOLDER", REPORT)] = None,
    full: Annotated[
        bool, option("List every layer and the matrices of every head separately.", panel=REPORT, flag="--full")
    ] = False,
    word: Annotated[str | None, option("Show the embeddings nearest to each subword of a word.", "WORD", NEAR)] = None,
    sentence: Annotated[str | None, option(SENTENCE, "TEXT", NEAR)] = None,
    to: To = None,
    nearest: Annotated[int | None, option(COUNT, "N", NEAR, min=1)] = None,
    verify: Annotated[bool, option(VERIFY, panel="Damage", flag="--verify")] = False,
    code: Code = None,
    as_json: Json = False,
) -> None:
    """Show the parts of a model and which of them share weights.

    The report names the size of the file, the recipe and the training. It lists the parts of the model with their
    shapes and numbers of parameters, the parts that share weights, and how many parameters this saves.
    """
    if nearest and word is None and sentence is None:
        raise InputError("--nearest needs --word or --sentence.")
    if to is not None and sentence is None:
        raise InputError("--to needs --sentence.")
    if full and not (word is None and sentence is None):
        raise InputError("--full applies to the report, which --word and --sentence replace; leave it out.")
    if verify:
        if data or full or word is not None or sentence is not None:
            raise InputError("--verify only reads the files; leave out the other options except --json.")
        _verify(model, as_json=as_json)
        return
    from vtrans.apps.analysis.inspection import Inspection
    from vtrans.apps.analysis.neighbours import neighbours, show_neighbours, show_steps, steps
    from vtrans.engines.torch_engine import TorchEngine
    from vtrans.translate.translator import Translator

    inspection = Inspection.of(model, data, code)
    loaded = inspection.loaded
    near = neighbours(loaded, word, nearest or NEAREST) if word is not None else []
    translation = None
    if sentence is not None:
        translator = Translator(TorchEngine([loaded]))
        translation = steps(translator, one_line(sentence), nearest or NEAREST_OF_STEP, to=to)
    if as_json:
        result = inspection.as_dict()
        if word is not None:
            result["nearest"] = [dataclasses.asdict(each) for each in near]
        if translation:
            text, walk = translation
            result |= {"translation": text, "steps": [dataclasses.asdict(step) for step in walk]}
        print_json(result)
        return
    console = result_console()
    if word is None and sentence is None:
        inspection.show(console, full=full, width=terminal_width())
    show_neighbours(near, console)
    if translation:
        show_steps(*translation, console)


def _verify(model: Path, *, as_json: bool) -> None:
    """Prints whether each file is whole. Raises FileError if one is not."""
    from vtrans.apps.analysis.checksums import Check, checks

    results: list[Check] = []
    for check in checks(model):
        results.append(check)
        if not (as_json or check.problem):
            print_line(f"{check.file}: {check.tensors} tensors and the header match their CRC-32 checksums")
    if as_json:
        print_json([dataclasses.asdict(check) for check in results])
    if problems := [check.problem for check in results if check.problem]:
        share = f"{len(problems)} of {len(results)} files cannot be used: " if len(results) > 1 else ""
        raise FileError(f"{share}{'; '.join(problems)}.")
