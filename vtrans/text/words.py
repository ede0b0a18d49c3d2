"""Words and their subwords: which subword belongs to which word, and links between the words or subwords of a pair.

Words are what `split()` returns for a line or for a decoded text. Links are pairs of a source position and a target
position, counted from 0.

Legend: L links, X subwords of all sentences of a side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from string import ascii_uppercase

import numpy as np
import regex
from numpy.typing import NDArray

from vtrans.text.languages import UNSPACED
from vtrans.text.lines import one_line
from vtrans.text.piece_table import is_byte
from vtrans.text.vocabulary import EOS_ID, Vocabulary

Ints = NDArray[np.int64]
Side = tuple[Ints, Ints]
"""Numbers of all sentences, and how many of them each sentence has."""
Rows = tuple[NDArray[np.int32], Ints]
"""The same, with shorter numbers: subword ids, or the links of pairs, source and target position in turns."""

_HAS_NO_SPACES = regex.compile(rf"[{UNSPACED}]")
_WORD = regex.compile(rf"[[\w\p{{M}}]--[{UNSPACED}]]", regex.V1)
_PHARAOH = re.compile(r"(?a:\d{1,9}-\d{1,9})")


def is_word(character: str) -> bool:
    """Returns whether a character belongs to a word that ends at a space or a punctuation mark."""
    return _WORD.match(character) is not None


def has_spaces(text: str) -> bool:
    """Returns whether spaces separate the words of a text: none of its characters is of a script without them."""
    return _HAS_NO_SPACES.search(text) is None


def read_pharaoh(line: str) -> Ints:
    """Returns the links [L, 2] of a line in Pharaoh format, such as `0-0 1-2`: source word and target word.

    Raises ValueError, whose text is the first part of the line that is no link.
    """
    parts = line.split()
    for part in parts:
        if not _PHARAOH.fullmatch(part):
            raise ValueError(part)
    numbers = [int(number) for part in parts for number in part.split("-")]
    return np.array(numbers, np.int64).reshape(-1, 2)


def between_subwords(links_L2: Ints, src: Side, tgt: Side) -> Side:
    """Returns the links between the subwords of each pair, given the links between words of all pairs.

    A side is the word of each subword of all its sentences, numbered from the first sentence to the last, and the
    number of subwords of each sentence. All subwords of a word have its links. The result is the positions within the
    sentences, two per link, ordered by source, then target, and how many of these numbers each pair has.
    """
    begins, counts = [], []
    for word_L, (word_X, _) in zip(links_L2.T, (src, tgt), strict=True):
        begins.append(np.searchsorted(word_X, word_L))
        counts.append(np.searchsorted(word_X, word_L, "right") - begins[-1])
    cells = counts[0] * counts[1]
    place = np.arange(cells.sum()) - np.repeat(cells.cumsum() - cells, cells)
    width = np.repeat(counts[1], cells)
    src_at = np.repeat(begins[0], cells) + place // np.maximum(width, 1)
    tgt_at = np.repeat(begins[1], cells) + place % np.maximum(width, 1)
    src_at, tgt_at = np.divmod(np.unique(src_at * (len(tgt[0]) + 1) + tgt_at), len(tgt[0]) + 1)
    src_ends, tgt_ends = src[1].cumsum(), tgt[1].cumsum()
    pair = np.searchsorted(src_ends, src_at, "right")
    local = np.stack((src_at - (src_ends - src[1])[pair], tgt_at - (tgt_ends - tgt[1])[pair]), 1)
    return local.flatten(), 2 * np.bincount(pair, minlength=len(src_ends))


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


def divided(values: NDArray[np.int32], lengths: Ints) -> list[NDArray[np.int32]]:
    """Returns rows apart."""
    return np.split(values, lengths.cumsum()[:-1])
