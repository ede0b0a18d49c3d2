"""Divides words at the tags inside them, such as `B<ls>(1)`, where the same parts are in the words of a translation."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from vtrans.text.words import WORD
from vtrans.translate.wording.protection import Span

Links = Sequence[tuple[int, int]]  # (word of the source, word of the translation)
Claims = dict[int, list[tuple[Span, Span]]]  # for words of the translation: parts of the source, and their places

MOST_PARTS = 20  # of a word; others stay whole

_INNER = re.compile(r"\w(?:\S*\w)?")  # a word without the punctuation around it
_AROUND = re.compile(r"^[^\w\s]+|(?<![^\w\s])[^\w\s]+$")


def divided_words(
    source: str, words: Sequence[Span], edges: Iterable[int], covered: Sequence[Span], text: str, links: Links
) -> tuple[list[Span], list[Span], Links]:
    """Returns the words of a source and of its translation, divided where tags are, and the links between them.

    `edges` are where elements begin or end in the source, and `covered` is what the outermost ones cover. A word is
    divided if all its parts inside elements are also in one of its linked words, which is divided likewise, and so are
    words of which only the punctuation before or after them is a part of its own. Words with
    parts inside elements that the translation has as often as the source are linked to each other alone.
    """
    targets = [match.span() for match in WORD.finditer(text)]
    inner, begins = sorted(edges), [begin for begin, _ in covered]
    pieces_of: dict[int, list[Span]] = {}  # of the words with parts inside elements
    inside_of: dict[int, list[Span]] = {}
    for i, (begin, end) in enumerate(words):
        cuts = [begin, *inner[bisect_right(inner, begin) : bisect_right(inner, end - 1)], end]
        pieces = list(pairwise(cuts))
        inside = [piece for piece in pieces if (k := bisect_right(begins, piece[0])) and piece[0] < covered[k - 1][1]]
        if inside and len(pieces) <= MOST_PARTS:
            pieces_of[i], inside_of[i] = pieces, inside
    links = _with_copies(source, words, inside_of, text, targets, links)
    linked: dict[int, list[int]] = defaultdict(list)
    for i, j in links:
        linked[i].append(j)
    claims: Claims = defaultdict(list)
    parts: dict[int, list[Span]] = {}  # of the divided words of the source
    for i, inside in inside_of.items():
        others = {j: targets[j] for j in sorted(linked[i]) if j < len(targets)}
        if places := _places(source, words[i], inside, text, others, claims):
            parts[i] = pieces_of[i]
            for piece, (j, place) in zip(inside, places, strict=True):
                claims[j].append((piece, place))
        elif found := _around(source, words[i], inside, text, {j: span for j, span in others.items() if not claims[j]}):
            parts[i] = pieces_of[i]
            for piece, j, place in found:
                claims[j].append((piece, place))
    return _renumbered(words, parts, targets, claims, links)


def _with_copies(
    source: str, words: Sequence[Span], marked: Iterable[int], text: str, targets: Sequence[Span], links: Links
) -> Links:
    """Returns the links, those of copied words corrected. `marked` are the words that count. Words that are repeated
    correspond as they are linked, or else in order."""
    ours, theirs = (
        [_AROUND.sub("", whole[begin:end]) for begin, end in places]
        for whole, places in ((source, words), (text, targets))
    )
    here, there = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for cores, numbers in ((ours, here), (theirs, there)):
        for number, core in enumerate(cores):
            numbers[core].append(number)
    copied = {core for core in map(ours.__getitem__, marked) if core and len(here[core]) == len(there[core])}
    copied -= {
        ours[i]
        for i, j in links
        if i < len(ours) and j < len(theirs) and ours[i] == theirs[j] and len(here[ours[i]]) > 1
    }
    sources, copies = ({i for core in copied for i in numbers[core]} for numbers in (here, there))
    kept = {(i, j) for i, j in links if i not in sources and j not in copies}
    return sorted(kept | {pair for core in copied for pair in zip(here[core], there[core], strict=True)})


def _places(
    source: str, whole: Span, pieces: Sequence[Span], text: str, others: dict[int, Span], claims: Claims
) -> list[tuple[int, Span]]:
    """Returns where parts of a word of the source are in words of the translation, in order; empty if one is
    missing."""
    for j, other in others.items():
        shift = text.find(source[slice(*whole)], *other) - whole[0]
        if shift >= -whole[0] and not claims[j] and all(_is_edge(text, place + shift) for place in whole):
            return [(j, (begin + shift, end + shift)) for begin, end in pieces]
    left, found, after = list(others.items()), list[tuple[int, Span]](), 0
    for piece in pieces:
        while left and (place := _place(source, piece, text, left[0][1], after, claims[left[0][0]])) is None:
            left.pop(0)
        if not left or place is None:
            return []
        found.append((left[0][0], place))
        after = place[1]
    return found


def _around(
    source: str, whole: Span, pieces: Sequence[Span], text: str, others: dict[int, Span]
) -> list[tuple[Span, int, Span]]:
    """Returns parts of a word of the source, the numbers of words of the translation and where the parts are in them,
    if all parts but one are punctuation, as in `(word).`"""
    cores = [piece for piece in pieces if any(map(str.isalnum, source[slice(*piece)]))]
    if len(cores) != 1 or cores == [whole]:
        return []
    (core,), found, numbers = cores, list[tuple[Span, int, Span]](), list(others)
    for j, (begin, end) in others.items():
        inner = _INNER.search(text, begin, end)
        first, last = inner.span() if inner else (begin, end)
        first = first if j == numbers[0] and core[0] > whole[0] else begin
        last = last if j == numbers[-1] and core[1] < whole[1] else end
        found.append((core, j, (first, last)))
        found += [(pieces[0], j, (begin, first))] if first > begin and pieces[0] != core else []
        found += [(pieces[-1], j, (last, end))] if last < end and pieces[-1] != core else []
    return found


def _place(
    source: str, piece: Span, text: str, word: Span, after: int, claims: Sequence[tuple[Span, Span]]
) -> Span | None:
    """Returns where a part of the source is in a word of the translation: apart from letters beside it, as it is in the
    source, and if it has no letters, only if it is there once."""
    part = source[slice(*piece)]
    begin = text.find(part, max(after, word[0]), word[1])
    if text.count(part, *word) > 1 and not any(map(str.isalnum, part)):
        return None
    while begin >= 0:
        end = begin + len(part)
        alone = all(
            _is_edge(text, at) or not _is_edge(source, there) for at, there in zip((begin, end), piece, strict=True)
        )
        if alone and all(end <= a or b <= begin for _, (a, b) in claims):
            return begin, end
        begin = text.find(part, begin + 1, word[1])
    return None


def _is_edge(text: str, place: int) -> bool:
    """Returns whether a word, or a part of letters and digits, ends or begins at a place."""
    return not (text[max(0, place - 1) : place].isalnum() and text[place : place + 1].isalnum())


def _renumbered(
    words: Sequence[Span],
    parts: dict[int, list[Span]],
    targets: Sequence[Span],
    claims: Claims,
    links: Links,
) -> tuple[list[Span], list[Span], Links]:
    """Returns the words with their parts in place of the divided ones, and the links between all of these."""
    sources: list[list[Span]] = [parts.get(i, [word]) for i, word in enumerate(words)]
    others: list[list[Span]] = []
    for j, (begin, end) in enumerate(targets):
        cuts = sorted({begin, end, *(edge for _, place in claims[j] for edge in place)})
        others.append(list(pairwise(cuts)))
    here = {place: n for n, place in enumerate(place for pieces in sources for place in pieces)}
    there = {place: n for n, place in enumerate(place for pieces in others for place in pieces)}
    placed = {piece for pieces in claims.values() for piece, _ in pieces}
    made = set[tuple[int, int]]()
    for i, j in links:
        if i >= len(words) or j >= len(targets):
            continue
        claimed = dict(claims[j])
        free = [place for place in others[j] if place not in claimed.values()]
        for piece in sources[i]:
            places = [claimed[piece]] if piece in claimed else [] if piece in placed else free
            made.update((here[piece], there[place]) for place in places)
    return list(here), list(there), sorted(made)
