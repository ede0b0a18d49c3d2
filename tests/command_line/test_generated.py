"""Options made from keys: what a command gets, what is refused, and what the help says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from vtrans.command_line.generated import Given, generated
from vtrans.keys import choice, flag, number, path, paths, texts


@dataclass(frozen=True)
class Stored:
    PANEL: ClassVar[str] = "Search"

    width: int = number(4, 1, 9, "Width, at least `depth`.")
    depth: float = number(0.5, 0.0, 1.0, "Depth.", panel="Speed")
    rule: str = choice("first", {"first": "the first", "last": ""}, "Which one.", metavar="RULE")
    words: tuple[str, ...] = texts("Words.", unset="none")
    on: bool = flag(True, "Whether it is on.")


@dataclass(frozen=True)
class Files:
    inputs: tuple[Path, ...] = paths("Texts.", required=True, flag="--input")
    out: Path | None = path(None, "Result.", unset="stdout")
    lines: int = number(3, 1, 9, "Lines.")
    quick: bool = flag(False, "Be quick.")


def made(command: Any) -> Any:
    """Returns what Click makes of a command with generated options."""
    app = typer.Typer(add_completion=False)
    app.command()(generated(command))
    return typer.main.get_command(app)


SETTINGS = Given(Stored, otherwise="the model's, else ")
SOME = Given(Stored, ("width", "depth", "rule", "words"), "the model's, else ")


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


def test_the_help_has_the_meanings_of_choices_and_whose_default_holds() -> None:
    def command(*, settings: Annotated[dict[str, Any], SOME], out: Files) -> None:
        pass

    params = made(command).params
    help = {option.name: option.help for option in params}
    assert set(help) == {"width", "depth", "rule", "words", "inputs", "out", "lines", "quick"}
    assert help["width"] == "Width, at least `depth`.  [default: 4]"
    assert help["depth"] == "Depth.  [default: the model's, else 0.5]"
    assert help["rule"] == "Which one.\nfirst: the first\n[default: first]"
    assert help["words"].endswith("[default: none]")
    assert (help["out"], help["quick"]) == ("Result.  [default: stdout]", "Be quick.")
    panels = {option.name: option.rich_help_panel for option in params}
    assert panels["width"] == "Search (default: the model's, else as shown)"
    assert (panels["depth"], panels["out"]) == ("Speed", None)
