"""Decides which translations loop or do not end, and whether the result of a second search is better.

A line is searched again without repeated n-grams of RETRY_NGRAM subwords if its best hypothesis loops or reaches its
length limit without EOS. Where numbers are checked, digits may be repeated, but only as in the source. A hypothesis
loops if an n-gram of 1 to LOOP_NGRAM subwords occurs at least LOOP_TIMES times in a row, unless a string of up to
SOURCE_STRETCH characters occurs at least half as many times in a row in the source: "ha ha ha ha ha", dot leaders and
rows of zeros may be translated as they are. The subwords of a given prefix do not count.

The second result is kept only if its best hypothesis is better: finished is better than unfinished, then not looping
is better than looping.

In 28,998 pairs of Multi30k and 100,000 of Tatoeba (English to German, 8,000 subwords), no n-gram occurs more than 3
times in a row in a reference translation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from vtrans.config import SearchConfig
from vtrans.lines.line import Line, Piece, Search, Stage
from vtrans.search.rules import Rule
from vtrans.text.vocabulary import Vocabulary

LOOP_NGRAM = 4
LOOP_TIMES = 5
SOURCE_STRETCH = 50


Quality = tuple[bool, bool]
"""Whether a hypothesis is finished, and whether it does not loop; larger is better."""


class SearchAgain(Stage):
    """Searches pieces again with the rules `second`, or never if there are none. Counts the lines that were searched
    again, and those with a best hypothesis that is finished but loops. `vocab` is that of sources."""

    def __init__(self, second: Callable[[Piece], Sequence[Rule]] | None, vocab: Vocabulary) -> None:
        self._second, self._vocab = second, vocab

    def around(self, search: Search) -> Search:
        def searched(pieces: Sequence[Piece], config: SearchConfig) -> Iterator[Piece]:
            bad: dict[Piece, Quality] = {}
            for piece in search(pieces, config):
                found = quality(piece, self._vocab)
                if self._second and not all(found):
                    bad[piece] = found
                else:
                    yield piece
            if self._second and bad:
                again = [piece for piece in pieces if piece in bad]
                first = {piece: (piece.source, piece.hypotheses) for piece in again}
                for piece in again:
                    piece.source = replace(piece.source, rules=(*piece.source.rules, *self._second(piece)))
                for piece in search(again, config):
                    piece.line.counts.retried = 1
                    piece.source, hypotheses = first[piece]
                    if quality(piece, self._vocab) <= bad[piece]:
                        piece.hypotheses = hypotheses
                    yield piece

        return searched

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            line.counts.looping = int(any(quality(piece, self._vocab) == (True, False) for piece in line.pieces))


def quality(piece: Piece, vocab: Vocabulary) -> Quality:
    """Returns the quality of the best hypothesis of a piece. `vocab` is that of sources. The subwords of a given prefix
    do not count."""
    best, source = piece.hypotheses[0], piece.source
    own = best.tokens[len(source.prefix) :]
    return best.finished, not loops(own, lambda: vocab.decode(source.tokens[:-1]))


def loops(tokens: Sequence[int], source: Callable[[], str]) -> bool:
    """Returns whether the subwords of a translation, without prefix and EOS, loop although their source does not."""
    if len(tokens) - len(set(tokens)) < LOOP_TIMES - 1:  # the subwords of a loop occur that often
        return False
    times = times_in_a_row(tokens, LOOP_NGRAM)
    return times >= LOOP_TIMES and 2 * times_in_a_row(source(), SOURCE_STRETCH) < times


def times_in_a_row(items: Sequence[object], longest: int) -> int:
    """Returns how often an n-gram of 1 to `longest` items occurs in a row, at most; 1 if none is repeated."""
    most = 1
    for n in range(1, min(longest, len(items) // 2) + 1):
        equal = 0  # consecutive items that equal the item n places before
        for item, before in zip(items[n:], items[:-n], strict=True):
            equal = equal + 1 if item == before else 0
            most = max(most, equal // n + 1)
    return most
