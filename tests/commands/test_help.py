"""The help of the commands, the completions of the shell, and options made from keys."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import typer
from cli_runner import Run

from vtrans import cli
from vtrans.commands.generated import Given, generated
from vtrans.config.keys import choice, flag, number, path, paths, texts

GROUP: Any = typer.main.get_command(cli.app)
COMMANDS = sorted(GROUP.commands)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_plain_and_not_cut_off(command: str, run_cli: Run) -> None:
    done = run_cli(*command.split(), "--help")
    assert (done.code, done.err) == (0, "")
    text = done.out.decode()
    assert "--help" in text
    assert not set("╭│╰") & set(text)
    assert not re.search(r"^  \S+ <", text, re.MULTILINE), "the type of an argument is shown"
    assert "help=" not in text, "a declaration is shown instead of its text"
    assert "..." not in text.replace("]...", "").replace("}...", ""), "a summary is cut off"
    assert set(re.findall(r"`(\w+)`", text)) <= {"auto", "serve"}, "a parameter is named instead of its flag"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_on_a_screen_and_help_all_lists_every_option(
    command: str, run_cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    usual = run_cli(command, "--help").out.decode()
    everything = run_cli(command, "--help-all").out.decode()
    assert usual.count("\n") <= 60
    options = [option for option in GROUP.commands[command].params if option.param_type_name == "option"]
    declared = {name for option in options for name in option.opts if name.startswith("--")}
    assert declared <= _options(everything)
    omitted = declared - _options(usual)
    more = re.search(r"--help-all +Show (\d+) more options and exit\.\n$", usual)
    assert (int(more[1]) if more else 0) == len(omitted)


def _options(help: str) -> set[str]:
    """The options that a help lists."""
    columns = re.findall(r"^  (-.+?)(?:  |$)", help, re.MULTILINE)
    return {name for column in columns for name in re.findall(r"--[a-z0-9-]+", column)}


def test_an_option_that_help_omits_works_and_is_suggested(run_cli: Run) -> None:
    assert "--max-length" not in run_cli("translate", "--help").out.decode()
    context = GROUP.commands["translate"].make_context("translate", ["--max-length", "3"])
    assert context.params["max_length"] == 3
    done = run_cli("translate", "--max-lenght", "3")
    assert (done.code, done.out) == (2, b"")
    assert "--max-length?" in done.err
    assert "`vtrans translate --help-all`" in done.err


def test_help_imports_nothing_heavy() -> None:
    lines = [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)]
    program = (
        "import sys\nfrom vtrans.cli import main\n"
        f"for words in {lines}:\n"
        "    sys.argv = ['vtrans', *words]\n"
        "    try:\n        main()\n    except SystemExit as e:\n        assert e.code == 0, words\n"
        "    if heavy := {'torch', 'rich', 'numpy', 'sacrebleu', 'sentencepiece'} & sys.modules.keys():\n"
        "        sys.exit(f'{words} imports {heavy}')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tra", ["train", "translate"]),
        ("translate --len", ["--length-penalty"]),
        ("translate --engine ", ["compiled", "torch"]),
        ("translate --model run", []),  # the shell itself completes files
    ],
)
def test_the_shell_gets_completions(
    words: str, expected: list[str], run_cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = f"vtrans {words}"
    monkeypatch.setenv("_VTRANS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    done = run_cli()
    assert (done.code, done.err) == (0, "")
    assert done.out.decode().split() == expected


@dataclass(frozen=True)
class Stored:
    PANEL: ClassVar[str] = "Search"
    width: int = number(4, (1, 9), "Width, at least `depth`.")
    depth: float = number(0.5, (0.0, 1.0), "Depth.")
    rule: str = choice("first", {"first": "the first", "last": ""}, "Which one.", metavar="RULE")
    words: tuple[str, ...] = texts("Words.", unset="none")
    on: bool = flag(True, "Whether it is on.")


@dataclass(frozen=True)
class Files:
    inputs: tuple[Path, ...] = paths("Texts.", flag="--input")
    out: Path | None = path(None, "Result.", unset="stdout")
    lines: int = number(3, (1, 9), "Lines.")
    quick: bool = flag(False, "Be quick.")


def made(command: Any) -> Any:
    """Returns what Click makes of a command with generated options."""
    app = typer.Typer(add_completion=False)
    app.command()(generated(command))
    return typer.main.get_command(app)


SETTINGS = Given(Stored)


def run(*words: str) -> tuple[dict[str, Any], Files]:
    """Returns what a command with these words gets."""
    calls: list[tuple[dict[str, Any], Files]] = []

    def command(*, settings: Annotated[dict[str, Any], SETTINGS], out: Files) -> None:
        calls.append((settings, out))

    made(command).main(list(words), standalone_mode=False)
    return calls[0]


def test_a_command_gets_what_the_user_set_and_whole_dataclasses() -> None:
    assert run("--input", "a") == ({}, Files((Path("a"),)))
    words = "--width 2 --depth 0 --rule last --words a --words b --no-on --input a --input b --out c --quick"
    settings, files = run(*words.split())
    assert settings == {"width": 2, "depth": 0.0, "rule": "last", "words": ("a", "b"), "on": False}
    assert files == Files((Path("a"), Path("b")), Path("c"), quick=True)


def test_the_help_has_the_meanings_of_choices() -> None:
    def command(*, settings: Annotated[dict[str, Any], SETTINGS], out: Files) -> None:
        pass

    help = {option.name: option.help for option in made(command).params}
    assert help["rule"] == "Which one.\nfirst: the first\n[default: first]"
