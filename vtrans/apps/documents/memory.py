"""Translation memories: corrections in a file, and translations of documents.

A correction is on disk when `add` returns. It replaces an earlier one of the same text by the same owner.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from vtrans.apps.documents.database import Database
from vtrans.apps.documents.document import MarkedDocument
from vtrans.apps.documents.inline import placeholders
from vtrans.apps.documents.sentences import MARKED, has_words, split_sentences
from vtrans.data.matches import Kind, Match, Matches
from vtrans.system.errors import FileError, InputError
from vtrans.text.languages import Languages
from vtrans.translate.wording.protection import Protection, masked

TextPair = tuple[str, str]


class Remembered:
    """The translations of a memory, held in RAM. The most frequent of several translations of a text is used."""

    def __init__(self) -> None:
        self._found: defaultdict[tuple[Kind, str], Counter[str]] = defaultdict(Counter)

    def add(self, kind: Kind, text: str, translation: str) -> None:
        """Adds a translation unless its placeholders differ from the text's."""
        if placeholders(text) == placeholders(translation):
            self._found[kind, text.strip()][translation.strip()] += 1

    def add_string(self, source: MarkedDocument, target: MarkedDocument, kind: Kind) -> None:
        """Adds a string of a document and its translation, as written, without tags, and sentence by sentence. Pairs
        with different placeholders are left out."""
        sides = source.paired_lines(target)
        if sides is None:
            return
        self.add(kind, source.raw, target.raw)
        if source.label and target.label:
            self.add("text", source.label, target.label)
        pairs = [(" ".join(sides[0]), " ".join(sides[1]))] if sides[1] else []
        if len(sides[0]) == len(sides[1]):
            pairs += zip(*sides, strict=True)
        for pair in dict.fromkeys(pairs):
            if _marks(pair[0]) == _marks(pair[1]):  # a placeholder may have moved to another sentence
                self.add("sentence", *pair)

    def __len__(self) -> int:
        return len(self._found)

    def __call__(self, text: str, kind: Kind = "sentence", *, sure: bool = False) -> str | None:
        """Returns the translation of a text, with the text's surrounding white space, or None. Implements `Known`."""
        plain = text.strip()
        found = self._found.get((kind, plain)) or (kind == "sentence" and self._found.get(("text", plain)))
        if not plain or not found or (sure and len(found) > 1):
            return None
        return around(text, found.most_common(1)[0][0])

    def sentences(self) -> Iterator[TextPair]:
        """Yields the sentences and their translations."""
        for kind, text in self._found:
            if kind == "sentence" and has_words(text) and (translation := self(text)):
                yield text, translation


def pairs_of(languages: Languages, text: str, translation: str) -> list[TextPair]:
    """Returns a text without tags and its translation, and their sentences if there are equally many."""
    sides = [split_sentences(side, code).sentences for side, code in zip((text, translation), languages, strict=True)]
    sentences = zip(*sides, strict=True) if len(sides[0]) == len(sides[1]) else ()
    return list(dict.fromkeys(((text, translation), *sentences)))


def _marks(text: str) -> Counter[str]:
    """Counts the marks that stand for atoms (document.py)."""
    return Counter(mark[0] for mark in MARKED.finditer(text))


def around(text: str, translation: str) -> str:
    """Returns a translation with the white space that surrounds the text."""
    return text.replace(text.strip(), translation, 1)


def coded_pair(src: str, tgt: str, protection: Protection) -> tuple[str, str] | None:
    """Replaces protected text by codes, equal on both sides; None if the sides protect different text."""
    read = protection.masked(src)
    answer = masked(tgt, protection.spans(tgt), {text: code for code, text in read.texts.items()})
    return (read.model_input, answer.model_input) if read.counts() == answer.counts() else None


class Lookup:
    """Finds fuzzy matches of lines among translated sentences. Codes replace text that `protection` protects."""

    def __init__(self, pairs: Iterable[TextPair], protection: Protection | None) -> None:
        self._protection = protection
        self._matches = Matches(coded for pair in pairs if (coded := self._coded(pair)))

    def add(self, *pair: str) -> None:
        """Adds a sentence and its translation."""
        if coded := self._coded(pair):
            self._matches.add(*coded)

    def __call__(self, line: str) -> Match | None:
        """Returns the best match of a line, or None."""
        return self._matches.best(self._protection.masked(line).model_input if self._protection else line)

    def _coded(self, pair: tuple[str, ...]) -> TextPair | None:
        src, tgt = pair
        coded = coded_pair(src, tgt, self._protection) if self._protection else (src, tgt)
        return coded if coded and not MARKED.search("".join(coded)) else None  # a model does not know the marks


_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class Memory:
    """The corrections in a file, which is created if missing, unless it `must_exist`. Several threads may use it.
    Raises FileError if the file is not a memory, or cannot be read or written."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path, self.file = path, Database(path, must_exist=must_exist)
        try:
            self.get(Languages("", ""), "x")
        except FileError:
            self.close()
            raise

    def add(self, languages: Languages, source: str, translation: str, owner: str = "") -> None:
        """Adds a correction, or replaces the owner's correction of the same text."""
        statement = "INSERT OR REPLACE INTO corrections VALUES (?, ?, ?, ?, ?)"
        self.file.change(statement, owner, *languages, source.strip(), translation.strip())

    def get(
        self, languages: Languages, source: str, kind: Kind = "sentence", *, sure: bool = False, owner: str = ""
    ) -> str | None:
        """Returns an owner's translation of a text, or else everyone's, with the white space around the text; None if
        there is none. With the languages bound, it is a `Known`. Corrections are one or more sentences without
        markup."""
        text = source.strip() if kind == "sentence" else ""
        query = (
            "SELECT translation FROM corrections WHERE owner IN (?, '') AND src = ? AND tgt = ? AND source = ? "
            "ORDER BY owner DESC"
        )
        row = next(iter(self.file.rows(query, owner, *languages, text)), None)
        usable = text and row and placeholders(text) == placeholders(row[0])
        return around(source, row[0]) if row and usable else None

    def remembered(self, languages: Languages, owner: str | None = None) -> Remembered:
        """Returns the translations in these languages that an owner may use; all if `owner` is None. An empty language
        means any. Raises InputError for several target languages."""
        remembered, targets = Remembered(), set[str]()
        query = "SELECT src, tgt, source, translation FROM corrections WHERE ? IN (src, '') AND ? IN (tgt, '')"
        if owner is not None:
            query += " AND owner IN (?, '') ORDER BY owner DESC"
        for src, tgt, *pair in self.file.rows(query, *languages, *([] if owner is None else [owner])):
            for sentence in pairs_of(Languages(src, tgt), *pair):
                remembered.add("sentence", *sentence)
            targets.add(tgt)
        if len(targets) > 1:
            raise InputError(
                f"{self.path} has translations into {', '.join(sorted(targets))}, and the model does not say which of "
                "these languages it translates into; give a memory of one."
            )
        return remembered

    def __len__(self) -> int:
        ((number,),) = self.file.rows("SELECT CAST(count(*) AS TEXT) FROM corrections")
        return int(number)

    def tmx(self, version: str) -> Iterator[str]:
        """Yields the lines of a TMX file with all corrections, written by this version of vtrans."""
        header = f'creationtool="vtrans" creationtoolversion="{version}" segtype="block" o-tmf="vtrans"'
        yield '<?xml version="1.0" encoding="UTF-8"?>'
        yield '<tmx version="1.4">'
        yield f'  <header {header} adminlang="en" srclang="*all*" datatype="plaintext"/>'
        yield "  <body>"
        for src, tgt, source, translation in self.file.rows("SELECT src, tgt, source, translation FROM corrections"):
            variants = (
                f"<tuv xml:lang={quoteattr(code)}><seg>{escape(_NOT_XML.sub('', text))}</seg></tuv>"
                for code, text in ((src, source), (tgt, translation))
            )
            yield f"    <tu>{''.join(variants)}</tu>"
        yield "  </body>"
        yield "</tmx>"

    def close(self) -> None:
        self.file.close()
