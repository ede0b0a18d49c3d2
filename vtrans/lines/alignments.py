"""Links the words of translations to words of their lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from vtrans.engines.alignments import NO_WORD, Links
from vtrans.engines.engine import Engine
from vtrans.lines.line import Line, Stage
from vtrans.search.decoder import SubwordPair
from vtrans.text.words import words_of_ids, words_of_line


class AlignWords(Stage):
    """Links words within each piece of a line, with one forced pass for all lines."""

    together = True

    def __init__(self, engine: Engine, batch_tokens: int) -> None:
        self._engine, self._batch_tokens = engine, batch_tokens

    def after(self, lines: Sequence[Line]) -> None:
        vocab = self._engine.tgt_vocab
        pairs: list[SubwordPair] = []
        words: list[tuple[list[int], list[int]]] = []
        places: list[tuple[Line, int]] = []
        for line in lines:
            tags, begin = [NO_WORD] * len(line.before), 0  # in the subwords of the line
            line_words = words_of_line(line.model_text, line.ids, self._engine.src_vocab) if line.pieces else []
            tgt_words: defaultdict[int, int] = defaultdict(int)  # by rank, in the pieces so far
            for piece in line.pieces:
                src = piece.source.tokens[:-1]
                end = begin + len(src) - len(tags)
                for rank, hyp in enumerate(piece.hypotheses):
                    pairs.append((src, hyp.tokens))
                    hyp_words = [tgt_words[rank] + j for j in words_of_ids(hyp.tokens, vocab)]
                    words.append(([*tags, *line_words[begin:end]], hyp_words))
                    places.append((line, rank))
                    tgt_words[rank] += len(vocab.decode(hyp.tokens).split())
                begin = end
        found: defaultdict[tuple[Line, int], Links] = defaultdict(tuple)
        for place, links in zip(places, self._engine.align(pairs, words, self._batch_tokens), strict=True):
            found[place] = tuple(sorted((*found[place], *links)))
        for line in lines:
            line.translations = [replace(t, alignment=found[line, rank]) for rank, t in enumerate(line.translations)]
