"""Divides words at the tags inside them, such as `B<ls>(1)`, if the words of a translation contain the same parts."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise

from vtrans.text.words import WORD
from vtrans.translate.wording.protection import Span

Links = Sequence[tuple[int, int]]  # (word of the source, word of the translation)

MOST_PARTS = 20  # of a word; others stay whole


def divided_words(
    source: str, words: Sequence[Span], edges: Iterable[int], covered: Sequence[Span], text: str, links: Links
) -> tuple[list[Span], list[Span], Links]:
    """Returns the words of a source and of its translation, divided where tags are, and the links between them.

    `edges` are where elements begin or end in the source, and `covered` are the spans of the outermost ones. A word is
    divided if all its parts inside elements are also in its linked words, which are divided likewise.
    """
    targets = [match.span() for match in WORD.finditer(text)]
    links = sorted((i, j) for i, j in links if i < len(words) and j < len(targets))
    linked, taken = defaultdict[int, list[Span]](list), defaultdict[Span, list[Span]](list)
    for i, j in links:
        linked[i].append(targets[j])
    ordered, begins = sorted(edges), [begin for begin, _ in covered]
    parts, found = [[word] for word in words], list[tuple[Span, Span]]()
    for i, word in enumerate(words):
        inner = ordered[bisect_right(ordered, word[0]) : bisect_right(ordered, word[1] - 1)]
        pieces = list(pairwise([word[0], *inner, word[1]]))
        inside = [piece for piece in pieces if (k := bisect_right(begins, piece[0])) and piece[0] < covered[k - 1][1]]
        if inside and len(pieces) <= MOST_PARTS and (places := _places(source, inside, text, linked[i], taken)):
            parts[i] = pieces
            for piece, (target, place) in zip(inside, places, strict=True):
                found.append((piece, place))
                taken[target].append(place)
    divided = [list(pairwise(sorted({*target, *chain(*taken[target])}))) for target in targets]
    here = {piece: n for n, piece in enumerate(chain(*parts))}
    there = {place: n for n, place in enumerate(chain(*divided))}
    made, placed, filled = set(found), {piece for piece, _ in found}, {place for _, place in found}
    for i, j in links:
        others = [place for place in divided[j] if place not in filled]
        made.update((piece, place) for piece in parts[i] if piece not in placed for place in others)
    return list(here), list(there), sorted((here[piece], there[place]) for piece, place in made)


def _places(
    source: str, pieces: Sequence[Span], text: str, others: Sequence[Span], taken: Mapping[Span, Sequence[Span]]
) -> list[tuple[Span, Span]]:
    """Finds the parts of a source word in its linked words, in order. Returns each part's word and place; an empty list
    if a part is missing."""
    found, after = list[tuple[Span, Span]](), 0
    for piece in pieces:
        places = ((other, _place(source, piece, text, other, after, taken[other])) for other in others)
        target, place = next(((other, place) for other, place in places if place), ((0, 0), None))
        if place is None:
            return []
        found.append((target, place))
        after = place[1]
    return found


def _place(source: str, piece: Span, text: str, word: Span, after: int, taken: Sequence[Span]) -> Span | None:
    """Returns the place of a source part in a word of the translation, or None. It may touch letters or digits only
    where it does in the source. A part without letters and digits must be unique in the word."""
    part = source[slice(*piece)]
    if text.count(part, *word) > 1 and not any(map(str.isalnum, part)):
        return None
    begin = text.find(part, max(after, word[0]), word[1])
    while begin >= 0:
        end = begin + len(part)
        ends = zip((begin, end), piece, strict=True)
        alone = all(_is_edge(text, at) or not _is_edge(source, there) for at, there in ends)
        if alone and all(end <= a or b <= begin for a, b in taken):
            return begin, end
        begin = text.find(part, begin + 1, word[1])
    return None


def _is_edge(text: str, place: int) -> bool:
    """Returns whether a place is not between two letters or digits."""
    return not (text[max(0, place - 1) : place].isalnum() and text[place : place + 1].isalnum())
