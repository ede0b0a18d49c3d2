"""The command line: its commands, their help, and the one place where errors are printed.

Each command is a file in commands/, which imports what it needs when it runs, so that `vtrans --help` imports no torch.
Results go to stdout, everything else to stderr. Exit codes: 0 success; 1 failure while running; 2 the user's input is
at fault.
"""

from __future__ import annotations

import atexit
import difflib
import errno
import os
import re
import signal
import sys
import textwrap
import time
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

import vtrans
from vtrans.commands import applications
from vtrans.commands.lines import print_line
from vtrans.config.keys import LONGEST_SHOWN
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.system.files import discard, printable, reason
from vtrans.system.process import configure_process


class _Grouped:
    """Prints help in plain text, with options and commands under the names of their panels (`rich_help_panel`). rich
    would draw boxes, even in a pipe, and takes a tenth of a second to import."""

    advanced: Sequence[Any] = ()  # options that only `--help-all` shows

    def panels(self, ctx: Any, omitted: Sequence[Any] = ()) -> dict[str, list[tuple[str, str]]]:
        """Returns the names and the help of all arguments, options and commands but the omitted ones, by panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]  # of the class that this is mixed into
            if parameter not in omitted and (record := parameter.get_help_record(ctx)):
                default = "Arguments" if parameter.param_type_name == "argument" else "Options"
                name, words = record
                # Recent versions of Typer write the Python type of an argument after its name.
                name, words = name.partition(" <")[0], _with_flags(words, self)
                panels.setdefault(parameter.rich_help_panel or default, []).append((name, words))
        general = panels.pop("Options", [])
        if omitted:
            general.append(("--help-all", f"Show {len(omitted)} more options and exit."))
        for name, command in getattr(self, "commands", {}).items():
            panels.setdefault(command.rich_help_panel, []).append((name, command.get_short_help_str(limit=80)))
        return {**panels, "Options": general}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for panel, records in self.panels(ctx, self.advanced).items():
            with formatter.section(panel):
                _write_records(records, formatter)


def _write_records(records: list[tuple[str, str]], formatter: Any) -> None:
    """Writes names and their help, whose lines are wrapped one by one, in two columns."""
    indent = " " * formatter.current_indent
    column = min(max(len(name) for name, _ in records), 30) + len(indent) + 2
    for name, help in records:
        head = f"{indent}{name}"
        wrap = textwrap.TextWrapper(max(formatter.width - column, 10), break_on_hyphens=False)
        wrapped: list[str] = []
        for line in help.split("\n"):
            wrap.subsequent_indent = "  " if wrapped and not line.startswith("[") else ""  # of the meanings of choices
            wrapped += wrap.wrap(line)
        if len(head) + 2 > column:
            formatter.write(f"{head}\n")
            head = ""
        for part in wrapped or [""]:
            formatter.write(f"{head.ljust(column)}{part}".rstrip() + "\n")
            head = ""


class _Group(_Grouped, typer.core.TyperGroup):
    pass


class _Command(_Grouped, typer.core.TyperCommand):
    """A command. The option for its output has the same flags in all commands."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        for parameter in self.params:
            if parameter.name in ("out", "output"):
                parameter.opts = ["--out", "--output", "-o"]
        hidden: list[Any] = [parameter for parameter in self.params if getattr(parameter, "hidden", False)]
        for option in hidden:
            option.hidden = False  # Typer would not complete it
        self.advanced = hidden if len(self.params) > FEW else ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--help-all" in args:
            self.advanced, args = (), ["--help"]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="vtrans",
    cls=_Group,
    help="Train and run Transformer translation models. Run the five steps in order; by default, each command "
    "finds the output of the one before.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 120, "help_option_names": ["-h", "--help"]},
)

# The base class of all of Typer's errors about the command line; recent versions contain a copy of click.
_UsageError: type[BaseException] = typer.BadParameter.__mro__[1]

_ALLOWED = "(?:Input should be (?:(a) valid )?([^,]+)|Value error, .* is not (one of .*))"  # as Typer says it
FEW = 25  # options and arguments; `--help` of a command with at most as many shows all
REPORT_SECONDS = 5.0  # that a rank waits before it reports an error, because another one may report it
# Errors that `Path.exists` and the like raise for a path that the user named, before anything opens it.
_OF_PATHS = (errno.EACCES, errno.ENAMETOOLONG)


def _version(wanted: bool) -> None:
    if wanted:
        print_line(f"vtrans {vtrans.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", callback=_version)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Configures the process for the command that follows. The callback of `--version` and main() handle the
    options."""
    if "torch" not in sys.modules:  # a program that calls main() may have loaded it
        configure_process()


_PANELS = {
    "The five steps": "prepare_bpe train average translate score",
    "Before and after them": "cleaning.clean adapting.adapt",
    "Looking inside": "analysis.report analysis.inspect analysis.attend analysis.overlap logprob analysis.calibrate",
    "Exchange and speed": "interop.import_ interop.export interop.shortlist",
    "Experiments": "experiments.study experiments.student",
    "Service and machines": "server.serve documents.memory collect analysis.doctor",
}
"""The commands by panel, with the application that has them, if it is not the core. Each is a function in the file of
its name in the folder commands/."""
for _application in ("documents", "interop"):
    getattr(applications, _application).package = f"vtrans.apps.{_application}"
for _panel, _names in _PANELS.items():
    for _place in _names.split():
        _application, _, _name = _place.rpartition(".")
        _package = f"vtrans.apps.{_application}" if _application else "vtrans"
        _command = getattr(import_module(f"{_package}.commands.{_name}"), _name)
        app.command(_name.replace("_", "-").strip("-"), cls=_Command, rich_help_panel=_panel)(_command)


def main() -> None:
    """Runs the command line and exits with its code."""
    debug = "--debug" in sys.argv
    try:
        with warnings.catch_warnings():
            if not debug:
                warnings.showwarning = lambda message, *_: Console().warn(str(message))
            code = _run([word for word in sys.argv[1:] if word != "--debug"], debug)
    except KeyboardInterrupt:  # again, while the first was reported
        code = 1
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Another Ctrl-C would interrupt the functions at exit, and Python would print a traceback. A program that calls
        # main() keeps its handler until it exits.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)
    for descriptor, stream in enumerate((sys.stdout, sys.stderr), 1):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            code = code or 1
            discard(descriptor)
    if "WORLD_SIZE" in os.environ:
        # Exit without waiting for the threads that connect the ranks, which may never end after an exception, and
        # without C++ destructors, which now and then abort a rank that has finished its work.
        os._exit(code)
    sys.exit(code)


def _run(words: list[str], debug: bool) -> int:
    """Runs the command that the words name, prints its error if there is one, and returns the exit code."""
    command: Any = typer.main.get_command(app)
    context = None
    try:
        if "_VTRANS_COMPLETE" in os.environ:  # the shell asks for completions
            command.main(prog_name="vtrans")
        # command.main() would handle Ctrl-C and a broken pipe in its own way.
        with command.make_context("vtrans", list(words) or ["--help"]) as context:
            command.invoke(context)
        return 0
    except typer.Exit as error:
        return error.exit_code if words else _failed("no command is given.", 2, debug)
    except VtransError as error:
        if isinstance(error, InputError):
            _let_others_report()
        message = _message(error, command.commands[context.invoked_subcommand] if context else command)
        return _failed(message, error.exit_code, debug)
    except (typer.Abort, KeyboardInterrupt) as error:
        # Signals other than Ctrl-C carry their name. Rank 0 speaks for all ranks.
        return 1 if _rank() else _failed(f"stopped by {error}." if str(error) else "interrupted.", 1, debug)
    except BrokenPipeError:
        discard(1)  # nobody reads it any more
        return 1
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OF_PATHS and error.filename:
            path = os.fsdecode(error.filename)
            shown = path if len(path) <= LONGEST_SHOWN else f"{path[:LONGEST_SHOWN]}..."
            return _failed(f"{printable(shown)} cannot be used: {reason(error)}; give another path.", 2, debug)
        if isinstance(error, _UsageError):
            _let_others_report()
            return _failed(_usage_message(error), 2, debug)
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            what = "this needs the package torch, which is not installed; install it with `pip install torch`."
            return _failed(what, 2, debug)
        what = " ".join(str(error).split()) or "no message"
        return _failed(f"{type(error).__name__}: {what} (--debug shows where)", 1, debug)


def _rank() -> int:
    """The rank of this process among those that torchrun started; 0 without torchrun."""
    return int(os.environ.get("RANK", "0"))


def _let_others_report() -> None:
    """Waits, unless this is the first rank of the machine: all ranks have the same arguments and files, and thus the
    same error. torchrun ends the others when the first has reported it."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(REPORT_SECONDS)


def _with_flags(text: str, command: Any) -> str:
    """Returns a text of the library with the command's flags and arguments in place of the parameters in backticks
    (errors.py)."""
    flags = {
        parameter.name.rstrip("_"): (
            next((flag for flag in parameter.opts if flag.startswith("--")), parameter.metavar)
        )
        for parameter in command.params
    }
    return re.sub(r"`(\w+)`", lambda name: flags.get(name[1], name[0]), text)


def _message(error: VtransError, command: Any) -> str:
    """Returns the message of a library error with the command's flags.

    What to do follows the last semicolon, in parts that begin after a comma. A part that names a parameter which the
    command lacks is left out.
    """
    message = _with_flags(str(error), command)
    fault, mark, advice = message.rpartition("; ")
    parts = re.split(r",(?: or)? ", advice.rstrip(".")) if mark else []
    possible = [part for part in parts if not re.search(r"`\w+`", part)]
    if len(possible) == len(parts):
        return message
    return f"{fault}{'; ' * bool(possible)}{', or '.join(possible)}."


def _usage_message(error: Any) -> str:
    """Returns Typer's error as one sentence; for an unknown command or option, it names the nearest known one."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    path, command = (context.command_path, context.command) if context else ("vtrans", None)
    if unknown := re.match(r"No such (command|option):? '?([^ '.]+)", message):
        kind, word = unknown.groups()
        known = getattr(command, "commands", None) if kind == "command" else None
        if known is None:
            known = [name for parameter in getattr(command, "params", ()) for name in parameter.opts]
        # Compare without the dashes: with them --resume would match --fresh, which deletes a run.
        names = {name.lstrip("-"): name for name in known if kind == "command" or name.startswith("-")}
        close = difflib.get_close_matches(word.lstrip("-"), names, n=1, cutoff=0.6)
        message = f"there is no {kind} {word}" + (f"; did you mean {names[close[0]]}?" if close else "")
    if wrong := re.match(rf"Invalid value for '(\S+)': {_ALLOWED}", message):
        # Recent versions of Typer check values with pydantic, whose message does not say what the value is.
        allowed = wrong[4] or f"{wrong[2] or ''} {wrong[3]}".replace("integer", "whole number").strip()
        value = error.__cause__.errors()[0]["input"]
        message = f"{wrong[1]} must be {allowed}, got {value}"
    message = message[:1].lower() + message[1:]
    listing = "--help-all" if getattr(command, "advanced", ()) else "--help"
    return f"{message}{' See' if message.endswith('?') else '; see'} `{path} {listing}`."


def _failed(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    Console().error(f"process {_rank()}: {message}" if _rank() else message)
    return code
