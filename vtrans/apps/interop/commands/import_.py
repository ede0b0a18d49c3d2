"""`vtrans import`: a model of another program as a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import Models, generated, option
from vtrans.commands.lines import print_json, read_all
from vtrans.commands.shared_options import BadUtf8, Json, Quiet, check_output
from vtrans.system.console import Console
from vtrans.system.errors import InputError

MODEL = (
    "Hugging Face folder of Marian (such as OPUS-MT), M2M100 or NLLB, CTranslate2 folder, or Marian model (the .npz "
    "file or its folder)."
)
FROM = "Language that a model of M2M100 or NLLB translates from, such as en or eng_Latn."
SAMPLES = "Text in the source language to compare both programs on.  [default: sentences of vtrans]"
TRIM = "A smaller vocabulary"
KEEP = (
    "Text of your own, in both languages. Only the subwords that it needs stay, and the characters of its languages. "
    "The model may also be a model file of vtrans. May be repeated."
)
FREQUENT_PIECES = 4000
FREQUENT = f"Most frequent subwords, in the scripts of the text, that stay in any case.  [default: {FREQUENT_PIECES}]"
SRC_SPM = "SentencePiece model of the source, for a CTranslate2 folder without one."


@generated
def import_(
    model: Annotated[Path, Models(MODEL, default="")],
    from_: Annotated[str | None, option(FROM, "CODE", flag="--from")] = None,
    to: Annotated[str | None, option("Language that it translates into, likewise.", "CODE")] = None,
    out: Annotated[Path, option("Model file to write.", "FILE")] = Path("model.safetensors"),
    sample_file: Annotated[Path | None, option(SAMPLES, "FILE")] = None,
    src_spm: Annotated[Path | None, option(SRC_SPM, "FILE")] = None,
    tgt_spm: Annotated[Path | None, option("SentencePiece model of the target, likewise.", "FILE")] = None,
    keep_text: Annotated[list[Path] | None, option(KEEP, "FILE", TRIM)] = None,
    keep_frequent: Annotated[int | None, option(FREQUENT, "N", TRIM, min=0)] = None,
    on_bad_utf8: BadUtf8 = "error",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Import a model of another program.

    The model file can be translated with, trained further, averaged and exported like one from `vtrans train`. If the
    other program is installed, both translate and score sample sentences, each with its own defaults, and the file is
    written only if they agree.
    """
    if keep_frequent is not None and not keep_text:
        raise InputError("`keep_frequent` needs `keep_text`, whose subwords stay as well.")
    texts = ("--sample-file", sample_file), *(("--keep-text", file) for file in keep_text or ())
    check_output(out, [("--src-spm", src_spm), ("--tgt-spm", tgt_spm), *texts])
    console = Console(quiet=quiet)
    samples = read_all(sample_file, on_bad_utf8, console) if sample_file else None
    kept = [line for file in keep_text or () for line in read_all(file, on_bad_utf8, console)]
    from vtrans.apps.interop.formats import import_model
    from vtrans.apps.interop.trimming import Keep
    from vtrans.storage.run_folder import shipped_models

    given = {"from": from_, "to": to, "src_spm": src_spm, "tgt_spm": tgt_spm}
    if not model.exists():
        model = shipped_models().get(str(model), model)
    keep = Keep(kept, FREQUENT_PIECES if keep_frequent is None else keep_frequent) if keep_text else None
    options = {name: value for name, value in given.items() if value is not None}
    comparison = import_model(model, out, console, samples, options, keep)
    if as_json:
        print_json(comparison.as_dict() if comparison else None)
