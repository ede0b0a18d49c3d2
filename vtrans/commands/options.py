"""The options that several commands have, and checks of options before a command starts its work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from vtrans.config import CACHE_VARIABLE, DEFAULT_RUN, SearchConfig
from vtrans.errors import InputError
from vtrans.keys import check_value, keys_of
from vtrans.text import OnBadUtf8, open_bytes, read_lines

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors to stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Models = Annotated[
    list[Path] | None,
    typer.Option(
        help="A run folder or a model file. Give several for an ensemble. `vtrans translate` also takes an exported "
        f"folder.  [default: {DEFAULT_RUN}]",
        metavar="PATH",
        rich_help_panel="Model",
    ),
]
Weights = Annotated[
    list[float] | None,
    typer.Option(
        "--weight",
        help="The weight of a model in the ensemble's average; give one per --model.  [default: equal]",
        metavar="X",
        rich_help_panel="Model",
    ),
]
Output = Annotated[
    Path | None, typer.Option(help="The file to write.  [default: stdout]", metavar="FILE", rich_help_panel="Text")
]
Alpha = Annotated[
    float | None,
    typer.Option(
        help=f"The exponent of the length penalty.  [default: the model's setting, else {SearchConfig.alpha}]",
        metavar="X",
        rich_help_panel="Search",
    ),
]
LengthPenalty = Annotated[
    str | None,
    typer.Option(
        help="Divide log-probabilities by ((5 + length) / 6) ** alpha (gnmt) or by length ** alpha (length), as "
        f"fairseq and Marian do.  [default: the model's setting, else {SearchConfig.length_penalty}]",
        metavar="KIND",
        rich_help_panel="Search",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="cpu, cuda, cuda:N or mps.  [default: the best available]", metavar="NAME", rich_help_panel="Speed"
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="The threads of each process on a CPU.  [default: OMP_NUM_THREADS, else one per core that it may use]",
        metavar="N",
        rich_help_panel="Speed",
    ),
]
COMPILE = (
    "Compile the code that runs models for this machine, with $CXX, else g++. The library is kept in "
    f"${CACHE_VARIABLE}, else ~/.cache/vtrans, and serves all models. This needs a CPU and float32. A single sentence "
    "of a small model takes about a third of the time."
)
Compile = Annotated[bool, typer.Option("--compile", help=COMPILE, rich_help_panel="Speed")]
GLOSSARY = (
    "A file of terms and their translations, one pair per line, separated by a tab. `|` separates the forms of a "
    "translation; the model chooses one of them."
)
To = Annotated[
    str | None,
    typer.Option(
        help="The target language, such as de. A model of several languages needs it.",
        metavar="CODE",
        rich_help_panel="Text",
    ),
]
BadUtf8 = Annotated[
    str,
    typer.Option(
        help="What to do with bytes that are not UTF-8: error, or replace (by U+FFFD, and count them).",
        metavar="HOW",
        rich_help_panel="Text",
    ),
]


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the user has set. Functions of the library have the defaults of the others."""
    return {key: value for key, value in options.items() if value is not None}


def flag(options: dict[str, Any]) -> str:
    """The flag of the first of these options."""
    return "--" + next(iter(options)).replace("_", "-")


def check_search(options: dict[str, Any]) -> None:
    """Raises InputError for a search option that is not allowed, before a model is loaded."""
    keys = keys_of(SearchConfig)
    for name, value in options.items():
        check_value(keys[name], f"`{name}`", value)


def check_output(output: Path | None, inputs: list[tuple[str, Path | None]], name: str = "--output") -> None:
    """Raises InputError if the output would replace an input, or a file of a run or an export. `inputs` are pairs of a
    flag and its file; `name` is the flag of the output."""
    if output is None:
        return
    from vtrans.checkpoint import run_of
    from vtrans.engines.ctranslate2_folder import is_exported

    try:
        for option, file in inputs:
            if file and output.is_file() and file.exists() and output.samefile(file):
                raise InputError(f"{name} must not be the file of {option}, got {output} for both.")
        if run_of(output):
            raise InputError(f"{name} must not be a file of `vtrans train` or `vtrans average`, got {output}.")
        if is_exported(Path(os.path.realpath(output)).parent):
            raise InputError(f"{name} must not be in a folder that `vtrans export` made, got {output}.")
    except OSError:  # opening the file will raise the error
        return


def check_line_counts(src: Path, other: Path, what: str) -> None:
    """Raises InputError if two files have different numbers of lines. Pipes can be read only once
    and are not counted."""
    if src.is_file() and other.is_file():
        counts = []
        for path in (src, other):
            with open_bytes(path) as stream:
                counts.append(sum(1 for _ in read_lines(stream, str(path), on_bad_utf8="replace")))
        if counts[0] != counts[1]:
            raise InputError(
                f"{src} has {counts[0]:,} lines, but {other} has {counts[1]:,}; each line needs its {what}."
            )


def bad_utf8(how: str) -> OnBadUtf8:
    """The value of `on_bad_utf8`. Raises InputError if it is not allowed."""
    if how not in get_args(OnBadUtf8):
        raise InputError(f"`on_bad_utf8` must be error or replace, got {how!r}.")
    return cast(OnBadUtf8, how)
