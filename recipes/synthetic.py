"""Train on translations made by a model, and compare with the same training without them.

    python recipes/synthetic.py back-translation [--data FOLDER] [--pairs 3000 | --mono FILE]
    python recipes/synthetic.py distillation [--data FOLDER] [--student model.decoder_layers=1]

back-translation (Sennrich et al. 2016): a model of the opposite direction translates monolingual text in the target
language. The translations become the sources of additional training pairs. They begin with a tag (Caswell et al.
2019), which lets the model tell them from sources written by people.

distillation (Kim and Rush 2016): a teacher translates the training sources, and a smaller student learns from
these translations instead of the references.

`--data` names a folder with train, valid and test files, as for recipes/experiment.py; without it, the built-in
corpus is generated. `--pairs N` keeps only the first N training pairs; the target side of the other pairs is the text
to translate back. Each command is printed before it runs. Run the script again to resume where it stopped.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

if not __package__:  # run as a script: make the package importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "recipes"
    importlib.import_module(__package__)

from vtrans.checkpoint import RunFolder
from vtrans.console import Console
from vtrans.errors import InputError, VtransError
from vtrans.files import file_sha256, replacing, write_atomically
from vtrans.text import open_bytes, read_lines
from vtrans.training.recipe import load_recipe

from .experiment import files_of, pairs_of, run

TAG = "<BT>"
PAIRS = 3000  # default of --pairs
STUDENT = ("model.decoder_layers=1",)
GENERATED = ("--train", "24000", "--valid", "500", "--test", "1000", "--seed", "1")

Pair = tuple[Path, Path]


@dataclass(frozen=True)
class Study:
    """Models trained on one text with one recipe. Each model has a folder in `work`."""

    work: Path
    text: Path
    languages: tuple[str, str]
    recipe: str
    settings: Sequence[str] = ()
    vocab_size: int | None = None
    symbols: Sequence[str] = ()

    def files(self, stem: str) -> Pair:
        src, tgt = (files_of(self.text, language)[stem] for language in self.languages)
        return src, tgt

    @property
    def stems(self) -> tuple[list[str], str, list[str]]:
        return pairs_of(self.text, *self.languages)

    def train(self, name: str, corpora: Sequence[Pair], *, back: bool = False, more: Sequence[str] = ()) -> Path:
        """Trains a model on these corpora, in the opposite direction if `back`, and returns its run folder."""

        def sides(pair: Pair, kind: str = "") -> list[str]:
            src, tgt = reversed(pair) if back else pair
            return [f"--{kind}src", str(src), f"--{kind}tgt", str(tgt)]

        folder, settings = self.work / name, [*self.settings, *more]
        pairs = [word for pair in corpora for word in sides(pair)]
        options = ["--vocab-size", str(self.vocab_size)] if self.vocab_size else []
        options += [word for symbol in self.symbols for word in ("--symbol", symbol)]
        data, model = str(folder / "data"), folder / "run"
        run(["vtrans", "prepare-bpe", *pairs, *sides(self.files(self.stems[1]), "valid-"), "--out", data, *options])
        changes = [word for setting in settings for word in ("--set", setting)]
        run(["vtrans", "train", "--data", data, "--out", str(model), "--recipe", self.recipe, *changes])
        run(["vtrans", "average", str(model)])
        return model

    def translate(self, model: Path, source: Path, name: str) -> Path:
        """Translates `source` to a file in `work`, unless the file already holds this model's translations of it."""
        out = self.work / name
        made_of, now = out.with_name(f"{name}.of"), f"{file_sha256(RunFolder(model).last)} {file_sha256(source)}\n"
        if not (out.exists() and made_of.exists() and made_of.read_text() == now):
            run(["vtrans", "translate", "--model", str(model), "--input", str(source), "--output", str(out)])
            write_atomically(made_of, now.encode())
        return out

    def compare(self, before: tuple[str, Path], after: tuple[str, Path]) -> None:
        """Scores two models on every test set; the first one is the baseline."""
        _, _, tests = self.stems
        for stem in tests:
            source, reference = self.files(stem)
            first, second = (
                self.translate(model, source, f"{stem}.{name}.{self.languages[1]}") for name, model in (before, after)
            )
            run(["vtrans", "score", str(reference), "--hyp", str(second), "--baseline", str(first)])


def lines(path: Path) -> Iterator[str]:
    with open_bytes(path) as stream:
        yield from read_lines(stream, str(path))


def write(path: Path, text: Iterator[str]) -> Path:
    """Writes these lines to a file, which stays as it was if this fails."""
    with replacing(path) as out:
        for line in text:
            out.write(line.encode() + b"\n")
    return path


def back_translation(study: Study, pairs: int | None, mono: Path | None) -> None:
    """Compares a model trained on the pairs with one trained on the pairs and the back-translations."""
    train = [study.files(stem) for stem in study.stems[0]]
    src, tgt = study.languages
    if mono is None:
        assert pairs is not None
        sides = [study.work / f"pairs.{language}" for language in study.languages]
        for side, path in enumerate(sides):
            write(path, islice((line for pair in train for line in lines(pair[side])), pairs))
        rest = islice((line for pair in train for line in lines(pair[1])), pairs, None)
        mono = write(study.work / f"mono.{tgt}", rest)
        if not mono.stat().st_size:
            raise InputError(f"--pairs must leave some of the pairs in {study.text} to translate back, got {pairs}.")
        train = [(sides[0], sides[1])]
    back = study.train("back", train, back=True)
    translated = study.translate(back, mono, f"mono.{src}")
    tagged = write(study.work / f"tagged.{src}", (f"{TAG} {line}" for line in lines(translated)))
    without = study.train("without", train)
    with_ = study.train("with", [*train, (tagged, mono)])
    study.compare(("without", without), ("with", with_))


def distillation(study: Study, student: Sequence[str]) -> None:
    """Compares a student of the teacher's translations with the teacher and with a student of the references."""
    train = [study.files(stem) for stem in study.stems[0]]
    teacher = study.train("teacher", train)
    taught = [
        (pair[0], study.translate(teacher, pair[0], f"{stem}.taught.{study.languages[1]}"))
        for stem, pair in zip(study.stems[0], train, strict=True)
    ]
    alone = study.train("alone", train, more=student)
    pupil = study.train("pupil", taught, more=student)
    study.compare(("teacher", teacher), ("pupil", pupil))
    study.compare(("alone", alone), ("pupil", pupil))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train with and without translations made by a model, and compare.")
    parser.add_argument("name", choices=("back-translation", "distillation"))
    parser.add_argument(
        "--data", type=Path, help="folder with train, valid and test files (default: the built-in corpus)"
    )
    parser.add_argument("--src", default="en", help="source language, which is the suffix of its files")
    parser.add_argument("--tgt", default="de", help="target language, likewise")
    parser.add_argument("--work", type=Path, help="folder for all results (default: work/NAME)")
    parser.add_argument(
        "--pairs", type=int, help=f"number of pairs to train on; the others are translated back (default: {PAIRS})"
    )
    parser.add_argument("--mono", type=Path, help="text in the target language to translate back instead")
    parser.add_argument("--student", action="append", help="section.key=value for the students; may be repeated")
    parser.add_argument("--recipe", default="phrasebook")
    parser.add_argument("--vocab-size", type=int, help="number of subwords")
    parser.add_argument(
        "--set", action="append", default=[], help="section.key=value for every training; may be repeated"
    )
    options = parser.parse_args(arguments)

    tagging = options.name == "back-translation"
    if options.mono and options.pairs:
        raise InputError("--pairs and --mono both say what to translate back; give one of them.")
    if options.pairs is not None and options.pairs < 1:
        raise InputError(f"--pairs must be at least 1, got {options.pairs}.")
    if (options.pairs or options.mono) and not tagging:
        raise InputError("--pairs and --mono apply only to back-translation; leave them out.")
    if options.student and tagging:
        raise InputError("--student applies only to distillation; leave it out.")
    student = () if tagging else options.student or STUDENT
    load_recipe(options.recipe, [*options.set, *student])  # refuse invalid settings before any training
    work = options.work or Path("work") / options.name
    work.mkdir(parents=True, exist_ok=True)
    text = options.data
    if text is None:
        if (options.src, options.tgt) != ("en", "de"):
            raise InputError(f"without --data, the languages must be en and de, got {options.src} and {options.tgt}.")
        text = work / "text"
        generator = Path(__file__).parent / "phrasebook" / "generate.py"
        if not text.exists():
            run([sys.executable, str(generator), "--out", str(text), *GENERATED])
    languages = (options.src, options.tgt)
    symbols = (TAG,) if tagging else ()
    study = Study(work, text, languages, options.recipe, options.set, options.vocab_size, symbols)
    if tagging:
        back_translation(study, options.pairs or PAIRS, options.mono)
    else:
        distillation(study, student)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except VtransError as error:
        Console().error(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
