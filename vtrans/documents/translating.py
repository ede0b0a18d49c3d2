"""Translates documents: which of their lines a model is asked for, and the documents with its answers.

The server waits for a model, and the command line runs one; neither is known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from vtrans.documents.document import Document, FilledDocument, Translated
from vtrans.documents.sentences import has_words
from vtrans.text.matches import Known

Nbest = list[Translated]
"""The translations of a line, best first."""


class Lines:
    """The lines of documents that a model is asked for. Those without words stay as they are, and what a memory has is
    taken from it, except for lines with tags: entries of files, and lines."""

    def __init__(self, documents: Sequence[Document], known: Known | None = None) -> None:
        self._documents = documents
        filled = [document.take(known) for document in documents if known and isinstance(document, FilledDocument)]
        self.filled = sum(filled)
        """The number of entries from the memory."""
        self._lines = [pair for document in documents for pair in zip(document.lines, document.aligned, strict=True)]
        worded = [pair for pair in dict.fromkeys(self._lines) if has_words(pair[0])]
        memory = {pair: known(pair[0]) for pair in worded if known and not pair[1]}
        self.known = {pair: [Translated(text)] for pair, text in memory.items() if text is not None}
        """The lines from the memory, with their translations."""
        self.groups = {
            aligned: [line for line, needs in worded if needs == aligned and (line, needs) not in self.known]
            for aligned in (False, True)
        }
        """The lines whose words need no links to those of their translations, and those whose words do."""

    def answered(self, answers: Mapping[bool, Sequence[Nbest]]) -> list[list[Nbest]]:
        """Returns the translations of each document's lines, given those of the groups. A line without a translation
        stays as it is, except in a slot."""
        found = self.known | {
            (line, aligned): nbest
            for aligned, lines in self.groups.items()
            for line, nbest in zip(lines, answers[aligned], strict=True)
        }
        pairs = iter(self._lines)
        answered = []
        for document in self._documents:
            slots = isinstance(document, FilledDocument)
            nbests = [(pair[0], found.get(pair)) for pair in islice(pairs, len(document.lines))]
            answered.append(
                [nbest if nbest and (nbest[0].text or slots) else [_unchanged(line)] for line, nbest in nbests]
            )
        return answered


def _unchanged(line: str) -> Translated:
    """Returns a line as its own translation."""
    return Translated(line, tuple((i, i) for i in range(len(line.split()))))
