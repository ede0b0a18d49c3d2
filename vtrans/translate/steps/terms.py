"""Replaces words in translations by the glossary terms that translate the same source words.

A search that must write a term tends to write the usual word as well, as in "Ein Köter Hund rennt.", because nothing
else translates the source word "dog". A line with terms is therefore first searched without them. The attention links
each term to a run of words in the translation, which a form of the term replaces. The model chooses the most probable
form, and whether to replace neighbouring words that are linked to nothing else. If this fails, a search that requires
the terms translates the line.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import regex

from vtrans.config import SearchConfig
from vtrans.engines.alignments import NO_WORD, Links
from vtrans.engines.engine import Engine, Source
from vtrans.search.loop import Hypothesis, length_penalty
from vtrans.search.rules import suppressed_ids, with_certain
from vtrans.text.lines import one_line
from vtrans.text.vocabulary import EOS_ID
from vtrans.text.words import has_spaces, words_of_ids, words_of_line
from vtrans.translate.steps.line import Piece
from vtrans.translate.steps.split import SourceReader
from vtrans.translate.wording.phrases import Forms
from vtrans.translate.wording.protection import Span

_TIE = 1e-4
"""Scores that differ by less count as equal, because rounding errors depend on the batch."""
_CORE = regex.compile(r"([^\w\p{M}]*)(.*?)([^\w\p{M}]*)")


@dataclass(eq=False)
class Draft:
    """A piece to search without its terms."""

    piece: Piece
    source: Source
    """The piece's source without terms."""
    src_words: Sequence[int]
    """The word number of each source subword, without EOS."""
    terms: Sequence[tuple[set[int], Forms]]
    """The source word numbers of each term, and its forms."""


_Place = tuple[Sequence[Span], Forms]
"""A term's place in a translation: the run of words that translate it, the same run extended by neighbours that are
linked to nothing else, and the term's forms."""


@dataclass(eq=False)
class _Rewriting:
    """A hypothesis of a draft in which terms are written, from the last place to the first."""

    draft: Draft
    words: list[str]
    places: list[_Place]
    written: Hypothesis

    def next_texts(self) -> list[list[str]]:
        """Returns the words with each form of the next term in each of its runs; unchanged if no term is left."""
        words = self.words
        if not self.places:
            return [words]
        texts, (runs, forms) = [], self.places.pop()
        for begin, end in dict.fromkeys(runs):
            before, _, after = _parts(words[begin:end])
            texts += [[*words[:begin], before + form + after, *words[end:]] for form in forms]
        return texts


class WriteTerms:
    """Writes terms into the translations of single-piece lines that are searched without them. A search that requires
    the terms translates other lines, and lines for which this gives fewer than `nbest` translations."""

    def __init__(self, engine: Engine, reader: SourceReader, search: SearchConfig, nbest: int) -> None:
        self._engine, self._reader, self._search, self._nbest = engine, reader, search, nbest

    def drafts(self, pieces: Sequence[Piece]) -> dict[Piece, Draft]:
        """Returns drafts for the pieces that can be searched without their terms."""
        if self._search.no_repeat_ngram or self._search.repetition_penalty != 1:
            return {}
        return {piece: draft for piece in pieces if piece.line.terms and (draft := self._draft(piece))}

    def _draft(self, piece: Piece) -> Draft | None:
        """Returns the draft of a piece; None if its line has several pieces, if its words are not separated by spaces,
        or if a term covers only part of a word."""
        line = piece.line
        text, terms = line.model_input, []
        if len(line.pieces) > 1 or not has_spaces(text):
            return None
        spans = [match.span() for match in regex.finditer(r"\S+", text)]
        for term in line.terms:
            inside = [k for k, (begin, end) in enumerate(spans) if begin < term.end and term.begin < end]
            own = text[term.begin : term.end]
            if _parts([text[slice(*spans[k])] for k in inside])[1] != _parts([own])[1]:
                return None
            terms.append((set(inside), term.forms))
        words = [*[NO_WORD] * len(line.before), *words_of_line(text, line.ids, self._engine.src_vocab)]
        source = self._reader.source(line, 0, line.ids, replace(line.wording, terms=()))
        return Draft(piece, source, words, terms)

    def write(self, drafts: Mapping[Piece, Draft]) -> Iterator[tuple[Piece, bool]]:
        """Yields each draft's piece, and whether enough hypotheses with its terms were written. These replace its
        hypotheses, best first; otherwise the piece keeps the hypotheses of the search. Leaves out hypotheses in which
        two terms share a place or that violate another constraint."""
        vocab = self._engine.tgt_vocab
        rewritings = self._rewritings(drafts.values())
        self._write(rewritings)
        best: defaultdict[Draft, dict[str, Hypothesis]] = defaultdict(dict)
        for rewriting in sorted(rewritings, key=lambda rewriting: -rewriting.written.score):
            if _obeys(rewriting.draft, rewriting.written, self._engine, self._search.min_length):
                best[rewriting.draft].setdefault(vocab.decode(rewriting.written.tokens), rewriting.written)
        for piece, draft in drafts.items():
            written = list(best[draft].values())[: self._nbest]
            is_written = len(written) == self._nbest
            piece.hypotheses = written if is_written else piece.hypotheses
            yield piece, is_written

    def _rewritings(self, drafts: Iterable[Draft]) -> list[_Rewriting]:
        """Returns the finished hypotheses in which each term has its own place."""
        vocab = self._engine.tgt_vocab
        found = [(draft, hyp) for draft in drafts for hyp in draft.piece.hypotheses if hyp.finished]
        pairs = [(draft.piece.source.tokens[:-1], hyp.tokens) for draft, hyp in found]
        words = [(draft.src_words, words_of_ids(hyp.tokens, vocab)) for draft, hyp in found]
        aligned = self._engine.align(pairs, words, self._search.batch_tokens)
        rewritings = []
        for (draft, hyp), links in zip(found, aligned, strict=True):
            text = vocab.decode(hyp.tokens).split()
            if has_spaces("".join(text)) and (places := _places(draft, text, links)) is not None:
                rewritings.append(_Rewriting(draft, text, places, hyp))
        return rewritings

    def _write(self, rewritings: Sequence[_Rewriting]) -> None:
        """Writes the terms. If some hypotheses of a draft are rewritten, the others are rescored in the same way."""
        vocab, suppressed = self._engine.tgt_vocab, set(suppressed_ids(self._search, self._engine.tgt_vocab))
        changed = {rewriting.draft for rewriting in rewritings if rewriting.places}
        todo = [rewriting for rewriting in rewritings if rewriting.draft in changed]
        while todo:
            tries = [(rewriting, words) for rewriting in todo for words in rewriting.next_texts()]
            scored = self._scored((rewriting.draft, vocab.encode(" ".join(words))) for rewriting, words in tries)
            best = dict.fromkeys(todo, -math.inf)
            for (rewriting, words), hypothesis in zip(tries, scored, strict=True):
                if hypothesis.score > best[rewriting] + _TIE and suppressed.isdisjoint(hypothesis.tokens):
                    best[rewriting], rewriting.words, rewriting.written = hypothesis.score, words, hypothesis
            todo = [rewriting for rewriting in todo if rewriting.places]

    def _scored(self, tries: Iterable[tuple[Draft, Sequence[int]]]) -> Iterator[Hypothesis]:
        """Yields finished hypotheses with these tokens, scored by the model."""
        begin, config = self._reader.begin, self._search
        pairs = [(draft.piece.source.tokens[:-1], (*begin, *tokens, EOS_ID)) for draft, tokens in tries]
        for (_, target), given in zip(pairs, self._engine.token_logprobs(pairs, config.batch_tokens), strict=True):
            logprobs = with_certain(begin, target, given)
            total = math.fsum(logprobs)
            score = total / length_penalty(len(logprobs), config.alpha, config.length_penalty)
            yield Hypothesis(target[:-1], total, score, True, logprobs)


def _places(draft: Draft, words: Sequence[str], links: Links) -> list[_Place] | None:
    """Returns the places of the terms that a translation lacks, in order; None if a term has no place of its own."""
    places, taken = list[_Place](), set[int]()
    source_of = {j: i for i, j in reversed(links)}  # by target word, the source word to which it attends most
    for src, forms in draft.terms:
        # Ignore weak links from distant function words, but not from a compound that also translates a neighbour of the
        # term.
        linked = {j for i, j in links if i in (min(src) - 1, max(src) + 1)}
        candidates = [j for i, j in links if i in src and source_of[j] in src and j not in linked]
        strongest = {i: j for i, j in reversed(links) if i in src and j in candidates}
        if not candidates:
            return None
        begin, end = min(strongest.values()), max(strongest.values()) + 1
        first, last = begin, end
        while first - 1 in candidates:
            first -= 1
        while last in candidates:
            last += 1
        core = _parts(words[begin:end])[1]
        whole = set(range(begin, end)) <= set(candidates) and taken.isdisjoint(range(first, last))
        if not core or not whole or core in draft.piece.line.wording.codes:
            return None
        taken.update(range(first, last))
        if not {core, _parts(words[first:last])[1]} & set(forms):
            places.append((((begin, end), (first, last)), forms))
    return sorted(places)


def _parts(words: Sequence[str]) -> tuple[str, str, str]:
    """Returns the punctuation before the words, the words, and the punctuation after them."""
    before, core, after = _CORE.fullmatch(" ".join(words)).groups()
    return before, core, after


def _obeys(draft: Draft, written: Hypothesis, engine: Engine, least: int) -> bool:
    """Returns whether a rewritten hypothesis obeys the constraints, the prefix and the length limits."""
    line, source = draft.piece.line, draft.piece.source
    prefix = source.prefix
    return (
        not line.wording.unmet(one_line(engine.tgt_vocab.decode(written.tokens)))
        and written.tokens[: len(prefix)] == prefix
        and least <= len(written.tokens) < source.limit
        and written.logprob > -math.inf
    )
