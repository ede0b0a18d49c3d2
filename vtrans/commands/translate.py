"""`vtrans translate`: its options, and which of them exclude each other."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from vtrans.commands import applications
from vtrans.commands.generated import Given, argument, generated, option
from vtrans.commands.lines import many
from vtrans.commands.shared_options import GLOSSARY, SEARCH_PANEL, STORED, Ensemble, Processes, Quiet, Threads, To
from vtrans.commands.texts import Text, translate_text
from vtrans.config import DEFAULT_RUN, MBR_BEAM, RETRY_NGRAM, EngineConfig, SearchConfig
from vtrans.config.keys import choice, flag, keys_of, number, output_affecting, path, texts
from vtrans.search.options import Mbr, Sampling
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.own_code import own_digests
from vtrans.text.languages import common

if TYPE_CHECKING:
    from vtrans.translate.translation import Form, TranslateOptions
    from vtrans.translate.translator import Translator
    from vtrans.translate.wording.protection import Protection


@dataclass(frozen=True)
class Reading:
    """How lines are read, what the translations of terms and of protected text are, and which are left out."""

    PANEL: ClassVar[str] = "Terms and memory"

    glossary: Path | None = path(None, GLOSSARY)
    protect: bool = flag(
        False,
        "Copy URLs, e-mail addresses, tags and placeholders ({name}, %s) unchanged. Models that have learned it "
        "(`vtrans inspect` says so) do it anyway.",
    )
    no_protect: bool = flag(False, "Do not protect them, even if the model has learned it.", advanced=True)
    protect_patterns: tuple[str, ...] = texts(
        "Also protect what matches this regular expression of Python. May be repeated.",
        flag="--protect-pattern",
        metavar="REGEX",
        advanced=True,
    )

    formality: str | None = choice(
        None,
        {"more": "as with German Sie", "less": "as with du"},
        "Form of address, if the model has learned it (`vtrans inspect` says so).",
        panel="Text",
        advanced=True,
    )
    check_numbers: bool = flag(
        True,
        "Search again for a line whose translation lacks, invents or repeats a number, with its numbers as "
        "constraints.",
        panel="Text",
        advanced=True,
    )
    raw: bool = flag(
        False,
        "Give the model each line unchanged. By default, a line in capitals is translated as a sentence and "
        "capitalised again, characters that the vocabulary lacks, such as emoji, are copied, URLs and "
        "placeholders are copied if the model has learned it, and numbers are checked.",
        panel="Text",
    )
    min_confidence: float = number(
        0.0,
        (0.0, 1.0),
        "Leave a line blank, and an entry of a document without a translation, if its translation is less likely to be "
        "right. It needs what `vtrans calibrate` writes.",
        panel="Output",
        advanced=True,
    )
    memory: Path | None = path(
        None,
        "Memory of translations to reuse: a file of `vtrans serve --memory`, a document (PO, XLIFF, TMX, Xcode or Qt), "
        "or a folder of documents. A model that has learned it from `prepare-bpe --fuzzy` also uses similar ones.",
        metavar="FILE|FOLDER",
    )

    def options(
        self, models: Ensemble, to: str | None, console: Console, *, confidence: bool, documents: bool
    ) -> dict[str, Any]:
        """Returns the fields of a TranslateOptions. Raises FileError for a file that is missing or damaged."""
        from vtrans.translate.confidence import Calibration
        from vtrans.translate.wording.glossary import read_glossary
        from vtrans.translate.wording.protection import Protection

        if self.protect and self.no_protect:
            raise InputError("`protect` and `no_protect` exclude each other; leave out one of them.")
        patterns = self.protect_patterns
        protection: Protection | Literal[False] | None = False if self.no_protect else None
        if documents:
            patterns += applications.documents("sentences").PROTECTION.more
        if self.protect or patterns:
            protection = Protection(patterns)
        memory = _memory(self.memory, models, to, protection, console) if self.memory else {}
        return {
            "glossary": read_glossary(self.glossary) if self.glossary else None,
            "protect": protection,
            "formality": self.formality,
            "check_numbers": self.check_numbers,
            "raw": self.raw,
            "calibration": Calibration.load(models.files) if confidence or self.min_confidence else None,
            "min_confidence": self.min_confidence,
            **memory,
        }


@dataclass(frozen=True)
class Output:
    """How many translations are written per line, and in which form."""

    PANEL: ClassVar[str] = "Output"

    nbest: int = number(1, (1, 10**6), "Number of different translations per line, best first.")
    scores: bool = flag(False, "Write the score before each translation.")
    tsv: bool = flag(False, "Write the log-probability and the score before each translation.", advanced=True)
    confidence: bool = flag(
        False,
        "Write the probability that it is right before each translation, or add it and that of each word to `json`. "
        "It needs what `vtrans calibrate` writes.",
    )
    alignments: bool = flag(False, "Write the word alignment before each translation, such as 0-0 1-2.")
    json: bool = flag(False, "Write a JSON object per line, with details of each subword.")

    @property
    def form(self) -> Form:
        """The form of the output. Raises InputError for more than one."""
        forms: dict[Form, bool] = {
            "json": self.json,
            "tsv": self.tsv,
            "scores": self.scores,
            "confidence": self.confidence and not self.json,
        }
        chosen = [form for form, wanted in forms.items() if wanted]
        if len(chosen) > 1:
            raise InputError(f"`{chosen[0]}` and `{chosen[1]}` are two forms of the output; leave out one of them.")
        return chosen[0] if chosen else "text"


FILES = (
    "Models, as with `model`, and documents to translate, such as manual.po, or folders of them. One document goes to "
    "the file `output`, several to that folder."
)
NO_RETRY = (
    "Keep translations that loop or reach their length limit. Without it, their lines are searched again with "
    f"`no_repeat_ngram` {RETRY_NGRAM}, unless that option is set."
)


@generated
def translate(
    words: Annotated[list[Path] | None, argument(FILES, "MODEL|FILE")] = None,
    *,
    text: Text,
    to: To = None,
    output: Output,
    model: Annotated[list[Path] | None, option(f"{Ensemble.HELP}  [default: {DEFAULT_RUN}]", "MODEL", "Model")] = None,
    ensemble: Ensemble,
    engine: EngineConfig,
    threads: Threads = None,
    processes: Processes = None,
    search: Annotated[dict[str, Any], Given(SearchConfig, otherwise=STORED)],
    no_retry: Annotated[bool, option(NO_RETRY, panel=SEARCH_PANEL, flag="--no-retry", hidden=True)] = False,
    reading: Reading,
    sampling: Annotated[
        bool, option("Sample translations instead of searching.", panel="Sampling", flag="--sample", hidden=True)
    ] = False,
    sampling_options: Annotated[dict[str, Any], Given(Sampling)],
    mbr: Annotated[dict[str, Any], Given(Mbr)],
    documents: Annotated[Any, applications.documents("command_line").Documents],
    quiet: Quiet = False,
) -> None:
    """Translate text: one line out for every line in. Or translate documents and write them in their format.

    Reads stdin and writes stdout by default. Lines keep their order, and blank lines stay blank.
    """
    from vtrans.storage.run_folder import names_model

    files = [word for word in words or () if not names_model(word)]
    models = replace(ensemble, model=[*(word for word in words or () if word not in files), *(model or ())])
    documents.check(files, [text, output])
    others = [("--glossary", reading.glossary), ("--memory", reading.memory)]
    others += [("--model", file) for file in models.paths]
    targets = documents.targets(files, text.output, others) if files else {}
    search = _checked_search(search, sampling, sampling_options, mbr, no_retry)
    text.check(others, memory=reading.memory)
    console = Console(quiet=quiet)
    from vtrans.translate.translation import TranslateOptions

    division = text.division(processes, threads, engine.device)
    options = TranslateOptions(
        output.nbest,
        Sampling(**sampling_options) if sampling else None,
        Mbr(**mbr) if mbr else None,
        output.alignments,
        output.form,
        **reading.options(models, to, console, confidence=output.confidence, documents=bool(files)),
        to=to,
    )
    load_model = partial(_loaded, models, engine, search, options, console, not no_retry)
    if targets:
        applications.documents("command_line").translate_files(
            load_model, targets, options, documents, division, console
        )
        return
    common = {**output_affecting(engine), "weights": list(models.weights) or None, "no_retry": no_retry}
    common |= own_digests((*engine.rules, *engine.steps))
    translate_text(load_model, models.paths, common, options, text, division, console)


def _loaded(
    models: Ensemble,
    engine: EngineConfig,
    search: dict[str, Any],
    options: TranslateOptions,
    console: Console,
    retry: bool,
) -> Translator:
    """Returns the translator, and warns if the confidence was calibrated with other settings."""
    from vtrans.translate.confidence import Calibration, made_with
    from vtrans.translate.loading import load

    settings = dataclasses.asdict(engine) | {"weights": list(models.weights) or None}
    translator = load(models.paths, retry=retry, console=console, **settings, **search)
    if isinstance(options.calibration, Calibration):
        sampling = options.sampling is not None
        options.calibration.check(made_with(translator.search, engine, models.weights, sampling=sampling), console)
    return translator


def _memory(
    path: Path, models: Ensemble, to: str | None, protection: Protection | Literal[False] | None, console: Console
) -> dict[str, Any]:
    """Returns the fields of a TranslateOptions for a memory."""
    from vtrans.storage.model_file import read_blueprint
    from vtrans.translate.wording.protection import EVERYDAY

    able = [read_blueprint(file) for file in models.files]
    if protection is None and all(model.codes for model in able):
        protection = EVERYDAY
    memory = applications.documents("command_line").remembered(path, common(able[0].languages, to))
    console.info(many(len(memory), "text", f"in the memory {path}"))
    if all(model.matches for model in able):
        lookup = applications.documents("memory").Lookup
        return {"known": memory, "match": lookup(memory.sentences(), protection or None)}
    console.info("only exact matches are used: the model was trained without `prepare-bpe --fuzzy`")
    return {"known": memory}


def _checked_search(
    search: dict[str, Any], sampling: bool, sampling_options: dict[str, Any], mbr: dict[str, Any], no_retry: bool
) -> dict[str, Any]:
    """Returns the options of the search; minimum Bayes risk decoding has a beam of its own. Raises InputError for
    options of sampling without --sample, and options of the search with it."""
    keys = keys_of(SearchConfig)
    searching = [name for name in search if keys[name].search_only] + ["no_retry"] * no_retry
    given = [*sampling_options, *(["mbr_samples"] if "samples" in mbr else [])]
    if given and not sampling:
        raise InputError(f"`{given[0]}` only applies to sampling; add `sampling`, or leave it out.")
    if searching and sampling:
        raise InputError(f"`{searching[0]}` only applies to a search; leave it or `sampling` out.")
    if "samples" in mbr and "metric" not in mbr:
        raise InputError("`mbr_samples` only applies to minimum Bayes risk decoding; add `mbr`, or leave it out.")
    return {"beam": MBR_BEAM, **search} if mbr and not sampling else search
