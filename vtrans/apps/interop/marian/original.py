"""Runs Marian, to compare an import with it.

Marian exits on an error, so it runs in a separate process. Its vocabularies here are text files with one word per id,
so that it neither splits nor joins text.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vtrans.apps.interop.comparison import IdPair, Outputs, Program
from vtrans.system.errors import need_packages
from vtrans.text.piece_table import is_byte
from vtrans.text.vocabulary import EOS_ID, SPECIAL_PIECES, UNK_ID, Vocabulary

MODULE = "_pymarian"  # the compiled part of pymarian; the rest needs packages for downloads
_PROGRAM = f"import sys, {MODULE}; sys.exit({MODULE}.main(sys.argv[1:]))"
# One sentence per batch, because Marian limits a translation to a multiple of the longest source in its batch.
_SETTINGS = ("--cpu-threads", "1", "--workspace", "512", "--quiet", "--max-length", "10000", "--mini-batch", "1")


class MarianModel(Program):
    """Marian running an `.npz` model. If not `translates`, it only scores. Raises InputError without pymarian."""

    name = "Marian"

    def __init__(self, model: Path, src: Vocabulary, tgt: Vocabulary, *, translates: bool) -> None:
        need_packages("pymarian is not installed", "marian", MODULE)
        self.path, self.translates = model.absolute(), translates
        self._words = {"src": _words(src), "tgt": _words(tgt)}

    def logprobs(self, pairs: Sequence[IdPair]) -> list[list[float]]:
        texts = {"src": [source for source, _ in pairs], "tgt": [target for _, target in pairs]}
        lines = self._run(["score", "--model", str(self.path), "--word-scores", "--train-sets", "src", "tgt"], texts)
        return [[float(score) for score in line.rpartition("WordScores=")[2].split()] for line in lines]

    def translate(self, ours: Outputs) -> list[list[int]] | None:
        search = ours.search
        if not self.translates:
            return None
        command = ["decode", "--models", str(self.path), "--quiet-translation", "--input", "src"]
        command += ["--beam-size", str(search.beam), "--normalize", str(search.alpha)]
        command += ["--max-length-factor", str(search.max_ratio)]
        if SPECIAL_PIECES[UNK_ID] not in search.suppress:
            command += ["--allow-unk", "--allow-special"]
        ids = {word: id for id, word in self._words["tgt"].items()}
        return [[ids[word] for word in line.split()] for line in self._run(command, {"src": ours.sources})]

    def _run(self, command: Sequence[str], texts: Mapping[str, Sequence[Sequence[int]]]) -> list[str]:
        """Runs a command on files with the sentences `texts`, which end in EOS, and returns its output lines."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for side, words in self._words.items():
                _write(folder / f"{side}.txt", words.values())
                _write(folder / side, (" ".join(words[id] for id in ids[:-1]) for ids in texts.get(side, ())))
            options = ["--vocabs", "src.txt", "tgt.txt", "--output", "out", *_SETTINGS]
            program = [sys.executable, "-c", _PROGRAM, *command, *options]
            return self.run(program, len(texts["src"]), folder, out=folder / "out")


def _words(vocab: Vocabulary) -> dict[int, str]:
    """Returns a word for each of our ids that Marian's vocabulary contains, in the order of Marian's ids."""
    special = {UNK_ID: SPECIAL_PIECES[UNK_ID], EOS_ID: SPECIAL_PIECES[EOS_ID]}
    words = {}
    for place, id in sorted((place, id) for id, place in enumerate(vocab.order) if place is not None):
        piece = vocab.piece(id)
        words[id] = special.get(id, piece if is_byte(piece) else f"w{place}")
    return words


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
