"""The errors that vtrans raises on purpose.

A message says what is wrong, the value, what is allowed and what to do, usually in one sentence. It names a parameter
of the library in backticks: "`nbest` must be at most `beam` (4), got 5." The command line (`cli._with_flags`) prints
the flag of the running command instead, if the command has a parameter of that name: "--nbest must be at most --beam
(4), got 5." So a command names its parameters as the library does, and no message outside commands/ contains a flag.
Advice follows a semicolon, in parts separated by commas; a command omits the parts that name a parameter which it
lacks.
Recipe keys are written without backticks: search.beam.
"""

import importlib.util


class VtransError(Exception):
    """Something failed while running. Exit code 1."""

    exit_code = 1


class WriteError(VtransError):
    """A file cannot be written because its disk is full or fails. The message ends with `reason`."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path} cannot be written: {reason}.")
        self.path, self.reason = path, reason


class AbandonedError(VtransError):
    """The caller no longer waits for the result, so the work has ended."""


class LogprobsError(VtransError):
    """A model's log-probabilities are NaN."""


class InputError(VtransError):
    """The user's input, option, recipe or file is at fault. Exit code 2."""

    exit_code = 2


class RecipeError(InputError):
    """A recipe, or an override of it, has an unknown key or a value that is not allowed."""


class FileError(InputError):
    """A file or folder is missing, unreadable, truncated or in an unknown format."""


class DocumentError(InputError):
    """A document is damaged or not in its format; `line` is the place, if known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"Line {line}: {reason}")


class DocumentSizeError(DocumentError):
    """A document is larger than allowed."""


def install_command(extra: str) -> str:
    """Returns the commands that install an extra."""
    in_checkout, with_wheel = f"`pip install '.[{extra}]'`", f"`pip install 'WHEEL[{extra}]'`"
    return f"{in_checkout} in a checkout of vtrans, or {with_wheel} with the path of its wheel"


def need_packages(problem: str, extra: str, *packages: str) -> None:
    """Raises InputError for the first optional package that is not installed. Its name replaces {} in `problem`, and
    `extra` is its extra in pyproject.toml."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise InputError(f"{problem.format(package)}; install it with {install_command(extra)}.")
