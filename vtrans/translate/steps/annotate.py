"""Seventh step: joins the translations of a line's pieces, aligns their words, and rates their confidence."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vtrans.engines.alignments import NO_WORD, spread
from vtrans.engines.engine import Engine
from vtrans.search.decoder import SubwordPair
from vtrans.text.lines import one_line
from vtrans.text.sentences import gap
from vtrans.text.vocabulary import EOS_ID
from vtrans.text.words import first_words, words_in, words_of_ids, words_of_line
from vtrans.translate.steps.line import Line, Piece
from vtrans.translate.translation import NO_TRANSLATION, Rate, TranslateOptions, Translation

SHORT_FROM, SHORT = 40, 4  # from SHORT_FROM source subwords on, a translation SHORT times shorter counts as short


class Annotate:
    """Makes the translations of lines from the hypotheses of their pieces, with links and confidence if requested."""

    def __init__(self, engine: Engine, options: TranslateOptions, batch_tokens: int) -> None:
        self._engine, self._options, self._batch_tokens = engine, options, batch_tokens
        self._vocab = engine.tgt_vocab

    def __call__(self, lines: Sequence[Line]) -> None:
        for line in lines:
            line.translations = self._joined(line)
        if self._options.alignments:
            self._align(lines)
        if rate := self._options.calibration:
            for line in lines:
                line.translations = [self._rated(line, t, rate) for t in line.translations]

    def _joined(self, line: Line) -> list[Translation]:
        nbest, counts = self._options.nbest, line.counts
        if not line.pieces:
            counts.blank = int(not counts.known and not counts.copied)
            return [Translation("", 0.0, 0.0, True)] * nbest
        found = min(nbest, *(len(piece.hypotheses) for piece in line.pieces))
        translations = [self._of_rank(line, rank) for rank in range(found)]
        best = [piece.hypotheses[0] for piece in line.pieces]
        counts.missing = nbest - found
        counts.unfinished = int(not translations[0].finished)
        counts.empty = int(not all(self._vocab.decode(hypothesis.tokens).strip() for hypothesis in best))
        counts.short = int(any(map(_is_short, line.pieces)))
        counts.looping = int(any(p.problems.loops and p.hypotheses[0].finished for p in line.pieces))
        counts.numbers = int(any(piece.problems.numbers for piece in line.pieces))
        counts.tgt_tokens = len(translations[0].tokens)
        return [*translations, *[NO_TRANSLATION] * counts.missing]

    def _of_rank(self, line: Line, rank: int) -> Translation:
        """Joins the hypotheses of this rank of all pieces."""
        hyps = [piece.hypotheses[rank] for piece in line.pieces]
        tokens = [t for h in hyps for t in (*h.tokens, *([EOS_ID] if h.finished else []))]
        text, before = "", line.pieces[0]
        for hypothesis, piece in zip(hyps, line.pieces, strict=True):
            if translated := self._vocab.decode(hypothesis.tokens):
                text += self._gap(before, text, translated) + translated if text else translated
                before = piece
        text += line.pieces[-1].gap.rstrip()  # the bar at the end of a table row
        return Translation(
            one_line(text),
            math.fsum(h.logprob for h in hyps),
            math.fsum(h.score for h in hyps) / len(hyps),
            all(h.finished for h in hyps),
            tuple(tokens),
            tuple(map(self._vocab.piece, tokens)),
            tuple(p for h in hyps for p in h.token_logprobs),
            match=line.match[1] if line.match else None,
        )

    def _gap(self, piece: Piece, text: str, following: str) -> str:
        """Returns the text between the translations of a piece and the next one. Depends on the piece's last mark, in
        any script."""
        end = self._engine.src_vocab.decode(piece.source.tokens[-5:])  # EOS, and the bytes of a character
        return gap(piece.gap, end, text, following)

    def _align(self, lines: Sequence[Line]) -> None:
        """Links the words of each piece, with one forced pass for all lines."""
        parts = [(line, *part) for line in lines if line.pieces for part in self._parts(line)]
        pairs, words = [pair for _, _, pair, _ in parts], [words for *_, words in parts]
        found = defaultdict[tuple[Line, int], set[tuple[int, int]]](set)  # two pieces may share a word
        for (line, rank, *_), links in zip(parts, self._engine.align(pairs, words, self._batch_tokens), strict=True):
            found[line, rank].update(links)
        for line in lines:
            for rank, t in enumerate(line.translations):
                links = spread(tuple(sorted(found[line, rank])), line.model_input, t.text)
                line.translations[rank] = replace(t, alignment=links)

    def _parts(self, line: Line) -> Iterator[tuple[int, SubwordPair, tuple[list[int], list[int]]]]:
        """Yields the rank, the subwords and the word numbers of each piece and its translation."""
        vocab, tags = self._vocab, [NO_WORD] * len(line.before)
        line_words = words_of_line(line.model_input, line.ids, self._engine.src_vocab)
        for rank in range(min(len(piece.hypotheses) for piece in line.pieces)):
            hyps = [piece.hypotheses[rank].tokens for piece in line.pieces]
            firsts = first_words(map(vocab.decode, hyps), line.translations[rank].text)
            begin = marks = 0  # subwords of the line so far, and words between pieces, such as table bars
            for piece, tokens, first in zip(line.pieces, hyps, firsts, strict=True):
                src = piece.source.tokens[:-1]
                end = begin + len(src) - len(tags)
                own = [word + marks for word in line_words[begin:end]]
                if vocab.decode(tokens).strip():  # subwords such as <s> have no text
                    yield rank, (src, tokens), ([*tags, *own], [first + j for j in words_of_ids(tokens, vocab)])
                begin = end
                marks += len(words_in(piece.gap))

    def _rated(self, line: Line, translation: Translation, rate: Rate) -> Translation:
        """Returns a translation with its confidence, which is 0 for the best translation if its numbers are wrong."""
        value, words = rate(line.model_input, translation, self._vocab)
        is_wrong = line.counts.numbers and translation is line.translations[0]
        return replace(translation, confidence=0.0 if is_wrong else value, word_confidences=words)


def _is_short(piece: Piece) -> bool:
    """Returns whether a piece's translation is so short that part of the source must be missing."""
    src, tgt = len(piece.source.tokens) - len(piece.line.before), len(piece.hypotheses[0].tokens)
    return src >= SHORT_FROM and 0 < SHORT * tgt < src
