"""The files of studies and chains: TOML files, whose sections are dataclasses and whose keys are their fields, recipes,
folders of text, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from vtrans.config import SECTIONS, Recipe, read_toml
from vtrans.config.keys import check_value, keys_of, nearest, number, path, text, toml_value
from vtrans.system.errors import InputError
from vtrans.system.files import write_atomically
from vtrans.system.own_code import is_own, own_digest

Pair = tuple[str, str]
"""A file in the source language, and one in the target language."""


def read_table(file: Path, known: Collection[str]) -> dict[str, Any]:
    """Returns the content of a TOML file. Raises InputError for a top-level key that is not in `known`."""
    table = read_toml(file, str(file))
    _check_keys(table, known, str(file))
    return table


def checked(kind: type[Any], values: Any, where: str, others: Collection[str] = ()) -> dict[str, Any]:
    """Returns the values in a table for the keys of a dataclass. Raises InputError for a wrong value, or a key that is
    neither one of these nor in `others`."""
    if not isinstance(values, Mapping):
        raise InputError(f"{where} must be a table.")
    keys = keys_of(kind)
    _check_keys(values, [*keys, *others], where)
    return {key: check_value(keys[key], f"{where}.{key}", value) for key, value in values.items() if key in keys}


def recipe_beside(file: Path, name: str) -> str:
    """Returns the recipe `name` in a study or chain file; a path is resolved relative to that file."""
    return str(file.parent / name) if name.endswith(".toml") else name


def _check_keys(table: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise InputError(f"{where}: unknown key {key}; {nearest(key, known)}")


def write_recipe(recipe: Recipe, file: Path) -> list[str]:
    """Writes a recipe without its defaults, so that keys added by later versions of vtrans do not change it. Copies the
    user's code that it names to a folder next to it. Returns the paths of all files, relative to the recipe's folder.
    """
    content, made, code = "", [file.name], f"{file.stem}-code"
    for name in SECTIONS:
        section, usual = getattr(recipe, name), getattr(Recipe(), name)
        content += f"[{name}]\n"
        for key in keys_of(type(section)):
            value = getattr(section, key)
            if is_own(value):
                source, _, kind = value.rpartition(":")
                made.append(f"{code}/{key}/{Path(source).name}")  # files of two keys may have one name
                value = f"{made[-1]}:{kind}"
                (file.parent / made[-1]).parent.mkdir(parents=True, exist_ok=True)
                own_digest(source)  # raises InputError if it cannot be read
                write_atomically(file.parent / made[-1], Path(source).read_bytes())
            if value != getattr(usual, key):
                content += f"{key} = {toml_value(value)}\n"
    write_atomically(file, content.encode())
    return made


@dataclass(frozen=True)
class Text:
    """The section [text]. Options of the command replace its values."""

    PANEL: ClassVar[str] = "Text"

    src: str = text("", "Source language, which is the ending of its files.", metavar="CODE")
    tgt: str = text("", "Target language.", metavar="CODE")
    folder: Path = path("", "Folder with train, valid and test files.", metavar="FOLDER", flag="--text")
    vocab_size: int = number(8000, (1, 10**6), "Subwords of both languages together.", "subwords")
    processes: int | None = number(None, (1, 1024), "Processes of each training.", "processes", unset="one per core")

    @classmethod
    def of(cls, table: Mapping[str, Any], file: Path, given: Mapping[str, Any]) -> Self:
        """Returns the section of a file, overridden by the values `given`. Its folder is relative to the file. Raises
        InputError for a wrong value, and if the languages or the folder are missing."""
        values = checked(cls, table.get("text", {}), f"{file}: text")
        if "folder" in values:
            values["folder"] = file.parent / values["folder"]
        made = cls(**{**values, **given})
        for key in ("src", "tgt", "folder"):
            if getattr(made, key) == getattr(cls, key):
                raise InputError(f"{file}: text.{key} is missing; add it to the file, or give `{key}`.")
        if made.src == made.tgt:
            raise InputError(f"{file}: text.tgt must be another language than text.src, got {made.src} for both.")
        return replace(made, folder=made.folder.resolve())  # the commands run in another folder

    @property
    def options(self) -> list[str]:
        """The command-line option with the number of processes."""
        return ["--processes", str(self.processes)] if self.processes else []


@dataclass(frozen=True)
class TextFiles:
    """The files of a text: pairs of absolute paths by name, such as `train`, and the names of the training, validation
    and test sets."""

    languages: tuple[str, str]
    pairs: dict[str, Pair]
    train: list[str]
    valid: str
    tests: list[str]

    @classmethod
    def of(cls, folder: Path, src: str, tgt: str, *, tested: bool = True) -> TextFiles:
        """Returns the sets that `folder` has in both languages. If `tested`, a test set is required."""
        if not folder.is_dir():
            raise InputError(f"the folder {folder} does not exist; name one with train, valid and test files.")
        sources, targets = (_files_of(folder.resolve(), language) for language in (src, tgt))
        pairs = {name: (str(file), str(targets[name])) for name, file in sources.items() if name in targets}
        train = [name for name in pairs if name == "train"] or [name for name in pairs if name.startswith("train-")]
        valid = [name for name in ("valid", "val", "dev") if name in pairs]
        tests = [name for name in pairs if name.startswith("test")]
        for what, found in (("train", train), ("valid (or val, dev)", valid), ("test", tests)):
            if not found and (tested or found is not tests):
                raise InputError(
                    f"{folder} must hold {what} files in both languages, such as {what.split()[0]}.{src} and "
                    f"{what.split()[0]}.{tgt}, plain or .gz, .xz, .bz2."
                )
        return cls((src, tgt), pairs, train, valid[0], tests)

    @property
    def options(self) -> list[str]:
        """The options of `prepare-bpe` that name the training and validation sets."""
        return pair_options((self.pairs[name] for name in self.train), self.pairs[self.valid])


def markdown_table(head: Sequence[str], texts: int, rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown. The first `texts` columns contain text, the others numbers."""
    lines = [head, ["---"] * texts + ["---:"] * (len(head) - texts), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def pair_options(train: Iterable[Pair], valid: Pair) -> list[str]:
    """Returns the options of `prepare-bpe` that name pairs of files."""
    sides = [*(("", *pair) for pair in train), ("valid-", *valid)]
    return [word for kind, src, tgt in sides for word in (f"--{kind}src", src, f"--{kind}tgt", tgt)]


def _files_of(folder: Path, language: str) -> dict[str, Path]:
    """Returns the files of a language by name, such as `train`. It skips processed text such as train.lc.tok.en."""
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        for ending in ("", ".gz", ".xz", ".bz2"):
            name = file.name.removesuffix(f".{language}{ending}")
            if name != file.name and "." not in name:
                found.setdefault(name, file)
    return found
