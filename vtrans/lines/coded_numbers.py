"""Codes that represent numbers in a second search.

A model copies a number digit by digit, and may lose a zero of 1,000,000. One that has learned to place codes
(wording/protect.py) needs only to say where the number belongs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import regex

from vtrans.search.lexical import Form, Phrase
from vtrans.search.loop import Hypothesis
from vtrans.text.vocabulary import UNK_ID, Vocabulary
from vtrans.wording.phrases import without_space
from vtrans.wording.protect import masked

FEWEST_DIGITS = 3  # shorter numbers may be hours, days or ordinals, which a language writes in its own way

Tokens = tuple[int, ...]


class CodedNumbers:
    """A source in which codes represent numbers and the sign of a currency before them. `vocab` is the target's. If it
    cannot write the numbers, there are no codes."""

    def __init__(self, text: str, numbers: Iterable[str], vocab: Vocabulary) -> None:
        spans = dict[tuple[int, int], str]()
        for number in numbers:
            if sum(map(str.isdigit, number)) >= FEWEST_DIGITS:
                pattern = rf"(?<![\w.,])\p{{Sc}}?{regex.escape(number)}(?!\w|[.,]\d)"
                spans |= {match.span(): number for match in regex.finditer(pattern, text)}
        read = masked(text, sorted(spans))
        tokens = {code: tuple(vocab.encode(code)) for code in read.texts}
        self._numbers = {tokens[code]: tuple(vocab.encode(of)) for code, of in read.texts.items()}
        if any(UNK_ID in (*code, *number) for code, number in self._numbers.items()):
            self._numbers, read, spans = {}, masked(text, ()), {}
        self._numbers |= {  # also after an opening quotation mark
            inside: written
            for known, form in self._numbers.items()
            if (inside := without_space(known, vocab)) and (written := without_space(form, vocab))
        }
        self.text = read.masked
        self.codes = frozenset(read.texts)
        self.numbers = set(spans.values())
        """The numbers that have codes."""
        self.phrases = [Phrase((Form(tokens[code]),), times, exactly=True) for code, times in read.counts().items()]
        """What the translation must have."""

    def restored(self, hypothesis: Hypothesis) -> Hypothesis:
        """Returns a hypothesis with the numbers in place of their codes. The first subword of a number gets the
        log-probability of its code, and the others get 0."""
        tokens, logprobs, place = list[int](), list[float](), 0
        while place < len(hypothesis.tokens):
            rest = hypothesis.tokens[place:]
            code = next((code for code in self._numbers if rest[: len(code)] == code), rest[:1])
            number = self._numbers.get(code, code)
            logprob = sum(hypothesis.token_logprobs[place : place + len(code)])
            tokens += number
            logprobs += [logprob, *[0.0] * (len(number) - 1)]
            place += len(code)
        ends = hypothesis.token_logprobs[place:]
        return replace(hypothesis, tokens=tuple(tokens), token_logprobs=(*logprobs, *ends))
