"""Checks what a search found for a piece.

The best hypothesis has a problem if it reaches its length limit without EOS, if it loops (loops.py), if it lacks a
phrase or a term, if it lacks a code of protected text, repeats one or has another, or if its numbers are not the
numbers of its source (text/values.py). A model that has learned to place codes (wording/protect.py) also writes codes
where a line has something like them: `room A-12` becomes `Raum A1`.
"""

from __future__ import annotations

import re
from collections import Counter

import regex

from vtrans.engines.engine import Engine
from vtrans.lines.line import Piece, Problems
from vtrans.lines.loops import loops
from vtrans.search.digits import ALNUM, LETTER
from vtrans.text.values import Difference, compare

CODE = re.compile(r"\b[A-Z]\d{1,5}\b")
# A code, or what a model makes of one within a word: Ch4.
_IN_WORD = regex.compile(rf"(?<!{ALNUM}){LETTER}+\d{{1,5}}(?!{ALNUM})", regex.V1)
_LIKE_CODE = regex.compile(rf"(?<!{ALNUM}){LETTER}+\d{ALNUM}*", regex.V1)
_WORD = re.compile(r"[^\W_]+")


class Check:
    """Finds the problems of pieces; `numbers` says whether numbers are compared."""

    def __init__(self, engine: Engine, *, numbers: bool) -> None:
        self._src_vocab, self._tgt_vocab, self._compares = engine.src_vocab, engine.tgt_vocab, numbers

    def __call__(self, piece: Piece) -> Problems:
        hypothesis = piece.hypotheses[0]
        best = self._tgt_vocab.decode(hypothesis.tokens)
        own = hypothesis.tokens[len(piece.source.prefix) :]
        return Problems(
            unfinished=not hypothesis.finished,
            loops=loops(own, lambda: self._src_vocab.decode(piece.source.tokens[:-1])),
            phrases=self._missing(piece, best),
            codes=self._invented(piece, best) + self._misplaced(piece, best),
            numbers=self._compared(piece, best),
        )

    def allowed(self, piece: Piece) -> frozenset[str]:
        """Returns the codes that a translation may have."""
        texts = (piece.line.model_text, piece.line.asked, *(piece.line.match or ())[:1])
        return frozenset(_LIKE_CODE.findall(" ".join(texts)))

    def text(self, piece: Piece) -> str:
        """Returns the text of a piece without the codes of protected text."""
        return piece.line.without_codes(self._src_vocab.decode(piece.source.tokens[len(piece.line.before) : -1]))

    def _missing(self, piece: Piece, text: str) -> int:
        """Returns how many phrases and terms that the model can write a translation lacks."""
        phrases = [phrase for phrase in piece.source.phrases if not phrase.exactly]
        return sum(not any(self._tgt_vocab.decode(form.tokens) in text for form in p.forms) for p in phrases)

    def _invented(self, piece: Piece, text: str) -> int:
        found = (_IN_WORD if piece.line.codes else CODE).findall(text)
        return len(set(found) - self.allowed(piece)) if found else 0

    def _misplaced(self, piece: Piece, text: str) -> int:
        """Returns how many codes a translation lacks or repeats."""
        codes = [phrase for phrase in piece.source.phrases if phrase.exactly]
        words = Counter(_WORD.findall(text)) if codes else {}
        return sum(words[self._tgt_vocab.decode(code.forms[0].tokens)] != code.times for code in codes)

    def _compared(self, piece: Piece, best: str) -> Difference:
        """Compares numbers, without codes. What is asked of the line may have others."""
        if not self._compares:
            return Difference()
        if not any(map(str.isdecimal, piece.line.model_text + best)):  # as in most lines
            return Difference()
        return compare(self.text(piece), piece.line.without_codes(best), piece.line.asked)
