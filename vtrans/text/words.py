"""The words of a text, and the word that each subword belongs to.

Spaces separate words. In a script without spaces between words, each character with its marks is a word.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from codecs import getincrementaldecoder
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain, count
from string import ascii_uppercase

import regex

from vtrans.text.languages import UNSPACED
from vtrans.text.lines import one_line
from vtrans.text.piece_table import is_byte
from vtrans.text.vocabulary import EOS_ID, Vocabulary

WORD = regex.compile(rf"(?=[{UNSPACED}])\X\p{{Cf}}*|[^\s\x1c-\x1f{UNSPACED}]+")
SPACED = regex.compile(r"[^\s\x1c-\x1f]+")
"""Runs of characters without white space, in any script."""
# Chinese and Japanese characters and punctuation, which are written without spaces.
_WIDE = rf"[[{UNSPACED}\p{{P}}]&&[\p{{Ea=W}}\p{{Ea=F}}]]"
_WIDE_CHARACTER = regex.compile(_WIDE, regex.V1)
_LINE_END_BESIDE = regex.compile(rf"(?<={_WIDE})\n|\n(?={_WIDE})", regex.V1)
_BLANKS = regex.compile(r"\s*")
_HAS_NO_SPACES = regex.compile(rf"[{UNSPACED}]")
_WORD = regex.compile(rf"[[\w\p{{M}}]--[{UNSPACED}]]", regex.V1)
_MARK = regex.compile(r"\p{M}")


def is_word(character: str) -> bool:
    """Returns whether a character belongs to a word that ends at a space or a punctuation mark."""
    return _WORD.match(character) is not None


def joins(before: str, after: str) -> bool:
    """Returns whether the end of one text and the beginning of the next belong to one word, or to one character with
    its marks."""
    return (is_word(before[-1:]) and is_word(after[:1])) or _MARK.match(after) is not None


def has_spaces(text: str) -> bool:
    """Returns whether spaces separate the words of a text: no character belongs to a script without spaces."""
    return _HAS_NO_SPACES.search(text) is None


def is_wide(text: str) -> bool:
    """Returns whether a text contains Chinese or Japanese characters or punctuation, written without spaces."""
    return _WIDE_CHARACTER.search(text) is not None


def unwrapped(text: str) -> str:
    """Returns a text as one line: each line end becomes a space, or nothing in Chinese and Japanese."""
    return " ".join(_LINE_END_BESIDE.sub("", text).split("\n"))


def words_in(text: str) -> list[str]:
    """Returns the words of a text."""
    return list(WORD.findall(text))


def words_of_line(line: str, ids: Sequence[int], vocab: Vocabulary, word: regex.Pattern[str] = WORD) -> list[int]:
    """Returns the index of the word in which each subword of a line begins."""
    parts = line.split()
    ids_of_parts = vocab.encode_batch(parts)
    if list(chain.from_iterable(ids_of_parts)) != list(ids):  # the vocabulary's normalisation changes where words end
        parts, ids_of_parts = [line], [list(ids)]
    return numbered(parts, (words_of_ids(own, vocab, word) for own in ids_of_parts), word)


def words_of_ids(tokens: Sequence[int], vocab: Vocabulary, word: regex.Pattern[str] = WORD) -> list[int]:
    """Returns the index of the word in which each subword begins, counted in the decoded text. A subword without text
    belongs to the next word, or to the last word if none follows."""
    texts = _texts(tokens, vocab)
    text = "".join(texts)
    begins = [match.start() for match in word.finditer(text)]
    numbers, place = list[int](), 0
    for own in texts:
        blanks = len(own) - len(own.lstrip()) if own.strip() else _BLANKS.match(text, place).end() - place
        numbers.append(max(0, bisect_right(begins, place + blanks) - 1))
        place += len(own)
    return numbers


def _texts(tokens: Iterable[int], vocab: Vocabulary) -> list[str]:
    """Returns the text of each subword. A character in bytes is the text of its last byte."""
    decoder, texts = getincrementaldecoder("utf-8")("replace"), list[str]()
    for token in tokens:
        text = "" if token <= EOS_ID or vocab.piece(token) in vocab.tags else vocab.text_of(token)
        if is_byte(text):
            texts.append(decoder.decode(bytes([int(text[1:-1], 16)])))
            continue
        if texts:
            texts[-1] += decoder.decode(b"", final=True)  # bytes that end within a character
        texts.append(text)
    if texts:
        texts[-1] += decoder.decode(b"", final=True)
    return texts


def first_words(parts: Iterable[str], text: str) -> Iterator[int]:
    """Yields the index of the word in which each part of a text begins. White space, and marks between white space,
    may separate the parts."""
    begins, place = [match.start() for match in WORD.finditer(text)], 0
    for part in map(one_line, parts):
        place = max(text.find(part, place), place)
        yield max(0, bisect_right(begins, place) - 1)
        place += len(part)


def numbered(parts: Sequence[str], numbers: Iterable[Iterable[int]], word: regex.Pattern[str] = WORD) -> list[int]:
    """Returns indices of words in a text, given their indices within each part. An index beyond a part means its last
    word."""
    through, first = list[int](), 0
    for part, within in zip(parts, numbers, strict=True):
        count = len(word.findall(part))
        through += [first + min(number, count - 1) for number in within]
        first += count
    return through


def sharing(text: str, numbers: Container[int]) -> list[int]:
    """Returns the index of the word whose subword or link each word of a text shares: its own if it is in `numbers` or
    follows white space, else the previous word's, as for the second character of a Chinese subword."""
    shared = list[int]()
    for number, match in enumerate(WORD.finditer(text)):
        touches = match.start() > 0 and not text[match.start() - 1].isspace()
        shared.append(shared[-1] if touches and number not in numbers else number)
    return shared


CODE = re.compile(r"[A-Z]\d{1,5}")
"""Matches a code."""


def codes_for(line: str) -> Iterator[str]:
    """Yields codes such as `A1`, which stand for protected text, except codes that the line contains."""
    codes = (f"{ascii_uppercase[n % 26]}{n + 1}" for n in count())
    return (code for code in codes if code not in line)
