"""`vtrans prepare-bpe`: the options of a PrepareOptions, which `prepare` checks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from vtrans.commands.applications import documents
from vtrans.commands.generated import generated, option
from vtrans.commands.lines import print_line
from vtrans.commands.shared_options import Json, Quiet
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.pair_files import ENDINGS, PairFile
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.signals import ended_by_signals
from vtrans.text.languages import Languages, base
from vtrans.text.lines import write_lines

VOCAB_FROM = "Use the vocabulary of this model, to fine-tune it, or of this data folder, instead of learning one."
PAIRS = (
    "File of pairs (TSV or CSV: a source and its translation per line), or document with translations (PO, XLIFF, TMX, "
    "Xcode or Qt), or a folder of documents, whose translated entries become training pairs. Each is a corpus, like a "
    "`src` with its `tgt`. May be repeated."
)
VALID_PAIRS = "File of pairs, document, or folder of documents for validation. May be repeated."
DRY_RUN = "Write nothing. Count all lines, encode some, and print the time and space needed."


@generated
def prepare_bpe(
    *,
    options: PrepareOptions,
    pairs: Annotated[list[Path] | None, option(PAIRS, "FILE|FOLDER", "Text")] = None,
    valid_pairs: Annotated[list[Path] | None, option(VALID_PAIRS, "FILE|FOLDER", "Text")] = None,
    vocab_from: Annotated[Path | None, option(VOCAB_FROM, "RUN|FILE", "Vocabulary")] = None,
    dry_run: Annotated[bool, option(DRY_RUN, panel="Output", flag="--dry-run")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn subwords from parallel text and encode it.

    The files --src and --tgt contain one sentence per line; line N of one is the translation of line N of the other.
    Files may be compressed (.gz, .xz, .bz2). --pairs takes both sides from one file instead. The result is a data
    folder for `vtrans train`: a vocabulary and the encoded pairs.
    """
    if dry_run and quiet and not as_json:
        raise InputError("--dry-run prints an estimate, which --quiet hides; leave out one of them, or add --json.")
    from vtrans.data.preparation.prepare import prepare

    if vocab_from is not None:
        options = dataclasses.replace(options, vocabularies=_vocabularies_of(vocab_from))
    console, counts, messages = Console(quiet=quiet), dict[str, Any](), list[str]()
    with ended_by_signals(), TemporaryDirectory(prefix="vtrans-") as folder:
        for part, files in (("train", pairs), ("valid", valid_pairs)):
            if files:
                options, corpora = _with_pairs(options, part, files, Path(folder, part))
                messages += [f"{file}: {taken}" for file, taken in zip(files, corpora, strict=True)]
                counts[part] = [taken.counts for taken in corpora]
        for message in messages:
            console.info(message)
        report = prepare(options, console, dry_run=dry_run, documents=counts)
    if as_json:
        print_line(json.dumps(report, ensure_ascii=False, indent=2, sort_keys=True))


def _vocabularies_of(path: Path) -> tuple[bytes, ...]:
    """Returns the vocabularies, one per side, of a data folder or a model."""
    from vtrans.data.store import REPORT_FILE, DataFolder
    from vtrans.storage.model_file import read_blueprint
    from vtrans.storage.run_folder import choose_model

    if (path / REPORT_FILE).exists():
        data = DataFolder.open(path)
        return data.src_vocab.proto, data.tgt_vocab.proto
    model = read_blueprint(choose_model(path).file)
    return model.src_vocab.proto, model.tgt_vocab.proto


def _with_pairs(
    options: PrepareOptions, part: str, sources: Sequence[Path], folder: Path
) -> tuple[PrepareOptions, list[PairFile | Any]]:
    """Writes the pairs of each source (a file of pairs, a document or a folder of documents) to `folder`. Returns the
    options with these files as further corpora of a part, and what each corpus was taken from."""
    names = ("src", "tgt") if part == "train" else ("valid_src", "valid_tgt")
    files = [list(getattr(options, name)) for name in names]
    corpora: list[PairFile | Any] = []
    for source in sources:
        number = len(files[0])
        languages = Languages(*(_language(codes, part, number) for codes in (options.src_lang, options.tgt_lang)))
        is_plain = PairFile.has_name(source) and not source.is_dir()
        taken = PairFile(source, languages, options.on_bad_utf8) if is_plain else _taken(source, languages)
        corpora.append(taken)
        for side, language in enumerate(taken.languages):
            path = folder / str(number) / f"{source.resolve().name}.{base(language) or names[side]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_lines(path, (pair[side] for pair in taken.pairs))
            files[side].append(path)
    given: dict[str, Any] = {name: tuple(paths) for name, paths in zip(names, files, strict=True)}
    return dataclasses.replace(options, **given), corpora


def _taken(source: Path, languages: Languages) -> Any:
    """Returns the pairs of a document, or of a folder of documents."""
    known = documents("pairs").ENDINGS
    if source.is_file() and not source.name.lower().endswith(known):
        raise InputError(f"{source}: the file name must end in one of {', '.join((*ENDINGS, *known))}.")
    documents("command_line").check_packages("`pairs`")
    taken = documents("pairs").PairCollector(languages)
    documents("command_line").take(source, taken)
    return taken


def _language(codes: Sequence[str], part: str, number: int) -> str:
    """Returns the language that the user gives for a corpus, or an empty string."""
    if len(codes) == 1:
        return codes[0]
    return codes[number] if part == "train" and number < len(codes) else ""
