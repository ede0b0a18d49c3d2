"""Runs Bergamot's npm package in Node, to compare an export with it.

The engine translates each sentence separately, because the sentences of a batch have a common shortlist.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from vtrans.apps.interop.bergamot.files import FIREFOX
from vtrans.apps.interop.comparison import Outputs, Program, Tolerance
from vtrans.apps.interop.foreign_files import read_bytes
from vtrans.system.errors import InputError
from vtrans.text.vocabulary import Vocabulary

PACKAGE = "@browsermt/bergamot-translator"
# The engine's code and the message loop around it, which a web page or Node runs in a separate thread.
WORKER = (
    "worker/translator-worker.js",
    "worker/bergamot-translator-worker.js",
    "worker/bergamot-translator-worker.wasm",
)
# Translates its standard input. The arguments are the worker, the settings and the files of the model.
_PROGRAM = Path(__file__).with_name("translate.cjs")


def package(engine: Path | None) -> Path:
    """Returns the folder of the npm package. Raises InputError if `engine` is None or another folder."""
    if engine is None:
        raise InputError(f"the folder of the engine's npm package, {PACKAGE}, is not given")
    for name in ("package.json", *WORKER):
        if not (engine / name).is_file():
            raise InputError(f"`engine` must be the folder of the npm package {PACKAGE}; {engine} lacks {name}.")
    return engine


class Bergamot(Program):
    """The engine running the model in a folder."""

    tolerance = Tolerance(token=math.inf, mean=math.inf, lost=0.02)

    def __init__(
        self, folder: Path, names: Mapping[str, Sequence[str]], engine: Path | None, vocab: Vocabulary
    ) -> None:
        """`vocab` is the target vocabulary. Raises InputError without the npm package or Node."""
        self.path, self.names, self.package, self.vocab = folder, names, package(engine), vocab
        if shutil.which("node") is None:
            raise InputError("Node is not installed")
        version = re.search(rb'"version":\s*"([\w.-]{1,20})"', read_bytes(self.package / "package.json"))
        self.name = f"Bergamot {version[1].decode() if version else 'of an unknown version'}"

    def translate(self, ours: Outputs) -> list[list[int]]:
        pairs = zip(ours.translations, self.texts(ours.lines), strict=True)
        return [mine if self.vocab.decode(mine) == text else self.vocab.encode(text) for mine, text in pairs]

    def texts(self, lines: Sequence[str]) -> list[str]:
        """Returns the engine's translation of each line, which is one sentence. Raises VtransError if it fails."""
        with tempfile.TemporaryDirectory() as name:
            for file in WORKER:  # without package.json, which would make Node treat the scripts as modules
                shutil.copy(self.package / file, name)
            worker, settings = Path(name) / Path(WORKER[0]).name, json.dumps(FIREFOX | {"ssplit-mode": "sentence"})
            files = [*self.names["models"], *self.names.get("shortlist", [""]), *dict.fromkeys(self.names["vocabs"])]
            paths = [str(self.path.absolute() / file) if file else "" for file in files]
            command = ["node", str(_PROGRAM), str(worker), settings, *paths]
            texts = self.run(command, len(lines), Path(name), json.dumps(list(lines)))
        return [json.loads(text) for text in texts]
