"""Runs Marian with pymarian, an optional package, to compare an import or an export with it.

Marian ends the process on an error, so it runs in a separate process. Its vocabularies here are text files with a word
for each id, so that it neither splits nor joins text and only the network and the search are compared.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vtrans.config import SearchConfig
from vtrans.errors import VtransError, need_packages
from vtrans.interop.comparison import ROUNDING
from vtrans.text.piece_table import is_byte
from vtrans.text.vocabulary import EOS_ID, SPECIAL_PIECES, UNK_ID, Vocabulary

BATCH = 64  # sentences
_MODULE = "_pymarian"  # the compiled part of pymarian; the rest needs packages for its downloads
_PROGRAM = f"import sys, {_MODULE}; sys.exit({_MODULE}.main(sys.argv[1:]))"
SECONDS = 600  # until a run counts as hanging
_SETTINGS = ("--cpu-threads", "1", "--workspace", "512", "--quiet", "--max-length", "10000")
# Sentences keep their order, so that batches are what `MarianModel.translate` makes them.
_BATCHES = ("--mini-batch", str(BATCH), "--maxi-batch", "1", "--maxi-batch-sort", "none")


def check_installed() -> None:
    """Raises InputError without pymarian."""
    need_packages("pymarian is not installed", "marian", _MODULE)


class MarianModel:
    """Implements `comparison.Program` for an `.npz` file. With `translates=False` it only scores: see
    `decodes_as_trained` of importer.py."""

    tolerance = ROUNDING

    def __init__(self, model: Path, src: Vocabulary, tgt: Vocabulary, *, translates: bool) -> None:
        self.model, self.translates = model.absolute(), translates
        self._src, self._tgt = _Words(src), _Words(tgt)
        self.name = "Marian"

    def encode(self, lines: Sequence[str]) -> None:
        """Returns None: text is split by SentencePiece on both sides."""

    def logprobs(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            sides = [_write(folder / "src", self._src, sources), _write(folder / "tgt", self._tgt, targets)]
            command = ["score", "--model", str(self.model), "--train-sets", *sides, "--word-scores"]
            lines = self._run(folder, [*command, "--mini-batch", str(BATCH)], len(pairs))
        return [[float(score) for score in line.rpartition("WordScores=")[2].split()] for line in lines]

    def translate(
        self, sources: Sequence[Sequence[int]], longest: int, search: SearchConfig | None
    ) -> list[list[int]] | None:
        if not self.translates or search is None:  # a folder's search is given by its decoder.yml alone
            return None
        wide = max(sources, key=len)
        # The limit is a multiple of the longest source of a batch, so each batch begins with one of the same length.
        chunks = [sources[i : i + BATCH - 1] for i in range(0, len(sources), BATCH - 1)]
        given = [source for chunk in chunks for source in (wide, *chunk)]
        options = ["--beam-size", str(search.beam), "--normalize", str(search.alpha)]
        options += ["--max-length-factor", str((longest - 0.5) / len(wide))]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            command = ["decode", "--models", str(self.model), "--input", _write(folder / "src", self._src, given)]
            allowed = [] if SPECIAL_PIECES[UNK_ID] in search.suppress else ["--allow-unk", "--allow-special"]
            lines = self._run(folder, [*command, *options, *allowed, *_BATCHES, "--quiet-translation"], len(given))
        translations = [[self._tgt.ids[word] for word in line.split()][:longest] for line in lines]
        return [tokens for i, tokens in enumerate(translations) if i % BATCH]

    def _run(self, folder: Path, command: Sequence[str], count: int) -> list[str]:
        """Returns the `count` lines that a command writes."""
        out, vocabularies = folder / "out", [folder / "src.txt", folder / "tgt.txt"]
        for path, side in zip(vocabularies, (self._src, self._tgt), strict=True):
            path.write_bytes("".join(f"{word}\n" for word in side.of_place).encode())
        words = [*command, "--vocabs", *map(str, vocabularies), "--output", str(out), *_SETTINGS]
        try:
            done = subprocess.run(
                [sys.executable, "-c", _PROGRAM, *words], capture_output=True, cwd=folder, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            raise VtransError(f"Marian did not finish with {self.model} in {SECONDS} seconds.") from None
        lines = out.read_bytes().decode().split("\n")[:-1] if out.exists() else []
        if done.returncode or len(lines) != count:
            said = done.stderr.decode(errors="replace").strip().split("\n")
            errors = [line.partition("Error: ")[2] for line in said if "Error: " in line]
            why = (errors[:1] or said[-1:])[0][:300].rstrip(".") or f"exit code {done.returncode}"
            raise VtransError(f"Marian cannot run {self.model}: {why}.")
        return lines


class _Words:
    """A word for each id of Marian, and our ids of these words."""

    def __init__(self, vocab: Vocabulary) -> None:
        places = {place: id for id, place in enumerate(vocab.order) if place is not None}
        names = {id: piece for id in range(len(vocab)) if is_byte(piece := vocab.piece(id))}
        names |= {id: SPECIAL_PIECES[id] for id in (UNK_ID, EOS_ID)}
        self.of_place = [names.get(places[place], f"w{place}") for place in sorted(places)]
        self.ids = {word: places[place] for place, word in enumerate(self.of_place)}
        self.of_id = {id: word for word, id in self.ids.items()}


def _write(path: Path, words: _Words, sentences: Sequence[Sequence[int]]) -> str:
    """Writes sentences that end in EOS, one per line and without it. Returns the path as text."""
    path.write_bytes("".join(" ".join(words.of_id[id] for id in ids[:-1]) + "\n" for ids in sentences).encode())
    return str(path)
