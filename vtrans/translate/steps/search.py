"""Sixth step: searches for translations, checks them, and searches once more for pieces with problems.

The best hypothesis has a problem if it reaches its length limit without EOS, if it loops, if it lacks a phrase or a
term, if it lacks, repeats or invents a code of protected text, or if its numbers differ from the source
(text/values.py). A model that has learned to place codes (translate/wording/protection.py) also writes codes for
similar text: `room A-12` becomes `Raum A1`.

A hypothesis loops if an n-gram of 1 to LOOP_NGRAM subwords occurs at least LOOP_TIMES times in a row, unless a string
of up to SOURCE_STRETCH characters occurs at least half as many times in a row in the source, such as "ha ha ha ha ha",
dot leaders and rows of zeros. In 28,998 pairs of Multi30k and 100,000 of Tatoeba (English to German, 8,000 subwords),
no n-gram occurs more than 3 times in a row in a reference translation.

The second search requires the codes and the missing numbers as phrases, and forbids other codes, other numbers and
repeated n-grams of RETRY_NGRAM subwords. A model copies a number digit by digit, and may lose a zero of 1,000,000. A
model that has learned to place codes only has to place the number, so codes represent long numbers.

The result with fewer problems is kept; if equal, the one with the higher score; if equal, the first. The first result
is also kept if only its numbers are wrong and the second's score is lower by more than FAR_WORSE, because a mere list
of the numbers would have no problems. Only the best hypotheses are compared, so the result does not depend on `nbest`.

A model that has learned to place codes usually does so unaided, and requiring phrases takes several times as long. So
the first search requires nothing if a piece needs only codes. It also leaves out glossary terms that can be written
into the translation afterwards (terms.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import regex

from vtrans.config import RETRY_NGRAM, SearchConfig
from vtrans.engines.engine import Engine, Source
from vtrans.search.digits import ALNUM, LETTER, RUN, OnlyCodes, OnlyNumbers
from vtrans.search.lexical import LexicalConstraint, Variant, least_tokens
from vtrans.search.loop import Hypothesis
from vtrans.search.mbr import UTILITIES, ranked
from vtrans.search.rules import NoRepeatedNgram, Rule, rules_of
from vtrans.text.values import Difference, compare, in_ascii, numbers_of
from vtrans.text.vocabulary import EOS_ID, Vocabulary
from vtrans.translate.steps.line import MOST_PHRASES, Piece, Problems
from vtrans.translate.steps.split import SourceReader
from vtrans.translate.steps.terms import WriteTerms
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.wording.phrases import without_space
from vtrans.translate.wording.protection import masked

LOOP_NGRAM, LOOP_TIMES = 4, 5
SOURCE_STRETCH = 50
FEWEST_DIGITS = 3  # shorter numbers may be hours, days or ordinals, which languages write differently
FAR_WORSE = 5.0  # a difference of scores

_CODE = re.compile(r"\b[A-Z]\d{1,5}\b")
# A code, or a model's corruption of one within a word, such as Ch4.
_IN_WORD = regex.compile(rf"(?<!{ALNUM}){LETTER}+\d{{1,5}}(?!{ALNUM})", regex.V1)
_LIKE_CODE = regex.compile(rf"(?<!{ALNUM}){LETTER}+\d{ALNUM}*", regex.V1)
_WORD = re.compile(r"[^\W_]+")
_SWAPPED = str.maketrans(".,", ",.")

Find = Callable[[Mapping[Piece, Source]], Iterator[Piece]]
"""Searches for these sources, stores the hypotheses in the pieces, and yields each piece when it is done, in any
order."""


def find_with(engine: Engine, search: SearchConfig, options: TranslateOptions, own: Sequence[Rule] = ()) -> Find:
    """Returns a function that searches with an engine, and with the user's `own` rules."""
    rules = [*rules_of(search, engine.tgt_vocab), *own]
    nbest = options.candidates(search.beam)

    def find(sources: Mapping[Piece, Source]) -> Iterator[Piece]:
        longest_first = sorted(sources, key=lambda piece: -len(sources[piece].tokens))
        found = engine.search(
            [sources[piece] for piece in longest_first],
            search,
            rules=rules,
            nbest=nbest,
            sampling=options.sampling,
            abandoned=options.abandoned,
        )
        for i, hypotheses in found:
            piece = longest_first[i]
            piece.hypotheses = chosen(hypotheses, options, engine.tgt_vocab)
            yield piece

    return find


def chosen(hypotheses: list[Hypothesis], options: TranslateOptions, vocab: Vocabulary) -> list[Hypothesis]:
    """Returns the `options.nbest` best candidates with distinct texts; of hypotheses that spell the same text in
    different subwords, the best one. Without `options.mbr`, samples are returned unchanged."""
    if options.mbr is None and (options.sampling is not None or len(hypotheses) == 1):
        return hypotheses
    texts = [vocab.decode(hyp.tokens) for hyp in hypotheses]
    if options.mbr is not None:
        return ranked(hypotheses, texts, UTILITIES[options.mbr.metric])[: options.nbest]
    distinct: dict[str, Hypothesis] = {}
    for text, hyp in zip(texts, hypotheses, strict=True):
        distinct.setdefault(text, hyp)
    return list(distinct.values())[: options.nbest]


class SearchTwice:
    """Searches for pieces once or twice, and stores the better result and its problems in each piece."""

    def __init__(self, find: Find, check: Check, terms: WriteTerms | None) -> None:
        self._find, self._check, self._terms = find, check, terms

    def __call__(self, pieces: Sequence[Piece]) -> Iterator[Piece]:
        """Yields each piece as soon as it has its translations."""
        failed: dict[Piece, Problems] = {}
        for piece, unwritten in self._first(pieces):
            if problems := self._check(piece, unwritten):
                failed[piece] = problems
            else:
                yield piece
        if failed:
            yield from self._second(failed)

    def _first(self, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, int]]:
        """Yields pieces after the first search, with the number of terms that could not be written."""
        drafts = self._terms.drafts(pieces) if self._terms else {}
        sources = {piece: drafts[piece].source if piece in drafts else piece.source for piece in pieces}
        for piece, source in sources.items():
            if self._check.has_codes and all(phrase.exactly for phrase in source.phrases):
                sources[piece] = replace(source, phrases=())
        for piece in self._find(sources):
            if piece not in drafts:
                yield piece, 0
        if drafts and self._terms:
            for piece, is_written in self._terms.write(drafts):
                yield piece, 0 if is_written else len(piece.line.terms)

    def _second(self, failed: Mapping[Piece, Problems]) -> Iterator[Piece]:
        first = {piece: (piece.hypotheses, piece.problems) for piece in failed}
        again = {piece: self._check.again(piece, problems) for piece, problems in failed.items()}
        for piece in self._find({piece: source for piece, (source, _) in again.items()}):
            (hypotheses, problems), (_, coded) = first[piece], again[piece]
            piece.hypotheses = list(map(coded.restored, piece.hypotheses))
            before = failed[piece]
            after = self._check(piece)
            score = hypotheses[0].score
            new_score = piece.hypotheses[0].score
            piece.line.counts.retried = 1
            is_far_worse = len(before) == len(before.numbers or ()) and new_score < score - FAR_WORSE
            if is_far_worse or (-len(before), score) >= (-len(after), new_score):
                piece.hypotheses, piece.problems = hypotheses, problems
            yield piece


# Problems and their solutions.


class Check:
    """Finds the problems of pieces. `compares`: whether to compare numbers. `requires`: whether a second search
    requires the right numbers and forbids others. `retries`: whether a second search solves loops."""

    def __init__(self, engine: Engine, reader: SourceReader, *, retries: bool, compares: bool, requires: bool) -> None:
        self._src_vocab, self._tgt_vocab = engine.src_vocab, engine.tgt_vocab
        self._reader, self._retries, self._compares, self._requires = reader, retries, compares, requires
        self.has_codes = all(model.codes for model in engine.models)
        """Whether the models were trained with codes."""

    def __call__(self, piece: Piece, unwritten: int = 0) -> Problems:
        """Stores the problems of a piece's best hypothesis in the piece; `unwritten` is its number of missing terms.
        Returns the problems that a second search may solve."""
        hypothesis, phrases, decode = piece.hypotheses[0], piece.source.phrases, self._tgt_vocab.decode
        best = decode(hypothesis.tokens)
        own = hypothesis.tokens[len(piece.source.prefix) :]
        missing = [p for p in phrases if not p.exactly and not any(decode(v.tokens) in best for v in p.variants)]
        words = Counter(_WORD.findall(best)) if phrases else Counter[str]()
        misplaced = [p for p in phrases if p.exactly and words[decode(p.variants[0].tokens)] != p.times]
        codes = (_IN_WORD if piece.line.codes else _CODE).findall(best)
        invented = set(codes) - self._allowed(piece) if codes else set()
        piece.problems = solvable = Problems(
            unfinished=not hypothesis.finished,
            loops=loops(own, lambda: self._src_vocab.decode(piece.source.tokens[:-1])),
            phrases=unwritten or len(missing),
            codes=len(invented) + len(misplaced),
            numbers=self._compared(piece, best),
        )
        if not self._retries:
            solvable = replace(solvable, unfinished=False, loops=False)
        return solvable if self._requires else replace(solvable, numbers=None)

    def _allowed(self, piece: Piece) -> frozenset[str]:
        """Returns the codes that a translation may contain."""
        texts = (piece.line.model_input, piece.line.asked, *(piece.line.match or ())[:1])
        return frozenset(_LIKE_CODE.findall(" ".join(texts)))

    def _text(self, piece: Piece) -> str:
        return self._src_vocab.decode(piece.source.tokens[len(piece.line.before) : -1])

    def _compared(self, piece: Piece, best: str) -> Difference | None:
        """Returns how numbers outside codes differ. The line's prefix, phrases and terms may contain others."""
        line = piece.line
        if not self._compares or not any(map(str.isdecimal, line.model_input + best)):  # most lines have no digits
            return None
        return compare(line.without_codes(self._text(piece)), line.without_codes(best), line.asked) or None

    def again(self, piece: Piece, problems: Problems) -> tuple[Source, CodedNumbers]:
        """Returns the source of the second search, which requires the piece's codes and numbers and forbids others, and
        the numbers that are represented by codes."""
        source, numbers, with_codes = piece.source, problems.numbers or Difference(), self._text(piece)
        text = piece.line.without_codes(with_codes)
        # Digits of other scripts may have to change, so they get no codes.
        missing = [number for number in numbers.missing if number not in numbers.kept and in_ascii(number) == number]
        coded = CodedNumbers(with_codes, missing if self.has_codes else (), self._tgt_vocab, piece.line.asked)
        kept = numbers.kept if numbers else ()
        times = Counter(number for number in (*numbers.missing, *kept) if number not in coded.numbers)
        variants = {number: tuple(self._variants(number, text)) for number in times}
        found = [LexicalConstraint(variants[number], n) for number, n in times.items() if variants[number]]
        phrases = (*source.phrases, *coded.phrases, *found[:MOST_PHRASES])
        if least_tokens(phrases) < source.limit - 1:
            source = replace(source, phrases=phrases)
            if coded.numbers:
                source = replace(source, tokens=[*piece.line.before, *self._src_vocab.encode(coded.text), EOS_ID])
        else:
            coded = CodedNumbers(with_codes, (), self._tgt_vocab)
        return replace(source, rules=(*source.rules, *self._rules(piece, problems, text, coded))), coded

    def _rules(self, piece: Piece, problems: Problems, text: str, coded: CodedNumbers) -> Iterator[Rule]:
        vocab_bytes, degenerates = self._reader.vocab_bytes, problems.loops or problems.unfinished
        only_numbers = problems.numbers or (self._requires and degenerates)
        if problems.codes or only_numbers:  # digits after letters belong to no number
            yield OnlyCodes(vocab_bytes, self._allowed(piece) | coded.codes)
        if only_numbers:
            numbers = [list(number.written()) for number in numbers_of(text)]
            numbers += [[tuple(RUN.findall(in_ascii(word)))] for word in piece.line.asked.split()]
            yield OnlyNumbers(vocab_bytes, numbers)
        if degenerates or problems.numbers:
            # 5,000 and 10,000 share three zeros.
            yield NoRepeatedNgram(RETRY_NGRAM, free=vocab_bytes.of_numbers if self._requires else ())

    def _variants(self, number: str, text: str) -> Iterator[Variant]:
        """Yields the subwords of a number as in the text, in ASCII, and with points and commas exchanged."""
        match = re.search(rf"(\S*?)(?<!\d){re.escape(number)}(?!\d)(\S*)", text)
        before, after = match.groups() if match else ("", "")
        written = [form for own in (number, in_ascii(number)) for form in (own, own.translate(_SWAPPED))]
        if before[:1].isalpha():
            written = [(before + number + after).rstrip(".,;:!?)]}\"'")]
        for spelled in dict.fromkeys(written):
            tokens = tuple(self._tgt_vocab.encode(spelled))
            if tokens and self._tgt_vocab.decode(tokens) == spelled:
                yield Variant(tokens, whole=not after[:1].isalpha())


class CodedNumbers:
    """A source in which codes represent numbers and preceding currency signs. `vocab` is the target's."""

    def __init__(self, text: str, numbers: Iterable[str], vocab: Vocabulary, asked: str = "") -> None:
        spans = dict[tuple[int, int], str]()
        for number in numbers:
            if sum(map(str.isdigit, number)) >= FEWEST_DIGITS:
                pattern = rf"(?<![\w.,])\p{{Sc}}?{regex.escape(number)}(?!\w|[.,]\d)"
                spans |= {match.span(): number for match in regex.finditer(pattern, text)}
        read = masked(text, sorted(spans), asked=asked)
        tokens = {code: tuple(vocab.encode(code)) for code in read.texts}
        self._numbers = {tokens[code]: tuple(vocab.encode(of)) for code, of in read.texts.items()}
        self._numbers |= {  # also without a space, after an opening quotation mark
            inside: written
            for known, form in self._numbers.items()
            if (inside := without_space(known, vocab)) and (written := without_space(form, vocab))
        }
        self.text = read.model_input
        self.codes = frozenset(read.texts)
        self.numbers = set(spans.values())
        """The numbers represented by codes."""
        counts = read.counts().items()
        self.phrases = [LexicalConstraint((Variant(tokens[code]),), n, exactly=True) for code, n in counts]
        """The codes as required phrases."""

    def restored(self, hypothesis: Hypothesis) -> Hypothesis:
        """Returns a hypothesis with codes replaced by their numbers. A number's first subword gets the log-probability
        of the code; the others get 0."""
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


def loops(tokens: Sequence[int], source: Callable[[], str]) -> bool:
    """Returns whether the subwords of a translation, without prefix and EOS, loop although their source does not."""
    if len(tokens) - len(set(tokens)) < LOOP_TIMES - 1:  # the subwords of a loop are repeated at least this often
        return False
    times = times_in_a_row(tokens, LOOP_NGRAM)
    return times >= LOOP_TIMES and 2 * times_in_a_row(source(), SOURCE_STRETCH) < times


def times_in_a_row(items: Sequence[object], longest: int) -> int:
    """Returns the maximum number of consecutive occurrences of any n-gram of 1 to `longest` items; 1 if none is
    repeated."""
    most = 1
    for n in range(1, min(longest, len(items) // 2) + 1):
        equal = 0  # consecutive items that equal the item n places before
        for item, before in zip(items[n:], items[:-n], strict=True):
            equal = equal + 1 if item == before else 0
            most = max(most, equal // n + 1)
    return most
