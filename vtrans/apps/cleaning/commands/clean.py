"""`vtrans clean`: the options of a CleanOptions, and two models that score pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vtrans.apps.cleaning.clean_options import CleanOptions
from vtrans.commands.generated import generated, option
from vtrans.commands.lines import print_json
from vtrans.commands.shared_options import Json, Quiet
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.languages import Languages, base

if TYPE_CHECKING:
    from vtrans.apps.cleaning.clean import Scorer
    from vtrans.data.preparation.encode import TextPair

FORWARD = (
    "Model from the source to the target language. With `backward_model`, drop pairs that both models find unlikely, "
    "or about which they disagree (dual conditional cross-entropy, Junczys-Dowmunt 2018)."
)
BACKWARD = "Model from the target to the source language."


@generated
def clean(
    *,
    options: CleanOptions,
    forward_model: Annotated[Path | None, option(FORWARD, "PATH", "Rules")] = None,
    backward_model: Annotated[Path | None, option(BACKWARD, "PATH", "Rules")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Drop the bad pairs of a parallel text.

    The kept pairs are written to a folder, in order and under the names of the input files, for `vtrans prepare-bpe`.
    The dropped ones go to dropped.tsv, each with its line number and the reason; clean.json has counts and examples.
    """
    if (forward_model is None) != (backward_model is None):
        raise InputError("`forward_model` and `backward_model` must be given together; give both or neither.")
    from vtrans.apps.cleaning.clean import clean as clean_text

    console, scorer = Console(quiet=quiet), None
    if forward_model and backward_model:
        scorer = scorer_of(forward_model, backward_model, options.checked().languages(), console)
    report = clean_text(options, console, scorer)
    if as_json:
        print_json(report)


def scorer_of(forward: Path, backward: Path, languages: Languages | None, console: Console) -> Scorer:
    """Returns a function that scores pairs: the difference of the two cross-entropies per subword, plus their mean.

    Raises InputError if a model was trained on other languages or in the opposite direction.
    """
    from vtrans.translate.loading import load

    models = [load(path, console=console) for path in (forward, backward)]
    src, tgt = languages or ("", "")
    into = []  # the target language of each model, if it has several
    for name, model, wanted in zip(("forward", "backward"), models, ((src, tgt), (tgt, src)), strict=True):
        known = model.engine.languages
        if languages and known and tuple(map(base, wanted)) not in [tuple(map(base, pair)) for pair in known]:
            pairs = ", ".join(map(" to ".join, known))
            raise InputError(f"`{name}_model` must translate {' to '.join(wanted)}, but it translates {pairs}.")
        codes = [code for code in model.engine.tags if base(code) == base(wanted[1])]
        if len(model.engine.tags) > 1 and not codes:
            raise InputError(f"`{name}_model` has several languages; name the text's with `src_lang` and `tgt_lang`.")
        into.append(codes[0] if codes else None)

    def scores(pairs: Sequence[TextPair]) -> list[float]:
        sides = [[pair[side] for pair in pairs] for side in (0, 1)]
        entropies = []
        for model, to, (src, tgt) in zip(models, into, (sides, sides[::-1]), strict=True):
            translations = model.logprob(src, tgt, to=to)
            entropies.append([-t.logprob / max(1, len(t.tokens)) for t in translations])
        return [abs(f - b) + (f + b) / 2 if math.isfinite(f + b) else math.nan for f, b in zip(*entropies, strict=True)]

    return scores
