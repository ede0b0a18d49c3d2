"""Search rules that restrict the codes and numbers in a translation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from itertools import pairwise

import regex

from vtrans.search.avoid import ForbidNext, VocabularyBytes
from vtrans.text.languages import UNSPACED
from vtrans.text.values import in_ascii

# Only scripts with spaces between words: letters of other scripts may directly precede a number.
LETTER = rf"[[^\W\d_]--[{UNSPACED}]]"
ALNUM = rf"[[^\W_]--[{UNSPACED}]]"

_BEGUN = regex.compile(rf"(?<!{ALNUM}){LETTER}+\d{{0,5}}$", regex.V1)  # more digits may follow
_IN_SUBWORD = regex.compile(rf"(?<!{ALNUM}){LETTER}+\d{{1,5}}", regex.V1)
_ENDS_IN_WORD = regex.compile(rf"{ALNUM}$", regex.V1)
RUN = regex.compile(rf"(?<!{ALNUM})\d+", regex.V1)
"""Digits outside codes."""
MARKS = ".,:"
"""Marks that may join runs of digits into a number."""
_OPEN_NUMBER = regex.compile(rf"(?<!{ALNUM})\d+(?:[{MARKS}]\d*)?$", regex.V1)
LONGEST_CODE = 30  # bytes searched for the beginning of a code: letters, digits, and the character before them
LONGEST_TEXT = 10_000  # bytes of a translation in which numbers are counted


class OnlyCodes(ForbidNext):
    """Allows only these codes, such as AB12, to be written."""

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
        """Returns whether each word of letters and digits that ends after `begin` begins a code."""
        words = (match[0] for match in _IN_SUBWORD.finditer(text) if match.end() > begin)
        return all(any(code.startswith(word) for code in self._codes) for word in words)


class OnlyNumbers(ForbidNext):
    """Allows only these numbers, unabridged, and each no more often than it is given. A number is given as the runs of
    digits in each way of writing it. Digits after letters are allowed: they belong to codes."""

    def __init__(self, vocab_bytes: VocabularyBytes, numbers: Iterable[Sequence[tuple[str, ...]]]) -> None:
        self._vocab_bytes = vocab_bytes
        self._known: dict[Hashable, list[int]] = {}
        self.runs = Counter[str]()
        self._after = defaultdict[str, set[str]](set)  # by run, the runs that may follow it after a mark
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
        """Yields the ids of subwords to forbid after `begun` (a begun number, a letter or nothing) if the runs of
        digits in `left` are still allowed."""
        with_digits = dict(self._vocab_bytes.with_digits)
        yield from (i for i, text in with_digits.items() if not self._may_begin(begun + text, left))
        if not self._may_begin(f"{begun} ", left):
            yield from (i for i in range(len(self._vocab_bytes.bytes)) if not with_digits.get(i, "")[:1].isdigit())

    def _may_begin(self, text: str, left: Counter[str]) -> bool:
        """Returns whether all runs of digits in a text are still allowed. A run at the end of the text may yet become
        longer."""
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
