"""Fifth step: makes a source of the search of each line, or several of a long one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import regex

from vtrans.data.matches import SEPARATOR_ID
from vtrans.text.sentences import sentences
from vtrans.text.vocabulary import Vocabulary
from vtrans.translate.steps.line import Line, Piece
from vtrans.translate.steps.reader import SourceReader
from vtrans.translate.translation import TranslateOptions

_CELL = regex.compile(r"(?<=(?:\t|\s\|)\s*)(?=[^\s|])")  # after a tab, and after ` | ` as in tables of Markdown
# Letters of scripts that mark the ends of sentences with blanks, such as Thai.
_UNMARKED = regex.compile(r"\p{Line_Break=SA}")


class Split:
    """Makes pieces of lines of this language.

    The cells of a line are translated one by one, and its sentences are if it has more than `usual` subwords, unless
    something is asked of its translation as a whole. A model that has seen single sentences leaves out some of several,
    and one that has seen documents does better with all of them.
    """

    def __init__(
        self, reader: SourceReader, vocab: Vocabulary, options: TranslateOptions, usual: int = 0, language: str = ""
    ) -> None:
        self._reader, self._vocab, self._to, self._language = reader, vocab, options.to, language
        self._raw, self._beginning = options.raw, reader.beginning(options.to, options.formality)
        self._usual = min(usual, reader.max_source) if usual and not options.raw else reader.max_source

    def __call__(self, lines: Sequence[Line]) -> None:
        longest = self._reader.max_source
        for line in lines:
            line.ids = self._reader.encode(line.model_input, line.number, to=self._to)
            match = self._match(line.match[0], line) if line.match else []
            line.match = line.match if match else None
            line.before = [*self._beginning, *match]
            line.counts.matched = int(bool(match))
            is_whole = self._raw or line.prefix or line.match or line.wording.phrases or line.wording.terms
            if line.model_input.strip():
                line.pieces = list(self._pieces(line, is_whole=bool(is_whole)))
            if len(line.ids) > longest:
                line.counts.cut = 1
                line.warnings.append(
                    f"line {line.number} has {len(line.ids):,} subwords, more than {longest:,}; it is translated in "
                    f"{len(line.pieces)} pieces"
                )

    def _match(self, text: str, line: Line) -> list[int]:
        """Returns the subwords of a fuzzy match that stand before those of its line, or none if there is no room, or
        the line is blank."""
        match = [*self._reader.encode(text, line.number), SEPARATOR_ID]
        return match if line.ids and len(match) + len(line.ids) <= self._reader.max_source else []

    def _pieces(self, line: Line, *, is_whole: bool) -> Iterator[Piece]:
        """Yields the pieces of a line: one, or its cells, or its sentences if it has more subwords than usual. One that
        is whole has several only if the model cannot read it otherwise."""
        most, text = self._reader.max_source if is_whole else self._usual, line.model_input
        is_row = not is_whole and ("\t" in text or text.count("|") > 1)
        texts = _CELL.split(text.strip()) if is_row else [text]
        if len(line.ids) <= most and len(texts) == 1:
            if line.ids:
                yield Piece(line, self._reader.source(line, 0, line.ids, line.wording))
            return
        if len(line.ids) > most:
            texts = [part for text in texts for part in sentences(text, self._language)]
        parts = [part for k, text in enumerate(texts) for part in self._parts(text, line, k, most, is_row=is_row)]
        line.ids = [id for ids, _ in parts for id in ids]
        for k, (ids, gap) in enumerate(parts):
            wording = line.wording if len(parts) == 1 else line.wording.of_piece(k, self._vocab.decode(ids))
            yield Piece(line, self._reader.source(line, k, ids, wording), gap=gap)

    def _parts(self, text: str, line: Line, k: int, most: int, *, is_row: bool) -> Iterator[tuple[list[int], str]]:
        """Yields the subwords of the parts of sentence or cell k of a line, and what follows each part in the line."""
        own = text.rstrip(" \t|") if is_row else ""
        own = (f"{own}|" if own.endswith("\\") else own or text).rstrip()  # an escaped bar is text
        ids, longest = self._reader.encode(own, line.number, to="" if k else self._to), self._reader.max_source
        unmarked = 2 * len(_UNMARKED.findall(own)) > len(own)
        cut = cut_long(ids, longest, self._vocab, most if unmarked else longest)
        gaps = [" " if self._vocab.text_of(part[0]).startswith(" ") else "" for part in cut[1:]]
        return zip(cut, [*gaps, text[len(own) :]], strict=False)  # a blank text has no subwords


def cut_long(ids: list[int], limit: int, vocab: Vocabulary, usual: int) -> list[list[int]]:
    """Returns the subwords in pieces of at most `limit`, and of at most `usual` where words allow it. Each ends before
    the last word that begins in its second half, if there is one, else after a whole character with its accents."""
    pieces, begin = [], 0
    while len(ids) - begin > usual:
        longer = range(begin + usual + 1, min(begin + limit + 1, len(ids)))
        words = chain(range(begin + usual, begin + usual // 2, -1), longer)
        end = next((k for k in words if vocab.text_of(ids[k]).startswith(" ")), None)
        if end is None:
            if len(ids) - begin <= limit:
                break
            ends = range(begin + limit, begin, -1)
            end = next((k for k in ends if _ends_character(ids, begin, k, vocab)), begin + limit)
        pieces.append(ids[begin:end])
        begin = end
    return [*pieces, ids[begin:]] if ids else []


def _ends_character(ids: list[int], begin: int, end: int, vocab: Vocabulary) -> bool:
    """Returns whether a character with its accents ends before `end`, in subwords from `begin`."""
    begin = max(begin, end - 64)  # enough for any character
    text = vocab.decode(ids[begin:end])
    more = vocab.decode(ids[begin : end + 4])  # a character has at most four bytes
    return more.startswith(text) and len(text) in {character.end() for character in regex.finditer(r"\X", more)}
