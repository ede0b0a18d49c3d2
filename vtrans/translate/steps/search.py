"""Sixth step: searches for translations, checks them, and searches again, once, for pieces with problems.

The second search gets all problems of a piece at once (check.py). The result with fewer problems is kept, then the one
with the higher score; the first, if they are equal. The first is also kept if only its numbers are wrong and the score
of the second is lower by FAR_WORSE: a mere list of the numbers would have none of these problems. The other hypotheses
do not decide, so that the best one is the same however many are asked for.

A model that has learned to place codes (translate/wording/protection.py) mostly places them by itself, and phrases take
several times as long, so the first search has no phrases if a piece needs nothing but codes. It has no terms of a
glossary, either, where these may be written in the places of the words that translate them (terms.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from vtrans.config import SearchConfig
from vtrans.engines.engine import Engine, Source
from vtrans.search.loop import Hypothesis
from vtrans.search.mbr import UTILITIES, ranked
from vtrans.search.rules import rules_of
from vtrans.text.vocabulary import Vocabulary
from vtrans.translate.steps.check import Check
from vtrans.translate.steps.line import Piece, Problems
from vtrans.translate.steps.terms import WriteTerms
from vtrans.translate.translation import TranslateOptions

FAR_WORSE = 5.0  # a difference of scores

Find = Callable[[Mapping[Piece, Source]], Iterator[Piece]]
"""Gives pieces the hypotheses for these sources, and yields each as soon as it has them, in any order."""


def find_with(engine: Engine, search: SearchConfig, options: TranslateOptions) -> Find:
    """Returns a search with an engine."""
    rules, nbest = rules_of(search, engine.tgt_vocab), options.candidates(search.beam)

    def find(sources: Mapping[Piece, Source]) -> Iterator[Piece]:
        longest_first = sorted(sources, key=lambda piece: -len(sources[piece].tokens))
        found = engine.search(
            [sources[piece] for piece in longest_first],
            search,
            rules=rules,
            nbest=nbest,
            sampling=options.sampling,
            abandoned=options.abandoned,
        )
        for i, hypotheses in found:
            piece = longest_first[i]
            piece.hypotheses = chosen(hypotheses, options, engine.tgt_vocab)
            yield piece

    return find


def chosen(hypotheses: list[Hypothesis], options: TranslateOptions, vocab: Vocabulary) -> list[Hypothesis]:
    """Returns the `options.nbest` best of the candidates for a translation, whose texts differ: of hypotheses that
    spell one text in different subwords, the best one counts. Without `options.mbr`, samples stay as they are."""
    if options.mbr is None and (options.sampling is not None or len(hypotheses) == 1):
        return hypotheses
    texts = [vocab.decode(hyp.tokens) for hyp in hypotheses]
    if options.mbr is not None:
        return ranked(hypotheses, texts, UTILITIES[options.mbr.metric])[: options.nbest]
    distinct: dict[str, Hypothesis] = {}
    for text, hyp in zip(texts, hypotheses, strict=True):
        distinct.setdefault(text, hyp)
    return list(distinct.values())[: options.nbest]


class SearchTwice:
    """Gives pieces the better of the hypotheses of two searches, and their problems."""

    def __init__(self, find: Find, check: Check, terms: WriteTerms | None) -> None:
        self._find, self._check, self._terms = find, check, terms

    def __call__(self, pieces: Sequence[Piece]) -> Iterator[Piece]:
        """Yields each piece as soon as it has its translations."""
        failed: dict[Piece, Problems] = {}
        for piece, unwritten in self._first(pieces):
            if problems := self._check(piece, unwritten):
                failed[piece] = problems
            else:
                yield piece
        if failed:
            yield from self._second(failed)

    def _first(self, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, int]]:
        """Yields pieces with the hypotheses of the first search, and how many terms could not be written in them."""
        drafts = self._terms.drafts(pieces) if self._terms else {}
        sources = {piece: drafts[piece].source if piece in drafts else piece.source for piece in pieces}
        for piece, source in sources.items():
            if self._check.has_codes and all(phrase.exactly for phrase in source.phrases):
                sources[piece] = replace(source, phrases=())
        for piece in self._find(sources):
            if piece not in drafts:
                yield piece, 0
        if drafts and self._terms:
            for piece, is_written in self._terms.write(drafts):
                yield piece, 0 if is_written else len(piece.line.terms)

    def _second(self, failed: Mapping[Piece, Problems]) -> Iterator[Piece]:
        first = {piece: (piece.hypotheses, piece.problems) for piece in failed}
        again = {piece: self._check.again(piece, problems) for piece, problems in failed.items()}
        for piece in self._find({piece: source for piece, (source, _) in again.items()}):
            (hypotheses, problems), (_, coded) = first[piece], again[piece]
            piece.hypotheses = list(map(coded.restored, piece.hypotheses))
            before, after = failed[piece], self._check(piece)
            score, new_score = hypotheses[0].score, piece.hypotheses[0].score
            piece.line.counts.retried = 1
            is_far_worse = len(before) == len(before.numbers or ()) and new_score < score - FAR_WORSE
            if is_far_worse or (-len(before), score) >= (-len(after), new_score):
                piece.hypotheses, piece.problems = hypotheses, problems
            yield piece
