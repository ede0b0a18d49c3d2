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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Literal

from vtrans.apps.documents.formats.word_parts import Links, divided_words
from vtrans.apps.documents.sentences import MARKED, PROTECTION, Splitting, gaps, split_sentences
from vtrans.text.words import WORD, unwrapped
from vtrans.translate.wording.protection import Span

DEEPEST = 50  # nested elements; deeper tags count as single tags
RUN = "run "  # begins the names of elements that contain only text, in a document with `cover`
PASSES = 10  # over the elements, to join sentences; if some are still crossed then, all become one sentence

_END_PUNCTUATION, _PUNCTUATION = re.compile(r"(?<![^\w\s])[^\w\s]+$"), re.compile(r"[^\w\s]+")


@dataclass(frozen=True)
class Item:
    """A part of a document: `raw` is how it was written, and `text` what it stands for. An opening and a closing tag
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
    name: str = ""
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
    """The text between two breaks. With `cover`, which word processors need, all words of a translation are put into
    elements, and atoms between these. A line end in markup is whitespace, and usually splits nothing."""

    def __init__(
        self,
        items: Sequence[Item],
        language: str,
        escape: Callable[[str], str],
        *,
        cover: bool,
        splitting: Splitting = "sentences",
    ) -> None:
        self.text = "".join(item.text for item in items)
        self._raw = "".join(item.raw for item in items)
        self._escape, self._cover = escape, cover
        self._spelt = _spelt(items, escape)
        self._nodes = _forest(items)
        for node in _all(self._nodes):
            node.first, node.last = _trimmed(self.text, node.begin, node.end)
        # Tags outside the sentences, in order: place, tag, change of depth.
        self._marks: list[tuple[int, str, int]] = []
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
                self._marks.append((node.begin, node.opening, int(bool(node.closing))))
                visit(node.children)
                if node.closing:
                    self._marks.append((node.end, node.closing, -1))

        visit(self._nodes)
        return inside

    def _sentence(self, span: tuple[int, int], nodes: list[Node]) -> Sentence:
        words = [(match.start(), match.end()) for match in WORD.finditer(self.text, *span)]
        return Sentence(*span, words, " ".join(unwrapped(self.text[slice(*span)]).split()), nodes)

    def joined(self, translations: Sequence[tuple[str, Links]]) -> str:
        """Returns the segment with these translations of its sentences. Only sentences with elements need the links."""
        if not self.sentences:
            return self._raw
        parts: list[str | int] = []  # text and tags as they are written, and numbers of sentences
        place, number, depth = 0, 0, 0
        around = [["", ""] for _ in self.sentences]  # white space that goes into the elements of a sentence
        dropped = set[int]()  # places of characters
        for k, (given, new) in enumerate(self._gaps([text for text, _ in translations])):
            around[k][1] = new[len(given) :]
            if len(new) < len(given):
                dropped.add(self.sentences[k].end)
        for mark, tag, change in [*self._marks, (len(self.text), "", 0)]:
            while number < len(self.sentences) and self.sentences[number].end <= mark:
                self._add(parts, place + (place in dropped), self.sentences[number].begin, depth, around)
                parts.append(number)
                place, number = self.sentences[number].end, number + 1
            self._add(parts, place + (place in dropped), mark, depth, around)
            parts.append(tag)
            place, depth = max(place, mark), depth + change
        made = []
        for sentence, (a, b), (text, links) in zip(self.sentences, around, translations, strict=True):
            stays = text == sentence.line  # and keeps its whitespace and spelling
            if stays and not (sentence.nodes or a or b):
                made.append(self._source(sentence.begin, sentence.end))
                continue
            new = self.text[sentence.begin : sentence.end] if stays else text
            made.append(self._placed(sentence, f"{a}{new}{b}", links))
        return "".join(made[part] if isinstance(part, int) else part for part in parts)

    def _source(self, begin: int, end: int) -> str:
        """Returns a part of the source as it is written."""
        parts = list[str]()
        for at, text, raw in self._spelt[bisect_left(self._spelt, (begin,)) :]:
            if at + len(text) > end:
                break
            parts += [self._escape(self.text[begin:at]), raw]
            begin = at + len(text)
        return "".join([*parts, self._escape(self.text[begin:end])])

    def _gaps(self, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yields what is between neighbouring sentences, and what is between their translations."""
        given = [self.text[one.end : other.begin] for one, other in pairwise(self.sentences)]
        lines = [sentence.line for sentence in self.sentences]
        return zip(given, gaps(lines, given, texts), strict=True)

    def _add(self, parts: list[str | int], begin: int, end: int, depth: int, around: list[list[str]]) -> None:
        """Adds text between sentences. If all text must be inside elements and none is open, it goes into those of the
        preceding sentence or, at the beginning, of the following one."""
        if depth or not self._cover:
            parts.append(self._source(begin, end))
            return
        before = next((part for part in reversed(parts) if isinstance(part, int)), None)
        if around:
            around[before or 0][0 if before is None else 1] += self.text[begin:end]

    def _placed(self, sentence: Sentence, text: str, links: Links) -> str:
        if not sentence.nodes:
            return self._escape(text)
        return "".join(_Placement(self.text, sentence, text, links, self._escape, self._cover).rendered())


class _Placement:
    """Puts the elements of a sentence into its translation."""

    def __init__(
        self, source: str, sentence: Sentence, text: str, links: Links, escape: Callable[[str], str], cover: bool
    ) -> None:
        self.source, self.sentence, self.text, self._escape, self.cover = source, sentence, text, escape, cover
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

    def _render(
        self, nodes: Sequence[Node], low: int, high: int, begin: int, end: int, parent: Node | None = None
    ) -> Iterator[str]:
        """Yields the words from `low` to `high`, with the elements among them. They are the text from `begin` to
        `end`."""
        place = begin
        layout = self._layout(nodes, low, high)
        filled = [(first, node) for first, last, node in layout if first < last]
        for number, (first, last, node) in enumerate(layout):
            if first == last:
                at = place if self.cover else min(max(self._outside(self._place_of(node, first, end), 1), place), end)
                space = " " if at == end > begin and self._spaced(node) and not self.cover else ""
                yield self._written(self.text[place:at], parent) + space + node.raw
                is_last = all(other.begin != node.begin for _, _, other in layout[number + 1 : number + 2])
                spaced = self.source[node.end : node.end + 1].isspace() and not self.text[at : at + 1].isspace()
                if is_last and spaced and at < end and not self.cover:
                    yield " "
                place = at
                continue
            if self.cover:
                filled.pop(0)
                start, stop = place, self._border(node, last, *filled[0]) if filled else end
            else:
                start, stop = self._without_punctuation(node, max(self.words[first][0], place), self.words[last - 1][1])
                start = max(self._outside(start, 0), place)
                stop = min(max(self._outside(stop, 1), start), end)
            made = "".join([node.opening, *self._render(node.children, first, last, start, stop, node), node.closing])
            yield self._written(self.text[place:start], parent)
            yield made.replace(node.opening + node.closing, "") if node.name.startswith(RUN) else made
            place = stop
        yield self._written(self.text[place:end], parent)

    def _border(self, node: Node, last: int, first: int, following: Node) -> int:
        """Returns the border between an element whose words end before `last` and the `following` one, whose words
        begin with `first`. The whitespace between them goes to the one that has some at its ends in the source."""
        inside, outside = ((one.first, one.last) == (one.begin, one.end) for one in (node, following))
        return self.words[last - 1][1] if inside and not outside else self.words[first][0]

    def _written(self, text: str, parent: Node | None) -> str:
        """Returns text as it is written in an element. With `cover`, atoms are outside elements."""
        text = self._escape(text)
        if parent is None or not self.cover or not parent.name.startswith(RUN):
            return text
        return MARKED.sub(rf"{parent.closing}\g<0>{parent.opening}", text)

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
        for n, node in enumerate(nodes):  # a word that also belongs to words outside
            linked = (j for i in self._words_of(node) for j in self.linked.get(i, ()) if j in free)
            if n not in spans and (word := next(linked, None)) is not None:
                free.discard(word)
                spans[n] = word, word + 1
        if self.cover and high > low:
            spans = _covering(spans, next((n for n, node in enumerate(nodes) if not node.empty), None), low, high)
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


def _covering(spans: dict[int, tuple[int, int]], first: int | None, low: int, high: int) -> dict[int, tuple[int, int]]:
    """Returns the spans extended so that they cover all words. Without spans, the element `first` gets all words."""
    if not spans:
        return {} if first is None else {first: (low, high)}
    order = sorted(spans, key=lambda n: spans[n])
    ends = [spans[n][0] for n in order[1:]] + [high]
    begins = [low, *ends[:-1]]
    return {n: (begin, end) for n, begin, end in zip(order, begins, ends, strict=True)}


def _forest(items: Sequence[Item]) -> list[Node]:
    """Returns the elements of a segment. A tag without its other half is a single tag."""
    lists: list[list[Node]] = [[]]  # the children of the open elements, outermost first, after the roots
    stack: list[Node] = []
    place = 0

    def make_single() -> None:
        node = stack.pop()
        node.end = node.begin
        children = lists.pop()
        node.children = []
        lists[-1] += children

    for item in items:
        if item.kind == "text":
            place += len(item.text)
        elif item.kind == "open" and len(stack) < DEEPEST:
            node = Node(place, item.raw, item.name)
            lists[-1].append(node)
            lists.append(node.children)
            stack.append(node)
        elif item.kind == "close" and any(node.name == item.name for node in stack):
            while stack[-1].name != item.name:
                make_single()
            node = stack.pop()
            lists.pop()
            node.end, node.closing = place, item.raw
        else:
            lists[-1].append(Node(place, item.raw, end=place))
    while stack:
        make_single()
    return lists[0]


def _spelt(items: Sequence[Item], escape: Callable[[str], str]) -> list[tuple[int, str, str]]:
    """Returns the texts that `escape` would write differently: the place of each, the text, and how it is written."""
    places = accumulate((len(item.text) for item in items if item.kind == "text"), initial=0)
    texts = zip(places, (item for item in items if item.kind == "text"), strict=False)
    return [(at, item.text, item.raw) for at, item in texts if item.text and escape(item.text) != item.raw]


def _all(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _all(node.children)


def _trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    """Returns where the text from `begin` to `end` begins and ends without the white space around it."""
    inner = text[begin:end]
    if not inner.strip():
        return begin, begin
    return begin + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


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
