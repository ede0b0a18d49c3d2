"""Collects training pairs from the translated strings of documents, and reads TMX, which has nothing else.

A pair is the model's input for a string (`Lines`) and the expected output: sentences without tags, with a code
for each placeholder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import PurePath
from xml.sax.saxutils import escape

from vtrans.apps.documents.document import MarkedDocument, Paired
from vtrans.apps.documents.files import check_size, decoded
from vtrans.apps.documents.formats.app_strings.qt import ts_encoding, ts_languages, ts_pairs
from vtrans.apps.documents.formats.app_strings.xcstrings import xcstrings_languages, xcstrings_pairs
from vtrans.apps.documents.formats.po import charset, po_languages, po_pairs
from vtrans.apps.documents.formats.xliff import XLIFF_ENDINGS, xliff_languages, xliff_pairs
from vtrans.apps.documents.formats.xml import LANGUAGE, Element, encoding, inline_items, root_of
from vtrans.apps.documents.memory import Remembered, TextPair, coded_pair
from vtrans.apps.documents.sentences import PROTECTION, has_words
from vtrans.system.errors import DocumentError
from vtrans.text.languages import Languages, base

REASONS = {
    "untranslated": "untranslated",
    "unchecked": "fuzzy or to be checked",
    "wordless": "without words",
    "placeholders": "whose placeholders differ",
    "repeated": "repeated",
}
"""Why strings are left out."""


def tmx_pairs(text: str, languages: Languages) -> Iterator[Paired]:
    """Yields the units of a TMX file with text in both languages. Raises DocumentError if the file is not TMX."""
    for segments in _units(_root(text)):
        sides = [(_in(segments, code), code) for code in languages]
        documents = [MarkedDocument(list(inline_items(side)), code, escape) for side, code in sides if side]
        yield (documents[0], documents[1]) if len(documents) == len(sides) else "untranslated"


def tmx_languages(text: str) -> tuple[str, str]:
    """Returns the language of a TMX file's header and the other one, both empty unless there is just one."""
    root = _root(text)
    header = root.child("header")
    src = header.attributes.get("srclang", "") if header else ""
    codes = {base(code): code for segments in _units(root) for code in segments}
    others = [code for key, code in codes.items() if key != base(src)]
    return (src, others[0]) if len(others) == 1 and base(src) in codes else ("", "")


def _root(text: str) -> Element:
    return root_of(text, "tmx", namespaces=("", "http://www.lisa.org/tmx14"))


def _units(root: Element) -> Iterator[dict[str, Element]]:
    """Yields the texts of each unit by language."""
    body = root.child("body")
    if body is None:
        raise DocumentError("The element tmx must have a body.")
    for unit in body.children:
        texts = ((variant.attributes, variant.child("seg")) for variant in unit.children if variant.name == "tuv")
        segments = {given.get(LANGUAGE) or given.get("lang", ""): text for given, text in texts if text}
        if segments:
            yield {code: text for code, text in segments.items() if not text.is_blank}


def _in(segments: dict[str, Element], language: str) -> Element | None:
    """Returns the text in a language; the same region is best, and any region will do."""
    exact = (text for code, text in segments.items() if code.lower() == language.lower())
    near = (text for code, text in segments.items() if base(code) == base(language))
    return next(exact, None) or next(near, None)


Read = Callable[[str, Languages], Iterator[Paired]]
_FORMATS: dict[str, tuple[Callable[[bytes], str], Callable[[str], tuple[str, str]], Read]] = {
    ".po": (charset, po_languages, po_pairs),
    **dict.fromkeys(XLIFF_ENDINGS, (encoding, lambda text: next(iter(xliff_languages(text)), ("", "")), xliff_pairs)),
    ".tmx": (encoding, tmx_languages, tmx_pairs),
    ".ts": (ts_encoding, ts_languages, ts_pairs),
    ".xcstrings": (lambda content: "utf-8", xcstrings_languages, xcstrings_pairs),
}
"""The readers of a document's encoding, its languages and its strings, by the ending of the file name."""
ENDINGS = tuple(_FORMATS)
"""The endings of the names of documents that have translations."""


class PairCollector:
    """The pairs of a corpus of documents, without repetitions. An empty language is taken from the documents. With a
    memory, translated strings are added to the memory instead."""

    def __init__(self, languages: Languages, memory: Remembered | None = None) -> None:
        self.languages, self._memory = languages, memory
        self.pairs: dict[TextPair, None] = {}
        self.counts: dict[str, dict[str, int]] = {}
        """Per document: how many strings were taken, and how many were left out for each reason."""

    def __str__(self) -> str:
        total = sum(map(Counter, self.counts.values()), Counter[str]())
        left_out = ", ".join(f"{total[reason]:,} {text}" for reason, text in REASONS.items() if total[reason])
        return f"{total['taken']:,} entries taken; left out: {left_out or 'none'}"

    def __bool__(self) -> bool:
        return bool(self.pairs or self._memory)

    def add(self, name: str, content: bytes, limit: int) -> None:
        """Adds a document of at most `limit` bytes. Raises DocumentError if it is damaged or in other languages."""
        ending = PurePath(name).suffix.lower()
        if ending not in ENDINGS:
            raise DocumentError(f"The file name must end in one of {', '.join(ENDINGS)}.")
        check_size(content, limit)
        encoding_of, languages_of, read = _FORMATS[ending]
        text, _ = decoded(content, encoding_of(content))
        if ending != ".tmx" or not all(self.languages):  # a memory has pairs in all directions
            self._agree(Languages(*languages_of(text)))
        counts = self.counts[name] = dict.fromkeys(("taken", *REASONS), 0)
        for paired in read(text, self.languages):
            if self._memory is not None and not isinstance(paired, str):
                self._memory.add_string(*paired, "text" if ending in (".po", ".xcstrings") else "xml")
                counts["taken"] += 1
                continue
            pairs = paired if isinstance(paired, str) else lines_of(*paired)
            if not isinstance(pairs, str) and all(pair in self.pairs for pair in pairs):
                pairs = "repeated"
            if isinstance(pairs, str):
                counts[pairs] += 1
            else:
                counts["taken"] += 1
                self.pairs.update(dict.fromkeys(pairs))

    def _agree(self, named: Languages) -> None:
        """Adopts a document's languages if they are not known yet. Raises DocumentError if they differ."""
        both = Languages(*(ours or theirs for ours, theirs in zip(self.languages, named, strict=True)))
        if not all(both):
            raise DocumentError(
                "The languages of the document are not known; give `src_lang` and `tgt_lang`, or give `from` and `to`."
            )
        if any(theirs and base(ours) != base(theirs) for ours, theirs in zip(both, named, strict=True)):
            wanted, got = " and ".join(both), " and ".join(code or "unknown" for code in named)
            raise DocumentError(f"The languages of the document must be {wanted}, got {got}.")
        self.languages = both


def lines_of(source: MarkedDocument, target: MarkedDocument) -> list[TextPair] | str:
    """Returns the pairs of sentences of a string and its translation, or the reason why there are none. If one
    side has more sentences, or a placeholder is in another sentence, the whole string is one pair."""
    sides = source.paired_lines(target)
    if sides is None:
        return "placeholders"
    if not any(map(has_words, source.lines)) or not target.lines:
        return "wordless"
    whole = [(" ".join(sides[0]), " ".join(sides[1]))]
    for pairs in ([list(zip(*sides, strict=True))] if len(sides[0]) == len(sides[1]) else []) + [whole]:
        coded = [coded_pair(*pair, PROTECTION) for pair in pairs if has_words(pair[0])]
        if all(coded):
            return [pair for pair in coded if pair]
    return "placeholders"
