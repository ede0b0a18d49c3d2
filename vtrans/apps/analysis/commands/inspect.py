"""`vtrans inspect`: the parts of a model, or the embeddings nearest to a word or to the steps of a translation."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import Models, generated, option
from vtrans.commands.lines import print_json, result_console
from vtrans.commands.shared_options import Code, Json, To
from vtrans.config import NEAREST, NEAREST_OF_STEP
from vtrans.system.errors import InputError
from vtrans.text.lines import one_line

REPORT, NEAR = "The report", "Nearest embeddings, instead of the report"
SENTENCE = "Translate a sentence and show the embeddings nearest to the decoder's output at each step."
COUNT = f"Number of nearest embeddings.  [default: {NEAREST} with --word, {NEAREST_OF_STEP} with --sentence]"


@generated
def inspect(
    model: Annotated[Path, Models()],
    full: Annotated[bool, option("List every layer separately.", panel=REPORT, flag="--full")] = False,
    word: Annotated[str | None, option("Show the embeddings nearest to each subword of a word.", "WORD", NEAR)] = None,
    sentence: Annotated[str | None, option(SENTENCE, "TEXT", NEAR)] = None,
    to: To = None,
    nearest: Annotated[int | None, option(COUNT, "N", NEAR, min=1)] = None,
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
    from vtrans.apps.analysis.inspection import Inspection
    from vtrans.apps.analysis.neighbours import neighbours, show_neighbours, show_steps, steps
    from vtrans.engines.torch_engine import TorchEngine
    from vtrans.translate.translator import Translator

    inspection = Inspection.of(model, code)
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
        inspection.show(console, full=full)
    show_neighbours(near, console)
    if translation:
        show_steps(*translation, console)
