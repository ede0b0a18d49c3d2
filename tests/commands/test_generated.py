"""Options made from keys: what a command gets, what is refused, and what the help says."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from vtrans.commands.generated import Given, generated
from vtrans.config.keys import choice, flag, number, path, paths, texts


@dataclass(frozen=True)
class Stored:
    PANEL: ClassVar[str] = "Search"
    width: int = number(4, 1, 9, "Width, at least `depth`.")
    depth: float = number(0.5, 0.0, 1.0, "Depth.")
    rule: str = choice("first", {"first": "the first", "last": ""}, "Which one.", metavar="RULE")
    words: tuple[str, ...] = texts("Words.", unset="none")
    on: bool = flag(True, "Whether it is on.")


@dataclass(frozen=True)
class Files:
    inputs: tuple[Path, ...] = paths("Texts.", flag="--input")
    out: Path | None = path(None, "Result.", unset="stdout")
    lines: int = number(3, 1, 9, "Lines.")
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
