"""Documents and memories of `vtrans translate`: which files are read and written.

If one document is damaged, none is written. A memory is documents with translations, or a file of `vtrans serve`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vtrans.commands.lines import many, writer
from vtrans.commands.shared_options import check_output
from vtrans.commands.texts import report
from vtrans.config.keys import flag, keys_of, text, texts
from vtrans.system.console import Console, Counter
from vtrans.system.errors import DocumentError, FileError, InputError, VtransError, need_packages
from vtrans.system.files import named_os_errors, no_file
from vtrans.system.signals import ended_by_signals
from vtrans.text.languages import Languages, common
from vtrans.text.lines import open_bytes

if TYPE_CHECKING:
    from vtrans.apps.documents.document import Document, Nbest
    from vtrans.apps.documents.files import Opened
    from vtrans.apps.documents.memory import Remembered
    from vtrans.apps.documents.pairs import PairCollector
    from vtrans.translate.steps.line import Line
    from vtrans.translate.stream import Division
    from vtrans.translate.translation import TranslateOptions
    from vtrans.translate.translator import Translator

NEEDED = ("markdown_it", "polib", "rapidfuzz", "turbohtml")  # the extra `documents`
LARGEST_DOCUMENT = 1 << 28  # bytes of a file
BUNDLE = 1000  # minimum number of sentences to translate at once
SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True)
class Documents:
    """Options for reading documents."""

    PANEL: ClassVar[str] = "Documents"

    format: str | None = text(
        None, "Format of the documents, such as po, if it is not the ending of their names.", metavar="NAME"
    )
    overwrite: bool = flag(False, "Also translate entries that have a translation.")
    column: tuple[str, ...] = texts(
        "Column of a CSV or TSV file, named in its first row: NAME is translated in place, SOURCE:TARGET into another "
        "column.",
        metavar="NAME",
        unset="the languages' codes",
        advanced=True,
    )

    def check(self, files: Sequence[Path], lines: Sequence[Any]) -> None:
        """Raises InputError for a document option without documents, and for a line option with documents. `lines` are
        the option groups for lines; only their `output` also applies to documents."""
        for options in [*lines] if files else [self]:
            for name, key in keys_of(type(options)).items():
                if name != "output" and getattr(options, name) != getattr(type(options), name):
                    wrong = "applies only to lines, not to documents" if files else "applies only to documents"
                    raise InputError(f"`{key.option or name}` {wrong}; leave it out.")
        if files:
            check_packages("translating documents")

    def targets(
        self, files: Sequence[Path], output: Path | None, others: list[tuple[str, Path | None]]
    ) -> dict[Path, Path | None]:
        """Returns the output file of each document; None means stdout. A folder stands for the documents in it, except
        tables; with `column`, only for the tables. Raises FileError for a missing file or an empty folder, and
        InputError if a result would replace a document, another result, or one of `others` (flag and file)."""
        from vtrans.apps.documents.files import FORMATS, TABLES
        from vtrans.storage.run_folder import shipped_models

        # Most tables in a folder are data.
        endings = TABLES if self.column else tuple(ending for ending in FORMATS if ending not in TABLES)
        places: dict[Path, Path] = {}  # of documents in an output folder
        for file in files:
            if not file.exists():
                advice = "name a run folder, a model file or a document"
                raise no_file(file, "model or document", shipped_models(), advice)
            if file.is_dir():
                inside = documents_in(file, () if self.format else endings)
                found = {path: path.relative_to(file) for path in inside if output not in path.parents}
                if not found:
                    raise FileError(f"{file} has no model, and no file that ends in one of {', '.join(endings)}.")
                places |= found
            else:
                self.ending(file)
                places[file] = Path(file.name)
        several = len(files) > 1 or files[0].is_dir()
        if several and (output is None or output.is_file()):
            folder = next((file for file in files if file.is_dir()), None)
            theirs = f"the documents in {folder} (it has no model)" if folder else "several documents"
            raise InputError(f"`output` must be a folder for {theirs}, got {output or 'none'}.")
        in_folder = several or (output is not None and output.is_dir())
        targets = {file: output / place if output and in_folder else output for file, place in places.items()}
        written = [target for target in targets.values() if target]
        if repeated := [target for target in written if written.count(target) > 1]:
            raise InputError(f"`output` would have two files {repeated[0]}; translate them into different folders.")
        for target in written:
            check_output(target, [*others, *(("the document", file) for file in targets)])
        return targets

    def ending(self, file: Path) -> str:
        """Returns the ending that gives the format of a document. Raises InputError for an unknown format."""
        from vtrans.apps.documents.files import FORMATS

        ending = f".{self.format}" if self.format else file.suffix.lower()
        if ending not in FORMATS:
            known = ", ".join(FORMATS)
            raise InputError(f"{file} must end in one of {known}; name its `format`, or use `input` for lines of text.")
        return ending

    def completes(self, file: Path, output: Path | None) -> bool:
        """Returns whether the translations of an existing output are kept."""
        from vtrans.apps.documents.files import COMPLETED

        kept = self.ending(file) in COMPLETED and not self.overwrite
        return kept and output is not None and output.is_file() and output.stat().st_size > 0

    def opened(self, file: Path, output: Path | None, source: str, target: str) -> Opened:
        """Opens a document for translation from `source` to `target`. Raises InputError for a damaged one."""
        from vtrans.apps.documents.document import Filling
        from vtrans.apps.documents.files import TABLES, open_file

        name, filling = f"x{self.ending(file)}", Filling(target, self.overwrite, source, columns=self.column)
        if self.column and self.ending(file) not in TABLES:
            raise InputError(f"`column` applies only to tables ({', '.join(TABLES)}), not to {file}; leave it out.")
        if output and self.completes(file, output):
            filling = replace(filling, existing=content_of(output))
            with named(output):
                existing = open_file(name, filling.existing, LARGEST_DOCUMENT)
                existing.read(existing.texts[0], target)
        with named(file):
            return open_file(name, content_of(file), LARGEST_DOCUMENT, filling)


def check_packages(purpose: str) -> None:
    """Raises InputError if a package that reading documents needs is missing."""
    need_packages(f"{purpose} needs the package {{}}", "documents", *NEEDED)


def documents_in(folder: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    """Yields the files in a folder whose names have one of the endings; all files if `endings` is empty. Skips hidden
    files and folders, and files of other kinds, such as TypeScript, which has the ending of Qt's files."""
    from vtrans.apps.documents.files import ROOTS

    for path in sorted(folder.rglob("*")):
        hidden, ending = any(part.startswith(".") for part in path.relative_to(folder).parts), path.suffix.lower()
        if hidden or not path.is_file() or (endings and ending not in endings):
            continue
        if not endings or ending not in ROOTS or ROOTS[ending] in content_of(path).replace(b"\0", b""):
            yield path


def content_of(file: Path) -> bytes:
    """Returns the content of a document, at most LARGEST_DOCUMENT + 1 bytes."""
    with open_bytes(file) as stream:
        return stream.read(LARGEST_DOCUMENT + 1)


@contextmanager
def named(file: Path) -> Iterator[None]:
    """Adds the name of the document to a DocumentError."""
    try:
        yield
    except DocumentError as error:
        raise DocumentError(f"{file}: {str(error)[:1].lower()}{str(error)[1:]}") from None


def take(source: Path, collector: PairCollector) -> None:
    """Collects the translations of a document, or of the documents in a folder. Raises FileError if there is no
    document, and InputError if no translation is usable."""
    from vtrans.apps.documents.pairs import ENDINGS

    for file in documents_in(source, ENDINGS) if source.is_dir() else [source]:
        with named(file):
            collector.add(str(file.relative_to(source.parent)), content_of(file), LARGEST_DOCUMENT)
    if not collector.counts:
        raise FileError(f"{source} has no file that ends in one of {', '.join(ENDINGS)}.")
    if not collector:
        languages = " to ".join(collector.languages)
        raise InputError(f"{source} has no translated entry from {languages} that can be used ({collector}).")


def translate_files(
    load: Callable[[], Translator],
    targets: dict[Path, Path | None],
    options: TranslateOptions,
    documents: Documents,
    division: Division,
    console: Console,
) -> None:
    """Translates documents, in worker processes if that is faster, writes each one when it is finished, and reports the
    counts. Raises VtransError if some of several documents cannot be written."""
    from vtrans.apps.documents.document import FilledDocument, Lines

    existing = {file: target for file, target in targets.items() if target and target.is_file()}
    for completes, end in ((False, "to be replaced"), (True, "whose translations stay")):
        if found := [target for file, target in existing.items() if documents.completes(file, target) == completes]:
            console.info(f"{many(len(found), 'existing file', end)}, such as {found[0]}")
    with ended_by_signals():
        translator = load()
        translator.check(options)
        languages = common(translator.engine.languages, options.to)
        language, into = languages.src or "en", options.to or languages.tgt
        opened: dict[Path, Opened] = {}
        parts: dict[Path, list[Document]] = {}
        for file, target in targets.items():
            opened[file] = documents.opened(file, target, languages.src, into)
            with named(file):
                parts[file] = [opened[file].read(text, language) for text in opened[file].texts]
        bundles = [
            (files, Lines([*chain(*(parts[file] for file in files))], options.known)) for files in _bundles(parts)
        ]
        options = replace(options, known=None)
        translator.counts.known += sum(lines.filled + len(lines.known) for _, lines in bundles)
        failed, total = 0, sum(len(group) for _, lines in bundles for group in lines.groups.values())
        with console.progress("translated", total, unit="sentences") as counter:
            for files, lines in bundles:
                answered = iter(lines.answered(_answers(translator, options, division, counter, lines.groups)))
                for file in files:
                    texts = [part.joined([nbest[0] for nbest in next(answered)]) for part in parts[file]]
                    try:
                        with named(file):
                            _write(targets[file], opened[file].written(texts))
                    except InputError as error:
                        if len(targets) == 1:
                            raise
                        console.warn(str(error))
                        failed += 1
    if left := sum(part.left for part in chain(*parts.values()) if isinstance(part, FilledDocument)):
        what = "unchanged, because the translation would have other placeholders or markup"
        console.warn(many(left, "text", what))
    report(translator, console)
    if failed:
        raise VtransError(f"{many(failed, 'document', 'could not be written, and all others are')}.")


def _bundles(parts: Mapping[Path, Sequence[Document]]) -> Iterator[list[Path]]:
    """Yields the documents in groups with at least BUNDLE lines, if there are enough."""
    files, size = list[Path](), 0
    for file, documents in parts.items():
        files.append(file)
        size += sum(len(document.lines) for document in documents)
        if size >= BUNDLE:
            yield files
            files, size = [], 0
    if files:
        yield files


def _write(target: Path | None, content: bytes) -> None:
    """Writes a document to a file, or to stdout."""
    if target:
        with named_os_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
    with writer(target) as stream:
        stream.write(content)


def _answers(
    translator: Translator,
    options: TranslateOptions,
    division: Division,
    counter: Counter,
    groups: Mapping[bool, Sequence[Line]],
) -> dict[Line, Nbest]:
    """Translates the groups of lines with and without word alignments."""
    from vtrans.translate.stream import translate_windows, workers_for

    answers: dict[Line, Nbest] = {}
    for aligned, lines in groups.items():
        asked = replace(options, alignments=aligned)
        with workers_for(translator, asked, division, _nbests) as workers:
            windows = translate_windows(
                translator, lines, asked, _nbests, advance=lambda size: counter.advance(), workers=workers
            )
            answers |= zip(lines, chain.from_iterable(windows), strict=True)
    return answers


def _nbests(lines: Sequence[Line], options: TranslateOptions) -> list[Nbest]:
    """Returns the n-best list of each line."""
    from vtrans.apps.documents.document import Translated

    return [[Translated(t.text, t.alignment) for t in line.translations] for line in lines]


def remembered(path: Path, languages: Languages) -> Remembered:
    """Loads the translations in these languages from a file of `vtrans serve`, a document with translations, or a
    folder of such documents. An empty language means any. Raises FileError or InputError if there are none."""
    check_packages("`memory`")
    from vtrans.apps.documents.memory import Memory, Remembered
    from vtrans.apps.documents.pairs import ENDINGS, PairCollector

    if path.is_dir() or path.suffix.lower() in ENDINGS:
        memory = Remembered()
        take(path, PairCollector(languages, memory))
        return memory
    with open_bytes(path) as file:
        if file.read(len(SQLITE)) != SQLITE:
            raise FileError(f"{path} is neither a memory of `vtrans serve` nor a document ({', '.join(ENDINGS)}).")
    with closing(Memory(path, must_exist=True)) as file_of_server:
        memory = file_of_server.remembered(languages)
    if not memory:
        raise InputError(f"{path} has no translations from {' to '.join(code or 'any' for code in languages)}.")
    return memory
