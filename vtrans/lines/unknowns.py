"""Copies the characters that the vocabulary cannot write, in the way of protected text.

These are characters without a piece, such as most emoji and the letters of another script. Before and after a sentence,
they stay where they are, and so does a bullet. Lines without letters are copied as a whole.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace

import regex

from vtrans.lines.line import Kept, Line, Stage
from vtrans.text.lines import one_line
from vtrans.text.piece_table import split_language
from vtrans.text.vocabulary import Vocabulary
from vtrans.translate.translation import Translation
from vtrans.wording.phrases import has_spaces
from vtrans.wording.protect import Masked, Span

AROUND = Kept[tuple[str, str]]()
"""What stands before and after a line."""
_SEEN_WORDS = Kept[list[int]]()
"""The words of a line that are more than control characters."""

_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")  # categories of control characters, surrogates and spaces
# Control and format characters, without those that join the characters of an emoji.
_CONTROLS = regex.compile(r"(?<![\p{Extended_Pictographic}\ufe0f\U0001f3fb-\U0001f3ff\p{Cf}])[\p{Cc}\p{Cf}]+")
_SYMBOLS = frozenset(string.punctuation) - set("-'`") | set("$\u20ac\u00a3\u00a5")  # of addresses, names and prices
_EDGES = " \"'\u00ab\u00bb\u201c\u201d\u201e\u2018\u2019\u00bf\u00a1()[]-\u2013\u2014"  # around a word
_EITHER = regex.compile(r"[\p{L}\p{M}]+/[\p{L}\p{M}]+")  # two words
_LONG = regex.compile(r"[\w\p{M}]{201,}+")  # is not a word, and would be translated for seconds
_WORDLESS = regex.compile(r"(?=[\p{C}\p{Z}\s\u2581]*+.)[^\p{L}\p{Cs}]++", regex.DOTALL)  # but not blank
_RUN = regex.compile(r"[^\s<>]+|[<>]")
_PART = regex.compile(r"\p{Cf}*+\w[\w\p{M}\p{Cf}'\u2019-]*|\X")
# A bullet, where `- 5` and `> 5` are text, and the bars around a row of a table.
_BULLET = regex.compile(r"\s*(?:[\p{Pd}\p{Sm}\p{So}*#\u2022\u2023\u00b7]\s+(?=[^\s\d])|(?:\|++\s+)++)")
_BAR_AT_END = regex.compile(r"(?<![\s|])(?:\s+\|++)++\s*$")
_SENTENCE_END = regex.compile(r"[\p{Sentence_Terminal}\u2026]")


class Characters:
    """The characters that two vocabularies have."""

    def __init__(self, src_vocab: Vocabulary, tgt_vocab: Vocabulary) -> None:
        self.vocabs = (src_vocab, tgt_vocab)
        self._unknown: tuple[dict[str, bool], ...] = ({}, {})
        self._known = set[str]()  # characters that the source vocabulary is known to have

    def may_change(self, line: str) -> bool:
        """Returns whether a line may be changed; one that names its target language itself is for the model as it
        is."""
        vocab = self.vocabs[0]
        tag, _ = split_language(line) if vocab.table else ([], line)
        return not (tag and tag[0] in vocab.tags)

    def knows(self, text: str) -> bool:
        """Returns whether the source vocabulary has pieces for all characters of a text."""
        if not self._known.issuperset(text):
            self._known |= {character for character in set(text) if not self.is_unknown(0, character)}
        return self._known.issuperset(text)

    def lacks(self, side: int, character: str) -> bool:
        """Returns whether a vocabulary has pieces neither for a character nor for its small form."""
        return self.is_unknown(side, character) and any(self.is_unknown(side, small) for small in character.lower())

    def knows_control(self, character: str) -> bool:
        """Returns whether the source vocabulary has a piece for a control or format character, or reads over it."""
        vocab = self.vocabs[0]
        (ids,) = vocab.encode_batch([character], tags=False)
        return all(map(vocab.is_subword, ids))

    def is_unknown(self, side: int, character: str) -> bool:
        """Returns whether a vocabulary has no piece for a character."""
        unknown = self._unknown[side]
        if character not in unknown:
            vocab, text = self.vocabs[side], "" if unicodedata.category(character) in _INVISIBLE else character
            ids = vocab.encode_batch([text], tags=False)[0]
            unknown[character] = not all(map(vocab.is_subword, ids))
        return unknown[character]


class DropInvisible(Stage):
    """Leaves out control and format characters that the source vocabulary lacks, for which a model invents words. In
    emoji they stay, and so do format characters beside characters that are copied."""

    def __init__(self, characters: Characters) -> None:
        self._characters = characters

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text = line.seen.text
            if _CONTROLS.search(text):
                line.seen = Masked.plain(self._seen(text))
                _SEEN_WORDS.put(line, [i for i, word in enumerate(text.split()) if self._seen(word)])

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if words := _SEEN_WORDS.get(line):
                found = line.translations
                links = [t.alignment and tuple((words[i], j) for i, j in t.alignment) for t in found]
                line.translations = [replace(t, alignment=own) for t, own in zip(found, links, strict=True)]

    def _seen(self, text: str) -> str:
        seen: str = _CONTROLS.sub(self._kept, text)
        return seen

    def _kept(self, run: regex.Match[str]) -> str:
        """Returns what is left of control characters."""
        around = run.string[max(0, run.start() - 1) : run.start()] + run.string[run.end() : run.end() + 1]
        copied = any(self._characters.lacks(0, character) for character in around)
        knows = self._characters.knows_control
        return "".join(c for c in run.group() if (copied and unicodedata.category(c) == "Cf") or knows(c))


class CopyUnknown(Stage):
    """Protects what else has to be copied: words of Latin letters one of which the source vocabulary lacks, other words
    and symbols of which it lacks all, and addresses with such a symbol."""

    def __init__(self, characters: Characters) -> None:
        self._characters = characters

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text, characters = line.seen.text, self._characters
            if not characters.may_change(line.text):
                continue
            if not line.prefix and not line.wording.phrases and _WORDLESS.fullmatch(text):
                line.protected = [(0, len(text))]
                continue
            lacks = not characters.knows(text) and any(characters.lacks(0, character) for character in set(text))
            begin, end = (0, len(text)) if line.prefix else self._body(text, line.protected, lacks=lacks)
            if begin > 0 or end < len(text):
                AROUND.put(line, (text[:begin], text[end:]))
                text = text[begin:end]
                line.seen = Masked.plain(text)
                inside = [(start, stop) for start, stop in line.protected if begin <= start and stop <= end]
                line.protected = [(start - begin, stop - begin) for start, stop in inside]
            if lacks or _LONG.search(text):
                line.protected = self._copied(text, line.protected)

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if around := AROUND.get(line):
                line.translations = [_between(line.seen.text, around, t) for t in line.translations]

    def _body(self, line: str, protected: Sequence[Span], *, lacks: bool) -> Span:
        """Returns where a line begins and ends without what stays before and after it. `lacks` says whether it may have
        unknown symbols, at its start or after its final mark."""
        bullet, bar = _BULLET.match(line), _BAR_AT_END.search(line)
        begin, end = bullet.end() if bullet else 0, bar.start() if bar else len(line)
        if lacks:
            parts = [
                *protected,
                *(match.span() for match in _PART.finditer(line, begin, end) if self._is_text(match.group())),
            ]
            first, last = (min(parts)[0], max(stop for _, stop in parts)) if parts else (end, end)
            begin = first if line[begin:first].strip() else begin
            end = last if line[last:end].strip() and _SENTENCE_END.match(line, last - 1) else end
        return begin, end

    def _is_text(self, part: str) -> bool:
        return not part.isspace() and (any(map(str.isalnum, part)) or not self._is_copied(part))

    def _copied(self, line: str, protected: Sequence[Span]) -> list[Span]:
        """Returns the protected parts of a line, and between them those with unknown characters."""
        spans, end = list[Span](), 0
        for begin, stop in (*protected, (len(line), len(line))):
            runs = list[Span]()
            for first, last in self._copied_parts(line, end, begin):
                continues = bool(runs) and runs[-1][1] == first and _continues(line[first - 1], line[first])
                runs.append((runs.pop()[0] if continues else first, last))
            spans += [*runs, (begin, stop)]
            end = stop
        return spans[:-1]

    def _copied_parts(self, line: str, begin: int, end: int) -> Iterator[Span]:
        for run in _RUN.finditer(line, begin, end):
            core, place = run.group().lstrip(_EDGES).rstrip(_EDGES + ".,:;!?\u2026"), run.start()
            if self._is_address(core):
                first = line.find(core, place)
                yield from self._unknown_parts(line, place, first)
                place = first + len(core)
                yield first, place
            yield from self._unknown_parts(line, place, run.end())

    def _unknown_parts(self, line: str, begin: int, end: int) -> Iterator[Span]:
        return (match.span() for match in _PART.finditer(line, begin, end) if self._is_copied(match.group()))

    def _is_address(self, run: str) -> bool:
        """Returns whether a run of characters without blanks is copied as a whole: it has letters or digits and a
        symbol that the source vocabulary lacks, such as / in an address, or is longer than any word. Words beside an
        emoji or with markup around them, and two words with a slash between them, are translated."""
        if _LONG.search(run):
            return has_spaces(run)
        inner = run.strip("*_~|=")
        symbols = any(self._characters.lacks(0, symbol) for symbol in _SYMBOLS.intersection(inner))
        return symbols and any(map(str.isalnum, inner)) and not _EITHER.fullmatch(inner)

    def _is_copied(self, part: str) -> bool:
        lacks = self._characters.lacks
        letters = [character for character in part if character.isalpha()]
        if not letters:
            return any(lacks(0, character) for character in part)
        lacking = [lacks(0, letter) for letter in letters]
        if regex.fullmatch(r"\p{Latin}+", "".join(letters)):
            return any(lacking) and not all(lacks(1, letter) for letter in letters)
        return all(lacking)


def _between(body: str, around: tuple[str, str], translation: Translation) -> Translation:
    """Returns a translation of a line's body between what stands around it."""
    before, after = around
    text = one_line(before + translation.text + after)
    links, words = translation.alignment, translation.word_confidences
    # A symbol that touches the line is part of one of its words.
    first, last = len((before + "x").split()) - 1, len(("x" + after).split()) - 1
    src_words, tgt_words = len((before + body + after).split()), len(text.split())
    if links is not None:
        links = (*((i, i) for i in range(first)), *((i + first, j + first) for i, j in links))
        links += tuple((src_words - last + i, tgt_words - last + i) for i in range(last))
    if words is not None:
        words = (*[1.0] * first, *words, *[1.0] * (tgt_words - first - len(words)))
    return replace(translation, text=text, alignment=links, word_confidences=words)


def _continues(before: str, after: str) -> bool:
    """Returns whether two copied characters are one text. Brackets are apart from what is inside them."""
    return (before in "()[]") == (after in "()[]")
