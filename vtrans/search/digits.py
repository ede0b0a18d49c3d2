"""Rules of a search: which codes and which numbers it may write."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from itertools import pairwise

import regex

from vtrans.search.avoid import ForbidNext, VocabularyBytes
from vtrans.text.languages import UNSPACED
from vtrans.text.values import in_ascii

# Of scripts with spaces between words: other letters may stand right before a number.
LETTER = rf"[[^\W\d_]--[{UNSPACED}]]"
ALNUM = rf"[[^\W_]--[{UNSPACED}]]"

_BEGUN = regex.compile(rf"(?<!{ALNUM}){LETTER}+\d{{0,5}}$", regex.V1)  # to which more digits may be added
_IN_SUBWORD = regex.compile(rf"(?<!{ALNUM}){LETTER}+\d{{1,5}}", regex.V1)
_ENDS_IN_WORD = regex.compile(rf"{ALNUM}$", regex.V1)
RUN = regex.compile(rf"(?<!{ALNUM})\d+", regex.V1)
"""Digits that belong to no code."""
MARKS = ".,:"
"""Marks that may join runs of digits to a number."""
_OPEN_NUMBER = regex.compile(rf"(?<!{ALNUM})\d+(?:[{MARKS}]\d*)?$", regex.V1)
LONGEST_CODE = 30  # bytes that show whether a code has begun: letters, digits, and the character before them
LONGEST_TEXT = 10_000  # bytes of a translation whose numbers are counted


class OnlyCodes(ForbidNext):
    """Allows only these codes."""

    def __init__(self, vocab_bytes: VocabularyBytes, codes: Set[str]) -> None:
        self._vocab_bytes, self._codes = vocab_bytes, codes
        self._known: dict[str, list[int]] = {}

    def forbidden(self, tokens: Sequence[int]) -> list[int]:
        match = _BEGUN.search(self._vocab_bytes.tail(tokens, LONGEST_CODE).decode(errors="replace"))
        if (begun := match[0] if match else "") not in self._known:
            texts = self._vocab_bytes.with_digits
            self._known[begun] = [i for i, text in texts if not self._are_codes(begun + text, len(begun))]
        return self._known[begun]

    def _are_codes(self, text: str, begin: int) -> bool:
        """Returns whether the words of letters and digits that end after `begin` are codes or their beginnings."""
        words = (match[0] for match in _IN_SUBWORD.finditer(text) if match.end() > begin)
        return all(any(code.startswith(word) for code in self._codes) for word in words)


class OnlyNumbers(ForbidNext):
    """Allows only these numbers, each as often as it is given, and whole. A number is given by the runs of digits of
    each way to write it. Digits after letters are allowed: they belong to codes."""

    def __init__(self, vocab_bytes: VocabularyBytes, numbers: Iterable[Sequence[tuple[str, ...]]]) -> None:
        self._vocab_bytes = vocab_bytes
        self._known: dict[Hashable, list[int]] = {}
        self.runs = Counter[str]()
        self._after = defaultdict[str, set[str]](set)  # the runs that a mark may join to a run
        for ways in numbers:
            most = Counter[str]()
            for runs in ways:
                most |= Counter(runs)
                for run, following in pairwise(runs):
                    self._after[run].add(following)
            self.runs += most

    def forbidden(self, tokens: Sequence[int]) -> list[int]:
        text = in_ascii(self._vocab_bytes.tail(tokens, LONGEST_TEXT).decode(errors="replace"))
        number = _OPEN_NUMBER.search(text)
        begun = number[0] if number else "x" if _ENDS_IN_WORD.search(text) else ""
        left = self.runs - Counter(RUN.findall(text[: number.start()] if number else text))
        if (key := (begun, frozenset(left.items()))) not in self._known:
            self._known[key] = list(self._forbidden_after(begun, left))
        return self._known[key]

    def _forbidden_after(self, begun: str, left: Counter[str]) -> Iterator[int]:
        """Yields the subwords that are impossible after a number that has begun, a letter or nothing, if these runs of
        digits are left."""
        with_digits = dict(self._vocab_bytes.with_digits)
        yield from (i for i, text in with_digits.items() if not self._may_begin(begun + text, left))
        if not self._may_begin(f"{begun} ", left):
            yield from (i for i in range(len(self._vocab_bytes.bytes)) if not with_digits.get(i, "")[:1].isdigit())

    def _may_begin(self, text: str, left: Counter[str]) -> bool:
        """Returns whether a text has only runs of digits that are left. The last one may become longer at its end."""
        left, before, end = left.copy(), "", len(text)
        for run in RUN.finditer(text):
            follows = run.start() == end + 1 and text[end] in MARKS
            fits = self._after[before] if follows else self.runs
            if run.end() == len(text):
                return any(other.startswith(run[0]) and left[other] > 0 for other in fits)
            if run[0] not in fits or left[run[0]] <= 0:
                return False
            left[run[0]] -= 1
            before, end = run[0], run.end()
        return True
