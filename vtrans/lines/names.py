"""Words that are copied because the training text shows that the pair of languages copies such words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import regex

from vtrans.storage.pair_counts import IDENTIFIER, NAME, PairCounts
from vtrans.text.vocabulary import Vocabulary
from vtrans.wording.protect import Span

FEWEST_SUBWORDS = 3  # of a rare name: the vocabulary has words that are usual in the training text
_NAME_INSIDE = regex.compile(rf"(?<=[\p{{Ll}}\p{{N}},;]\s){NAME.pattern}")


class CopiedWords:
    """Finds the words of each kind that the pair copies: rare names inside a sentence, and identifiers with capitals
    inside or underscores. `vocab` is the source's."""

    def __init__(self, pair: PairCounts, vocab: Vocabulary) -> None:
        self._copies_names, self._copies_identifiers = pair.copies("names"), pair.copies("identifiers")
        self._vocab = vocab

    def added_to(self, protected: list[Span], line: str) -> list[Span]:
        """Returns the protected parts of a line, and between them such words."""
        begins = [begin for begin, _ in protected]
        spans = list(protected)
        for begin, end in self._found(line):
            before = bisect_left(begins, end)  # protected parts that begin before the word ends
            if not before or protected[before - 1][1] <= begin:
                spans.append((begin, end))
        return sorted(spans)

    def _found(self, line: str) -> Iterator[Span]:
        if self._copies_identifiers:
            yield from (match.span() for match in IDENTIFIER.finditer(line))
        if self._copies_names:
            names = _NAME_INSIDE.finditer(line)
            yield from (name.span() for name in names if len(self._vocab.encode(name.group())) >= FEWEST_SUBWORDS)
