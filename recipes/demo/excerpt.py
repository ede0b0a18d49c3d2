"""Choose the text of `make demo` from Tatoeba: python -m recipes.demo.excerpt --corpus FOLDER --out FOLDER

FOLDER has train, valid and test in .en and .de, plain or compressed. The excerpt has their pairs of short sentences in
frequent words. Its test set is all such pairs of `test` and the first ones of `valid`; its validation set is the other
pairs of `valid`. Training pairs whose English has the same words as a held-out sentence, or the same but one, are left
out. No score decides anything. Equal text gives equal bytes.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from recipes.experiment import lines_of
from vtrans.apps.experiments.experiment_files import TextFiles
from vtrans.text.lines import write_lines

LENGTH = 8  # words of a sentence at most
FREQUENT = (1500, 2200)  # English and German words
TESTED = 1000  # pairs of the test set
LANGUAGES = ("en", "de")

Pair = tuple[str, str]


def words_of(line: str) -> list[str]:
    return re.findall(r"\w+(?:['’]\w+)*", line.lower())


def frequent_words(lines: Sequence[str], number: int) -> set[str]:
    """Returns the most frequent words. Equally frequent words rank in the order in which they occur first."""
    counts = Counter(word for line in lines for word in words_of(line))
    return {word for word, _ in counts.most_common(number)}


def easy(pairs: Sequence[Pair], frequent: Sequence[set[str]]) -> list[Pair]:
    """Returns the distinct pairs in order whose sentences are short and have frequent words only."""

    def is_easy(line: str, known: set[str]) -> bool:
        words = words_of(line)
        return 0 < len(words) <= LENGTH and known.issuperset(words)

    return [pair for pair in dict.fromkeys(pairs) if all(map(is_easy, pair, frequent))]


def but_one(line: str) -> Iterator[tuple[str, ...]]:
    """Yields the sorted words of a sentence, and them without each word in turn.

    Two sentences that differ in one word, which is replaced, added or left out, have one of these in common.
    """
    words = sorted(words_of(line))
    yield tuple(words)
    for i in range(len(words)):
        yield (*words[:i], *words[i + 1 :])


def unlike(pairs: Sequence[Pair], held_out: Sequence[Pair]) -> list[Pair]:
    """Returns the pairs whose English differs from each held-out sentence by more than one word."""
    known = {words for english, _ in held_out for words in but_one(english)}
    return [pair for pair in pairs if known.isdisjoint(but_one(pair[0]))]


def excerpt(corpus: dict[str, list[Pair]]) -> dict[str, list[Pair]]:
    """Returns the pairs of train, valid and test that are chosen from those of the corpus."""
    sides = zip(*corpus["train"], strict=True)
    frequent = [frequent_words(lines, number) for lines, number in zip(sides, FREQUENT, strict=True)]
    chosen = {name: easy(pairs, frequent) for name, pairs in corpus.items()}
    needed = TESTED - len(chosen["test"])
    test = chosen["test"] + chosen["valid"][:needed]
    valid = chosen["valid"][needed:]
    return {"train": unlike(chosen["train"], test + valid), "valid": valid, "test": test}


def main() -> None:
    parser = argparse.ArgumentParser(description="Choose the text of the demo from Tatoeba.")
    parser.add_argument("--corpus", type=Path, required=True, help="folder with train, valid and test in .en and .de")
    parser.add_argument("--out", type=Path, required=True, help="folder to write train.en.xz, train.de.xz, ... to")
    options = parser.parse_args()
    files = TextFiles.of(options.corpus, *LANGUAGES).pairs
    corpus = {name: list(zip(*map(lines_of, files[name]), strict=True)) for name in ("train", "valid", "test")}
    options.out.mkdir(parents=True, exist_ok=True)
    for name, pairs in excerpt(corpus).items():
        for number, language in enumerate(LANGUAGES):
            write_lines(options.out / f"{name}.{language}.xz", (pair[number] for pair in pairs))


if __name__ == "__main__":
    main()
