"""Writes the terms of a glossary in the place of the words that translate them.

A search that must write a term likes to write the usual word as well, "Ein Köter Hund rennt.", because nothing else
translates the source word "dog". Therefore a line with terms is first searched without them. The attention links each
term to a run of words in the translation, and the term's form replaces this run. The model chooses the most probable
form, and whether the words beside the run that are linked to nothing else go with it. Where this is not possible, a
search that requires the terms translates the line.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import regex

from vtrans.config import SearchConfig
from vtrans.engines.alignments import NO_WORD, Links
from vtrans.engines.engine import Engine, Source
from vtrans.lines.line import MOST_PHRASES, Kept, Line, Piece, Search, Stage
from vtrans.lines.loops import loops
from vtrans.search.loop import Hypothesis, length_penalty
from vtrans.search.rules import begin_ids, suppressed_ids, with_certain
from vtrans.text.case import in_capitals
from vtrans.text.lines import one_line
from vtrans.text.vocabulary import EOS_ID
from vtrans.text.words import words_of_ids, words_of_line
from vtrans.wording.glossary import Glossary, Term
from vtrans.wording.phrases import Forms, encoded, has_spaces

TERMS = Kept[tuple[Term, ...]]()
"""The terms of a glossary that a line has, as the model sees it."""
_TIE = 1e-4
"""Scores that differ by less count as equal: their rounding errors depend on the batch."""
_CORE = regex.compile(r"([^\w\p{M}]*)(.*?)([^\w\p{M}]*)")


class FindTerms(Stage):
    """Asks for the translations that a glossary has for the terms of lines, in any case if a line is in capitals."""

    def __init__(self, glossary: Glossary) -> None:
        self._glossary = glossary

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            found = self._glossary.terms_in(line.seen.masked, any_case=in_capitals("".join(line.seen.own)))
            if terms := tuple(islice(found, MOST_PHRASES)):
                TERMS.put(line, terms)
                line.wording = replace(line.wording, terms=tuple(term.forms for term in terms))


@dataclass(eq=False)
class Draft:
    """A piece, and the same piece to be translated without its terms."""

    piece: Piece
    without: Piece
    src_words: Sequence[int]
    """The word of each subword of the source, without EOS."""
    terms: Sequence[tuple[set[int], Forms]]
    """The words of each term in the source, and its forms."""


@dataclass(frozen=True)
class _TermPlace:
    """A term's place in a translation. Words `begin` to `end` translate it; words `first` to `last` are linked to
    nothing else."""

    begin: int
    end: int
    first: int
    last: int
    forms: Forms

    def texts(self, words: Sequence[str]) -> list[list[str]]:
        """Returns the words of the translation with each form in the place of the run, and of the longer run."""
        written = []
        for begin, end in dict.fromkeys(((self.begin, self.end), (self.first, self.last))):
            before, _, after = _parts(words[begin:end])
            written += [[*words[:begin], before + form + after, *words[end:]] for form in self.forms]
        return written


@dataclass(eq=False)
class _Rewriting:
    """A hypothesis of a draft, in which terms are written in their places, the last one first."""

    draft: Draft
    words: list[str]
    places: list[_TermPlace]
    written: Hypothesis


class DraftTerms(Stage):
    """Searches lines in one piece without their terms, and writes the terms in the translations. Searches the others
    with their terms, and those for which this gives fewer than `nbest` good translations."""

    def __init__(self, engine: Engine, nbest: int) -> None:
        self._engine, self._nbest = engine, nbest

    def around(self, search: Search) -> Search:
        def searched(pieces: Sequence[Piece], config: SearchConfig) -> Iterator[Piece]:
            written = set[Piece]()
            if not config.no_repeat_ngram and config.repetition_penalty == 1:
                drafts = [draft for piece in pieces if (draft := self._draft(piece, config))]
                list(search([draft.without for draft in drafts], config))
                for piece in self._with_terms(drafts, config):
                    written.add(piece)
                    yield piece
            yield from search([piece for piece in pieces if piece not in written], config)

        return searched

    def _draft(self, piece: Piece, config: SearchConfig) -> Draft | None:
        """Returns the draft of a piece, or None if its line has no terms or several pieces, or if a term covers only a
        part of a word."""
        line, source = piece.line, piece.source
        found = TERMS.get(line)
        if not found or len(line.pieces) > 1:
            return None
        text, terms = line.seen.masked, []
        spans = [match.span() for match in regex.finditer(r"\S+", text)]
        for term in found:
            inside = [k for k, (begin, end) in enumerate(spans) if begin < term.end and term.begin < end]
            own = text[term.begin : term.end]
            if not has_spaces(own) or _parts([text[slice(*spans[k])] for k in inside])[1] != _parts([own])[1]:
                return None
            terms.append((set(inside), term.forms))
        vocab = self._engine.tgt_vocab
        phrases = encoded(replace(line.wording, terms=()), vocab, suppressed_ids(config, vocab), line.number)
        words = [*[NO_WORD] * len(line.before), *words_of_line(text, line.ids, self._engine.src_vocab)]
        return Draft(piece, Piece(line, replace(source, phrases=phrases)), words, terms)

    def _with_terms(self, drafts: Sequence[Draft], config: SearchConfig) -> Iterator[Piece]:
        """Yields the pieces of drafts with enough good hypotheses, with their terms, best first. Hypotheses in which a
        term has no place of its own, or that would break another rule, are left out."""
        engine, vocab = self._engine, self._engine.tgt_vocab
        rewritings = self._rewritings(drafts, config)
        self._write(rewritings, config)
        best: defaultdict[Draft, dict[str, Hypothesis]] = defaultdict(dict)
        for rewriting in sorted(rewritings, key=lambda rewriting: -rewriting.written.score):
            if _obeys(rewriting.draft, rewriting.written, engine, config.min_length):
                best[rewriting.draft].setdefault(vocab.decode(rewriting.written.tokens), rewriting.written)
        for draft in drafts:
            draft.piece.hypotheses = list(best[draft].values())[: self._nbest]
            enough = len(draft.piece.hypotheses) == self._nbest
            if enough and not self._loops(draft.piece):
                yield draft.piece

    def _loops(self, piece: Piece) -> bool:
        own = piece.hypotheses[0].tokens[len(piece.source.prefix) :]
        return loops(own, lambda: self._engine.src_vocab.decode(piece.source.tokens[:-1]))

    def _rewritings(self, drafts: Sequence[Draft], config: SearchConfig) -> list[_Rewriting]:
        """Returns the finished hypotheses of drafts in which each term has a place of its own."""
        vocab = self._engine.tgt_vocab
        found = [(draft, hyp) for draft in drafts for hyp in draft.without.hypotheses if hyp.finished]
        pairs = [(draft.piece.source.tokens[:-1], hyp.tokens) for draft, hyp in found]
        words = [(draft.src_words, words_of_ids(hyp.tokens, vocab)) for draft, hyp in found]
        aligned = self._engine.align(pairs, words, config.batch_tokens)
        rewritings = []
        for (draft, hyp), links in zip(found, aligned, strict=True):
            text = vocab.decode(hyp.tokens).split()
            if (places := _places(draft, text, links)) is not None:
                rewritings.append(_Rewriting(draft, text, places, hyp))
        return rewritings

    def _write(self, rewritings: Sequence[_Rewriting], config: SearchConfig) -> None:
        """Writes the terms. If some hypotheses of a draft are rewritten, the others are scored again in the same
        way."""
        vocab = self._engine.tgt_vocab
        changed = {rewriting.draft for rewriting in rewritings if rewriting.places}
        kept = [rewriting for rewriting in rewritings if not rewriting.places and rewriting.draft in changed]
        tokens = [(rewriting.draft.piece.source, rewriting.written.tokens) for rewriting in kept]
        for rewriting, hypothesis in zip(kept, self._scored(tokens, config), strict=True):
            rewriting.written = hypothesis
        suppressed, begin = set(suppressed_ids(config, vocab)), begin_ids(config, vocab)
        while todo := [rewriting for rewriting in rewritings if rewriting.places]:
            tries = [(rewriting, text) for rewriting in todo for text in rewriting.places.pop().texts(rewriting.words)]
            tokens = [
                (rewriting.draft.piece.source, (*begin, *vocab.encode(" ".join(text)))) for rewriting, text in tries
            ]
            best = dict.fromkeys(todo, -math.inf)
            for (rewriting, text), hypothesis in zip(tries, self._scored(tokens, config), strict=True):
                if hypothesis.score > best[rewriting] + _TIE and suppressed.isdisjoint(hypothesis.tokens):
                    best[rewriting], rewriting.words, rewriting.written = hypothesis.score, text, hypothesis

    def _scored(self, tries: Sequence[tuple[Source, tuple[int, ...]]], config: SearchConfig) -> list[Hypothesis]:
        """Returns finished hypotheses with these tokens."""
        pairs = [(source.tokens[:-1], (*tokens, EOS_ID)) for source, tokens in tries]
        scored = []
        found = self._engine.token_logprobs(pairs, config.batch_tokens)
        begin = begin_ids(config, self._engine.tgt_vocab)
        for (_, target), given in zip(pairs, found, strict=True):
            logprobs = with_certain(begin, target, given)
            total = math.fsum(logprobs)
            score = total / length_penalty(len(logprobs), config.alpha, config.length_penalty)
            scored.append(Hypothesis(target[:-1], total, score, True, logprobs))
        return scored


def _places(draft: Draft, words: Sequence[str], links: Links) -> list[_TermPlace] | None:
    """Returns where in a translation the terms are missing, in order; None if a term has no place of its own."""
    places, taken = list[_TermPlace](), set[int]()
    source_of = {j: i for i, j in reversed(links)}  # the source word to which each word attends most
    for src, forms in draft.terms:
        # Weak links from distant function words do not count, but a compound also translates the word beside the term.
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
        if not core or not whole or not has_spaces(core) or core in draft.piece.line.wording.codes:
            return None
        taken.update(range(first, last))
        if not {core, _parts(words[first:last])[1]} & set(forms):
            places.append(_TermPlace(begin, end, first, last, forms))
    return sorted(places, key=lambda place: place.begin)


def _parts(words: Sequence[str]) -> tuple[str, str, str]:
    """Returns the punctuation marks before the words, the words, and the marks after them."""
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
