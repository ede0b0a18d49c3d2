"""Sixth step: searches for translations, checks them, and searches again, once, for pieces with problems.

The second search gets all problems of a piece at once (requirements.py). The result with fewer problems is kept, then
the one with the higher score; the first, if they are equal. The first is also kept if only its numbers are wrong and
the score of the second is lower by FAR_WORSE: a mere list of the numbers would have none of these problems. The other
hypotheses do not decide, so that the best one is the same however many are asked for.

A piece with another reading, such as a line in capitals whose rare words may be acronyms, has this reading in the
second search, so that the model's score decides between the two.

A model that has learned to place codes (wording/protect.py) mostly places them by itself, and phrases take several
times as long, so the first search has no phrases if a piece needs nothing but codes. It has no terms of a glossary,
either, where these may be written in the places of the words that translate them (terms.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from vtrans.config import SearchConfig
from vtrans.engines.engine import Engine
from vtrans.lines.check import Check
from vtrans.lines.line import Piece, Problems
from vtrans.lines.mbr import chosen
from vtrans.lines.reader import SourceReader
from vtrans.lines.requirements import Requirements
from vtrans.lines.terms import WriteTerms
from vtrans.text.values import Difference
from vtrans.translate.translation import TranslateOptions

FAR_WORSE = 5.0  # a difference of scores

Find = Callable[[Sequence[Piece]], Iterator[Piece]]
"""Gives pieces their hypotheses, and yields each as soon as it has them, in any order."""


def find_with(engine: Engine, search: SearchConfig, options: TranslateOptions) -> Find:
    """Returns a search with an engine."""

    def find(pieces: Sequence[Piece]) -> Iterator[Piece]:
        longest_first = sorted(pieces, key=lambda piece: -len(piece.source.tokens))
        found = engine.search(
            [piece.source for piece in longest_first],
            search,
            nbest=options.candidates(search.beam),
            sampling=options.sampling,
            abandoned=options.abandoned,
        )
        for i, hypotheses in found:
            piece = longest_first[i]
            piece.hypotheses = chosen(hypotheses, options, engine.tgt_vocab)
            yield piece

    return find


class SearchTwice:
    """Gives pieces the better of the hypotheses of two searches, and their problems.

    With `retries`, pieces whose translations loop or are unfinished are searched again, and with `requires` those with
    other numbers.
    """

    def __init__(
        self,
        find: Find,
        engine: Engine,
        reader: SourceReader,
        terms: WriteTerms | None,
        *,
        retries: bool,
        compares: bool,
        requires: bool,
    ) -> None:
        self._find, self._terms, self._retries, self._requires = find, terms, retries, requires
        self._check = Check(engine, numbers=compares)
        self._require = Requirements(engine, reader, self._check, numbers=requires)
        self._has_codes = all(model.codes for model in engine.models)

    def __call__(self, pieces: Sequence[Piece]) -> Iterator[Piece]:
        """Yields each piece as soon as it has its translations."""
        failed: dict[Piece, Problems] = {}
        for piece, unwritten in self._first(pieces):
            piece.problems = replace(self._check(piece), phrases=unwritten) if unwritten else self._check(piece)
            problems = self._solvable(piece.problems)
            if problems or (piece.other and self._retries):
                failed[piece] = problems
            else:
                yield piece
        if failed:
            yield from self._second(failed)

    def _first(self, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, int]]:
        """Yields pieces with the hypotheses of the first search, and how many terms could not be written in them."""
        wanted = {piece: piece.source for piece in pieces}
        drafts = self._terms.drafts(pieces) if self._terms else {}
        for piece in pieces:
            source = drafts[piece].source if piece in drafts else piece.source
            is_easy = self._has_codes and all(phrase.exactly for phrase in source.phrases)
            piece.source = replace(source, phrases=()) if is_easy else source
        for piece in self._find(pieces):
            piece.source = wanted[piece]
            if piece not in drafts:
                yield piece, 0
        if drafts and self._terms:
            for piece, is_written in self._terms.write(drafts):
                yield piece, 0 if is_written else len(piece.line.terms)

    def _second(self, failed: Mapping[Piece, Problems]) -> Iterator[Piece]:
        first = {piece: (piece.source, piece.hypotheses, piece.problems) for piece in failed}
        coded = {}
        for piece, problems in failed.items():
            piece.source, coded[piece] = self._require(piece, problems)
        for piece in self._find(list(failed)):
            piece.source, hypotheses, problems = first[piece]
            piece.hypotheses = list(map(coded[piece].restored, piece.hypotheses))
            piece.problems = self._check(piece)
            before, after = failed[piece], self._solvable(piece.problems)
            score, new_score = hypotheses[0].score, piece.hypotheses[0].score
            piece.line.counts.retried |= bool(before)
            is_far_worse = len(before) == len(before.numbers) and new_score < score - FAR_WORSE
            if is_far_worse or (-len(before), score) >= (-len(after), new_score):
                piece.hypotheses, piece.problems = hypotheses, problems
            yield piece

    def _solvable(self, problems: Problems) -> Problems:
        """Returns the problems that a second search may solve."""
        if not self._retries:
            problems = replace(problems, unfinished=False, loops=False)
        return problems if self._requires else replace(problems, numbers=Difference())
