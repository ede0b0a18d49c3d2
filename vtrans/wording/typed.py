"""Lines as people type them: in capitals or title case, and with characters that the vocabulary cannot write.

A model that has learned from clean text answers such lines with nonsense. Therefore a line in capitals or title case is
translated in lower case, and its translation is given the case of the line. Characters without a piece, such as most
emoji and the letters of another script, are copied in the way of protected text; before and after a sentence, they stay
where they are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import regex

from vtrans.data.noise import FINAL_MARKS
from vtrans.text.piece_table import is_byte, split_language
from vtrans.text.vocabulary import UNK_ID, Vocabulary
from vtrans.wording.protect import Masked, Span, masked

TITLE_WORDS = 4  # fewer words with initial capitals may be a name

_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")  # categories of control characters, surrogates and spaces
_WORD = regex.compile(r"\p{L}[\p{L}\p{M}]*(?:['\u2019]\p{L}+)*")
_PART = regex.compile(r"\w[\w\p{M}'\u2019-]*|\X")


@dataclass(frozen=True)
class Case:
    """A case that all words of a line have: `restore` gives it to a text."""

    restore: Callable[[str], str]


CAPITALS = Case(str.upper)
TITLE = Case(lambda text: regex.sub(r"(?<!\S)[^\w\s]*\w", lambda match: match.group().upper(), text))


class Typed:
    """Reads lines for a model with these vocabularies."""

    def __init__(self, src_vocab: Vocabulary, tgt_vocab: Vocabulary) -> None:
        self._vocabs = (src_vocab, tgt_vocab)
        self._unknown: tuple[dict[str, bool], ...] = ({}, {})
        self._known = set[str]()  # characters that the source vocabulary is known to have

    def reads(self, line: str) -> bool:
        """Returns whether a line can be read; one that names its target language itself is for the model as it is."""
        tag, _ = split_language(line)
        return not (self._vocabs[0].table and tag and tag[0] in self._vocabs[0].tags)

    def case_of(self, line: Masked) -> Case | None:
        """Returns the case of a line if all its words are in capitals, or all begin with one. Protected text does not
        count.

        A single word in capitals may be a name such as NASA, and a few words with initial capitals one such as Tom
        Jackson. They count if they take more subwords than in lower case.
        """
        words = [word for text in line.own for word in _WORD.findall(text)]
        if any(word.islower() and word != word.upper() for word in words):  # as in most lines
            return None
        words = [word for word in words if word.lower() != word.upper()]
        if all(map(str.isupper, words)) and any(len(word) > 1 for word in words):
            return CAPITALS if len(words) > 1 or self._is_easier_small(words) else None
        if not all(word[0].isupper() and word[1:] == word[1:].lower() for word in words):
            return None
        return TITLE if len(words) >= TITLE_WORDS or self._is_easier_small(words[1:]) else None

    def _is_easier_small(self, words: Sequence[str]) -> bool:
        lengths = [[len(self._vocabs[0].encode(text)) for text in (word.lower(), word)] for word in words]
        return sum(small for small, _ in lengths) < sum(given for _, given in lengths)

    def body(self, line: str, protected: Sequence[Span]) -> Span:
        """Returns where a line begins and ends without the unknown symbols at its start and after its final mark."""
        if not self._has_unknown(line):
            return 0, len(line)
        parts = [match.span() for match in _PART.finditer(line) if not self._is_outside(match.group())]
        parts = sorted((*parts, *protected))
        begin, end = (parts[0][0], max(part[1] for part in parts)) if parts else (len(line), len(line))
        after = line[end:].strip() and line[end - 1] in FINAL_MARKS
        return begin if line[:begin].strip() else 0, end if after else len(line)

    def _is_outside(self, part: str) -> bool:
        return part.isspace() or (self._is_copied(part) and not any(map(str.isalnum, part)))

    def read(self, line: str, protected: Iterable[Span], *, keep_case: bool = False) -> tuple[Masked, Case | None]:
        """Returns a line as the model sees it, and its case if that is to be restored.

        There are codes for protected text and for what else has to be copied: words of Latin letters one of which the
        source vocabulary lacks, and other words and symbols of which it lacks all. With a case to restore, the line
        is in lower case except for its first letter. Capitals that the vocabulary lacks are always written small.
        """
        spans, end = list[Span](), 0
        for span in (*protected, (len(line), len(line))):
            spans += ((end + begin, end + stop) for begin, stop in self._between(line[end : span[0]]))
            spans.append(span)
            end = span[1]
        read = masked(line, spans[:-1])
        case = None if keep_case else self.case_of(read)
        pieces, first = [], case is not None
        for code, text in read.pieces:
            if code == text:
                start = _WORD.search(text) if first else None
                kept = len(text) if case is None else start.start() + 1 if start else 0
                code = text = self._in_known_case(text[:kept]) + text[kept:].lower()
                first = first and not start
            pieces.append((code, text))
        return replace(read, pieces=pieces), case

    def _in_known_case(self, text: str) -> str:
        small = [] if self._knows(text) else [c for c in set(text) if self._is_unknown(0, c) and not self._lacks(0, c)]
        return text.translate({ord(c): c.lower() for c in small})

    def _between(self, text: str) -> Iterator[Span]:
        if not self._has_unknown(text):
            return
        begin = end = 0
        for match in _PART.finditer(text):
            if self._is_copied(match.group()):
                if match.start() != end:
                    if end > begin:
                        yield begin, end
                    begin = match.start()
                end = match.end()
        if end > begin:
            yield begin, end

    def _is_copied(self, part: str) -> bool:
        letters = [character for character in part if character.isalpha()]
        if not letters:
            return any(self._lacks(0, character) for character in part)
        lacking = [self._lacks(0, letter) for letter in letters]
        if regex.fullmatch(r"\p{Latin}+", "".join(letters)):
            return any(lacking) and not all(self._lacks(1, letter) for letter in letters)
        return all(lacking)

    def _has_unknown(self, text: str) -> bool:
        return not self._knows(text) and any(self._lacks(0, character) for character in set(text))

    def _knows(self, text: str) -> bool:
        """Returns whether the source vocabulary has pieces for all characters of a text."""
        if not self._known.issuperset(text):
            self._known |= {character for character in set(text) if not self._is_unknown(0, character)}
        return self._known.issuperset(text)

    def _lacks(self, side: int, character: str) -> bool:
        """Returns whether a vocabulary has pieces neither for a character nor for its small form."""
        return self._is_unknown(side, character) and any(self._is_unknown(side, small) for small in character.lower())

    def _is_unknown(self, side: int, character: str) -> bool:
        unknown = self._unknown[side]
        if character not in unknown:
            vocab, text = self._vocabs[side], "" if unicodedata.category(character) in _INVISIBLE else character
            ids = vocab.encode_batch([text], tags=False)[0]
            unknown[character] = any(id == UNK_ID or is_byte(vocab.piece(id)) for id in ids)
        return unknown[character]
