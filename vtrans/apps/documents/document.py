"""Documents as lines to translate: plain text, and markup that its reader has divided into items."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, groupby, islice
from typing import Protocol

from vtrans.apps.documents.formats.markup import Item, Segment
from vtrans.apps.documents.sentences import MARKS, Splitting, has_words, split_sentences
from vtrans.data.matches import Kind, Known
from vtrans.system.errors import DocumentError
from vtrans.text.words import WORD, words_in
from vtrans.translate.steps.line import Line


@dataclass(frozen=True)
class Translated:
    """A translation of a line, and its word alignment and the confidence of its words if these were asked for."""

    text: str
    alignment: tuple[tuple[int, int], ...] | None = None
    word_confidences: tuple[float, ...] | None = None

    @classmethod
    def unchanged(cls, line: str) -> Translated:
        """Returns a line as its own translation."""
        return cls(line, tuple((i, i) for i in range(len(words_in(line)))))


@dataclass(frozen=True)
class Filling:
    """How the entries of a file are filled. `source` and `target` are language codes, empty if unknown. With
    `overwrite`, entries that have a translation are filled, too. `existing` is the content of an earlier translation,
    `earlier` its text, and `columns` the chosen columns of a table."""

    target: str = ""
    overwrite: bool = False
    source: str = ""
    existing: bytes = b""
    columns: tuple[str, ...] = ()
    earlier: str | None = None


class Document(Protocol):
    """A text whose sentences are translated as lines. `aligned` says which lines need word alignments."""

    lines: list[str]
    aligned: list[bool]

    def joined(self, translations: Sequence[Translated], /) -> str:
        """Returns the document with these translations of its lines."""


class PlainDocument:
    """Text without markup. `aligned` asks for the word alignments that `links` needs."""

    def __init__(self, text: str, language: str, aligned: bool = False, splitting: Splitting = "lines") -> None:
        self._split = split_sentences(text, language, splitting)
        self.lines = self._split.sentences
        self.aligned = [aligned] * len(self.lines)

    def joined(self, translations: Sequence[Translated]) -> str:
        return self._split.joined([translation.text for translation in translations])

    def links(self, translations: Sequence[Translated]) -> list[tuple[int, int, int, int]]:
        """Returns each alignment link as character offsets: source begin, source end, target begin, target end."""
        sources, targets = self._words(self.lines), self._words([translation.text for translation in translations])
        linked = []
        for src, tgt, translation in zip(sources, targets, translations, strict=True):
            links = translation.alignment or ()
            linked += [(*src[i], *tgt[j]) for i, j in links if i < len(src) and j < len(tgt)]
        return linked

    def confidences(self, translations: Sequence[Translated]) -> list[tuple[int, int, float]]:
        """Returns the begin, end and confidence of each word of the translated text that has a confidence."""
        rated = []
        for words, translation in zip(self._words([t.text for t in translations]), translations, strict=True):
            if translation.word_confidences:
                values = (round(value, 4) for value in translation.word_confidences)
                rated += [(*word, value) for word, value in zip(words, values, strict=True)]
        return rated

    def _words(self, lines: Sequence[str]) -> Iterator[list[tuple[int, int]]]:
        """Yields, per line, the begin and end of its words in the text that these lines make up."""
        for place, line in zip(self._split.begins(lines), lines, strict=True):
            yield [(place + match.start(), place + match.end()) for match in WORD.finditer(line)]


@dataclass(frozen=True)
class Slot:
    """A place in a text to be filled: the characters from `begin` to `end`. `written` returns their replacement, given
    the translations of the sources, or None to leave them. `approved` does the same for translations from a memory, if
    these are marked differently."""

    begin: int
    end: int
    sources: Sequence[MarkedDocument]
    written: Callable[[list[str]], str | None]
    approved: Callable[[list[str]], str | None] | None = None


def filled_slot(begin: int, end: int, text: str) -> Slot:
    """Returns a slot whose text is known."""
    return Slot(begin, end, [], lambda _: text)


class FilledDocument:
    """A text with slots, in order. Text outside the slots stays unchanged, and so does a slot with an untranslated
    line. `kind` is the kind of the strings. `left` counts strings that cannot be translated; `joined` adds the slots
    that refuse their translations."""

    def __init__(self, text: str, slots: Sequence[Slot], kind: Kind = "text", left: int = 0) -> None:
        self._text, self.slots, self._kind, self.left = text, list(slots), kind, left
        self._collect()

    def _collect(self) -> None:
        self.lines = [line for slot in self.slots for source in slot.sources for line in source.lines]
        self.aligned = [needs for slot in self.slots for source in slot.sources for needs in source.aligned]

    def take(self, known: Known) -> int:
        """Fills the slots for which a memory knows all sources. Returns the number of filled slots."""
        filled = 0
        for number, slot in enumerate(self.slots):
            texts = [text for source in slot.sources if (text := source.known(known, self._kind))]
            # The plural forms of one source differ, but the memory has only one translation of it.
            if texts and len(texts) == len({source.raw for source in slot.sources}) == len(slot.sources):
                written = (slot.approved or slot.written)(texts)
                if written is not None:
                    self.slots[number] = filled_slot(slot.begin, slot.end, written)
                    filled += 1
        self._collect()
        return filled

    def joined(self, translations: Sequence[Translated]) -> str:
        rest, parts, place = iter(translations), list[str](), 0
        for slot in self.slots:
            texts = []
            for source in slot.sources:
                part = list(islice(rest, len(source.lines)))
                texts.append(source.joined(part) if all(translation.text for translation in part) else "")
            written = slot.written(texts) if any(texts) or not texts else None
            self.left += written is None and any(texts)
            before = self._text[place : slot.begin]
            parts += [before, self._text[slot.begin : slot.end] if written is None else written]
            place = slot.end
        return "".join([*parts, self._text[place:]])


class MarkedDocument:
    """Text with tags. The items' joined `raw` parts are the document. `label` is the text with its accelerator, if any.
    `escape_inner` escapes text inside tags, such as attributes; the default is `escape`."""

    def __init__(
        self,
        items: Sequence[Item],
        language: str,
        escape: Callable[[str], str],
        *,
        label: str = "",
        splitting: Splitting = "sentences",
        escape_inner: Callable[[str], str] | None = None,
    ) -> None:
        self.label = label
        self.raw = "".join(item.raw for item in items)
        held = [item for item in items if item.kind == "atom" or item.inner]
        self.atoms = [item.raw for item in held]
        self.mark = _free_mark(items) if held else ""
        # An atom is replaced by its number between two marks, and so are the tags of a part with a text of its own.
        marks = (f"{self.mark}{number}{self.mark}" for number in count())
        items = [_with_mark(item, next(marks)) if item.kind == "atom" or item.inner else item for item in items]
        self._parts = [
            "".join(item.raw for item in part) if is_break else Segment(list(part), language, escape, splitting)
            for is_break, part in groupby(items, lambda item: item.kind == "break")
        ]
        self._inner = {
            number: MarkedDocument(item.inner, language, escape_inner or escape, splitting=splitting)
            for number, item in enumerate(held)
            if item.inner
        }
        sentences = [sentence for part in self._parts if not isinstance(part, str) for sentence in part.sentences]
        self.lines: list[str] = [sentence.line for sentence in sentences]
        self.aligned: list[bool] = [bool(sentence.nodes) for sentence in sentences]
        for inner in self._inner.values():
            self.lines += inner.lines
            self.aligned += inner.aligned

    def replaced(self, text: str, atoms: Sequence[str]) -> str:
        """Replaces each marked number in a text by the atom of that number."""
        if not self.mark:
            return text
        found = re.split(f"{self.mark}([0-9]+){self.mark}", text)
        found[1::2] = [atoms[int(number)] if int(number) < len(atoms) else "" for number in found[1::2]]
        return "".join(found)

    def known(self, known: Known, kind: Kind) -> str | None:
        """Returns the memory's translation of this string or, if it has no tags, of all its sentences; None if one is
        missing or ambiguous."""
        whole = known(self.raw, kind, sure=True)
        if self.label and (labelled := known(self.label, sure=whole is None)) is not None:
            return labelled
        if whole is not None or any(self.aligned):
            return whole
        sentences = [text for line in self.lines if (text := known(line, sure=True)) is not None]
        found = bool(self.lines) and len(sentences) == len(self.lines)
        return self.joined([Translated(text) for text in sentences]) if found else None

    def paired_lines(self, target: MarkedDocument) -> tuple[list[str], list[str]] | None:
        """Returns the lines of this string and of its translation, with equal marks for equal placeholders; None if the
        placeholders differ."""
        if Counter(self.atoms) != Counter(target.atoms):
            return None
        places = defaultdict[str, deque[str]](deque)
        for number, atom in enumerate(self.atoms):
            places[atom].append(f"{self.mark}{number}{self.mark}")
        atoms = [places[atom].popleft() for atom in target.atoms]
        return self.lines, [target.replaced(line, atoms) for line in target.lines]

    def unchanged(self) -> str:
        """Returns the text as written when each line is its own translation."""
        return self.joined([Translated.unchanged(line) for line in self.lines])

    def joined(self, translations: Sequence[Translated]) -> str:
        rest, written = iter(translations), []
        for part in self._parts:
            if isinstance(part, str):
                written.append(part)
                continue
            sentences = islice(rest, len(part.sentences))
            written.append(part.joined([(t.text, t.alignment or ()) for t in sentences]))
        atoms = list(self.atoms)
        for number, inner in self._inner.items():
            atoms[number] = inner.joined(list(islice(rest, len(inner.lines))))
        return self.replaced("".join(written), atoms)


def _with_mark(item: Item, mark: str) -> Item:
    """Returns an atom as text, or a part with a text of its own in its own kind, written as the mark."""
    return Item("text", mark, mark) if item.kind == "atom" else replace(item, raw=mark, inner=())


def _free_mark(items: Sequence[Item]) -> str:
    """Returns a private-use character that the items lack."""
    text = "".join(item.raw + item.text for item in items)
    mark = next((sign for sign in MARKS if sign not in text), None)
    if mark is None:
        raise DocumentError("A text must not contain all characters for private use.")
    return mark


Paired = tuple[MarkedDocument, MarkedDocument] | str
"""A string and its translation, or the reason why a string is left out of training text."""


Nbest = list[Translated]
"""The translations of a line, best first."""


class Lines:
    """The lines of documents that a model must translate. Lines without words stay unchanged. A memory supplies whole
    entries of files, and lines without tags; a line with tags needs a word alignment to place them."""

    def __init__(self, documents: Sequence[Document], known: Known | None = None) -> None:
        self._documents = documents
        filled = [document.take(known) for document in documents if known and isinstance(document, FilledDocument)]
        self.filled = sum(filled)
        """The number of entries from the memory."""
        self._wanted = [list(zip(document.lines, document.aligned, strict=True)) for document in documents]
        worded = [wanted for wanted in dict.fromkeys(chain(*self._wanted)) if has_words(wanted[0])]
        parts = zip(documents, self._wanted, strict=True)
        plain = {wanted for document, lines in parts if isinstance(document, PlainDocument) for wanted in lines}
        untagged = (wanted for wanted in worded if wanted in plain or not wanted[1])
        memory = {wanted: known(wanted[0]) for wanted in untagged if known}
        self.known = {wanted: [Translated(text)] for wanted, text in memory.items() if text is not None}
        """The lines from the memory, with their translations."""
        asked = (wanted for wanted in worded if wanted not in self.known)
        self._asked = {wanted: Line(number, wanted[0]) for number, wanted in enumerate(asked, 1)}
        self.groups: dict[bool, list[Line]] = {False: [], True: []}
        """The lines to translate, by whether they need word alignments."""
        for wanted, line in self._asked.items():
            self.groups[wanted[1]].append(line)

    def answered(self, answers: Mapping[Line, Nbest]) -> list[list[Nbest]]:
        """Returns the translations of each document's lines, given those of all groups. A line without a translation
        stays unchanged, except in a slot."""
        found = self.known | {wanted: answers[line] for wanted, line in self._asked.items()}
        translated = []
        for document, lines in zip(self._documents, self._wanted, strict=True):
            slots = isinstance(document, FilledDocument)
            nbests = [(wanted[0], found.get(wanted)) for wanted in lines]
            translated.append(
                [best if best and (best[0].text or slots) else [Translated.unchanged(text)] for text, best in nbests]
            )
        return translated
