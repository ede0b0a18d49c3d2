"""Writes a static page that translates in a browser: the files of an export to Bergamot, the engine, and the page."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from vtrans.checkpoint import LoadedModel
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.interop.bergamot import exporter
from vtrans.interop.bergamot.engine import PACKAGE, WORKER, Bergamot
from vtrans.interop.bergamot.files import FIREFOX, names_of
from vtrans.text.languages import language_name

PAGE = Path(__file__).with_name("page")
COPIED = ("page.css", "page.js", "offline.js")
# The page runs no script but those beside it, and asks no other host for anything. The engine is WebAssembly.
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)
NOTICE = """The folder `worker` holds {package}, the translation engine of the Bergamot project.

It is subject to the terms of the Mozilla Public License, version 2.0: https://mozilla.org/MPL/2.0/
Its source code is at https://github.com/browsermt/bergamot-translator
"""


def write(
    loaded: LoadedModel, folder: Path, console: Console, samples: Sequence[str] | None, engine: Path | None = None
) -> tuple[LoadedModel, Callable[[], Bergamot]]:
    """Writes the files into an empty folder, as `exporter.write` does, and copies the engine with its licence.

    Raises InputError without the engine's npm package.
    """
    if engine is None:
        raise InputError(f"`engine` must name the folder of the npm package {PACKAGE}, which the page runs.")
    expressed, load = exporter.write(loaded, folder, console, samples, engine)
    names = names_of(loaded)
    (folder / "worker").mkdir()
    for name in WORKER:
        shutil.copyfile(engine / name, folder / name)
    for licence in sorted(engine.glob("LICEN[CS]E*")):
        shutil.copyfile(licence, folder / "worker" / licence.name)
    shutil.copyfile(engine / "package.json", folder / "worker" / "package.json")
    (folder / "worker" / "NOTICE.txt").write_bytes(NOTICE.format(package=PACKAGE).encode())
    files = {
        "model": names.model,
        "shortlist": names.shortlist,
        "vocabs": list(dict.fromkeys((names.src_vocab, names.tgt_vocab))),
        "settings": FIREFOX,
    }
    pairs = [f"{language_name(src)} to {language_name(tgt)}" for src, tgt in loaded.languages]
    title = html.escape(pairs[0] if len(pairs) == 1 else "Translation")
    for name in COPIED:
        shutil.copyfile(PAGE / name, folder / name)
    page = (PAGE / "index.html").read_text(encoding="utf-8").replace("{{TITLE}}", title).replace("{{POLICY}}", POLICY)
    (folder / "index.html").write_bytes(page.replace("{{FILES}}", json.dumps(files)).encode())
    return expressed, load
