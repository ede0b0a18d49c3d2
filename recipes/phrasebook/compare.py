"""Score a hypothesis on the phrasebook test set: python recipes/phrasebook/compare.py --data FOLDER HYPOTHESIS

The table shows exact matches and BLEU for each kind of test line, for the hypothesis and for a translation memory.
The memory answers with the translation of the nearest training sentence, so it scores what a system would reach by
memorising the training text. The figures are synthetic: a grammar is not a language.

The candidates are the training sentences with the most words of the source, where rare words count more. The nearest
of them needs the fewest word insertions, deletions and substitutions. Ties go to the larger sum of rarities, then to
the earlier training line.
"""

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import sacrebleu

CANDIDATES = 40  # training sentences whose edit distance is measured
COMMON = 0.05  # words in a larger share of the training lines only rank candidates; they do not find any


class CompareError(Exception):
    """The files do not belong together. The message says which ones and why."""


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Returns the Levenshtein distance over words."""
    row = list(range(len(other) + 1))
    for i, word in enumerate(one, start=1):
        corner, row[0] = row[0], i
        for j, against in enumerate(other, start=1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (word != against))
    return row[-1]


class Memory:
    """A translation memory over the training text."""

    def __init__(self, src: Sequence[str], tgt: Sequence[str]) -> None:
        if not src:
            raise CompareError("the training text is empty, so there is no nearest sentence; generate training pairs")
        self.src = [line.split() for line in src]
        self.tgt = tgt
        seen = Counter(word for line in self.src for word in set(line))
        self.rarity = {word: math.log(len(src) / count) for word, count in seen.items()}
        self.lines: dict[str, list[int]] = defaultdict(list)
        for number, line in enumerate(self.src):
            for word in set(line):
                if seen[word] <= COMMON * len(src) or seen[word] <= CANDIDATES:
                    self.lines[word].append(number)

    def nearest(self, source: str) -> int:
        """Returns the number of the nearest training line."""
        words = source.split()
        shared: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(words):
            for number in self.lines.get(word, ()):
                shared[number] += self.rarity[word]
        first = sorted(shared, key=lambda number: (-round(shared[number], 9), number))[:CANDIDATES] or [0]
        # min() returns the first of equals, and the candidates are in the order that breaks ties.
        return min(first, key=lambda number: edit_distance(words, self.src[number]))

    def translate(self, source: str) -> str:
        return self.tgt[self.nearest(source)]


def exact(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Returns the percentage of lines that equal the reference."""
    same = sum(hyp == ref for hyp, ref in zip(hypotheses, references, strict=True))
    return 100 * same / len(references)


def table(
    sources: Sequence[str],
    references: Sequence[str],
    kinds: Sequence[str],
    memory: Memory,
    hypotheses: Sequence[str] | None,
) -> str:
    """Returns the figures as text: a row for each kind and one for all lines."""
    bleu = sacrebleu.BLEU()
    recalled = [memory.translate(source) for source in sources]
    systems = [("memory", recalled)] if hypotheses is None else [("hypothesis", hypotheses), ("memory", recalled)]
    head = f"{'kind':<16}{'lines':>7}"
    for name, _ in systems:
        head += f"{name + ' exact %':>20}{name + ' BLEU':>18}"
    rows = [head]
    for kind in [*dict.fromkeys(kinds), "all"]:
        chosen = [i for i, given in enumerate(kinds) if kind in (given, "all")]
        row = f"{kind:<16}{len(chosen):>7}"
        wanted = [references[i] for i in chosen]
        for _, lines in systems:
            got = [lines[i] for i in chosen]
            row += f"{exact(got, wanted):>20.1f}{bleu.corpus_score(got, [wanted]).score:>18.1f}"
        rows.append(row)
    return "\n".join(
        [
            "synthetic: the phrasebook test set",
            *rows,
            f"BLEU: {bleu.get_signature()}",
            "memory: the nearest training line",
        ]
    )


def read(path: Path) -> list[str]:
    """Returns the lines of a file written by generate.py or vtrans translate."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise CompareError(
            f"{path} cannot be read: {error.strerror}; run generate.py first, or name another file"
        ) from error
    except UnicodeDecodeError as error:
        raise CompareError(
            f"{path} is not UTF-8 at byte {error.start}; give text that vtrans translate wrote"
        ) from error
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="compare.py", description="Score on the synthetic phrasebook test set.")
    parser.add_argument("--data", type=Path, required=True, help="the folder that generate.py wrote")
    parser.add_argument(
        "hypothesis", type=Path, nargs="?", help="translations of test.en (default: score the memory alone)"
    )
    options = parser.parse_args(arguments)
    folder: Path = options.data
    try:
        sides = {name: read(folder / name) for name in ("train.en", "train.de", "test.en", "test.de", "test.kinds")}
        hypotheses = None if options.hypothesis is None else read(options.hypothesis)
        for one, other in (("train.en", "train.de"), ("test.en", "test.de"), ("test.en", "test.kinds")):
            if len(sides[one]) != len(sides[other]):
                raise CompareError(
                    f"{folder / one} has {len(sides[one])} lines but {other} has {len(sides[other])}; "
                    "generate the corpus again"
                )
        if hypotheses is not None and len(hypotheses) != len(sides["test.en"]):
            raise CompareError(
                f"{options.hypothesis} has {len(hypotheses)} lines but test.en has {len(sides['test.en'])}; "
                "translate all of test.en"
            )
        if not sides["test.en"]:
            raise CompareError(f"{folder / 'test.en'} is empty; generate a test set with --test")
        memory = Memory(sides["train.en"], sides["train.de"])
        text = table(sides["test.en"], sides["test.de"], sides["test.kinds"], memory, hypotheses)
    except CompareError as error:
        sys.stderr.write(f"compare.py: {error}\n")
        return 2
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
