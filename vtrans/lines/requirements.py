"""Requirements of the second search for a piece.

The codes and the missing numbers are phrases, and rules forbid other codes, other numbers and repeated n-grams of
RETRY_NGRAM subwords. A model copies a number digit by digit, and may lose a zero of 1,000,000; one that has learned to
place codes (wording/protect.py) needs only to say where the number belongs, so codes represent large numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import regex

from vtrans.config import RETRY_NGRAM
from vtrans.engines.engine import Engine, Source
from vtrans.lines.check import Check
from vtrans.lines.line import MOST_PHRASES, Piece, Problems
from vtrans.lines.reader import SourceReader
from vtrans.search.digits import RUN, OnlyCodes, OnlyNumbers
from vtrans.search.lexical import Form, Phrase, least_tokens
from vtrans.search.loop import Hypothesis
from vtrans.search.rules import NoRepeatedNgram, Rule
from vtrans.text.values import in_ascii, numbers_of
from vtrans.text.vocabulary import EOS_ID, UNK_ID, Vocabulary
from vtrans.wording.phrases import without_space
from vtrans.wording.protect import masked

_SWAPPED = str.maketrans(".,", ",.")
FEWEST_DIGITS = 3  # shorter numbers may be hours, days or ordinals, which a language writes in its own way


class Requirements:
    """Makes the sources of second searches. With `numbers`, they require numbers and forbid others."""

    def __init__(self, engine: Engine, reader: SourceReader, check: Check, *, numbers: bool) -> None:
        self._src_vocab, self._tgt_vocab = engine.src_vocab, engine.tgt_vocab
        self._reader, self._check, self._requires = reader, check, numbers
        self._has_codes = all(model.codes for model in engine.models)

    def __call__(self, piece: Piece, problems: Problems) -> tuple[Source, CodedNumbers]:
        """Returns the source of a second search, whose translation has the codes and numbers of a piece and no others,
        and the numbers that have become codes."""
        source = replace(piece.source, tokens=piece.other or piece.source.tokens)
        text, numbers = self._check.text(piece), problems.numbers
        with_codes = self._src_vocab.decode(source.tokens[len(piece.line.before) : -1])
        # Digits of another script may have to change, so they get no codes.
        missing = [number for number in numbers.missing if number not in numbers.kept and in_ascii(number) == number]
        coded = CodedNumbers(with_codes, missing if self._has_codes else (), self._tgt_vocab, piece.line.asked)
        kept = numbers.kept if numbers else ()
        times = Counter(number for number in (*numbers.missing, *kept) if number not in coded.numbers)
        found = [Phrase(forms, n) for number, n in times.items() if (forms := tuple(self._forms(number, text)))]
        phrases = (*source.phrases, *coded.phrases, *found[:MOST_PHRASES])
        if least_tokens(phrases) < source.limit - 1:
            source = replace(source, phrases=phrases)
            if coded.numbers:
                source = replace(source, tokens=[*piece.line.before, *self._src_vocab.encode(coded.text), EOS_ID])
        else:
            coded = CodedNumbers(with_codes, (), self._tgt_vocab)
        return replace(source, rules=(*source.rules, *self._rules(piece, problems, coded))), coded

    def _rules(self, piece: Piece, problems: Problems, coded: CodedNumbers) -> Iterator[Rule]:
        spelling = self._reader.spelling
        only_numbers = problems.numbers or (self._requires and (problems.loops or problems.unfinished))
        if problems.codes or only_numbers:  # digits after letters belong to no number
            yield OnlyCodes(spelling, self._check.allowed(piece) | coded.codes)
        if only_numbers:
            numbers = [list(number.written()) for number in numbers_of(self._check.text(piece))]
            numbers += [[tuple(RUN.findall(in_ascii(word)))] for word in piece.line.asked.split()]
            yield OnlyNumbers(spelling, numbers)
        if problems.loops or problems.unfinished or problems.numbers:
            # 5,000 and 10,000 have the same three zeros.
            yield NoRepeatedNgram(RETRY_NGRAM, free=spelling.of_numbers if self._requires else ())

    def _forms(self, number: str, text: str) -> Iterator[Form]:
        """Yields the subwords of a number as the text has it, in ASCII, and with points and commas exchanged."""
        match = re.search(rf"(\S*?)(?<!\d){re.escape(number)}(?!\d)(\S*)", text)
        before, after = match.groups() if match else ("", "")
        written = [form for own in (number, in_ascii(number)) for form in (own, own.translate(_SWAPPED))]
        if before[:1].isalpha():
            written = [(before + number + after).rstrip(".,;:!?)]}\"'")]
        for spelled in dict.fromkeys(written):
            tokens = tuple(self._tgt_vocab.encode(spelled))
            if tokens and UNK_ID not in tokens and self._tgt_vocab.decode(tokens) == spelled:
                yield Form(tokens, whole=not after[:1].isalpha())


class CodedNumbers:
    """A source in which codes represent numbers and the sign of a currency before them. `vocab` is the target's. If it
    cannot write the numbers, there are no codes."""

    def __init__(self, text: str, numbers: Iterable[str], vocab: Vocabulary, asked: str = "") -> None:
        spans = dict[tuple[int, int], str]()
        for number in numbers:
            if sum(map(str.isdigit, number)) >= FEWEST_DIGITS:
                pattern = rf"(?<![\w.,])\p{{Sc}}?{regex.escape(number)}(?!\w|[.,]\d)"
                spans |= {match.span(): number for match in regex.finditer(pattern, text)}
        read = masked(text, sorted(spans), asked=asked)
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
        """The codes, as phrases of the search."""

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
