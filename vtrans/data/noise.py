"""Training noise: each time a pair is seen, it may be changed in one of the ways in which what people type differs from
clean text.

A change is made to the words of a pair and to the links between them, so that guided alignment stays right, and the
words are encoded again. It is a pure function of the seed of a shard and its pairs.
"""

from __future__ import annotations

import random
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import TypeVar

import numpy as np
import regex
from numpy.typing import NDArray

from vtrans.text.matches import SEPARATOR_ID
from vtrans.text.vocabulary import UNK_ID, Vocabulary
from vtrans.text.words import Rows, between_subwords, codes_for, divided, words_of_ids

T = TypeVar("T")

TYPO_RATE = 0.2  # of the words that can have one; every changed line has at least one
MOST_CODES = 3  # in a line
MOST_QUOTED = 4  # words in quotation marks
FINAL_MARKS = ".!?\u2026\u3002\uff01\uff1f\u0964"

_TYPED = regex.compile(r"[\p{Latin}\p{Greek}\p{Cyrillic}]{3,}[.,;:!?]?")
_CORE = regex.compile(r"(\W*)([\w'-]*?)(\W*)")
_PRIVATE = 0xE000  # the first of the characters that hold the places of codes
_QUOTES = '"\u201e\u201c\u201d\u00ab\u00bb'
_NUMBER = regex.compile(r"\d(?:[\d.,:/-]*\d)?")
_NUMERAL = regex.compile(r"\d")
_NAME = regex.compile(r"\p{Lu}\p{L}{2,}")
_ENDING = r"(?=s?\b|'|\u2019)"  # of a name, such as the genitive's: it stays with the name that replaces it

_SHAPES = """
0 00 000 0000 00000 000000 0,000 00,000 0,000,000 0.0 0.00 00.00 000.00 0,000.00 0:00 00:00 00:00:00 0/0 0/00/0000
0000-00-00 00.00.0000 0.0.0 v0.0.0 00.00.0 00-00 000-0000 -0 -00 +00 -0.0 #0 00% 0.0% $0 $0.00 $00,000 \u20ac00 00\u20ac
\u00a300.00 0kg 00km 000cm 00\u00b0C 0GB 000ml A0 A00 AA00 AA-000 A-00 0A 00a A0A-00 0000A 000-0-00-000000-0
"""
SHAPES = _SHAPES.split()
"""Shapes of numbers: each 0 is any digit, each A any capital, and all else is itself."""
_ONSETS, _VOWELS, _CODAS = (
    "b br ch d dr f fl g gr h j k kl kr l m n p pr r s sch sh st t tr v w y z",
    "a a e e i i o o u ai ei ie ou \u00e1 \u00e9 \u00f6 \u00fc",
    "- - - - ck k l lz m n nd ng r rt s sk t w x",
)
SYLLABLE = [part.replace("-", "").split(" ") for part in (_ONSETS, _VOWELS, _CODAS)]
"""What the first, second and third part of a syllable may be."""


@dataclass(frozen=True)
class WordPair:
    """The words of both sides, and the links between them if the pair is aligned."""

    src: tuple[str, ...]
    tgt: tuple[str, ...]
    links: frozenset[tuple[int, int]] | None

    def boundaries(self) -> list[tuple[int, int]]:
        """Returns the places between two words of each side that no link crosses and where no unlinked target word
        stands; none without links."""
        places, links = [], self.links or ()
        for i in range(1, len(self.src)):
            before = max((j for k, j in links if k < i), default=-1)
            after = min((j for k, j in links if k >= i), default=-1)
            if 0 <= before == after - 1:
                places.append((i, after))
        return places

    def part(self, src: slice, tgt: slice) -> WordPair:
        """Returns the pair of these words."""
        rows, columns = range(len(self.src))[src], range(len(self.tgt))[tgt]
        links = self.links and frozenset(
            (i - rows.start, j - columns.start) for i, j in self.links if i in rows and j in columns
        )
        return WordPair(self.src[src], self.tgt[tgt], links)

    def followed_by(self, other: WordPair) -> WordPair:
        """Returns the pair of both, one after the other."""
        links = None
        if self.links is not None and other.links is not None:
            links = self.links | {(i + len(self.src), j + len(self.tgt)) for i, j in other.links}
        return WordPair((*self.src, *other.src), (*self.tgt, *other.tgt), links)


Following = Callable[[], WordPair | None]
Change = Callable[[WordPair, Following, random.Random], WordPair | None]
"""Returns a pair changed, given a function that returns the pair after it; None if it cannot be changed in this way."""


def lower_case(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """The source without capitals."""
    return replace(pair, src=tuple(map(str.lower, pair.src)))


def typos(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """Words of the source with a letter too much or too few, with two letters exchanged, or without accents."""
    possible = [i for i, word in enumerate(pair.src) if _TYPED.fullmatch(word)]
    if not possible:
        return None
    chosen = {_pick(possible, numbers)} | {i for i in possible if numbers.random() < TYPO_RATE}
    return replace(pair, src=tuple(_mistyped(w, numbers) if i in chosen else w for i, w in enumerate(pair.src)))


def _mistyped(word: str, numbers: random.Random) -> str:
    plain = "".join(_without_accent(character) for character in word)
    if plain != word and numbers.random() < 0.5:
        return plain
    letters = regex.findall(r"\X", word)
    at = int(numbers.random() * (len(letters) - 1))
    kind = numbers.random()
    if kind < 0.4:
        letters[at : at + 2] = reversed(letters[at : at + 2])
    elif kind < 0.8:
        del letters[at]
    else:
        letters.insert(at, letters[at])
    return "".join(letters)


def _without_accent(character: str) -> str:
    base = unicodedata.normalize("NFD", character)[0]
    return base if base.isascii() and base.isalpha() else character


def no_final_mark(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """Both sides without the punctuation marks at their ends."""
    if pair.src[-1][-1] not in FINAL_MARKS or pair.tgt[-1][-1] not in FINAL_MARKS:
        return None
    src, tgt = (tuple(filter(None, (*words[:-1], words[-1].rstrip(FINAL_MARKS)))) for words in (pair.src, pair.tgt))
    return replace(pair, src=src, tgt=tgt).part(slice(len(src)), slice(len(tgt)))


def copied(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """Codes at places that correspond, as protected text has them: at the end, between words, or in place of words that
    are linked to each other alone."""
    names = codes_for(" ".join((*pair.src, *pair.tgt)))
    held = [chr(_PRIVATE + n) for n in range(1 + int(numbers.random() * MOST_CODES))]
    for character in held:
        pair = _with_code(pair, character, numbers)
    code_of = {ord(character): next(names) for character in "".join(pair.src) if character in held}
    src, tgt = (tuple(word.translate(code_of) for word in words) for words in (pair.src, pair.tgt))
    return replace(pair, src=src, tgt=tgt)


def _with_code(pair: WordPair, code: str, numbers: random.Random) -> WordPair:
    where = numbers.random()
    if where < 1 / 3 and (places := pair.boundaries()):
        i, j = _pick(places, numbers)
    elif where < 2 / 3 and (alone := _linked_alone(pair)):
        return _in_place(pair, _pick(alone, numbers), code)
    else:
        i, j = len(pair.src), len(pair.tgt)
    inserted = WordPair((code,), (code,), frozenset({(0, 0)}))
    rest = pair.part(slice(i, None), slice(j, None))
    return pair.part(slice(i), slice(j)).followed_by(inserted).followed_by(rest)


def _in_place(pair: WordPair, link: tuple[int, int], code: str) -> WordPair:
    """Returns a pair with a code in place of two words, between their punctuation marks."""
    sides = []
    for words, k in zip((pair.src, pair.tgt), link, strict=True):
        before, _, after = _CORE.fullmatch(words[k]).groups()
        sides.append((*words[:k], before + code + after, *words[k + 1 :]))
    return replace(pair, src=sides[0], tgt=sides[1])


def renumbered(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """Other numbers, up to two."""
    for _ in range(1 + int(numbers.random() * 2)):
        pair = _renumbered(pair, numbers)
    return pair


def _renumbered(pair: WordPair, numbers: random.Random) -> WordPair:
    """Returns a pair with another number where both sides have the same one in digits; without any, with a new one on
    both sides, like a code."""
    held = chr(_PRIVATE)
    shape = "0" * (1 + int(numbers.random() * 6))
    places = [tuple(_NUMBER.findall(" ".join(words))) for words in (pair.src, pair.tgt)]
    shared = [number for number in places[0] if places[0].count(number) == places[1].count(number) == 1]
    if not shared:
        return _replaced(_with_code(pair, held, numbers), held, _number(_pick(SHAPES, numbers), numbers))
    old = _pick(shared, numbers)
    shape = shape if numbers.random() < 0.5 else _NUMERAL.sub("0", old)
    return _replaced(pair, rf"(?<![\d.,:/-]){regex.escape(old)}(?!\d)", _number(shape, numbers))


def _number(shape: str, numbers: random.Random) -> str:
    """Returns a number of a shape."""
    kinds = {"0": string.digits, "A": string.ascii_uppercase}
    return "".join(_pick(kinds[sign], numbers) if sign in kinds else sign for sign in shape)


def renamed(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """A name that both sides have replaced by one that nobody has."""
    names = [set(_NAME.findall(" ".join(words))) for words in (pair.src, pair.tgt)]
    if not (shared := sorted(names[0] & names[1])):
        return None
    syllables = 2 + int(numbers.random() * 3)
    new = "".join(_pick(part, numbers) for _ in range(syllables) for part in SYLLABLE)
    return _replaced(pair, rf"\b{_pick(shared, numbers)}{_ENDING}", new.capitalize())


def _replaced(pair: WordPair, old: str, new: str) -> WordPair:
    """Returns a pair with a text without blanks in place of what matches a pattern."""
    src, tgt = (tuple(regex.sub(old, lambda _: new, word) for word in words) for words in (pair.src, pair.tgt))
    return replace(pair, src=src, tgt=tgt)


def _linked_alone(pair: WordPair) -> list[tuple[int, int]]:
    """Returns the links of words that have no other link and consist of letters between punctuation marks."""
    links = sorted(pair.links or ())
    rows, columns = Counter(i for i, _ in links), Counter(j for _, j in links)
    alone = [(i, j) for i, j in links if rows[i] == columns[j] == 1]
    return [(i, j) for i, j in alone if _has_letters(pair.src[i]) and _has_letters(pair.tgt[j])]


def quoted(
    pair: WordPair, following: Following, numbers: random.Random, *, marks: Sequence[str] = '""'
) -> WordPair | None:
    """Quotation marks around one or a few words that are linked to each other alone: straight ones in the source, and
    `marks` in the target."""
    if any(mark in word for word in (*pair.src, *pair.tgt) for mark in _QUOTES):
        return None
    i, size = int(numbers.random() * len(pair.src)), 1 + int(numbers.random() * MOST_QUOTED)
    columns = [j for k, j in pair.links or () if i <= k < i + size]
    begin, end = min(columns, default=0), max(columns, default=0) + 1
    rows = {k for k, j in pair.links or () if begin <= j < end}
    if not columns or not rows <= {*range(i, i + size)} or end - begin > 2 * size:
        return None
    src = _in_marks(pair.src, slice(i, i + size), '""')
    tgt = _in_marks(pair.tgt, slice(begin, end), marks)
    return replace(pair, src=src, tgt=tgt) if src and tgt else None


def _in_marks(words: tuple[str, ...], part: slice, marks: Sequence[str]) -> tuple[str, ...] | None:
    """Returns words with quotation marks around some of them; None if other punctuation is between these."""
    found = [match for word in words[part] if (match := _CORE.fullmatch(word)) and match[2]]
    inside = "".join([*(match[3] for match in found[:-1]), *(match[1] for match in found[1:])])
    if len(found) < len(words[part]) or inside:
        return None
    marked = [match[2] for match in found]
    marked[0] = found[0][1] + marks[0] + marked[0]
    marked[-1] += marks[1] + found[-1][3]
    return (*words[: part.start], *marked, *words[part.stop :])


def _has_letters(word: str) -> bool:
    match = _CORE.fullmatch(word)
    return match is not None and any(map(str.isalpha, match[2]))


def joined(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """Two pairs in one line."""
    other = following()
    return pair.followed_by(other) if other else None


def cut(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """The beginning or the end of the pair, at least two words of the source, up to a place that no link crosses."""
    places = [(i, j) for i, j in pair.boundaries() if 1 < i < len(pair.src) - 1]
    if not places:
        return None
    i, j = _pick(places, numbers)
    return pair.part(*((slice(i), slice(j)) if numbers.random() < 0.5 else (slice(i, None), slice(j, None))))


CHANGES: tuple[Change, ...] = (lower_case, typos, no_final_mark, copied, renumbered, renamed, joined, cut)
"""Each is chosen equally often, and so is `quoted` if the vocabularies have the marks."""


class Noise:
    """Changes a part `rate` of pairs. A pair stays as it is if a side would be empty or longer than `longest` subwords,
    or if its words cannot be told from its subwords. `marks` are the quotation marks of the target language."""

    def __init__(
        self, src_vocab: Vocabulary, tgt_vocab: Vocabulary, rate: float, longest: int, marks: str = '""'
    ) -> None:
        self.vocabs, self.rate, self.longest = (src_vocab, tgt_vocab), rate, longest
        known = all(UNK_ID not in vocab.encode(mark) for vocab, mark in zip(self.vocabs, ('"', marks), strict=True))
        self.changes: tuple[Change, ...] = (*CHANGES, partial(quoted, marks=marks)) if known else CHANGES
        self.tags = frozenset(i for tag in src_vocab.tags if (i := src_vocab.id_of(tag)) is not None)

    def __call__(self, shard: tuple[Rows, ...], seed: int) -> tuple[Rows, ...]:
        """Returns the pairs of a shard, some of them changed."""
        numbers = random.Random(seed)
        rows = [divided(*column) for column in shard]
        pairs = len(rows[0])
        for k in range(pairs):
            if numbers.random() < self.rate:
                change = _pick(self.changes, numbers)
                follows = [column[(k + 1) % pairs] for column in rows]
                changed = self._changed([column[k] for column in rows], follows, change, numbers)
                if changed is not None:
                    for column, new in zip(rows, changed, strict=True):
                        column[k] = new
        return tuple(
            (np.concatenate(column).astype(np.int32), np.fromiter(map(len, column), np.int64, pairs)) for column in rows
        )

    def _changed(
        self,
        row: Sequence[NDArray[np.int32]],
        follows: Sequence[NDArray[np.int32]],
        change: Change,
        numbers: random.Random,
    ) -> list[NDArray[np.int32]] | None:
        pair = self._pair(row)
        changed = pair and change(pair, lambda: self._pair(follows), numbers)
        if not changed or not changed.src or not changed.tgt:
            return None
        sides = (changed.src, changed.tgt)
        ids = [vocab.encode(" ".join(words)) for vocab, words in zip(self.vocabs, sides, strict=True)]
        words = [words_of_ids(some, vocab) for some, vocab in zip(ids, self.vocabs, strict=True)]
        if any(len(set(some)) != len(texts) for some, texts in zip(words, sides, strict=True)):
            return None
        before = self._before(row)
        if max(before + len(ids[0]), len(ids[1])) > self.longest:
            return None
        columns = [np.array([*row[0][:before], *ids[0]], np.int32), np.array(ids[1], np.int32)]
        if changed.links is not None:
            links_L2 = np.array(sorted(changed.links), np.int64).reshape(-1, 2)
            src, tgt = ((np.array(some), np.array([len(some)])) for some in words)
            at_L2 = between_subwords(links_L2, src, tgt)[0].reshape(-1, 2)
            columns.append((at_L2 + np.array([before, 0])).flatten().astype(np.int32))
        return columns

    def _pair(self, row: Sequence[NDArray[np.int32]]) -> WordPair | None:
        """Returns the words of a pair; None if they cannot be told."""
        before = self._before(row)
        ids = row[0][before:].tolist(), row[1].tolist()
        texts = [tuple(vocab.decode(some).split()) for some, vocab in zip(ids, self.vocabs, strict=True)]
        words = [words_of_ids(some, vocab) for some, vocab in zip(ids, self.vocabs, strict=True)]
        if not all(texts) or any(len(set(n)) != len(text) for n, text in zip(words, texts, strict=True)):
            return None
        links = None
        if len(row) > 2:
            at = (row[2].reshape(-1, 2) - [before, 0]).tolist()
            links = frozenset((words[0][i], words[1][j]) for i, j in at if i >= 0)
        return WordPair(texts[0], texts[1], links)

    def _before(self, row: Sequence[NDArray[np.int32]]) -> int:
        """Returns how many subwords of the source of a pair come before its line: tags, and a fuzzy match."""
        ids: list[int] = row[0].tolist()
        if SEPARATOR_ID in ids:
            return ids.index(SEPARATOR_ID) + 1
        return sum(1 for _ in takewhile(self.tags.__contains__, ids))


def _pick(items: Sequence[T], numbers: random.Random) -> T:
    return items[int(numbers.random() * len(items))]
