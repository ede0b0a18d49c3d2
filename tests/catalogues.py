"""Translates files without a model or a server, for tests of document formats."""

from __future__ import annotations

from collections.abc import Callable

from vtrans.documents.document import Translated
from vtrans.documents.files import Filling, open_file
from vtrans.documents.sentences import PROTECTION
from vtrans.documents.translating import Lines
from vtrans.translate.asked import asked_of
from vtrans.translate.translation import TranslateOptions, Translation

Translate = Callable[[str], Translated]
OPTIONS = TranslateOptions(alignments=True, protect=PROTECTION)


def _asked(line: str, order: Callable[[int], list[int]], aligned: bool = True) -> Translated:
    """Returns a line with the words that a model would see in another order, as a Translator makes it."""
    asked = asked_of(line, 1, {}, OPTIONS, None, begun=False, codes=True)
    words = asked.line.masked.split()
    places = order(len(words))
    links = tuple((i, j) for j, i in enumerate(places)) if aligned else None
    (made,) = asked.restored([Translation(" ".join(words[i] for i in places), 0.0, 0.0, True, alignment=links)])
    return Translated(made.text, made.alignment)


def reverse(line: str) -> Translated:
    return _asked(line, lambda n: list(range(n))[::-1])


def same(line: str) -> Translated:
    return _asked(line, lambda n: list(range(n)))


def rotated(line: str) -> Translated:
    """Without an alignment."""
    return _asked(line, lambda n: [*range(1, n), 0], aligned=False)


def filled(
    name: str, content: bytes, translate: Translate = reverse, *, tgt: str = "de", overwrite: bool = False
) -> bytes:
    """Returns a file with its translations."""
    opened = open_file(name, content, 10_000_000, Filling(tgt, overwrite))
    documents = [opened.read(text, "en") for text in opened.texts]
    lines = Lines(documents)
    answers = {aligned: [[translate(line)] for line in group] for aligned, group in lines.groups.items()}
    pairs = zip(documents, lines.answered(answers), strict=True)
    return opened.written([document.joined([nbest[0] for nbest in found]) for document, found in pairs])
