"""`vtrans export`: a model as a folder for another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import Models, generated, option
from vtrans.commands.lines import print_json, read_all
from vtrans.commands.shared_options import BadUtf8, Json, Quiet
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.files import destination

TO = "Format to write: ctranslate2, huggingface, bergamot or web."
QUANTIZATION = "Type of the weights for CTranslate2: float32, float16 or int8.  [default: float32]"
SAMPLES = (
    "Text to compare the export with the model on, and to tune the quantization for Bergamot with.  [default: "
    "sentences of vtrans]"
)
ENGINE = (
    "Folder of the npm package @browsermt/bergamot-translator: the engine that an export to Bergamot is compared with, "
    "and that the page of --to web runs."
)


@generated
def export(
    model: Annotated[Path, Models()],
    to: Annotated[str, option(TO, "FORMAT")] = "ctranslate2",
    out: Annotated[Path | None, option("Folder to write.  [default: RUN/FORMAT]", "FOLDER")] = None,
    quantization: Annotated[str | None, option(QUANTIZATION, "TYPE")] = None,
    sample_file: Annotated[Path | None, option(SAMPLES, "FILE")] = None,
    engine: Annotated[Path | None, option(ENGINE, "FOLDER")] = None,
    on_bad_utf8: BadUtf8 = "error",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Export a model for another program, or as a page that translates in a browser.

    A folder for CTranslate2 or Bergamot runs in that program, one for Hugging Face loads in transformers, and
    one for the web is a static page with Bergamot. If the other program is there, both translate sample sentences, and
    the folder is written only if they agree.
    """
    console = Console(quiet=quiet)
    from vtrans.apps.interop.capabilities import OPTIONS, PROGRAMS, check_model

    if to not in PROGRAMS:
        raise InputError(f"--to must be one of {', '.join(PROGRAMS)}, got {to!r}.")
    given = {"quantization": quantization, "engine": engine}
    options = {name: value for name, value in given.items() if value is not None}
    if others := options.keys() - OPTIONS[PROGRAMS[to]]:
        raise InputError(f"`{min(others)}` must be left out of an export to {to}, which does not take it.")
    samples = read_all(sample_file, on_bad_utf8, console) if sample_file else None
    from vtrans.apps.interop.formats import export_model
    from vtrans.model.checkpoint import load_model
    from vtrans.storage.model_file import read_blueprint
    from vtrans.storage.run_folder import choose_model

    chosen = choose_model(model)
    if out is None:
        if not model.is_dir():
            raise InputError(f"--out is needed to export the file {model}; name the folder to write.")
        out = model / to
    destination(out, "folder")
    console.info(chosen.words)
    check_model(read_blueprint(chosen.file).model.config, PROGRAMS[to])  # before code of the user's would be needed
    loaded = load_model(chosen.file)
    comparison = export_model(loaded, to, out, console, samples, **options)
    if as_json:
        print_json(comparison.as_dict() if comparison else None)
