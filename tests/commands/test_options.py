"""The options of all commands, as options.txt lists them: their panels and their defaults.

`python tests/commands/test_options.py` writes that file. Review its changes before they are committed.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from vtrans import cli

LIST = Path(__file__).with_name("options.txt")


def options() -> Iterator[str]:
    """Yields a line for each command, panel and option."""
    group: Any = typer.main.get_command(cli.app)
    context = group.make_context("vtrans", ["--help"], resilient_parsing=True)
    for name, command in {"": group, **group.commands}.items():
        yield f"vtrans {name}".strip()
        own = command.make_context(name, ["--help"], parent=context, resilient_parsing=True) if name else context
        for panel, records in command.panels(own).items():
            if named := [record for record in records if record[0].startswith("-")]:
                yield f"  {panel}"
            for option, help in named:
                default = re.search(r"\[default: [^\]]*\]|\[required\]", help)
                yield f"    {option}  {default[0]}" if default else f"    {option}"


def listed() -> str:
    return "".join(f"{line}\n" for line in options())


def test_the_options_are_those_of_the_list() -> None:
    assert LIST.read_text(encoding="utf-8") == listed()


if __name__ == "__main__":
    LIST.write_text(listed(), encoding="utf-8")
