"""Segments of a document with tags: whole sentences are translated, and tags are put back by word alignment.

A reader (html.py, office.py) gives a document as items. Breaks, such as paragraphs, cut it into segments. Inside a
segment, each tag is in the result exactly once and as it was written, and nested elements stay nested.

Each word of a translation belongs to the source word that it is aligned with. An element surrounds the longest run of
words that belong to its source words; words without a link may lie in between. Elements that are left without words,
and single tags, follow the translation of the source word before them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Literal

from vtrans.apps.documents.formats.word_parts import Links, divided_words
from vtrans.apps.documents.sentences import PROTECTION, Splitting, gaps, split_sentences, trimmed
from vtrans.text.words import WORD, unwrapped
from vtrans.translate.wording.protection import Span

DEEPEST = 50  # nested elements; deeper tags count as single tags
PASSES = 10  # to join sentences that elements cross; if some are still crossed then, all become one sentence

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
        covered = [(node.first, node.last) for node in sentence.nodes if not node.empty]
        edges = {edge for node in _all(sentence.nodes) for edge in (node.first, node.last)}
        self.source_words, self.words, links = divided_words(source, sentence.words, edges, covered, text, links)
        self.begins = [begin for begin, _ in self.source_words]
        linked: dict[int, list[int]] = {}
        self.linked: dict[int, list[int]] = {}  # for each source word, the words of the translation linked to it
        for i, j in links:
            linked.setdefault(j, []).append(i)
            self.linked.setdefault(i, []).append(j)
        self.said: dict[int, list[int]] = {}  # for each source word, the words of the translation that belong to it
        for j in range(len(self.words)):
            if sources := sorted(linked.get(j, ())):
                self.said.setdefault(sources[len(sources) // 2], []).append(j)
        owned = {j for words in self.said.values() for j in words}
        self.owned_before = list(accumulate((j in owned for j in range(len(self.words))), initial=0))

    def rendered(self) -> Iterator[str]:
        return self._render(self.sentence.nodes, 0, len(self.words), 0, len(self.text))

    def _render(self, nodes: Sequence[Node], low: int, high: int, begin: int, end: int) -> Iterator[str]:
        """Yields the words from `low` to `high`, with the elements among them. They are the text from `begin` to
        `end`."""
        place = begin
        layout = self._layout(nodes, low, high)
        for number, (first, last, node) in enumerate(layout):
            if first == last:
                at = min(max(self._outside(self._place_of(node, first, end), 1), place), end)
                space = " " if at == end > begin and self._spaced(node) else ""
                yield self._escape(self.text[place:at] + space) + node.raw
                is_last = all(other.begin != node.begin for _, _, other in layout[number + 1 : number + 2])
                spaced = self.source[node.end : node.end + 1].isspace() and not self.text[at : at + 1].isspace()
                if is_last and spaced and at < end:
                    yield self._escape(" ")
                place = at
                continue
            start, stop = self._without_punctuation(node, max(self.words[first][0], place), self.words[last - 1][1])
            start = max(self._outside(start, 0), place)
            stop = min(max(self._outside(stop, 1), start), end)
            yield self._escape(self.text[place:start]) + node.opening
            yield from self._render(node.children, first, last, start, stop)
            yield node.closing
            place = stop
        yield self._escape(self.text[place:end])

    def _layout(self, nodes: Sequence[Node], low: int, high: int) -> list[tuple[int, int, Node]]:
        """Returns where each element goes: the words that it surrounds, or the gap before a word, in order."""
        spans: dict[int, tuple[int, int]] = {}
        taken: set[int] = set()
        for n, node in enumerate(nodes):
            words = [
                j for i in self._words_of(node) for j in self.said.get(i, ()) if low <= j < high and j not in taken
            ]
            if words:
                spans[n] = self._longest_run(sorted(words))
                taken.update(words)
        free = set(range(low, high)).difference(*(range(*span) for span in spans.values()))
        for n, node in enumerate(nodes):  # a linked word that belongs to a source word outside
            linked = (j for i in self._words_of(node) for j in self.linked.get(i, ()) if j in free)
            if n not in spans and (word := next(linked, None)) is not None:
                free.discard(word)
                spans[n] = word, word + 1
        begins = sorted(spans.values())
        places: list[tuple[int, int, int]] = []
        for n, node in enumerate(nodes):
            if n in spans:
                places.append((*spans[n], n))
                continue
            gap = self._gap_of(node, low, high)
            begin, end = begins[max(0, bisect_left(begins, (gap, 0)) - 1)] if begins else (gap, gap)
            gap = end if begin < gap < end else gap  # not inside another element
            places.append((gap, gap, n))
        return [(begin, end, nodes[n]) for begin, end, n in sorted(places)]

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

    def _without_punctuation(self, node: Node, start: int, stop: int) -> tuple[int, int]:
        """Returns the place of an element's words, without punctuation that its source text does not have."""
        words = self._words_of(node)
        (begin, _), (_, end) = self.source_words[words.start], self.source_words[words.stop - 1]
        said = self.text[start:stop]
        first, last = self.source[node.first], self.source[node.last - 1]
        outside = first.isalnum() or _PUNCTUATION.fullmatch(self.source[begin : node.first])
        before = _PUNCTUATION.match(said) if outside else None
        outside = last.isalnum() or _PUNCTUATION.fullmatch(self.source[node.last : end])
        after = _END_PUNCTUATION.search(said) if outside else None
        inner = before.end() if before else 0, after.start() if after else len(said)
        return (start + inner[0], start + inner[1]) if inner[0] < inner[1] else (start, stop)

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
