"""Translates documents: which of their lines a model is asked for, and the documents with its answers.

The server waits for a model, and the command line runs one; neither is known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from vtrans.documents.document import Document, Translated
from vtrans.documents.sentences import has_words

Nbest = list[Translated]
"""The translations of a line, best first."""


class Lines:
    """The lines of documents that a model is asked for. Those without words stay as they are."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = documents
        self._lines = [pair for document in documents for pair in zip(document.lines, document.aligned, strict=True)]
        worded = {line: has_words(line) for line, _ in self._lines}
        self.groups = {
            aligned: list(dict.fromkeys(line for line, needs in self._lines if worded[line] and needs == aligned))
            for aligned in (False, True)
        }
        """The lines whose words need no links to those of their translations, and those whose words do."""

    def answered(self, answers: Mapping[bool, Sequence[Nbest]]) -> list[list[Nbest]]:
        """Returns the translations of each document's lines, given those of the groups."""
        found = {
            (line, aligned): nbest
            for aligned, lines in self.groups.items()
            for line, nbest in zip(lines, answers[aligned], strict=True)
        }
        ordered = (found.get((line, needs)) or [_unchanged(line)] for line, needs in self._lines)
        return [list(islice(ordered, len(document.lines))) for document in self._documents]


def _unchanged(line: str) -> Translated:
    """Returns a line as its own translation."""
    return Translated(line, tuple((i, i) for i in range(len(line.split()))))
