"""Makes the pages of the documentation that are not written by hand, as a hook of MkDocs.

The references of the commands and of the recipe keys come from the program itself, so they cannot become stale. The
READMEs of the recipes, which are read beside the files that they describe, become pages as well.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from vtrans import cli
from vtrans.config import SECTIONS
from vtrans.config.keys import Key, keys_of, range_of, toml_value

ROOT = Path(__file__).parent.parent
PAGES = {
    "recipes.md": "recipes/README.md",
    "demo.md": "recipes/demo/README.md",
    "speedrun.md": "recipes/speedrun/README.md",
    "tatoeba.md": "recipes/tatoeba/README.md",
    "everyday.md": "recipes/everyday/README.md",
}
"""Pages that are files of the repository outside docs/."""
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def on_files(files: Any, *, config: Any) -> Any:
    """Adds the generated pages (MkDocs calls this)."""
    from mkdocs.structure.files import File

    made = {"reference/commands.md": commands_page(), "reference/recipe.md": recipe_page()}
    made |= {page: relinked(page) for page in PAGES}
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def commands_page() -> str:
    """Returns the reference of the commands in Markdown."""
    group: Any = typer.main.get_command(cli.app)
    context = group.make_context("vtrans", ["--help"], resilient_parsing=True)
    parts = [
        "# Commands\n\nThis page is generated from the program. `vtrans COMMAND --help-all` prints the same.\n",
        "\n## vtrans\n",
        f"{group.help}\n",
        *_options(group.panels(context)["Options"]),
    ]
    for name, command in group.commands.items():
        own = command.make_context(name, [], parent=context, resilient_parsing=True)
        parts += [f"\n## {name}\n", f"```\n{own.command_path} {_usage(command, own)}\n```\n", _text(command.help)]
        for panel, records in command.panels(own).items():
            parts += [f"\n**{panel}**\n", *_options(records)]
    return "\n".join(parts) + "\n"


def _usage(command: Any, context: Any) -> str:
    return " ".join(command.collect_usage_pieces(context))


def _options(records: list[tuple[str, str]]) -> Iterator[str]:
    """Yields the definition of each option."""
    for name, help in records:
        first, *lines = help.split("\n")
        yield f"`{name}`\n:   {_text(first)}"
        yield from (f"    - {_text(line)}" if not line.startswith("[") else f"\n    {_text(line)}" for line in lines)
        yield ""


def _text(help: str) -> str:
    """Returns help as Markdown, in which the program's plain text stands as it is."""
    quoted = re.sub(r"([*_\[\]])", r"\\\1", help).replace("<", "&lt;")
    return re.sub(r"(?<![\w`-])(--[a-z][a-z0-9-]+)", r"`\1`", quoted)


def recipe_page() -> str:
    """Returns the reference of the recipe keys in Markdown."""
    parts = [
        "# Recipe keys\n\nThis page is generated from the program. A recipe is a TOML file with the sections "
        "`[model]`, `[train]` and `[search]`. A key that is not given has its default. `--set section.key=value` "
        "replaces a value on the command line.\n"
    ]
    for section, kind in SECTIONS.items():
        doc = (kind.__doc__ or "").replace("\n    ", " ")
        parts.append(f"\n## [{section}] {{ #{section} }}\n\n{doc}\n")
        defaults = {spec.name: spec.default for spec in dataclasses.fields(kind)}
        for name, key in keys_of(kind).items():
            parts += [f"\n### {section}.{name} {{ #{section}.{name} }}\n", *_key(key, toml_value(defaults[name]))]
    return "\n".join(parts) + "\n"


def _key(key: Key, default: str) -> Iterator[str]:
    """Yields what there is to say of a key of a recipe."""
    yield _backticks(key.help) + "\n"
    for value, meaning in (key.choices or {}).items():
        yield f"- `{value}`" + (f": {_text(meaning)}" if meaning else "")
    if key.choices:
        yield ""
    facts = [f"Default: `{default}`"]
    if key.kind in (int, float, tuple):
        facts.append(f"allowed: {range_of(key)}")
    if key.idle_if:
        facts.append("no effect with some values of " + ", ".join(f"`{other}`" for other in key.idle_if))
    if key.may_change:
        facts.append("a resumed run may have another value")
    yield "; ".join(facts) + "."


def _backticks(help: str) -> str:
    """Returns help as Markdown. The names of other keys stand in backticks already."""
    return "`".join(part if i % 2 else _text(part) for i, part in enumerate(help.split("`")))


def relinked(page: str) -> str:
    """Returns a file of the repository as a page: links to other pages lead there, and links to other files are
    removed, because the site does not have them."""
    source = PAGES[page]
    pages = {path: name for name, path in PAGES.items()}

    def changed(link: re.Match[str]) -> str:
        words, target, anchor = link.groups("")
        if "://" in target or not target:
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        page = path.removeprefix("docs/") if path.startswith("docs/") else pages.get(path)
        return f"[{words}]({page}{anchor})" if page else words

    return LINK.sub(changed, (ROOT / source).read_text(encoding="utf-8"))
