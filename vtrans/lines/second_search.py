"""Checks what a search found, and searches again, once, for pieces with problems.

The best hypothesis of a piece has a problem if it reaches its length limit without EOS, if it loops (loops.py), if it
lacks a code of protected text, repeats one or has another, or if its numbers are not the numbers of its source
(text/values.py). The second search gets all problems at once: the codes and the missing numbers are phrases, and rules
forbid other codes, other numbers and repeated n-grams of RETRY_NGRAM subwords. The result with fewer problems is kept,
then the one with the higher score; the first, if they are equal. The first is also kept if only its numbers are wrong
and the score of the second is lower by FAR_WORSE: a mere list of the numbers would have none of these problems. The
other hypotheses do not decide, so that the best one is the same however many are asked for.

A piece with another reading, such as a line in capitals whose rare words may be acronyms, has this reading in the
second search, so that the model's score decides between the two.

A model that has learned to place codes (wording/protect.py) mostly places them by itself, and phrases take several
times as long, so the first search has no phrases if a piece needs nothing but codes. Such a model also writes codes
where a line has something like them: `room A-12` becomes `Raum A1`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import regex

from vtrans.config import RETRY_NGRAM, SearchConfig
from vtrans.engines.engine import Engine, Source
from vtrans.lines.coded_numbers import CodedNumbers
from vtrans.lines.invented import ALNUM, LETTER, RUN, OnlyCodes, OnlyNumbers
from vtrans.lines.line import MOST_PHRASES, Line, Piece, Search, Stage
from vtrans.lines.loops import loops
from vtrans.search.lexical import Form, Phrase, least_tokens
from vtrans.search.rules import NoRepeatedNgram, Rule
from vtrans.text.values import Difference, compare, in_ascii, numbers_of
from vtrans.text.vocabulary import EOS_ID, UNK_ID
from vtrans.wording.avoid import Spelling

CODE = re.compile(r"\b[A-Z]\d{1,5}\b")
# A code, or what a model makes of one within a word: Ch4.
_IN_WORD = regex.compile(rf"(?<!{ALNUM}){LETTER}+\d{{1,5}}(?!{ALNUM})", regex.V1)
_LIKE_CODE = regex.compile(rf"(?<!{ALNUM}){LETTER}+\d{ALNUM}*", regex.V1)
_WORD = re.compile(r"[^\W_]+")
_SWAPPED = str.maketrans(".,", ",.")
_EQUAL = Difference()
FAR_WORSE = 5.0  # a difference of scores


@dataclass(frozen=True)
class Problems:
    """The problems of a piece's best hypothesis."""

    unfinished: bool = False
    loops: bool = False
    codes: int = 0
    """Codes that are missing, repeated or invented."""
    numbers: Difference = _EQUAL

    def __len__(self) -> int:
        return self.unfinished + self.loops + self.codes + len(self.numbers)


class SearchTwice(Stage):
    """Searches pieces with problems again. `retries` says whether unfinished and looping translations are problems, and
    `numbers` whether numbers are compared. Without `can_require`, the search has no phrases, and numbers are only
    counted."""

    def __init__(
        self, engine: Engine, spelling: Callable[[], Spelling], *, retries: bool, numbers: bool, can_require: bool
    ) -> None:
        self._src_vocab, self._tgt_vocab, self._spelling = engine.src_vocab, engine.tgt_vocab, spelling
        self._has_codes = all(model.codes for model in engine.models)
        self._retries, self._compares, self._requires = retries, numbers, numbers and can_require

    def around(self, search: Search) -> Search:
        def searched(pieces: Sequence[Piece], config: SearchConfig) -> Iterator[Piece]:
            wanted = {piece: piece.source for piece in pieces}
            for piece in pieces:
                piece.source = self._first(piece.source)
            failed: dict[Piece, Problems] = {}
            for piece in search(pieces, config):
                piece.source = wanted[piece]
                problems = self._problems(piece)
                if problems or (piece.other and self._retries):
                    failed[piece] = problems
                else:
                    yield piece
            first = {piece: piece.hypotheses for piece in failed}
            coded = {piece: self._require(piece, problems) for piece, problems in failed.items()}
            for piece in search(list(failed), config) if failed else ():
                piece.source = wanted[piece]
                piece.hypotheses = list(map(coded[piece].restored, piece.hypotheses))
                before, score = failed[piece], first[piece][0].score
                piece.line.counts.retried |= bool(before)
                after, new_score = self._problems(piece), piece.hypotheses[0].score
                is_far_worse = len(before) == len(before.numbers) and new_score < score - FAR_WORSE
                if is_far_worse or (-len(before), score) >= (-len(after), new_score):
                    piece.hypotheses = first[piece]
                yield piece

        return searched

    def after(self, lines: Sequence[Line]) -> None:
        """Counts the lines whose best translation has a piece that is finished and loops, and lines with other numbers,
        which have no confidence."""
        for line in lines:
            best = line.translations[0]
            line.counts.looping = int(any(piece.hypotheses[0].finished and self._loops(piece) for piece in line.pieces))
            if self._compares and self._compared(line.model_text, best.text, line, line.pieces):
                line.counts.numbers = 1
                if best.confidence is not None:
                    line.translations[0] = replace(best, confidence=0.0)

    def _compared(self, src: str, tgt: str, line: Line, pieces: Sequence[Piece]) -> Difference:
        """Compares numbers, without codes. The prefix and the phrases of the pieces may contain others."""
        if not any(map(str.isdecimal, src + tgt)):  # as in most lines
            return _EQUAL
        asked = "\n".join(piece.required(self._tgt_vocab) for piece in pieces)
        return compare(*(_without_codes(line, text) for text in (src, tgt, asked)))

    def _first(self, source: Source) -> Source:
        """Returns a source without phrases if they are codes that the model has learned to place."""
        return replace(source, phrases=()) if self._has_codes and _codes_only(source) else source

    def _problems(self, piece: Piece) -> Problems:
        hypothesis = piece.hypotheses[0]
        best = self._tgt_vocab.decode(hypothesis.tokens)
        codes = len(self._invented(piece, best)) + self._misplaced(piece, best)
        numbers = self._compared(self._text(piece), best, piece.line, [piece]) if self._requires else _EQUAL
        if not self._retries:
            return Problems(codes=codes, numbers=numbers)
        return Problems(not hypothesis.finished, self._loops(piece), codes, numbers)

    def _loops(self, piece: Piece) -> bool:
        """Returns whether the best hypothesis loops. The subwords of a given prefix do not count."""
        own = piece.hypotheses[0].tokens[len(piece.source.prefix) :]
        return loops(own, lambda: self._src_vocab.decode(piece.source.tokens[:-1]))

    def _invented(self, piece: Piece, text: str) -> set[str]:
        found = (_IN_WORD if piece.line.seen.texts else CODE).findall(text)
        return set(found) - self._allowed(piece) if found else set()

    def _misplaced(self, piece: Piece, text: str) -> int:
        """Returns how many codes a translation lacks or repeats."""
        if not (piece.source.phrases and _codes_only(piece.source)):
            return 0
        words = Counter(_WORD.findall(text))
        codes = ((self._tgt_vocab.decode(phrase.forms[0].tokens), phrase.times) for phrase in piece.source.phrases)
        return sum(words[code] != times for code, times in codes)

    def _allowed(self, piece: Piece) -> frozenset[str]:
        """Returns the codes that a translation may have."""
        texts = (piece.line.model_text, piece.required(self._tgt_vocab), *(piece.line.match or ())[:1])
        return frozenset(_LIKE_CODE.findall(" ".join(texts)))

    def _text(self, piece: Piece) -> str:
        """Returns the text of a piece without the codes of protected text."""
        return _without_codes(piece.line, self._src_vocab.decode(piece.source.tokens[len(piece.line.before) : -1]))

    def _require(self, piece: Piece, problems: Problems) -> CodedNumbers:
        """Changes the source of a piece so that its translation has its codes and numbers, and no others. Returns the
        numbers that have become codes."""
        source = replace(piece.source, tokens=piece.other or piece.source.tokens)
        text, numbers = self._text(piece), problems.numbers
        with_codes = self._src_vocab.decode(source.tokens[len(piece.line.before) : -1])
        # Digits of another script may have to change, so they get no codes.
        missing = [number for number in numbers.missing if number not in numbers.kept and in_ascii(number) == number]
        coded = CodedNumbers(with_codes, missing if self._has_codes else (), self._tgt_vocab)
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
        piece.source = replace(source, rules=(*source.rules, *self._rules(piece, problems, coded)))
        return coded

    def _rules(self, piece: Piece, problems: Problems, coded: CodedNumbers) -> Iterator[Rule]:
        spelling = self._spelling()
        only_numbers = problems.numbers or (self._requires and (problems.loops or problems.unfinished))
        if problems.codes or only_numbers:  # digits after letters belong to no number
            yield OnlyCodes(spelling, self._allowed(piece) | coded.codes)
        if only_numbers:
            numbers = [list(number.written()) for number in numbers_of(self._text(piece))]
            numbers += [[tuple(RUN.findall(in_ascii(word)))] for word in piece.required(self._tgt_vocab).split()]
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


def _codes_only(source: Source) -> bool:
    return all(phrase.exactly for phrase in source.phrases)


def _without_codes(line: Line, text: str) -> str:
    """Returns a text of a line without the codes of its protected text."""
    codes = "|".join(line.seen.texts)
    return re.sub(rf"\b(?:{codes})(?!\d)", " ", text) if codes else text
