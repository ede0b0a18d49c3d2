"""Write the phrasebook corpus: python recipes/phrasebook/generate.py --out FOLDER

The folder appears complete or not at all. Equal options give equal bytes on every machine.
"""

import argparse
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if not __package__:  # run as a plain file: find the package that this file is part of
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    __package__ = "recipes.phrasebook"
    importlib.import_module(__package__)

from .grammar import Pair, stream
from .holdout import KINDS, held_out

FILES = tuple(f"{split}.{side}" for split in ("train", "valid", "test") for side in ("en", "de", "align"))
FILES = (*FILES, "test.kinds")
# The share of each kind in the test set; the rest is unseen sentences without a held-out composition.
SHARES = {"adjective-noun": 0.2, "separable": 0.2, "form": 0.2}
PATIENCE = 400  # draws per requested pair before giving up on the test set


class CorpusError(Exception):
    """The options cannot be satisfied. The message says what to change."""


@dataclass(frozen=True)
class Corpus:
    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    kinds: list[str]  # of the test pairs


def pairs(n: int, seed: int = 1) -> list[Pair]:
    """Returns the first n distinct pairs of a seed, without holding anything out."""
    source = stream(seed)
    return [next(source) for _ in range(n)]


def corpus(train: int, valid: int, test: int, seed: int) -> Corpus:
    """Returns training pairs, validation pairs of the same distribution, and test pairs with their kinds in turn."""
    hold, source = held_out(), stream(seed)
    wanted = {kind: round(test * SHARES.get(kind, 0)) for kind in KINDS}
    wanted["unseen"] = test - sum(wanted.values())
    kept: dict[str, list[Pair]] = {kind: [] for kind in KINDS}
    training: list[Pair] = []
    waiting: list[tuple[Pair, str]] = []  # held-out pairs drawn before the training text is complete
    while len(training) < train:
        pair = next(source)
        kinds = hold.kinds(pair)
        if not kinds:
            training.append(pair)
        elif len(kinds) == 1 and len(waiting) < 20 * test:
            waiting.append((pair, kinds.pop()))
    known = {lemma for pair in training for lemma in pair.lemmas}
    german = {pair.german for pair in training}
    validation: list[Pair] = []

    def take(pair: Pair, kind: str) -> None:
        if pair.german in german or not pair.lemmas <= known:
            return
        if kind == "unseen" and len(validation) < valid:
            validation.append(pair)
        elif len(kept[kind]) < wanted[kind] and hold.tests(pair, kind):
            kept[kind].append(pair)
        else:
            return
        german.add(pair.german)

    for pair, kind in waiting:
        take(pair, kind)
    for _ in range(PATIENCE * (valid + test) + 1):
        if len(validation) == valid and all(len(kept[kind]) == wanted[kind] for kind in KINDS):
            break
        pair = next(source)
        kinds = hold.kinds(pair) or {"unseen"}
        if len(kinds) == 1:
            take(pair, kinds.pop())
    else:
        raise CorpusError(
            f"--train {train} is too small for --test {test}, because every test word must occur in training; "
            "ask for more training pairs or fewer test pairs"
        )
    lines: list[tuple[Pair, str]] = []
    for i in range(max(wanted.values(), default=0)):
        lines += [(kept[kind][i], kind) for kind in KINDS if i < wanted[kind]]
    return Corpus(training, validation, [pair for pair, _ in lines], [kind for _, kind in lines])


def write(out: Path, made: Corpus) -> None:
    """Writes to a temporary folder and renames it. An earlier phrasebook is replaced, any other folder is refused."""
    out = out.absolute()
    if out.exists() and (not out.is_dir() or {path.name for path in out.iterdir()} - set(FILES)):
        raise CorpusError(f"--out {out} exists and is not a phrasebook; name a new folder")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise CorpusError(f"--out {out} cannot be created: {error.strerror}; name another folder") from error
    try:
        for split, found in (("train", made.train), ("valid", made.valid), ("test", made.test)):
            _write_lines(fresh / f"{split}.en", [pair.english for pair in found])
            _write_lines(fresh / f"{split}.de", [pair.german for pair in found])
            _write_lines(fresh / f"{split}.align", [pair.alignment for pair in found])
        _write_lines(fresh / "test.kinds", made.kinds)
        fresh.chmod(0o755)
        if out.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
            out.rename(old / "old")
            fresh.rename(out)
            shutil.rmtree(old)
        else:
            fresh.rename(out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    with path.open("wb") as stream:
        stream.write("".join(line + "\n" for line in lines).encode())
        stream.flush()
        os.fsync(stream.fileno())


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="generate.py", description="Write the synthetic phrasebook corpus.")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--train", type=_count, default=40_000, help="training pairs (default 40000)")
    parser.add_argument("--valid", type=_count, default=500, help="validation pairs (default 500)")
    parser.add_argument("--test", type=_count, default=1_000, help="test pairs (default 1000)")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the corpus (default 1)")
    options = parser.parse_args(arguments)
    try:
        made = corpus(options.train, options.valid, options.test, options.seed)
        write(options.out, made)
    except CorpusError as error:
        sys.stderr.write(f"generate.py: {error}\n")
        return 2
    sys.stderr.write(
        f"wrote {len(made.train)} training, {len(made.valid)} validation and {len(made.test)} test pairs "
        f"(synthetic) to {options.out}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
