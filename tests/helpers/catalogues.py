"""Translates files without a model or a server, for tests of document formats."""

from collections.abc import Callable

from typed_lines import passed, undone

from vtrans.apps.documents.document import Filling, Lines, Translated
from vtrans.apps.documents.files import open_file
from vtrans.apps.documents.memory import Remembered
from vtrans.apps.documents.sentences import PROTECTION
from vtrans.engines.alignments import Links
from vtrans.text.words import CODE
from vtrans.translate.steps.line import Line
from vtrans.translate.steps.protect import Protect

Translate = Callable[[str], Translated]
PROTECT = Protect(PROTECTION, None)


def seen(text: str) -> Line:
    """Returns a line as a model would see it."""
    return passed(text, PROTECT)


def made_of(line: Line, text: str, alignment: Links | None = None) -> Translated:
    """Returns this translation of a line as a Translator makes it."""
    made = undone(line, text, alignment)
    return Translated(made.text, made.alignment)


def _in_order(text: str, order: Callable[[int], list[int]], aligned: bool = True) -> Translated:
    """Returns a line with the words that a model would see in another order."""
    line = seen(text)
    words = line.model_input.split()
    places = order(len(words))
    links = tuple((i, j) for j, i in enumerate(places)) if aligned else None
    return made_of(line, " ".join(words[i] for i in places), links)


def reverse(line: str) -> Translated:
    return _in_order(line, lambda n: list(range(n))[::-1])


def same(line: str) -> Translated:
    return _in_order(line, lambda n: list(range(n)))


def loud(line: str) -> Translated:
    """In capitals."""
    line_seen = seen(line)
    words = line_seen.model_input.split()
    upper = " ".join(word if CODE.fullmatch(word.strip(".")) else word.upper() for word in words)
    return made_of(line_seen, upper, tuple((n, n) for n in range(len(words))))


def rotated(line: str) -> Translated:
    """Without an alignment."""
    return _in_order(line, lambda n: [*range(1, n), 0], aligned=False)


def filled(
    name: str,
    content: bytes,
    translate: Translate = reverse,
    *,
    tgt: str = "de",
    overwrite: bool = False,
    existing: bytes = b"",
    memory: Remembered | None = None,
) -> bytes:
    """Returns a file with its translations, from a memory and a translator, or an existing translation with those that
    it lacks."""
    opened = open_file(name, content, 10_000_000, Filling(tgt, overwrite, existing=existing))
    documents = [opened.read(text, "en") for text in opened.texts]
    lines = Lines(documents, memory)
    answers = {line: [translate(line.text)] for group in lines.groups.values() for line in group}
    pairs = zip(documents, lines.answered(answers), strict=True)
    return opened.written([document.joined([nbest[0] for nbest in found]) for document, found in pairs])
