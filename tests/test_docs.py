"""The documentation: its generated pages, its links, and what only some pages may contain. `make docs` builds it."""

import calendar
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from vtrans import cli
from vtrans.config import SECTIONS
from vtrans.config.keys import keys_of

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def pages() -> list[Path]:
    """Returns all Markdown files of the repository."""
    folders = (ROOT, ROOT / "docs", ROOT / "recipes", ROOT / "tests")
    return sorted(
        path for folder in folders for path in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
    )


def text_of(page: Path) -> str:
    """Returns a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)", text_of(page), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[^\w -]", "", title).strip().replace(" ", "-") for title in plain}


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Yields the targets of a page's links to files, each with its anchor."""
    prose = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text_of(page))
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", prose):
        if "://" not in target and not target.startswith("mailto:"):
            yield target, anchor


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generate.py"))


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path, generator: dict[str, Any]) -> None:
    made = {"reference/commands.md", "reference/recipe.md", *generator["PAGES"]}
    for target, anchor in links(page):
        file = (page.parent / target).resolve() if target else page
        if file.is_relative_to(DOCS) and str(file.relative_to(DOCS)) in made:
            assert page.is_relative_to(DOCS), f"{target} exists on the site only"
            continue
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


def test_only_the_benchmarks_have_dates_and_commits() -> None:
    dated = re.compile(rf"\b(?:{'|'.join(calendar.month_name[1:])}) 20\d\d\b|\bcommits? [0-9a-f]{{7}}\b")
    pages = [page for page in DOCS.rglob("*.md") if page.name != "benchmarks.md"]
    assert not [page for page in pages if dated.search(text_of(page))]


def test_the_reference_has_every_option_and_every_key(generator: dict[str, Any]) -> None:
    group: Any = typer.main.get_command(cli.app)
    commands = generator["commands_page"]()
    for name, command in group.commands.items():
        section = commands.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            if not parameter.hidden:
                assert max(parameter.opts, key=len) in section or parameter.param_type_name == "argument"
    recipe = generator["recipe_page"]()
    for section, kind in SECTIONS.items():
        for name, key in keys_of(kind).items():
            assert f"### {section}.{name} " in recipe
            assert all(f"`{value}`" in recipe for value in key.choices or {})


def test_the_files_of_the_code_that_a_page_names_exist() -> None:
    for page in DOCS.rglob("*.md"):
        named = re.findall(r"`((?:vtrans|tests|recipes|docs)/[\w./-]+)`", text_of(page))
        assert not [path for path in named if not (ROOT / path).exists()], page


def test_the_reading_path_is_read_in_an_afternoon() -> None:
    path = text_of(DOCS / "how-it-works.md").partition("## A reading path")[2].partition("##")[0]
    rows = re.findall(r"`(vtrans/[\w/]+)` \| (.*) \|", path)
    files = [ROOT / folder / name for folder, names in rows for name in re.findall(r"`([\w.]+)`", names)]
    assert len(files) > 40
    assert sum(file.read_text(encoding="utf-8").count("\n") for file in files) < 8000


def test_the_drawings_name_every_package_and_only_files_that_exist() -> None:
    names = {
        drawing: re.findall(r'class="n"[^>]*>([^<]*)<', (DOCS / drawing).read_text(encoding="utf-8"))
        for drawing in ("packages.svg", "batch.svg", "sentence.svg")
    }
    words = {word for texts in names.values() for text in texts for word in re.findall(r"[\w./]+", text)}
    missing = {word for word in words if re.search(r"[./]", word) and not (ROOT / "vtrans" / word).exists()}
    assert not missing
    rooms = [*(ROOT / "vtrans").glob("*/__init__.py"), *(ROOT / "vtrans" / "apps").glob("*/__init__.py")]
    packages = {str(path.parent.relative_to(ROOT / "vtrans")) for path in rooms} - {"apps"}
    assert packages <= set(" ".join(names["packages.svg"]).split())
