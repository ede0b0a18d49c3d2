"""Segments of a document with tags: whole sentences are translated, and tags are put back by word alignment.

A reader (html.py, office.py) gives a document as items. Breaks, such as paragraphs, cut it into segments. Inside a
segment, each tag is in the result exactly once and as it was written, and nested elements stay nested.

Each word of a translation belongs to the source word that it is aligned with. An element surrounds the longest run of
words that belong to its source words; words without a link may lie in between. Elements that are left without words,
and single tags, follow the translation of the source word before them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Literal

from vtrans.apps.documents.sentences import PROTECTION, Splitting, gaps, split_sentences, trimmed
from vtrans.text.words import WORD, unwrapped
from vtrans.translate.wording.protection import Span

DEEPEST = 50  # nested elements; deeper tags count as single tags
MOST_COPIES = 100  # of an element's text that are tried, as thousands of elements may have one text
PASSES = 10  # to join sentences that elements cross; if some are still crossed then, all become one sentence

Links = Sequence[tuple[int, int]]
"""Each a word of the source, and a word of its translation."""

_END_PUNCTUATION, _PUNCTUATION = re.compile(r"(?<![^\w\s])[^\w\s]+$"), re.compile(r"[^\w\s]+")


@dataclass(frozen=True)
class Item:
    """A part of a document: `raw` is the part as written, and `text` its meaning. An opening and a closing tag
    match if they have the same name. An atom, such as a placeholder or an image, stands for words: the model sees a
    code for it (`vtrans.translate.wording.protection`) and places it. A point, in contrast, follows the word before it.
    `inner` has the items of a part that contains a text of its own, such as a note."""

    kind: Literal["text", "open", "close", "point", "atom", "break"]
    raw: str
    text: str = ""
    name: str = ""
    inner: tuple[Item, ...] = ()


@dataclass
class Node:
    """An element, or a single tag, in the text of a segment: `begin` and `end` are the places of its tags, `first` is
    where its first word begins, and `last` where its last one ends."""

    begin: int
    opening: str
    end: int = 0
    closing: str = ""
    children: list[Node] = field(default_factory=list)
    first: int = 0
    last: int = 0

    @property
    def empty(self) -> bool:
        return self.first >= self.last

    @property
    def raw(self) -> str:
        return self.opening + "".join(child.raw for child in self.children) + self.closing


@dataclass(frozen=True)
class Sentence:
    """A sentence of a segment: its place, its words' places, and the elements inside it."""

    begin: int
    end: int
    words: list[Span]
    line: str
    nodes: list[Node]


class Segment:
    """The text between two breaks. A line end in markup is whitespace, and usually splits nothing."""

    def __init__(
        self, items: Sequence[Item], language: str, escape: Callable[[str], str], splitting: Splitting = "sentences"
    ) -> None:
        self.text = "".join(item.text for item in items)
        self._raw = "".join(item.raw for item in items)
        self._escape = escape
        self._spelt = _spelt(items, escape)
        self._nodes = _forest(items)
        for node in _all(self._nodes):
            node.first, node.last = trimmed(self.text, node.begin, node.end)
        # Tags outside the sentences, in order, each with its place.
        self._marks: list[tuple[int, str]] = []
        split = split_sentences(self.text, language, splitting)
        begins = split.begins(split.sentences)
        spans = [(begin, begin + len(line)) for begin, line in zip(begins, split.sentences, strict=True)]
        spans = _joined(spans, list(_all(self._nodes)))
        inside = self._divide(spans)
        self.sentences = [self._sentence(span, nodes) for span, nodes in zip(spans, inside, strict=True)]

    def _divide(self, spans: Sequence[tuple[int, int]]) -> list[list[Node]]:
        """Returns the outermost elements inside each sentence, and puts all other tags into `_marks`."""
        begins = [begin for begin, _ in spans]
        inside: list[list[Node]] = [[] for _ in spans]

        def visit(nodes: Sequence[Node]) -> None:
            for node in nodes:
                k = bisect_right(begins, node.begin if node.empty else node.first) - 1
                begin, end = spans[k] if k >= 0 else (0, 0)
                if node.empty:
                    within = begin < node.begin < end
                else:
                    within = node.last <= end and (node.first, node.last) != (begin, end)
                if within:
                    inside[k].append(node)
                    continue
                self._marks.append((node.begin, node.opening))
                visit(node.children)
                if node.closing:
                    self._marks.append((node.end, node.closing))

        visit(self._nodes)
        return inside

    def _sentence(self, span: tuple[int, int], nodes: list[Node]) -> Sentence:
        words = [match.span() for match in WORD.finditer(self.text, *span)] if nodes else []
        return Sentence(*span, words, " ".join(unwrapped(self.text[slice(*span)]).split()), nodes)

    def joined(self, translations: Sequence[tuple[str, Links]]) -> str:
        """Returns the segment with these translations of its sentences. Only sentences with elements need the links."""
        if not self.sentences:
            return self._raw
        after = [""] * len(self.sentences)  # white space that a translation needs after a sentence
        dropped = set[int]()  # places of characters
        given = [self.text[one.end : other.begin] for one, other in pairwise(self.sentences)]
        lines = [sentence.line for sentence in self.sentences]
        for k, new in enumerate(gaps(lines, given, [text for text, _ in translations])):
            after[k] = new[len(given[k]) :]
            if len(new) < len(given[k]):
                dropped.add(self.sentences[k].end)
        made = []
        for sentence, space, (text, links) in zip(self.sentences, after, translations, strict=True):
            stays = text == sentence.line  # and keeps its whitespace and spelling
            if stays and not (sentence.nodes or space):
                made.append(self._source(sentence.begin, sentence.end))
                continue
            new = self.text[sentence.begin : sentence.end] if stays else text
            made.append(self._placed(sentence, new + space, links))
        parts, place, number = list[str](), 0, 0
        for mark, tag in [*self._marks, (len(self.text), "")]:
            while number < len(self.sentences) and self.sentences[number].end <= mark:
                parts += [self._source(place + (place in dropped), self.sentences[number].begin), made[number]]
                place, number = self.sentences[number].end, number + 1
            parts += [self._source(place + (place in dropped), mark), tag]
            place = max(place, mark)
        return "".join(parts)

    def _source(self, begin: int, end: int) -> str:
        """Returns a part of the source as written."""
        parts = list[str]()
        for at, text, raw in self._spelt[bisect_left(self._spelt, (begin,)) :]:
            if at + len(text) > end:
                break
            parts += [self._escape(self.text[begin:at]), raw]
            begin = at + len(text)
        return "".join([*parts, self._escape(self.text[begin:end])])

    def _placed(self, sentence: Sentence, text: str, links: Links) -> str:
        if not sentence.nodes:
            return self._escape(text)
        return "".join(_Placement(self.text, sentence, text, links, self._escape).rendered())


class _Placement:
    """Puts the elements of a sentence into its translation."""

    def __init__(self, source: str, sentence: Sentence, text: str, links: Links, escape: Callable[[str], str]) -> None:
        self.source, self.sentence, self.text, self._escape = source, sentence, text, escape
        self.protected = list(PROTECTION.spans(text))  # no tag may cut it
        self.words: list[Span] = [match.span() for match in WORD.finditer(text)]
        self.begins = [begin for begin, _ in sentence.words]
        sources = defaultdict[int, list[int]](list)
        self.linked = defaultdict[int, list[int]](list)
        """For each word of the source, the words of the translation that are linked to it."""
        for i, j in sorted(links):
            if i < len(sentence.words) and j < len(self.words):
                sources[j].append(i)
                self.linked[i].append(j)
        self.owners = {j: linked[len(linked) // 2] for j, linked in sources.items()}
        self.copies: dict[int, Span] = {}
        """The places of elements whose text is also in the translation, by `id`."""
        self._find_copies(sentence.nodes)
        self.said = defaultdict[int, list[int]](list)
        """For each word of the source, the words of the translation that belong to it."""
        for j in sorted(self.owners):
            self.said[self.owners[j]].append(j)
        self.owned_before = list(accumulate((j in self.owners for j in range(len(self.words))), initial=0))

    def rendered(self) -> Iterator[str]:
        return self._render(self.sentence.nodes, 0, len(self.text))

    def _render(self, nodes: Sequence[Node], begin: int, end: int) -> Iterator[str]:
        """Yields a part of the text with the elements in it."""
        place = begin
        layout = self._layout(nodes, begin, end)
        for number, (first, last, node) in enumerate(layout):
            start = min(max(first, place), end)
            stop = min(max(last, start), end)
            if first < last:
                yield self._escape(self.text[place:start]) + node.opening
                yield from self._render(node.children, start, stop)
                yield node.closing
            else:
                space = " " if start == end > begin and self._spaced(node) else ""
                yield self._escape(self.text[place:start] + space) + node.raw
                is_last = all(other.begin != node.begin for _, _, other in layout[number + 1 : number + 2])
                spaced = self.source[node.end : node.end + 1].isspace() and not self.text[start : start + 1].isspace()
                if is_last and spaced and start < end:
                    yield self._escape(" ")
            place = stop
        yield self._escape(self.text[place:end])

    def _layout(self, nodes: Sequence[Node], begin: int, end: int) -> list[tuple[int, int, Node]]:
        """Returns the part of the text that each element surrounds, in order. An empty part is the place of a tag."""
        low, high = self._words_between(begin, end)
        free, places = set(range(low, high)), dict[int, Span]()
        for n, node in enumerate(nodes):
            copy = self.copies.get(id(node))
            if copy and begin <= copy[0] and copy[1] <= end:
                free.difference_update(range(*self._words_between(*copy)))
                places[n] = copy
        for n, node in enumerate(nodes):
            words = [j for i in self._words_of(node) for j in self.said[i] if j in free]
            if n not in places and words:
                first, last = self._longest_run(sorted(words))
                free.difference_update(range(first, last))
                places[n] = self._around(node, first, last, begin, end)
        for n, node in enumerate(nodes):  # a linked word that belongs to a source word outside
            linked = (j for i in self._words_of(node) for j in self.linked[i] if j in free)
            if n not in places and (word := next(linked, None)) is not None:
                free.discard(word)
                places[n] = self._around(node, word, word + 1, begin, end)
        taken = sorted(places.values())
        for n, node in enumerate(nodes):
            if n not in places:
                at = self._place_of(node, self._gap_of(node, low, high), end)
                start, stop = taken[max(0, bisect_left(taken, (at, 0)) - 1)] if taken else (at, at)
                at = self._outside(stop if start < at < stop else at, 1)  # not inside another element
                places[n] = at, at
        return [(*place, nodes[n]) for place, n in sorted((place, n) for n, place in places.items())]

    def _find_copies(self, nodes: Sequence[Node]) -> None:
        """Finds the elements whose text the translation repeats, as in `<b>ls</b>(1)`: words do not tell what they
        surround."""
        taken = list[Span]()
        for node in nodes:
            if not (place := self._copy_of(node, taken)):
                self._find_copies(node.children)
                continue
            insort(taken, place)
            for part in _all([node]):
                span = (part.begin, part.begin) if part.empty else (part.first, part.last)
                self.copies[id(part)] = place[0] + span[0] - node.first, place[0] + span[1] - node.first
            words = self._words_of(node)
            others = (j for j in range(*self._words_between(*place)) if self.owners.get(j) not in words)
            self.owners |= dict.fromkeys(others, words[0])

    def _copy_of(self, node: Node, taken: Sequence[Span]) -> Span | None:
        """Returns the place of an element's text in its linked words, or None. It may touch letters or digits only
        where it does in the source. A text without letters and digits must be unique."""
        words = sorted(j for i in self._words_of(node) for j in self.linked[i])
        part = self.source[node.first : node.last]
        begin, end = (self.words[words[0]][0], self.words[words[-1]][1]) if words else (0, 0)
        if self.text.count(part, begin, end) > 1 and not any(map(str.isalnum, part)):
            return None
        for _ in range(MOST_COPIES if words else 0):
            begin = self.text.find(part, begin, end)
            if begin < 0:
                break
            place = begin, begin + len(part)
            edges = zip(place, (node.first, node.last), strict=True)
            alone = all(_is_edge(self.text, at) or not _is_edge(self.source, there) for at, there in edges)
            k = bisect_left(taken, (place[1], 0))
            if alone and (k == 0 or taken[k - 1][1] <= begin):
                return place
            begin += 1
        return None

    def _words_between(self, begin: int, end: int) -> tuple[int, int]:
        """Returns the range of the words that are in a part of the text, at least in part."""
        return bisect_right(self.words, begin, key=itemgetter(1)), bisect_left(self.words, end, key=itemgetter(0))

    def _longest_run(self, words: Sequence[int]) -> tuple[int, int]:
        """Returns the longest run of these words without words of other source words in between."""
        runs = [[words[0]]]
        for j in words[1:]:
            before = runs[-1][-1]
            if self.owned_before[j] == self.owned_before[before + 1]:
                runs[-1].append(j)
            else:
                runs.append([j])
        best = max(runs, key=len)
        return best[0], best[-1] + 1

    def _words_of(self, node: Node) -> range:
        """Returns the words of the source that are in an element, at least in part."""
        if node.empty:
            return range(0)
        return range(max(0, bisect_right(self.begins, node.first) - 1), bisect_right(self.begins, node.last - 1))

    def _gap_of(self, node: Node, low: int, high: int) -> int:
        """Returns the gap where an element without words of the translation goes."""
        before = bisect_right(self.begins, max(node.begin - 1, 0)) - 1
        before_words = [j + 1 for j in self.said.get(before, ()) if low <= j < high]
        after = [j for j in self.said.get(before + 1, ()) if low <= j < high]
        return before_words[-1] if before_words else after[0] if after else low if before < 0 else high

    def _place_of(self, node: Node, gap: int, end: int) -> int:
        """Returns the place of a tag in a gap: before the next word if there is white space before the tag, else
        directly after the word before."""
        if self._spaced(node) or gap == 0:
            return self.words[gap][0] if gap < len(self.words) else end
        return self.words[gap - 1][1]

    def _spaced(self, node: Node) -> bool:
        return node.begin == 0 or self.source[node.begin - 1].isspace()

    def _around(self, node: Node, first: int, last: int, begin: int, end: int) -> Span:
        """Returns the part of the text from `begin` to `end` with these words, without punctuation that the element
        does not have in the source."""
        start, stop = max(self.words[first][0], begin), min(self.words[last - 1][1], end)
        words = self._words_of(node)
        before = self.source[self.sentence.words[words.start][0] : node.first]
        after = self.source[node.last : self.sentence.words[words.stop - 1][1]]
        text = self.text[start:stop]
        if self.source[node.first].isalnum() or _PUNCTUATION.fullmatch(before):
            text = text[len(match.group()) if (match := _PUNCTUATION.match(text)) else 0 :]
        inner = stop - len(text)
        if self.source[node.last - 1].isalnum() or _PUNCTUATION.fullmatch(after):
            text = _END_PUNCTUATION.sub("", text)
        start, stop = (inner, inner + len(text)) if text else (start, stop)
        return self._outside(start, 0), self._outside(stop, 1)

    def _outside(self, place: int, side: int) -> int:
        """Returns a place, or the beginning (`side` 0) or end (1) of the protected text around it."""
        k = bisect_left(self.protected, (place,)) - 1
        return self.protected[k][side] if k >= 0 and place < self.protected[k][1] else place


def other_halves(tags: Iterable[tuple[int, str, bool]]) -> dict[int, int]:
    """Returns the number of each matched tag's other half. A tag is its number, its name, and whether it opens."""
    opened, found = list[tuple[int, str]](), dict[int, int]()
    for number, name, opens in tags:
        if opens and len(opened) < DEEPEST:
            opened.append((number, name))
        elif not opens and any(name == other for _, other in opened):
            while (first := opened.pop())[1] != name:
                pass
            found |= {first[0]: number, number: first[0]}
    return found


def _forest(items: Sequence[Item]) -> list[Node]:
    """Returns the elements of a segment. A tag without its other half is a single tag."""
    tags = ((n, item.name, item.kind == "open") for n, item in enumerate(items) if item.kind in ("open", "close"))
    halves = other_halves(tags)
    lists, place = [list[Node]()], 0  # the children of the open elements, outermost first, after the roots
    for n, item in enumerate(items):
        if item.kind == "text":
            place += len(item.text)
        elif n not in halves:
            lists[-1].append(Node(place, item.raw, end=place))
        elif n < halves[n]:
            lists[-1].append(Node(place, item.raw))
            lists.append(lists[-1][-1].children)
        else:
            lists.pop()
            lists[-1][-1].end, lists[-1][-1].closing = place, item.raw
    return lists[0]


def _spelt(items: Sequence[Item], escape: Callable[[str], str]) -> list[tuple[int, str, str]]:
    """Returns the texts that `escape` would write differently: the place of each, the text, and how it is written."""
    texts = [item for item in items if item.kind == "text"]
    ends = zip(accumulate(len(item.text) for item in texts), texts, strict=True)
    return [
        (end - len(item.text), item.text, item.raw) for end, item in ends if item.text and escape(item.text) != item.raw
    ]


def _all(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _all(node.children)


def _is_edge(text: str, place: int) -> bool:
    """Returns whether a place is not between two letters or digits."""
    return not (text[max(0, place - 1) : place].isalnum() and text[place : place + 1].isalnum())


def _joined(spans: list[tuple[int, int]], nodes: Sequence[Node]) -> list[tuple[int, int]]:
    """Returns the sentences, joined where an element crosses their border."""
    for _ in range(PASSES):
        begins = [begin for begin, _ in spans]
        cuts = [True] * len(spans)  # before each sentence
        for node in nodes:
            if node.empty:
                continue
            i, j = bisect_right(begins, node.first) - 1, bisect_right(begins, node.last - 1) - 1
            if i < j and (node.first > spans[i][0] or node.last < spans[j][1]):
                cuts[i + 1 : j + 1] = [False] * (j - i)
        if all(cuts):
            return spans
        starts = [k for k, cut in enumerate(cuts) if cut]
        spans = [(spans[a][0], spans[b - 1][1]) for a, b in pairwise([*starts, len(spans)])]
    return [(spans[0][0], spans[-1][1])]
