"""The command line: the commands in order, and the one place where errors are printed.

Each command is a file in commands/. Heavy imports stand inside the commands: `vtrans --help` needs no torch.
Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed while running, 2 the user's
input is at fault.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import traceback
from contextlib import suppress
from typing import Annotated, Any

import typer

import vtrans
from vtrans.commands.attend import attend
from vtrans.commands.average import average
from vtrans.commands.export import export
from vtrans.commands.inspect import inspect
from vtrans.commands.lines import print_line
from vtrans.commands.logprob import logprob
from vtrans.commands.overlap import overlap
from vtrans.commands.prepare_bpe import prepare_bpe
from vtrans.commands.score import score
from vtrans.commands.shortlist import shortlist
from vtrans.commands.train import train
from vtrans.commands.translate import translate
from vtrans.console import Console
from vtrans.errors import VtransError

app = typer.Typer(
    name="vtrans",
    help="Train and run Transformer translation models. Start with prepare-bpe, then train, average, "
    "translate and score; the defaults chain into each other.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# The class of every complaint of Typer about the command line, whichever click it carries.
_UsageError: type[BaseException] = typer.BadParameter.__mro__[1]


def _version(wanted: bool) -> None:
    if wanted:
        print_line(f"vtrans {vtrans.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", callback=_version)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Both have been seen to: `--version` by its callback, `--debug` by main(), wherever it stands."""


for _command in (
    prepare_bpe, train, average, shortlist, overlap, inspect, attend, export, translate, logprob, score,
):  # fmt: skip
    app.command()(_command)


def main() -> None:
    """Runs the command line and exits with its code; the one place where errors are printed."""
    debug = "--debug" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--debug"]
    try:
        command = typer.main.get_command(app)
        # Not command.main(), which has answers of its own to a broken pipe and to Ctrl-C.
        with command.make_context("vtrans", list(words) or ["--help"]) as context:
            command.invoke(context)
        code = 0
    except typer.Exit as error:
        code = error.exit_code if words else _failed("a command is missing.", 2, debug)
    except VtransError as error:
        code = _failed(_with_flags(str(error), words), error.exit_code, debug)
    except (typer.Abort, KeyboardInterrupt) as error:
        # The signals that do not come from the keyboard give their name.
        by = str(error)
        code = _failed(f"ended by {by}." if by else "interrupted.", 1, debug) if not _rank() else 1
    except BrokenPipeError:
        # The reader of our output has gone: nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
    except Exception as error:
        if isinstance(error, _UsageError):
            code = 2 if _rank() else _failed(_usage_message(error), 2, debug)  # the same for all of them
        else:
            what = " ".join(str(error).split()) or "no message"
            code = _failed(f"{type(error).__name__}: {what} (--debug shows where)", 1, debug)
    if "WORLD_SIZE" in os.environ and code:
        # What an exception has left of the talk between processes is not waited for.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.flush()
        os._exit(code)
    sys.exit(code)


def _rank() -> int:
    """The number of this process among those that torchrun has started, 0 for the only one."""
    return int(os.environ.get("RANK", "0"))


def _with_flags(message: str, words: list[str]) -> str:
    """The message of a library error, with the running command's flags for the parameters named in backticks."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # the app is a group
    running = next((commands[word] for word in words if word in commands), None)
    options = [p for p in getattr(running, "params", ()) if p.opts[0].startswith("-")]
    flags = {p.name.rstrip("_"): max(p.opts, key=len) for p in options}
    return re.sub(r"`(\w+)`", lambda name: flags.get(name[1], name[0]), message)


def _usage_message(error: Any) -> str:
    """What Typer says, in one sentence; an unknown word with the nearest known one."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    path, command = (context.command_path, context.command) if context else ("vtrans", None)
    if unknown := re.match(r"No such (command|option):? '?([^ '.]+)", message):
        kind, word = unknown.groups()
        known = getattr(command, "commands", None) if kind == "command" else None
        if known is None:
            known = [name for parameter in getattr(command, "params", ()) for name in parameter.opts]
        # By the letters alone: with the dashes --resume would be like --fresh, which throws a run away.
        names = {name.lstrip("-"): name for name in known}
        close = difflib.get_close_matches(word.lstrip("-"), names, n=1, cutoff=0.6)
        message = f"there is no {kind} {word}" + (f"; did you mean {names[close[0]]}?" if close else "")
    if message.startswith("Got unexpected extra argument") and path.endswith("translate"):
        message += "; a file to translate is given with --input"
    return f"{message}{' ' if message.endswith('?') else '; '}`{path} --help` lists what there is."


def _failed(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    Console().error(f"process {_rank()}: {message}" if _rank() else message)
    return code
