"""Copies the characters that the vocabulary cannot write, in the way of protected text.

These are characters without a piece, such as most emoji and the letters of another script. Before and after a sentence,
they stay where they are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import regex

from vtrans.data.noise import FINAL_MARKS
from vtrans.lines.line import Kept, Line, Stage
from vtrans.text.lines import one_line
from vtrans.text.piece_table import is_byte, split_language
from vtrans.text.vocabulary import UNK_ID, Vocabulary
from vtrans.translate.translation import Translation
from vtrans.wording.protect import Masked, Span

AROUND = Kept[tuple[str, str]]()
"""The symbols before and after a line."""

_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")  # categories of control characters, surrogates and spaces
_PART = regex.compile(r"\w[\w\p{M}'\u2019-]*|\X")


class Characters:
    """The characters that two vocabularies have."""

    def __init__(self, src_vocab: Vocabulary, tgt_vocab: Vocabulary) -> None:
        self.vocabs = (src_vocab, tgt_vocab)
        self._unknown: tuple[dict[str, bool], ...] = ({}, {})
        self._known = set[str]()  # characters that the source vocabulary is known to have

    def may_change(self, line: str) -> bool:
        """Returns whether a line may be changed; one that names its target language itself is for the model as it
        is."""
        tag, _ = split_language(line)
        return not (self.vocabs[0].table and tag and tag[0] in self.vocabs[0].tags)

    def knows(self, text: str) -> bool:
        """Returns whether the source vocabulary has pieces for all characters of a text."""
        if not self._known.issuperset(text):
            self._known |= {character for character in set(text) if not self.is_unknown(0, character)}
        return self._known.issuperset(text)

    def lacks(self, side: int, character: str) -> bool:
        """Returns whether a vocabulary has pieces neither for a character nor for its small form."""
        return self.is_unknown(side, character) and any(self.is_unknown(side, small) for small in character.lower())

    def is_unknown(self, side: int, character: str) -> bool:
        """Returns whether a vocabulary has no piece for a character."""
        unknown = self._unknown[side]
        if character not in unknown:
            vocab, text = self.vocabs[side], "" if unicodedata.category(character) in _INVISIBLE else character
            ids = vocab.encode_batch([text], tags=False)[0]
            unknown[character] = any(id == UNK_ID or is_byte(vocab.piece(id)) for id in ids)
        return unknown[character]


class CopyUnknown(Stage):
    """Protects what else has to be copied: words of Latin letters one of which the source vocabulary lacks, and other
    words and symbols of which it lacks all."""

    def __init__(self, characters: Characters) -> None:
        self._characters = characters

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text, characters = line.seen.text, self._characters
            if characters.knows(text) or not characters.may_change(line.text):
                continue
            if not any(characters.lacks(0, character) for character in set(text)):
                continue
            begin, end = (0, len(text)) if line.prefix else self._body(text, line.protected)
            if begin > 0 or end < len(text):
                AROUND.put(line, (text[:begin], text[end:]))
                text = text[begin:end]
                line.seen = Masked.plain(text)
                line.protected = [(start - begin, stop - begin) for start, stop in line.protected]
            line.protected = self._copied(text, line.protected)

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if around := AROUND.get(line):
                line.translations = [_between(line.text, around, translation) for translation in line.translations]

    def _body(self, line: str, protected: Sequence[Span]) -> Span:
        """Returns where a line begins and ends without the unknown symbols at its start and after its final mark."""
        parts = [*protected]
        for match in _PART.finditer(line):
            part = match.group()
            is_symbol = self._is_copied(part) and not any(map(str.isalnum, part))
            if not part.isspace() and not is_symbol:
                parts.append(match.span())
        begin, end = (min(parts)[0], max(stop for _, stop in parts)) if parts else (len(line), len(line))
        after = line[end:].strip() and line[end - 1] in FINAL_MARKS
        return begin if line[:begin].strip() else 0, end if after else len(line)

    def _copied(self, line: str, protected: Sequence[Span]) -> list[Span]:
        """Returns the protected parts of a line, and between them those with unknown characters."""
        spans, end = list[Span](), 0
        for begin, stop in (*protected, (len(line), len(line))):
            runs = list[Span]()
            for match in _PART.finditer(line[end:begin]):
                if self._is_copied(match.group()):
                    first, last = end + match.start(), end + match.end()
                    continues = bool(runs) and runs[-1][1] == first
                    runs.append((runs.pop()[0] if continues else first, last))
            spans += [*runs, (begin, stop)]
            end = stop
        return spans[:-1]

    def _is_copied(self, part: str) -> bool:
        lacks = self._characters.lacks
        letters = [character for character in part if character.isalpha()]
        if not letters:
            return any(lacks(0, character) for character in part)
        lacking = [lacks(0, letter) for letter in letters]
        if regex.fullmatch(r"\p{Latin}+", "".join(letters)):
            return any(lacking) and not all(lacks(1, letter) for letter in letters)
        return all(lacking)


def _between(line: str, around: tuple[str, str], translation: Translation) -> Translation:
    """Returns a translation between the symbols before and after its line."""
    before, after = around
    text = one_line(before + translation.text + after)
    links, words = translation.alignment, translation.word_confidences
    # A symbol that touches the line is part of one of its words.
    first, last = len((before + "x").split()) - 1, len(("x" + after).split()) - 1
    src_words, tgt_words = len(line.split()), len(text.split())
    if links is not None:
        links = (*((i, i) for i in range(first)), *((i + first, j + first) for i, j in links))
        links += tuple((src_words - last + i, tgt_words - last + i) for i in range(last))
    if words is not None:
        words = (*[1.0] * first, *words, *[1.0] * (tgt_words - first - len(words)))
    return replace(translation, text=text, alignment=links, word_confidences=words)
