"""Translates documents: chooses the lines that a model must translate, and returns the translations per document.

The caller runs the model: this module depends on neither the server nor the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from vtrans.apps.documents.document import Document, FilledDocument, PlainDocument, Translated
from vtrans.apps.documents.sentences import has_words
from vtrans.data.matches import Known
from vtrans.translate.steps.line import Line

Nbest = list[Translated]
"""The translations of a line, best first."""
LineKey = tuple[str, bool]
"""The text of a line, and whether it needs a word alignment."""
Groups = Mapping[bool, Sequence[Line]]
"""Lines, by whether they need word alignments."""
Answers = Mapping[Line, Nbest]


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
        self.groups = self._groups(self._asked)

    def answered(self, answers: Answers) -> list[list[Nbest]]:
        """Returns the translations of each document's lines, given the translations of all groups."""
        return [*self.each(lambda groups: answers, len(self._asked) + 1)]

    def each(self, translate: Callable[[Groups], Answers], least: int) -> Iterator[list[Nbest]]:
        """Yields the translations of each document's lines. Documents are collected until they have `least` new lines,
        which are then translated at once. A line without a translation stays unchanged, except in a slot."""
        found, first, new = dict(self.known), 0, dict[LineKey, None]()
        for number, lines in enumerate(self._wanted, 1):
            new |= dict.fromkeys(wanted for wanted in lines if wanted in self._asked and wanted not in found)
            if len(new) < least and number < len(self._wanted):
                continue
            answers = translate(self._groups(new))
            found |= {wanted: answers[self._asked[wanted]] for wanted in new}
            yield from map(partial(self._answer, found), range(first, number))
            first, new = number, {}

    def _groups(self, asked: Iterable[LineKey]) -> Groups:
        groups: dict[bool, list[Line]] = {False: [], True: []}
        for wanted in asked:
            groups[wanted[1]].append(self._asked[wanted])
        return groups

    def _answer(self, found: Mapping[LineKey, Nbest], number: int) -> list[Nbest]:
        """Returns the translations of a document's lines."""
        slots = isinstance(self._documents[number], FilledDocument)
        nbests = [(text, found.get((text, aligned))) for text, aligned in self._wanted[number]]
        return [nbest if nbest and (nbest[0].text or slots) else [Translated.unchanged(text)] for text, nbest in nbests]
