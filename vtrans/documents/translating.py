"""Translates documents: which of their lines a model is asked for, and the documents with its answers.

The server waits for a model, and the command line runs one; neither is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from typing import TypeVar

from vtrans.documents.document import Document, FilledDocument, Translated
from vtrans.documents.sentences import has_words
from vtrans.text.matches import Known

T = TypeVar("T")
Nbest = list[Translated]
"""The translations of a line, best first."""
Line = tuple[str, bool]
"""A line, and whether its words need links to those of its translation."""
Groups = Mapping[bool, Sequence[T]]
"""What belongs to the lines whose words need no links, and to those whose words do."""


class Lines:
    """The lines of documents that a model is asked for. Those without words stay as they are, and what a memory has is
    taken from it, except for lines with tags: entries of files, and lines."""

    def __init__(self, documents: Sequence[Document], known: Known | None = None) -> None:
        self._documents = documents
        filled = [document.take(known) for document in documents if known and isinstance(document, FilledDocument)]
        self.filled = sum(filled)
        """The number of entries from the memory."""
        self._lines = [list(zip(document.lines, document.aligned, strict=True)) for document in documents]
        worded = [pair for pair in dict.fromkeys(chain(*self._lines)) if has_words(pair[0])]
        memory = {pair: known(pair[0]) for pair in worded if known and not pair[1]}
        self.known = {pair: [Translated(text)] for pair, text in memory.items() if text is not None}
        """The lines from the memory, with their translations."""
        self._asked = dict.fromkeys(pair for pair in worded if pair not in self.known)
        self.groups = _groups(self._asked)

    def answered(self, answers: Groups[Nbest]) -> list[list[Nbest]]:
        """Returns the translations of each document's lines, given those of the groups, as `each`."""
        return [*self.each(lambda groups: answers, len(self._asked) + 1)]

    def each(self, translate: Callable[[Groups[str]], Groups[Nbest]], least: int) -> Iterator[list[Nbest]]:
        """Yields the translations of each document's lines. The groups of documents that have at least `least` new
        lines together are translated at once. A line without a translation stays as it is, except in a slot."""
        found, first, new = dict(self.known), 0, dict[Line, None]()
        for number, lines in enumerate(self._lines, 1):
            new |= dict.fromkeys(line for line in lines if line in self._asked and line not in found)
            if len(new) < least and number < len(self._lines):
                continue
            groups = _groups(new)
            answers = translate(groups)
            for aligned, texts in groups.items():
                found |= zip(zip(texts, repeat(aligned)), answers[aligned], strict=True)
            yield from map(partial(self._answer, found), range(first, number))
            first, new = number, {}

    def _answer(self, found: Mapping[Line, Nbest], number: int) -> list[Nbest]:
        """Returns the translations of a document's lines."""
        slots = isinstance(self._documents[number], FilledDocument)
        nbests = [(line[0], found.get(line)) for line in self._lines[number]]
        return [nbest if nbest and (nbest[0].text or slots) else [_unchanged(line)] for line, nbest in nbests]


def _groups(lines: Iterable[Line]) -> Groups[str]:
    """Returns the lines whose words need no links to those of their translations, and those whose words do."""
    groups: dict[bool, list[str]] = {False: [], True: []}
    for text, aligned in lines:
        groups[aligned].append(text)
    return groups


def _unchanged(line: str) -> Translated:
    """Returns a line as its own translation."""
    return Translated(line, tuple((i, i) for i in range(len(line.split()))))
