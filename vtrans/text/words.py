"""Words and their subwords: which subword belongs to which word.

Words are what `split()` returns for a line or for a decoded text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from string import ascii_uppercase

import regex

from vtrans.text.languages import UNSPACED
from vtrans.text.lines import one_line
from vtrans.text.piece_table import is_byte
from vtrans.text.vocabulary import EOS_ID, Vocabulary

_HAS_NO_SPACES = regex.compile(rf"[{UNSPACED}]")
_WORD = regex.compile(rf"[[\w\p{{M}}]--[{UNSPACED}]]", regex.V1)


def is_word(character: str) -> bool:
    """Returns whether a character belongs to a word that ends at a space or a punctuation mark."""
    return _WORD.match(character) is not None


def has_spaces(text: str) -> bool:
    """Returns whether spaces separate the words of a text: none of its characters is of a script without them."""
    return _HAS_NO_SPACES.search(text) is None


def words_of_line(line: str, ids: Sequence[int], vocab: Vocabulary) -> list[int]:
    """Returns, for each subword of a line, the number of its word in `line.split()`."""
    by_word = vocab.encode_batch(line.split())
    if list(chain.from_iterable(by_word)) == list(ids):
        return [i for i, part in enumerate(by_word) for _ in part]
    # The vocabulary's normalisation changes where words end, so the words differ from those of the line.
    return [min(i, len(by_word) - 1) for i in words_of_ids(ids, vocab)]


def words_of_ids(tokens: Sequence[int], vocab: Vocabulary) -> list[int]:
    """Returns, for each subword, the number of its word in the decoded text, split at spaces. A subword without text
    belongs to the next word, or to the last word if none follows."""
    numbers, last, between = [], -1, True
    for token in tokens:
        text = _text(token, vocab)
        parts = text.split()
        between |= text[:1].isspace()
        numbers.append(last + (between if last >= 0 or parts else 1))
        if parts:
            last += between + len(parts) - 1
            between = text[-1].isspace()
        else:
            between |= bool(text)
    return [min(number, max(last, 0)) for number in numbers]


def first_words(parts: Iterable[str], text: str) -> Iterator[int]:
    """Yields the number of the word in which each part of a text begins. White space, and marks
    between white space, may stand between the parts."""
    place = words = 0
    for part in map(one_line, parts):
        begin = max(text.find(part, place), place)
        words += len(text[place:begin].split())
        if part and 0 < begin == place:
            words -= 1
        yield words
        words += len(part.split())
        place = begin + len(part)


def _text(token: int, vocab: Vocabulary) -> str:
    """Returns the text of a subword. A byte that is only part of a character counts as the letter x."""
    if token <= EOS_ID or vocab.piece(token) in vocab.tags:
        return ""
    text = vocab.text_of(token)
    if is_byte(text):
        byte = chr(int(text[1:-1], 16))
        return byte if byte.isascii() else "x"
    return text


CODE = re.compile(r"[A-Z]\d{1,5}")
"""The form of a code."""


def codes_for(line: str) -> Iterator[str]:
    """Yields codes such as `A1`, which stand for protected text, without those that a line contains already."""
    codes = (f"{ascii_uppercase[n % 26]}{n + 1}" for n in count())
    return (code for code in codes if code not in line)
