"""The options that several commands have, and checks of options before a command starts its work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from vtrans.commands.generated import option, option_of
from vtrans.commands.lines import check_equal
from vtrans.config import DEFAULT_RUN, EngineConfig
from vtrans.config.keys import keys_of, numbers
from vtrans.config.threads import MEMORY
from vtrans.data.options import PrepareOptions
from vtrans.system.errors import InputError
from vtrans.text.lines import OnBadUtf8, lines_in

STORED = "the model's setting, else "
SEARCH_PANEL = f"Search (default: {STORED}as shown)"
Quiet = Annotated[bool, option("Print only warnings and errors to stderr.", flag="--quiet -q")]
Json = Annotated[bool, option("Print the result as JSON.", flag="--json")]
Output = Annotated[Path | None, option("File to write.  [default: stdout]", "FILE", "Text")]
Device = Annotated[str | None, option_of(EngineConfig, "device")]
Code = Annotated[Path | None, option_of(EngineConfig, "code")]
THREADS = "Threads of each process on a CPU.  [default: OMP_NUM_THREADS, else one per core]"
Threads = Annotated[int | None, option(THREADS, "N", "Speed")]
_EACH = f"{MEMORY / 1e9:g} GB"
DIVIDE = (
    "Number of processes that divide the work on the CPU of a Linux system, each with one thread or `threads`.  "
    f"[default: one per core with {_EACH} of memory]"
)
Processes = Annotated[int | None, option(DIVIDE, "N", "Speed")]
DIVIDE_BATCHES = (
    "Number of processes that divide each batch on the CPU of a Linux system, each with one thread or `threads`.  "
    f"[default: those of the run that is resumed, else one per available core with {_EACH} of memory and 512 tokens of "
    "a batch; 1 with --threads or --compile, and on other systems and devices]"
)
TRAIN_THREADS = (
    "Threads of each process on a CPU.  [default: those of the run that is resumed; else 1 with several processes; "
    "else OMP_NUM_THREADS, else one per core]"
)
TrainThreads = Annotated[int | None, option(TRAIN_THREADS, "N", "Speed")]
TrainProcesses = Annotated[int | None, option(DIVIDE_BATCHES, "N", "Speed")]
TO = "Target language, such as de. A model of several languages needs it."
To = Annotated[str | None, option(TO, "CODE", "Text")]
GLOSSARY = (
    "File of terms and their translations, one pair per line, separated by a tab, or CSV. `|` separates forms of a "
    "translation; the model chooses one."
)
BAD_UTF8: Any = field(default="error", metadata={"key": keys_of(PrepareOptions)["on_bad_utf8"]})
BadUtf8 = Annotated[OnBadUtf8, option_of(PrepareOptions, "on_bad_utf8")]


@dataclass(frozen=True)
class Ensemble:
    """A model, or several of which the average translates."""

    PANEL: ClassVar[str] = "Model"
    HELP: ClassVar[str] = "Run folder or model file. Several model files are an ensemble."

    model: Sequence[Path] = ()
    weights: tuple[float, ...] = numbers(
        (0.0, math.inf),
        "Weight of a model in the ensemble's average; one per `model`.",
        flag="--weight",
        advanced=True,
        unset="equal",
        excluded=(0, math.inf),
    )

    @property
    def paths(self) -> list[Path]:
        return list(self.model) or [Path(DEFAULT_RUN)]

    @property
    def files(self) -> list[Path]:
        """The model files. Raises FileError if one of them does not exist."""
        from vtrans.storage.run_folder import choose_model

        return [choose_model(path).file for path in self.paths]


def check_output(output: Path | None, inputs: list[tuple[str, Path | None]]) -> None:
    """Raises InputError if the output would replace an input or a file of a run. `inputs` are pairs of a
    flag and its file."""
    if output is None:
        return
    from vtrans.storage.run_folder import run_of

    try:
        for option, file in inputs:
            if file and output.is_file() and file.exists() and output.samefile(file):
                raise InputError(f"--out must not be the file of {option}, got {output} for both.")
        if run_of(output):
            raise InputError(f"--out must not be a file of `vtrans train` or `vtrans average`, got {output}.")
    except OSError:  # opening the file will raise the error
        return


def check_line_counts(src: Path, other: Path, what: str) -> None:
    """Raises InputError if two files have different numbers of lines. Pipes can be read only once
    and are not counted."""
    if src.is_file() and other.is_file():
        counts = [sum(1 for _ in lines_in(path, "replace")) for path in (src, other)]
        check_equal(src, other, counts, what)
