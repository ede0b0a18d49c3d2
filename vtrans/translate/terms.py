"""Writes the terms of a glossary in the place of the words that translate them.

A search that must write a term likes to write the usual word as well, "Ein Köter Hund rennt.", because nothing else
translates the source word "dog". Therefore a line with terms is first searched without them. The attention links each
term to a run of words in the translation, and the term's form replaces this run. The model chooses the most probable
form, and whether the words beside the run that are linked to nothing else go with it. Where this is not possible, a
search that requires the terms translates the line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import regex

from vtrans.config import SearchConfig
from vtrans.engines.alignments import NO_WORD, Links
from vtrans.engines.engine import Engine, Source, suppressed_ids
from vtrans.search.lexical import Phrase
from vtrans.search.loop import Hypothesis, length_penalty
from vtrans.text.lines import one_line
from vtrans.text.vocabulary import EOS_ID
from vtrans.text.words import words_of_ids, words_of_line
from vtrans.translate.asked import Asked
from vtrans.wording.phrases import Forms, Wording, encoded, has_spaces

_TIE = 1e-4
"""Scores that differ by less count as equal: their rounding errors depend on the batch."""

_CORE = regex.compile(r"([^\w\p{M}]*)(.*?)([^\w\p{M}]*)")


@dataclass(frozen=True)
class Draft:
    """A line that is translated without its terms."""

    source: Source
    phrases: tuple[Phrase, ...]
    """The phrases to require in the draft: all but the terms."""
    src_words: Sequence[int]
    """The word of each subword of the source, without EOS."""
    terms: Sequence[tuple[set[int], Forms]]
    """The words of each term in the source, and its forms."""
    wording: Wording


@dataclass(frozen=True)
class _Place:
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


def draft_of(engine: Engine, search: SearchConfig, source: Source, asked: Asked, ids: Sequence[int]) -> Draft | None:
    """Returns the draft of a line, or None if it has no terms or a term covers only a part of a word. `ids` are the
    line's subwords, with which the source ends."""
    if not asked.terms:
        return None
    line = asked.line.masked
    spans = [match.span() for match in regex.finditer(r"\S+", line)]
    terms = []
    for term in asked.terms:
        inside = [k for k, (begin, end) in enumerate(spans) if begin < term.end and term.begin < end]
        text = line[term.begin : term.end]
        if not has_spaces(text) or _parts([line[slice(*spans[k])] for k in inside])[1] != _parts([text])[1]:
            return None
        terms.append((set(inside), term.forms))
    suppressed = suppressed_ids(search, engine.tgt_vocab)
    # No phrase is refused here, with a wrong number: the source was made of the same constraints.
    phrases = encoded(replace(asked.wording, terms=()), engine.tgt_vocab, suppressed, number=0)
    before = len(source.tokens) - 1 - len(ids)
    words = [*[NO_WORD] * before, *words_of_line(line, ids, engine.src_vocab)]
    return Draft(source, phrases, words, terms, asked.wording)


def with_terms(
    engine: Engine, search: SearchConfig, drafts: Sequence[Draft], searched: Sequence[Sequence[Hypothesis]]
) -> list[list[Hypothesis]]:
    """Returns the hypotheses of each draft with its terms, best first. Those in which a term has no place of its own,
    or that would break another rule, are left out."""
    rows = [(p, hyp) for p, hyps in enumerate(searched) for hyp in hyps if hyp.finished]
    pairs = [(drafts[p].source.tokens[:-1], hyp.tokens) for p, hyp in rows]
    words = [(drafts[p].src_words, words_of_ids(hyp.tokens, engine.tgt_vocab)) for p, hyp in rows]
    texts = [engine.tgt_vocab.decode(hyp.tokens).split() for _, hyp in rows]
    places = [
        _places(drafts[p], text, links)
        for (p, _), text, links in zip(rows, texts, engine.align(pairs, words, search.batch_tokens), strict=True)
    ]
    written = zip(rows, _written(engine, search, drafts, rows, texts, places), strict=True)
    obeying = [(p, hyp) for (p, _), hyp in written if hyp and _obeys(drafts[p], hyp, engine, search.min_length)]
    best: list[dict[str, Hypothesis]] = [{} for _ in drafts]
    for p, hyp in sorted(obeying, key=lambda row: -row[1].score):
        best[p].setdefault(engine.tgt_vocab.decode(hyp.tokens), hyp)
    return [list(hyps.values()) for hyps in best]


def _written(
    engine: Engine,
    search: SearchConfig,
    drafts: Sequence[Draft],
    rows: Sequence[tuple[int, Hypothesis]],
    texts: list[list[str]],
    places: Sequence[list[_Place] | None],
) -> list[Hypothesis | None]:
    """Returns each hypothesis with terms in these places, the last of which is filled first; None without places. If
    some hypotheses of a draft are rewritten, the others are scored again in the same way."""
    written = [None if row_places is None else hyp for (_, hyp), row_places in zip(rows, places, strict=True)]
    rewritten = {p for (p, _), row_places in zip(rows, places, strict=True) if row_places}
    kept = [i for i, (p, _) in enumerate(rows) if places[i] == [] and p in rewritten]
    sources = [drafts[p].source for p, _ in rows]
    scored = _scored(engine, search, [(sources[i], rows[i][1].tokens) for i in kept])
    for i, hypothesis in zip(kept, scored, strict=True):
        written[i] = hypothesis
    suppressed = set(suppressed_ids(search, engine.tgt_vocab))
    left = [list(row_places or ()) for row_places in places]
    while todo := [i for i, row_places in enumerate(left) if row_places]:
        tries = [(i, text) for i in todo for text in left[i].pop().texts(texts[i])]
        scored = _scored(engine, search, [(sources[i], engine.tgt_vocab.encode(" ".join(text))) for i, text in tries])
        best = dict.fromkeys(todo, -math.inf)
        for (i, text), hypothesis in zip(tries, scored, strict=True):
            if hypothesis.score > best[i] + _TIE and suppressed.isdisjoint(hypothesis.tokens):
                best[i], texts[i], written[i] = hypothesis.score, text, hypothesis
    return written


def _scored(engine: Engine, search: SearchConfig, tries: Sequence[tuple[Source, Sequence[int]]]) -> list[Hypothesis]:
    """Returns finished hypotheses with these tokens."""
    pairs = [(source.tokens[:-1], [*tokens, EOS_ID]) for source, tokens in tries]
    scored = []
    for (_, target), logprobs in zip(
        pairs, engine.token_logprobs(pairs, search.batch_tokens, lambda: None), strict=True
    ):
        total = math.fsum(logprobs)
        score = total / length_penalty(len(logprobs), search.alpha, search.length_penalty)
        scored.append(Hypothesis(tuple(target[:-1]), total, score, True, tuple(logprobs)))
    return scored


def _places(draft: Draft, words: Sequence[str], links: Links) -> list[_Place] | None:
    """Returns where in a translation the terms are missing, in order; None if a term has no place of its own."""
    places, taken = list[_Place](), set[int]()
    source_of = {j: i for i, j in reversed(links)}  # the source word to which each word attends most
    for src, forms in draft.terms:
        # Weak links from distant function words do not count, but a compound also translates the word beside the term.
        beside = {j for i, j in links if i in (min(src) - 1, max(src) + 1)}
        candidates = [j for i, j in links if i in src and source_of[j] in src and j not in beside]
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
        if not core or not whole or not has_spaces(core) or core in draft.wording.codes:
            return None
        taken.update(range(first, last))
        if not {core, _parts(words[first:last])[1]} & set(forms):
            places.append(_Place(begin, end, first, last, forms))
    return sorted(places, key=lambda place: place.begin)


def _parts(words: Sequence[str]) -> tuple[str, str, str]:
    """Returns the punctuation marks before the words, the words, and the marks after them."""
    before, core, after = _CORE.fullmatch(" ".join(words)).groups()
    return before, core, after


def _obeys(draft: Draft, written: Hypothesis, engine: Engine, least: int) -> bool:
    """Returns whether a rewritten hypothesis obeys the constraints, the prefix and the length limits."""
    prefix = draft.source.prefix.tokens
    return (
        not draft.wording.unmet(one_line(engine.tgt_vocab.decode(written.tokens)))
        and written.tokens[: len(prefix)] == prefix
        and least <= len(written.tokens) < draft.source.limit
        and written.logprob > -math.inf
    )
