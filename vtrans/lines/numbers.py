"""Numbers that a translation lacks, or that nobody wrote.

A piece whose best translation has other numbers than its source (text/values.py) is searched again, once, with the
numbers that it lacks as phrases and without numbers that its source does not have. Words may not be repeated, as a
translation that must have a number easily says it twice. The second result is kept if its numbers are better and its
score is not far worse. A line whose numbers are still wrong is counted, and has no confidence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from vtrans.config import RETRY_NGRAM, SearchConfig
from vtrans.engines.engine import Engine
from vtrans.lines.coded_numbers import CodedNumbers
from vtrans.lines.invented import RUN, OnlyNumbers
from vtrans.lines.line import MOST_PHRASES, Line, Piece, Search, Stage
from vtrans.search.lexical import Form, Phrase, least_tokens
from vtrans.search.rules import NoRepeatedNgram, Rule
from vtrans.text.values import Difference, compare, numbers_of
from vtrans.text.vocabulary import EOS_ID, UNK_ID
from vtrans.wording.avoid import Spelling

FAR_WORSE = 5.0  # nats per subword, about

_SWAPPED = str.maketrans(".,", ",.")


class KeepNumbers(Stage):
    """Searches again for pieces whose best translation has other numbers than their source, unless `again` is false.
    Counts the lines whose best translation has."""

    def __init__(self, engine: Engine, spelling: Callable[[], Spelling], *, again: bool) -> None:
        self._src_vocab, self._tgt_vocab, self._again = engine.src_vocab, engine.tgt_vocab, again
        self._has_codes = all(model.codes for model in engine.models)
        self._spelling = spelling

    def around(self, search: Search) -> Search:
        def searched(pieces: Sequence[Piece], config: SearchConfig) -> Iterator[Piece]:
            wrong: dict[Piece, Difference] = {}
            for piece in search(pieces, config):
                if self._again and (difference := self._difference(piece)):
                    wrong[piece] = difference
                else:
                    yield piece
            first = {piece: (piece.source, piece.hypotheses) for piece in wrong}
            coded = {piece: self._require(piece, difference) for piece, difference in wrong.items()}
            for piece in search(list(wrong), config) if wrong else ():
                piece.source, hypotheses = first[piece]
                worse = piece.hypotheses[0].score < hypotheses[0].score - FAR_WORSE
                piece.hypotheses = list(map(coded[piece].restored, piece.hypotheses))
                if worse or self._difference(piece).rank >= wrong[piece].rank:
                    piece.hypotheses = hypotheses
                yield piece

        return searched

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            best = line.translations[0]
            src, tgt = (_without_codes(line, text) for text in (line.model_text, best.text))
            if compare(src, tgt):
                line.counts.numbers = 1
                if best.confidence is not None:
                    line.translations[0] = replace(best, confidence=0.0)

    def _text(self, piece: Piece) -> str:
        """Returns what a piece has besides the codes of protected text."""
        return _without_codes(piece.line, self._src_vocab.decode(piece.source.tokens[len(piece.line.before) : -1]))

    def _difference(self, piece: Piece) -> Difference:
        best = self._tgt_vocab.decode(piece.hypotheses[0].tokens)
        return compare(self._text(piece), _without_codes(piece.line, best))

    def _require(self, piece: Piece, difference: Difference) -> CodedNumbers:
        """Changes the source of a piece so that its translation has the numbers in digits, and no others. Returns those
        that have become codes."""
        source, text = piece.source, self._text(piece)
        with_codes = self._src_vocab.decode(source.tokens[len(piece.line.before) : -1])
        missing = [number for number in difference.missing if self._has_codes and number not in difference.kept]
        coded = CodedNumbers(with_codes, missing, self._tgt_vocab)
        times = Counter(number for number in (*difference.missing, *difference.kept) if number not in coded.numbers)
        found = [Phrase(forms, n) for number, n in times.items() if (forms := tuple(self._forms(number, text)))]
        phrases = (*source.phrases, *coded.phrases, *found[:MOST_PHRASES])
        fits = least_tokens(phrases) < source.limit - 1
        if fits and coded.numbers:
            tokens = [*piece.line.before, *self._src_vocab.encode(coded.text), EOS_ID]
            piece.source = replace(source, tokens=tokens)
        rules = (*source.rules, *self.rules(piece))
        piece.source = replace(piece.source, phrases=phrases if fits else source.phrases, rules=rules)
        return coded

    def rules(self, piece: Piece) -> tuple[Rule, ...]:
        """Returns rules with which a search writes no numbers but those of a piece, and repeats no words."""
        spelling, text = self._spelling(), self._text(piece)
        numbers = [list(number.written()) for number in numbers_of(text)]
        numbers += [[tuple(RUN.findall(word))] for word in piece.required(self._tgt_vocab).split()]
        # 5,000 and 10,000 have the same three zeros.
        return OnlyNumbers(spelling, numbers), NoRepeatedNgram(RETRY_NGRAM, free=spelling.of_numbers)

    def _forms(self, number: str, text: str) -> Iterator[Form]:
        """Yields the subwords of a number as the text has it, and with points and commas exchanged."""
        match = re.search(rf"(\S*?){re.escape(number)}(\S*)", text)
        before, after = match.groups() if match else ("", "")
        is_word = before[:1].isalpha()
        written = (
            [(before + number + after).rstrip(".,;:!?)]}\"'")] if is_word else [number, number.translate(_SWAPPED)]
        )
        for spelled in dict.fromkeys(written):
            tokens = tuple(self._tgt_vocab.encode(spelled))
            if tokens and UNK_ID not in tokens and self._tgt_vocab.decode(tokens) == spelled:
                yield Form(tokens, whole=not after[:1].isalpha())


def _without_codes(line: Line, text: str) -> str:
    codes = "|".join(line.seen.texts)
    return re.sub(rf"\b(?:{codes})(?!\d)", " ", text) if codes else text
