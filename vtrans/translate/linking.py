"""The word alignments of translations, some of which consist of pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vtrans.config import SearchConfig
from vtrans.engines.alignments import NO_WORD, Links
from vtrans.engines.engine import Engine, Source
from vtrans.engines.forced import Pair
from vtrans.search.loop import Hypothesis
from vtrans.text.words import words_of_ids
from vtrans.translate.translation import Translation


def linked(
    translations: Sequence[Sequence[Translation]],
    engine: Engine,
    search: SearchConfig,
    words: Sequence[list[int]],
    sources: Sequence[Source],
    owners: Sequence[range],
    results: dict[int, list[Hypothesis]],
) -> list[list[Translation]]:
    """Returns the translations of each line with their word alignments. `words` holds the number of each subword's
    word, for each line.

    Words are linked only within a piece of a line. Each piece begins with equally many subwords of no word.
    """
    pairs: list[Pair] = []
    sides: list[tuple[list[int], list[int]]] = []
    places: list[tuple[int, int]] = []
    for i, owner in enumerate(owners):
        begin = 0  # in the subwords of the line
        tags = sum(len(sources[p].tokens) - 1 for p in owner) - len(words[i])
        tags //= max(1, len(owner))
        tgt_words: dict[int, int] = {}  # by rank, in the pieces so far
        for p in owner:
            src = sources[p].tokens[:-1]
            length = len(src) - tags
            src_words = [*[NO_WORD] * tags, *words[i][begin : begin + length]]
            begin += length
            for rank, hyp in enumerate(results[p]):
                before = tgt_words.get(rank, 0)
                pairs.append((src, hyp.tokens))
                sides.append((src_words, [before + j for j in words_of_ids(hyp.tokens, engine.tgt_vocab)]))
                places.append((i, rank))
                tgt_words[rank] = before + len(engine.tgt_vocab.decode(hyp.tokens).split())
    found: dict[tuple[int, int], Links] = {}
    for place, links in zip(places, engine.align(pairs, sides, search.batch_tokens), strict=True):
        found[place] = tuple(sorted((*found.get(place, ()), *links)))
    return [
        [replace(t, alignment=found.get((i, rank), ())) for rank, t in enumerate(best)]
        for i, best in enumerate(translations)
    ]
