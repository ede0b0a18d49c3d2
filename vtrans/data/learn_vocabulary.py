"""The subwords of parallel text, learnt from random pairs of it: one vocabulary for both sides or one a side, of a size
that the text allows.
"""

from __future__ import annotations

from collections.abc import Iterable

from vtrans.config import PrepareOptions
from vtrans.console import Console
from vtrans.data.parallel_text import Sample, TrainingText
from vtrans.data.vocabulary import SizeError, Vocabulary, learn
from vtrans.errors import InputError


def learn_sides(source: TrainingText, pairs: int, options: PrepareOptions, console: Console) -> list[Vocabulary]:
    """The vocabulary of both sides, or one a side; `pairs` of the source have no blank side."""
    sides = ("src", "tgt") if options.separate else ("both",)
    size, works = options.vocab_size, options.vocab_size
    tried, refused = set(), None
    while works not in tried:  # what one side allows may be too much or too little for the other
        tried.add(works)
        try:
            vocabularies = [_learn_side(source, side, pairs, works, options, console) for side in sides]
        except SizeError as error:
            works, refused = error.works, refused or error
            continue
        if refused is None:
            return vocabularies
        assert size is not None
        assert works is not None
        raise refused if refused.works == works else SizeError(size, works, "the pair of sides")
    raise InputError(f"--vocab-size {size} does not fit both sides, and no size does; leave it unset.")


def _learn_side(
    source: TrainingText, side: str, pairs: int, size: int | None, options: PrepareOptions, console: Console
) -> Vocabulary:
    name = {"src": "the source side", "tgt": "the target side"}.get(side, "the training text")
    drawn = min(options.sample, pairs)
    with console.progress(f"reading {name} for its vocabulary", drawn, "pairs") as progress:
        read = 0

        def seen() -> None:
            nonlocal read
            read += 1
            progress.advance()
            if read == drawn:  # SentencePiece learns when it has read all, and says nothing meanwhile
                console.info(f"learning the vocabulary of {name} from {drawn:,} pairs ...")

        return learn_from(Sample(source, side, options.sample, pairs, seen), size, options, name)


def learn_from(lines: Iterable[str], size: int | None, options: PrepareOptions, name: str) -> Vocabulary:
    """The vocabulary of these lines, in the kind and with the rules of the options."""
    return learn(
        lines,
        size=size,
        kind=options.subword,
        coverage=options.character_coverage,
        normalization=options.normalization,
        symbols=options.symbols,
        name=name,
    )
