"""Links the words of translations to words of their lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from vtrans.engines.alignments import NO_WORD, Links
from vtrans.engines.engine import Engine
from vtrans.lines.line import Line, Stage
from vtrans.search.decoder import SubwordPair
from vtrans.text.words import first_words, words_of_ids, words_of_line


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
            tags = [NO_WORD] * len(line.before)
            line_words = words_of_line(line.model_text, line.ids, self._engine.src_vocab) if line.pieces else []
            ranks = min((len(piece.hypotheses) for piece in line.pieces), default=0)
            for rank, translation in enumerate(line.translations[:ranks]):
                hyps = [piece.hypotheses[rank].tokens for piece in line.pieces]
                firsts, begin = first_words(map(vocab.decode, hyps), translation.text), 0  # in the subwords of the line
                marks = 0  # words between pieces, such as those between cells
                for piece, tokens, first in zip(line.pieces, hyps, firsts, strict=True):
                    src = piece.source.tokens[:-1]
                    end = begin + len(src) - len(tags)
                    pairs.append((src, tokens))
                    own = [word + marks for word in line_words[begin:end]]
                    words.append(([*tags, *own], [first + j for j in words_of_ids(tokens, vocab)]))
                    places.append((line, rank))
                    begin = end
                    marks += len(piece.gap.split())
        found: defaultdict[tuple[Line, int], Links] = defaultdict(tuple)
        for place, links in zip(places, self._engine.align(pairs, words, self._batch_tokens), strict=True):
            found[place] = tuple(sorted((*found[place], *links)))
        for line in lines:
            line.translations = [replace(t, alignment=found[line, rank]) for rank, t in enumerate(line.translations)]
