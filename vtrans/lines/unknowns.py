"""Copies the characters that the vocabulary cannot write, in the way of protected text.

These are characters without a piece, such as most emoji and the letters of another script. Before and after a sentence,
they stay where they are, and so do the number or bullet of an item of a list, a mention, an ellipsis, an emoticon, and
dot leaders and rules (`-----`). Lines without words are copied as a whole.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace

import regex

from vtrans.data.noise import FINAL_MARKS
from vtrans.lines.line import Kept, Line, Stage
from vtrans.text.lines import one_line
from vtrans.text.piece_table import split_language
from vtrans.text.sentences import BETWEEN, SENTENCE_ENDS
from vtrans.text.vocabulary import Vocabulary
from vtrans.translate.translation import Translation
from vtrans.wording.phrases import has_spaces
from vtrans.wording.protect import Masked, Span

AROUND = Kept[tuple[str, str]]()
"""What stands before and after a line."""
SEEN_WORDS = Kept[list[int]]()
"""The words of a line that are more than control characters."""
_STOPPED = Kept[bool]()
"""Whether the sentence of a line ends before an ellipsis or emoticon, without a final mark of its own."""

_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")  # categories of control characters, surrogates and spaces
# Control and format characters, without those that join the characters of an emoji.
_CONTROLS = regex.compile(r"(?<![\p{Extended_Pictographic}\ufe0f\U0001f3fb-\U0001f3ff\p{Cf}])[\p{Cc}\p{Cf}]+")
LONGEST_RUN = 200  # characters without a blank that may be a word; more would be translated for seconds
_SYMBOLS = frozenset(string.punctuation) - set("-'`") | set("$€£¥")  # those of addresses, names, prices
_EITHER = regex.compile(r"\p{L}{2,}/\p{L}{2,}")  # but km/h is copied
_RUN = regex.compile(r"[^\s<>]+|[<>]")
_PART = regex.compile(r"\w[\w\p{M}'\u2019-]*|\X")
_RULE = r"(?:[-=*_\u2013\u2014]{4,}+|\.{4,}+)"
# What stays before a sentence.
_ITEM = regex.compile("|".join((
    # the number or bullet of a heading or an item of a list; `1.5 percent` and `3 books` are text
    r"\s*(?:\(?(?:\d{1,3}(?:\.\d{1,2})*|\p{L}|[IVX]{1,5}|[ivx]{2,5})[.)]|\d{1,3}(?:\.\d{1,2})+(?=\s+\p{Lu}\p{Ll})"
    r"|[-+*#>\u2022\u2013\u2014]+|P\.?S\.|N\.B\.)\s+(?=[^\w\s]{0,2}\p{L}|\d+\s\p{L})",
    # who is addressed, and hashtags
    r"(?:[#@]\p{L}[\w.-]*+\s+)+(?=\p{Lu})",
    # a rule, or the bar at the beginning of a row
    rf"\s*{_RULE}\s*(?=[^\w\s]{{0,2}}\p{{L}})|\s*(?:\|\s+)++",
    # the dash before a speaker in subtitles
    r"\s*[-\u2013\u2014](?=\p{Lu}\p{Ll}*+(?![\w-]))(?=.*[.!?\u2026]\s*$)",
)))  # fmt: skip
# An ellipsis, or an emoticon after a sentence without a final mark.
_TAIL = regex.compile(r"(?<=\p{L}[\p{L}\p{M}'\u2019]*)\s?(?:\.{3,}|\u2026)\s*$|(?<=[\p{L}\d])\s+[:;=]'?-?[()DPp]+\s*$")
_RULE_AT_END = regex.compile(rf"(?<![-=*_\u2013\u2014.\s])\s*+{_RULE}\s*$|(?<![\s|])(?:\s+\|)++\s*$")
_LETTER = r"[\p{Latin}\p{Greek}](?!\w)"
# Lines that are copied; `n/a` is translated.
_WORDLESS = regex.compile("|".join((
    # symbols
    r"(?=[\p{P}\p{S}])(?!\u2581)[^\p{L}\p{M}\p{N}]++",
    # a Roman numeral, or the letter of an item
    r"\W*+(?=[IVX]{2})X{0,3}(?:IX|IV|V?I{0,3})\W*|\(?(?:\p{Latin}|[ivx]{2,5})[.)]",
    # letters, as in `A & B` and `a = b`
    rf"\W*+{_LETTER}(?:(?:\s?[&=+*<>|\t\u2260\u2264\u2265\u2248\u00d7\u00b7\u00f7\u2192]\s?|(?<!N)/(?=\p{{Lu}})){_LETTER})+\W*",
)))  # fmt: skip
_REPEATED_MARKS = regex.compile(r"(?<![!?])[!?]{2,}+(?=\s*$)")
_SINGLE_MARK = regex.compile(r"(?<![.!?\u2026])[.!?]$")


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
    emoji they stay."""

    def __init__(self, characters: Characters) -> None:
        self._characters = characters

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text = line.seen.text
            if _CONTROLS.search(text):
                line.seen = Masked.plain(self._seen(text))
                SEEN_WORDS.put(line, [i for i, word in enumerate(text.split()) if self._seen(word)])

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if words := SEEN_WORDS.get(line):
                found = line.translations
                links = [t.alignment and tuple((words[i], j) for i, j in t.alignment) for t in found]
                line.translations = [replace(t, alignment=own) for t, own in zip(found, links, strict=True)]

    def _seen(self, text: str) -> str:
        knows = self._characters.knows_control
        seen: str = _CONTROLS.sub(lambda run: "".join(filter(knows, run.group())), text)
        return seen


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
            if not line.prefix and not line.wording.phrases and _WORDLESS.fullmatch(text.strip()):
                line.protected = [(0, len(text))]
                continue
            lacks = not characters.knows(text) and any(characters.lacks(0, character) for character in set(text))
            begin, end = (0, len(text)) if line.prefix else self._body(text, line.protected, lacks=lacks)
            if begin > 0 or end < len(text):
                AROUND.put(line, (text[:begin], text[end:]))
                may_be_ordinal = text[end - 1].isdigit()  # with a full stop
                _STOPPED.put(line, _TAIL.search(text) is not None)
                text = text[begin:end] + ("." if _STOPPED.get(line) and not may_be_ordinal else "")
                line.seen = Masked.plain(text)
                inside = [(start, stop) for start, stop in line.protected if begin <= start and stop <= end]
                line.protected = [(start - begin, stop - begin) for start, stop in inside]
            if lacks or (len(text) > LONGEST_RUN and any(len(run) > LONGEST_RUN for run in text.split())):
                line.protected = self._copied(text, line.protected)

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if (marks := _REPEATED_MARKS.search(line.seen.text)) and not line.prefix and not line.constraints:
                line.translations = [replace(t, text=_SINGLE_MARK.sub(marks[0], t.text)) for t in line.translations]
            if around := AROUND.get(line):
                dropped = FINAL_MARKS if _STOPPED.get(line) else ""
                line.translations = [_between(line.seen.text, around, dropped, t) for t in line.translations]

    def _body(self, line: str, protected: Sequence[Span], *, lacks: bool) -> Span:
        """Returns where a line begins and ends without what stays before and after it. `lacks` says whether it may have
        unknown symbols, at its start or after its final mark."""
        item, tail = _ITEM.match(line), _TAIL.search(line) or _RULE_AT_END.search(line)
        if item or tail:
            return item.end() if item else 0, tail.start() if tail else len(line)
        if not lacks:
            return 0, len(line)
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
            for first, last in self._copied_parts(line, end, begin):
                continues = bool(runs) and runs[-1][1] == first and _continues(line[first - 1], line[first])
                runs.append((runs.pop()[0] if continues else first, last))
            spans += [*runs, (begin, stop)]
            end = stop
        return spans[:-1]

    def _copied_parts(self, line: str, begin: int, end: int) -> Iterator[Span]:
        for run in _RUN.finditer(line, begin, end):
            core = run.group().lstrip(BETWEEN).rstrip(BETWEEN + SENTENCE_ENDS + ",;")
            rest = run.start()
            if self._is_address(core):
                first = line.find(core, rest)
                yield from self._unknown_parts(line, rest, first)
                rest = first + len(core)
                if line[rest : rest + 1] == ")" and core.count("(") > core.count(")"):  # as in an address of Wikipedia
                    rest += 1
                yield first, rest
            yield from self._unknown_parts(line, rest, run.end())

    def _unknown_parts(self, line: str, begin: int, end: int) -> Iterator[Span]:
        return (match.span() for match in _PART.finditer(line, begin, end) if self._is_copied(match.group()))

    def _is_address(self, run: str) -> bool:
        """Returns whether a run of characters without blanks is copied as a whole: it has letters or digits and a
        symbol that the source vocabulary lacks, such as / in an address, or is longer than any word. Words beside an
        emoji or with markup around them, and two words with a slash between them, are translated."""
        if len(run) > LONGEST_RUN:
            return has_spaces(run)
        inner = run.strip("*_~|=")
        symbols = {c for c in set(inner) if c in _SYMBOLS and self._characters.lacks(0, c)}
        return bool(symbols) and any(map(str.isalnum, inner)) and not _EITHER.fullmatch(inner)

    def _is_copied(self, part: str) -> bool:
        lacks = self._characters.lacks
        letters = [character for character in part if character.isalpha()]
        if not letters:
            return any(lacks(0, character) for character in part)
        lacking = [lacks(0, letter) for letter in letters]
        if regex.fullmatch(r"\p{Latin}+", "".join(letters)):
            return any(lacking) and not all(lacks(1, letter) for letter in letters)
        return all(lacking)


def _between(body: str, around: tuple[str, str], dropped: str, translation: Translation) -> Translation:
    """Returns a translation of a line's body, without final marks that are dropped, between what stands around it."""
    before, after = around
    text = one_line(before + translation.text.rstrip(dropped) + after)
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
