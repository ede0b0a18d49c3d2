"""Training noise: each time a pair is drawn, it may be changed in a way in which typed text differs from clean text.

A change applies to the words of a pair and to their links, so that guided alignment stays correct; the words are then
encoded again. Noise is a pure function of a shard's seed and pairs.
"""

from __future__ import annotations

import random
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import TypeVar, get_args

import numpy as np
import regex
from numpy.typing import NDArray

from vtrans.data.links import Rows, between_subwords, divided
from vtrans.data.matches import SEPARATOR_ID
from vtrans.storage.pair_counts import CASED, PairCounts, Side, number_marks
from vtrans.system.own_code import own_class
from vtrans.text.case import lower
from vtrans.text.languages import UNSPACED, Languages
from vtrans.text.marks import Marks
from vtrans.text.values import in_ascii
from vtrans.text.vocabulary import UNK_ID, Vocabulary
from vtrans.text.words import SPACED, codes_for, words_of_ids

T = TypeVar("T")

TYPO_RATE = 0.2  # per word that can have a typo; every changed line has at least one
MOST_CODES = 3  # per line
MOST_QUOTED = 4  # words in quotation marks
_TYPED = regex.compile(rf"[\p{{L}}\p{{M}}--[{UNSPACED}]]{{3,}}\p{{Po}}?", regex.V1)
_FINAL_MARKS = regex.compile(r"\p{Sentence_Terminal}+$")
_CORE = regex.compile(r"(\W*)(\w[\w'-]*?)(\W*)")
_PRIVATE = 0xE000  # the first of the placeholder characters for codes
_QUOTE = regex.compile(r"[\p{Quotation_Mark}--['\u2019]]", regex.V1)  # except apostrophes
_NUMBER = regex.compile(rf"(?<![{CASED}\d_-][^\w\s]?)(?>\d(?:[^\w\s]?\d)*)(?![{CASED}_])")
_NAME = regex.compile(r"\b\p{Lu}\p{L}{2,}\b")
_SHAPES = "1 10 10000 -1 +10 #1 1/1 0:00 00:00 00:00:00 00-00 0000-00-00 1.0.0"  # written alike on both sides


@dataclass(frozen=True)
class WordPair:
    """The words of a pair, and the links between them if the pair is aligned."""

    src: tuple[str, ...]
    tgt: tuple[str, ...]
    links: frozenset[tuple[int, int]] | None

    def boundaries(self) -> list[tuple[int, int]]:
        """Returns the places (source word, target word) at which both sides can be cut: no link crosses them, and no
        unlinked target word is there. Empty without links."""
        places, links = [], self.links or ()
        for i in range(1, len(self.src)):
            before = max((j for k, j in links if k < i), default=-1)
            after = min((j for k, j in links if k >= i), default=-1)
            if 0 <= before == after - 1:
                places.append((i, after))
        return places

    def part(self, src: slice, tgt: slice) -> WordPair:
        """Returns the pair restricted to these words."""
        rows, columns = range(len(self.src))[src], range(len(self.tgt))[tgt]
        links = self.links and frozenset(
            (i - rows.start, j - columns.start) for i, j in self.links if i in rows and j in columns
        )
        return WordPair(self.src[src], self.tgt[tgt], links)

    def followed_by(self, other: WordPair) -> WordPair:
        """Returns the concatenation of both pairs."""
        links = None
        if self.links is not None and other.links is not None:
            links = self.links | {(i + len(self.src), j + len(self.tgt)) for i, j in other.links}
        return WordPair((*self.src, *other.src), (*self.tgt, *other.tgt), links)

    def split_at_blanks(self) -> WordPair:
        """Returns the pair with words split at blanks; the parts of a word have its links. Drops empty words."""
        src, tgt = (
            [(i, part) for i, word in enumerate(side) for part in word.split()] for side in (self.src, self.tgt)
        )
        links = self.links and frozenset(
            (row, column) for row, (i, _) in enumerate(src) for column, (j, _) in enumerate(tgt) if (i, j) in self.links
        )
        return WordPair(tuple(part for _, part in src), tuple(part for _, part in tgt), links)


Following = Callable[[], WordPair | None]
Change = Callable[[WordPair, Following, random.Random], WordPair | None]
"""Returns a changed pair, or None if the change does not apply. The second argument returns the next pair."""


class PairNoise:
    """The base class of user-defined noise, which defines `__call__` and replaces the changes of `changes_for`."""

    def __call__(self, pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
        """Returns a changed pair, or None. The links of the returned pair number its own words; None drops them. Every
        random choice must come from `numbers`, so that runs can be repeated."""
        raise NotImplementedError("a PairNoise must define `__call__`")


def lower_case(pair: WordPair, following: Following, numbers: random.Random, *, language: str = "") -> WordPair | None:
    """Lower-cases the source."""
    return replace(pair, src=tuple(lower(word, language) for word in pair.src))


def typos(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """Makes typos in words of the source: a doubled or missing letter, two letters exchanged, or missing accents."""
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
    base = unicodedata.normalize("NFD", character)
    return base[0] if all(map(unicodedata.combining, base[1:])) else character


def no_final_mark(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """Removes the punctuation marks at the end of both sides."""
    src, tgt = ((*words[:-1], _FINAL_MARKS.sub("", words[-1])) for words in (pair.src, pair.tgt))
    are_changed = src != pair.src and tgt != pair.tgt
    return replace(pair, src=src, tgt=tgt).split_at_blanks() if are_changed else None


def copied(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """Inserts codes, as for protected text, at corresponding places: at the end, between words, or in place of two
    words that are linked only to each other."""
    names = codes_for(" ".join((*pair.src, *pair.tgt)))
    held = [chr(_PRIVATE + n) for n in range(1 + int(numbers.random() * MOST_CODES))]
    for character in held:
        pair = _with_code(pair, [character, character], numbers)
    code_of = {ord(character): next(names) for character in "".join(pair.src) if character in held}
    return _rewritten(pair, lambda word: word.translate(code_of))


def _with_code(pair: WordPair, code: Sequence[str], numbers: random.Random) -> WordPair:
    where = numbers.random()
    if where < 1 / 3 and (places := pair.boundaries()):
        i, j = _pick(places, numbers)
    elif where < 2 / 3 and (alone := _linked_alone(pair)):
        return _in_place(pair, _pick(alone, numbers), code)
    else:
        i, j = len(pair.src), len(pair.tgt)
    inserted = WordPair((code[0],), (code[1],), frozenset({(0, 0)}))
    rest = pair.part(slice(i, None), slice(j, None))
    return pair.part(slice(i), slice(j)).followed_by(inserted).followed_by(rest)


def _in_place(pair: WordPair, link: tuple[int, int], code: Sequence[str]) -> WordPair:
    """Returns a pair in which a code replaces two linked words, but not their punctuation."""
    sides = []
    for words, k, text in zip((pair.src, pair.tgt), link, code, strict=True):
        before, _, after = _CORE.fullmatch(words[k]).groups()
        sides.append((*words[:k], before + text + after, *words[k + 1 :]))
    return replace(pair, src=sides[0], tgt=sides[1])


def renumbered(
    pair: WordPair, following: Following, numbers: random.Random, *, marks: Sequence[Marks] = ()
) -> WordPair:
    """Changes digits in numbers that occur on both sides. If there are none, inserts a new number, like a code. If the
    `marks` of both sides are given, half of the new numbers use them; the others are written alike on both sides."""
    src, tgt = (list(map(_digits, _NUMBER.findall(" ".join(words)))) for words in (pair.src, pair.tgt))
    new = {old: _filled("1" + "0" * (len(old) - 1), numbers) for old in src if src.count(old) == tgt.count(old)}
    if new:
        return _rewritten(pair, lambda word: _NUMBER.sub(partial(_with_digits, new), word))
    written = [_filled(_pick(_SHAPES.split(), numbers), numbers)] * 2
    if len(marks) == 2 and numbers.random() < 0.5:
        whole, fraction = (_filled("1000000"[: _pick(n, numbers)], numbers) for n in (range(1, 8), range(3)))
        written = [side.in_digits(side.write(whole, fraction, grouped=True)) for side in marks]
    return _with_code(pair, written, numbers).split_at_blanks()


def _digits(number: str) -> str:
    return "".join(filter(str.isdecimal, in_ascii(number)))


def _with_digits(new: Mapping[str, str], number: regex.Match[str]) -> str:
    """Returns a number with its `new` digits, if any, in the number's script."""
    digits = iter(new.get(_digits(number[0]), _digits(number[0])))
    return "".join(chr(ord(c) - int(c) + int(next(digits))) if c.isdecimal() else c for c in number[0])


def _filled(shape: str, numbers: random.Random) -> str:
    """Returns a shape with each 0 replaced by any digit, and each 1 by any digit except 0."""
    kinds = {"0": string.digits, "1": string.digits[1:]}
    return "".join(_pick(kinds[sign], numbers) if sign in kinds else sign for sign in shape)


def renamed(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """Replaces a name that occurs equally often on both sides, apart from endings, by a name made of word parts in its
    script."""
    src, tgt = (" ".join(words) for words in (pair.src, pair.tgt))
    both = set(_NAME.findall(src)) & set(_NAME.findall(tgt))
    if not (names := sorted(name for name in both if src.count(name) == tgt.count(name))):
        return None
    name = _pick(names, numbers)
    script = unicodedata.name(name[0], "").partition(" ")[0]  # such as LATIN
    parts = regex.findall(r"\p{L}{2,3}", f"{src} {tgt}", overlapped=True)
    parts = [part for part in parts if unicodedata.name(part[0], "").startswith(script)]
    new = "".join(_pick(parts, numbers) for _ in range(2 + int(numbers.random() * 2))).capitalize()
    return _rewritten(pair, lambda word: word.replace(name, new))


def _rewritten(pair: WordPair, rewrite: Callable[[str], str]) -> WordPair:
    return replace(pair, src=tuple(map(rewrite, pair.src)), tgt=tuple(map(rewrite, pair.tgt)))


def _linked_alone(pair: WordPair) -> list[tuple[int, int]]:
    """Returns the links between words that have no other link and consist of a single word, apart from punctuation."""
    links = sorted(pair.links or ())
    rows, columns = Counter(i for i, _ in links), Counter(j for _, j in links)
    alone = [(i, j) for i, j in links if rows[i] == columns[j] == 1]
    return [(i, j) for i, j in alone if _CORE.fullmatch(pair.src[i]) and _CORE.fullmatch(pair.tgt[j])]


def quoted(
    pair: WordPair, following: Following, numbers: random.Random, *, quotes: Sequence[Sequence[str]] = ('""', '""')
) -> WordPair | None:
    """Puts each side's quotation marks around one or a few words that are linked only to each other."""
    if any(map(_QUOTE.search, (*pair.src, *pair.tgt))):
        return None
    i, size = int(numbers.random() * len(pair.src)), 1 + int(numbers.random() * MOST_QUOTED)
    columns = [j for k, j in pair.links or () if i <= k < i + size]
    begin, end = min(columns, default=0), max(columns, default=0) + 1
    rows = {k for k, j in pair.links or () if begin <= j < end}
    if not columns or not rows <= {*range(i, i + size)} or end - begin > 2 * size:
        return None
    src = _in_marks(pair.src, slice(i, i + size), quotes[0])
    tgt = _in_marks(pair.tgt, slice(begin, end), quotes[1])
    return replace(pair, src=src, tgt=tgt).split_at_blanks() if src and tgt else None


def _in_marks(words: tuple[str, ...], part: slice, marks: Sequence[str]) -> tuple[str, ...] | None:
    """Returns words with quotation marks around some of them; None if there is other punctuation between these."""
    found = [match for word in words[part] if (match := _CORE.fullmatch(word))]
    inside = "".join([*(match[3] for match in found[:-1]), *(match[1] for match in found[1:])])
    if len(found) < len(words[part]) or inside:
        return None
    marked = [match[2] for match in found]
    marked[0] = found[0][1] + marks[0] + marked[0]
    marked[-1] += marks[1] + found[-1][3]
    return (*words[: part.start], *marked, *words[part.stop :])


def joined(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """Joins the pair and the next one in one line."""
    other = following()
    return pair.followed_by(other) if other else None


def cut(pair: WordPair, following: Following, numbers: random.Random) -> WordPair | None:
    """Keeps the beginning or the end of the pair, at least two source words, cut at a place that no link crosses."""
    places = [(i, j) for i, j in pair.boundaries() if 1 < i < len(pair.src) - 1]
    if not places:
        return None
    i, j = _pick(places, numbers)
    return pair.part(*((slice(i), slice(j)) if numbers.random() < 0.5 else (slice(i, None), slice(j, None))))


def changes_for(languages: Languages, counts: PairCounts | None) -> tuple[Change, ...]:
    """Returns the changes, which write numbers and quotations as in each side's training text. If this was not counted,
    number marks come from CLDR, and quotation marks are straight."""
    known = [number_marks(code, counts, side) for code, side in zip(languages, get_args(Side), strict=True)]
    quotes = [(counts and counts.quotes(side)) or '""' for side in get_args(Side)]
    own = (partial(renumbered, marks=list(filter(None, known))), partial(quoted, quotes=quotes))
    in_lower_case = partial(lower_case, language=languages.src)
    return (in_lower_case, typos, no_final_mark, copied, renamed, joined, cut, *own)


class Noise:
    """Makes one of `changes`, chosen uniformly, to a share `rate` of pairs. A pair stays unchanged if a side would be
    empty, longer than `longest` subwords, or contain unknown characters, or if its words cannot be derived from its
    subwords."""

    def __init__(
        self, src_vocab: Vocabulary, tgt_vocab: Vocabulary, rate: float, longest: int, changes: Sequence[Change] | str
    ) -> None:
        self.vocabs, self.rate, self.longest = (src_vocab, tgt_vocab), rate, longest
        self.changes = [own_class(changes, PairNoise, "changes")()] if isinstance(changes, str) else changes
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
        words = [words_of_ids(some, vocab, SPACED) for some, vocab in zip(ids, self.vocabs, strict=True)]
        if any(len(set(some)) != len(texts) for some, texts in zip(words, sides, strict=True)):
            return None
        before = self._before(row)
        if max(before + len(ids[0]), len(ids[1])) > self.longest or UNK_ID in (*ids[0], *ids[1]):
            return None
        columns = [np.array([*row[0][:before], *ids[0]], np.int32), np.array(ids[1], np.int32)]
        if len(row) > 2:
            links_L2 = np.array(sorted(changed.links or ()), np.int64).reshape(-1, 2)
            src, tgt = ((np.array(some), np.array([len(some)])) for some in words)
            at_L2 = between_subwords(links_L2, src, tgt)[0].reshape(-1, 2)
            columns.append((at_L2 + np.array([before, 0])).flatten().astype(np.int32))
        return columns

    def _pair(self, row: Sequence[NDArray[np.int32]]) -> WordPair | None:
        """Returns the words and links of a pair; None if its words cannot be derived."""
        before = self._before(row)
        ids = row[0][before:].tolist(), row[1].tolist()
        texts = [tuple(vocab.decode(some).split()) for some, vocab in zip(ids, self.vocabs, strict=True)]
        words = [words_of_ids(some, vocab, SPACED) for some, vocab in zip(ids, self.vocabs, strict=True)]
        if not all(texts) or any(len(set(n)) != len(text) for n, text in zip(words, texts, strict=True)):
            return None
        links = None
        if len(row) > 2:
            at = (row[2].reshape(-1, 2) - [before, 0]).tolist()
            links = frozenset((words[0][i], words[1][j]) for i, j in at if i >= 0)
        return WordPair(texts[0], texts[1], links)

    def _before(self, row: Sequence[NDArray[np.int32]]) -> int:
        """Returns the number of source subwords before the line: tags, and a fuzzy match."""
        ids: list[int] = row[0].tolist()
        if SEPARATOR_ID in ids:
            return ids.index(SEPARATOR_ID) + 1
        return sum(1 for _ in takewhile(self.tags.__contains__, ids))


def _pick(items: Sequence[T], numbers: random.Random) -> T:
    return items[int(numbers.random() * len(items))]
