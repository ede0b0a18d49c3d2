"""Codes that nobody asked for.

A model that has learned to copy the codes of protected text (wording/protect.py) writes codes where a line has
something like them: `room A-12` becomes `Raum A1`. In a line with codes, it also writes them within words. A piece
whose translation has such a word is searched again with a rule that allows only the codes of the line as the model sees
it, and those of what its translation must contain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vtrans.config import SearchConfig
from vtrans.lines.line import Piece, Search, Stage
from vtrans.search.rules import Step
from vtrans.text.vocabulary import Vocabulary
from vtrans.wording.avoid import Spelling

CODE = re.compile(r"\b[A-Z]\d{1,5}\b")
_IN_WORD = re.compile(r"\b[^\W\d_]+\d{1,5}\b")  # a code, or what a model makes of one within a word: Ch4
_BEGUN = re.compile(r"(?<![^\W_])[^\W\d_]+\d{0,5}$")  # letters and digits to which more digits may be added
_IN_SUBWORD = re.compile(r"(?<![^\W_])[^\W\d_]+\d{1,5}")
_DIGITS = re.compile(r"\d+")
LONGEST_CODE = 30  # bytes that show whether a code has begun: letters, digits, and the character before them


class ForbidInvented(Stage):
    """Searches again for pieces whose best hypothesis has a code that it may not have. The other hypotheses do not
    decide, so that the best one is the same however many are asked for."""

    def __init__(self, vocab: Vocabulary) -> None:
        self._vocab = vocab

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling(self._vocab)

    def _codes(self, piece: Piece) -> frozenset[str]:
        """Returns the codes that a translation may have."""
        line, source = piece.line, piece.source
        required = (form.tokens for phrase in source.phrases for form in phrase.forms)
        texts = [self._vocab.decode(tokens) for tokens in (source.prefix, *required)]
        return frozenset(_IN_WORD.findall(" ".join((line.model_text, *texts, *(line.match or ())[:1]))))

    def around(self, search: Search) -> Search:
        def searched(pieces: Sequence[Piece], config: SearchConfig) -> Iterator[Piece]:
            again = []
            for piece in search(pieces, config):
                codes = self._codes(piece)
                best = self._vocab.decode(piece.hypotheses[0].tokens)
                if not codes.issuperset((_IN_WORD if piece.line.seen.texts else CODE).findall(best)):
                    rule = OnlyCodes(self._spelling, codes)
                    piece.source = replace(piece.source, rules=(*piece.source.rules, rule))
                    again.append(piece)
                else:
                    yield piece
            if again:
                yield from search(again, config)

        return searched


@dataclass(frozen=True)
class OnlyCodes:
    """A rule of the search: makes the subwords impossible that would write another code than these."""

    spelling: Spelling
    codes: frozenset[str]
    steps: float = math.inf
    most_forbidden: int | None = None

    @cached_property
    def _whole(self) -> list[int]:
        """The subwords that write another code by themselves."""
        texts = ((i, spelled.decode(errors="replace")) for i, spelled in enumerate(self.spelling.bytes))
        return [i for i, text in texts if any(not self._allows(begun) for begun in _IN_SUBWORD.findall(text))]

    @cached_property
    def _digits(self) -> list[tuple[int, str]]:
        """The subwords that begin with digits, and these."""
        texts = ((i, spelled.decode(errors="replace")) for i, spelled in enumerate(self.spelling.bytes))
        return [(i, found[0]) for i, text in texts if (found := _DIGITS.match(text))]

    def _allows(self, begun: str) -> bool:
        return any(code.startswith(begun) for code in self.codes)

    def apply(self, step: Step) -> None:
        for row, tokens in enumerate(step.said_nT.tolist()):
            ids = list(self._whole)
            if begun := _BEGUN.search(self.spelling.tail(tokens, LONGEST_CODE).decode(errors="replace")):
                ids += [i for i, digits in self._digits if not self._allows(begun[0] + digits)]
            step.forbid(np.full(len(ids), row), np.array(ids, dtype=np.int64))
