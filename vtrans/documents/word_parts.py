"""Divides words at the tags inside them, such as `B<ls>(1)`, where the same parts are in the words of a translation."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

Links = Sequence[tuple[int, int]]  # (word of the source, word of the translation)
Place = tuple[int, int]  # where a word, or a part of one, begins and ends

MOST_PARTS = 20  # of a word; others stay whole

WORD = re.compile(r"\S+")


def divided_words(
    source: str, words: Sequence[Place], edges: Iterable[int], covered: Sequence[Place], text: str, links: Links
) -> tuple[list[Place], list[Place], Links]:
    """Returns the words of a source and of its translation, divided where tags are, and the links between them.

    `edges` are where elements begin or end in the source, and `covered` is what the outermost ones cover. A word is
    divided if all its parts inside elements are also in one of its linked words, which is divided likewise.
    """
    targets = [match.span() for match in WORD.finditer(text)]
    inner, begins = sorted(edges), [begin for begin, _ in covered]
    linked: dict[int, list[int]] = defaultdict(list)
    for i, j in links:
        linked[i].append(j)
    parts: dict[int, list[Place]] = {}  # of the divided words of the source
    claims: dict[int, list[tuple[Place, Place]]] = defaultdict(list)  # part of the source and place, by word
    for i, (begin, end) in enumerate(words):
        cuts = [begin, *inner[bisect_right(inner, begin) : bisect_right(inner, end - 1)], end]
        pieces = list(pairwise(cuts))
        inside = [piece for piece in pieces if (k := bisect_right(begins, piece[0])) and piece[0] < covered[k - 1][1]]
        if not inside or len(pieces) > MOST_PARTS:
            continue
        for j in linked[i]:
            if places := _places(source, inside, text, targets[j], [place for _, place in claims[j]]):
                parts[i] = pieces
                claims[j] += zip(inside, places, strict=True)
                break
    return _renumbered(words, parts, targets, claims, links)


def _places(source: str, pieces: Sequence[Place], text: str, word: Place, taken: Sequence[Place]) -> list[Place]:
    """Returns where parts of the source are in a word of the translation, in order; empty if one is missing."""
    places, begin = list[Place](), word[0]
    for first, last in pieces:
        piece = source[first:last]
        while True:
            begin = text.find(piece, begin, word[1])
            end = begin + len(piece)
            if begin < 0 or not any(map(str.isalnum, piece)):
                return []
            alone = all(
                _is_edge(text, at) or not _is_edge(source, there) for at, there in ((begin, first), (end, last))
            )
            if alone and all(end <= a or b <= begin for a, b in taken):
                break
            begin += 1
        places.append((begin, end))
        begin = end
    return places


def _is_edge(text: str, place: int) -> bool:
    """Returns whether a word, or a part of letters and digits, ends or begins at a place."""
    return not (text[max(0, place - 1) : place].isalnum() and text[place : place + 1].isalnum())


def _renumbered(
    words: Sequence[Place],
    parts: dict[int, list[Place]],
    targets: Sequence[Place],
    claims: dict[int, list[tuple[Place, Place]]],
    links: Links,
) -> tuple[list[Place], list[Place], Links]:
    """Returns the words with their parts in place of the divided ones, and the links between all of these."""
    sources: list[list[Place]] = [parts.get(i, [word]) for i, word in enumerate(words)]
    others: list[list[Place]] = []
    for j, (begin, end) in enumerate(targets):
        cuts = sorted({begin, end, *(edge for _, place in claims[j] for edge in place)})
        others.append(list(pairwise(cuts)))
    here = {place: n for n, place in enumerate(place for pieces in sources for place in pieces)}
    there = {place: n for n, place in enumerate(place for pieces in others for place in pieces)}
    made = set[tuple[int, int]]()
    for i, j in links:
        if i >= len(words) or j >= len(targets):
            continue
        claimed = dict(claims[j])
        free = [place for place in others[j] if place not in claimed.values()]
        for piece in sources[i]:
            made.update((here[piece], there[place]) for place in ([claimed[piece]] if piece in claimed else free))
    return list(here), list(there), sorted(made)
