"""Lines in, lines out: the order kept, memory bounded, one line out for every line in.

A window of lines is encoded, sorted by length, searched in batches, put back in order and handed
out before the next one is read.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from vtrans.checkpoint import LoadedModel, choose_model, load_model
from vtrans.config import DECODING_PRECISIONS, Sampling, SearchConfig, section_from
from vtrans.console import Console
from vtrans.data.vocabulary import BOS_ID, EOS_ID, PAD_ID, Vocabulary
from vtrans.decoding.alignments import Links, align, pharaoh, source_words, target_words
from vtrans.decoding.beam import beam_search
from vtrans.decoding.constraints import Constrained, Prefix, Rules
from vtrans.decoding.ctranslate2_engine import ExportedModel, digest, exported_folder, load_exported
from vtrans.decoding.ensemble import Ensemble
from vtrans.decoding.forced import Pair, token_logprobs
from vtrans.decoding.incremental import IncrementalDecoder
from vtrans.decoding.retry import RETRY_NGRAM, loops
from vtrans.decoding.sampling import sample
from vtrans.decoding.search import Decoder, Hypothesis, length_penalty
from vtrans.decoding.shortlist import Candidates, Shortlisted
from vtrans.errors import InputError
from vtrans.runtime.devices import pick_device
from vtrans.runtime.seeds import derived_seed
from vtrans.text import one_line

WINDOW = 2000  # lines sorted together: enough for batches of one length, little enough to wait for
EXTRA_LENGTH = 50  # a translation has at most this many subwords more than its source (the paper, section 6.1)


Form = Literal["text", "scores", "tsv", "json"]


@dataclass(frozen=True)
class Translation:
    """A translation of one line, found or given."""

    text: str  # holds no line end
    logprob: float  # natural logarithm, summed over subwords, EOS counted; of all pieces of a cut line
    score: float  # logprob over the length penalty (of a sample: over its length); the mean over pieces
    finished: bool  # whether it ended by itself rather than at its length limit
    tokens: tuple[int, ...] = ()  # subword ids as the search found them; EOS closes each piece that ended
    subwords: tuple[str, ...] = ()  # the same as SentencePiece writes them
    token_logprobs: tuple[float, ...] = ()  # of each
    alignment: Links | None = None  # between the words of line.split() and text.split(), if it was asked for

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no infinity: null stands for it. An alignment is written as Pharaoh does."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields["token_logprobs"] = [finite(value) for value in self.token_logprobs]
        if self.alignment is None:
            del fields["alignment"]
        else:
            fields["alignment"] = pharaoh(self.alignment)
        return fields | {"logprob": finite(self.logprob), "score": finite(self.score)}


def finite(number: float) -> float | None:
    """The number, or None if it is none that JSON knows."""
    return number if math.isfinite(number) else None


def rendered(source: str, translations: Sequence[Translation], form: Form) -> list[str]:
    """What is written for one line: a line for each translation, or one in all for "json".

    "text" is the bare translation; "scores" puts its score before it, "tsv" its log-probability and
    its score, and an alignment comes next, a tab behind each: the text is last. "json" has all there
    is, with the source.
    """
    if form == "json":
        fields = {"source": source, "translations": [t.as_dict() for t in translations]}
        return [json.dumps(fields, ensure_ascii=False)]
    return ["\t".join((*_columns(t, form), t.text)) for t in translations]


def _columns(t: Translation, form: Form) -> list[str]:
    numbers = {"text": (), "scores": (t.score,), "tsv": (t.logprob, t.score)}[form]
    alignment = [] if t.alignment is None else [pharaoh(t.alignment)]
    return [f"{number:.6f}" for number in numbers] + alignment


@dataclass
class Counts:
    """What a Translator has met so far."""

    lines: int = 0
    blank: int = 0  # lines without text, whose translations are blank too
    cut: int = 0  # lines longer than max_source, translated in pieces
    empty: int = 0  # lines with text of which the best translation, or that of a piece, has none
    unfinished: int = 0  # lines whose best hypothesis did not end within its limit
    looping: int = 0  # lines whose best translation, or that of a piece, ended but loops
    retried: int = 0  # lines searched again, or a piece of them, whatever was kept
    missing: int = 0  # n-best places for which the search found no hypothesis
    tgt_tokens: int = 0
    seconds: float = 0.0  # spent translating; waiting for input is not counted


class Translator:
    """One model, or an ensemble whose probabilities are averaged, with its search settings.

    `search` overrides what the (first) model file stores; `weights`, one a model, are those of the
    average (they need not sum to 1), which are equal without them. The models must be on one device;
    InputError if their vocabularies differ. With `shortlist` the search is among the subwords that
    the (first) model's shortlist has for a sentence; InputError if it has none. An exported model runs on
    its own engine, by itself. `precision` is that of IncrementalDecoder. `counts` says what has been met so far.

    With `retry` a line whose best translation loops or reaches its limit is searched again with the no-repeat
    rule, as `vtrans.decoding.retry` defines it; all other lines are searched once, and no line depends on others.
    The best translation decides, and the n-best list is that of the search that is kept. Prefixes and the other
    settings hold for both searches. Lines are searched once if `search` has a no-repeat rule of its own, if the
    engine does not support the rule, and where translations are sampled.
    """

    def __init__(
        self,
        models: Sequence[LoadedModel] | ExportedModel,
        search: SearchConfig | None = None,
        console: Console | None = None,
        weights: Sequence[float] | None = None,
        shortlist: bool = False,
        retry: bool = True,
        precision: str = DECODING_PRECISIONS[0],
    ) -> None:
        exported = models if isinstance(models, ExportedModel) else None
        self.models = [] if isinstance(models, ExportedModel) else list(models)
        if not self.models and exported is None:
            raise InputError("there is no model to translate with; give a run folder or a model file.")
        self.weights = shares(len(self.models) or 1, weights)
        first = exported or self.models[0]
        for number, other in enumerate(self.models[1:], 2):
            if other.src_vocab.digest != first.src_vocab.digest or other.tgt_vocab.digest != first.tgt_vocab.digest:
                raise InputError(
                    f"model {number} of the ensemble has another vocabulary than model 1; "
                    "models can be combined only when they were trained on one data folder."
                )
        self.src_vocab: Vocabulary = first.src_vocab
        self.tgt_vocab: Vocabulary = first.tgt_vocab
        self.search = search if search is not None else first.search
        self.console = console
        self.counts = Counts()
        transformers = [m.model for m in self.models]
        self.decoders = [IncrementalDecoder(transformer, precision) for transformer in transformers]
        self.decoder: Decoder[Any]  # unless there is an engine
        if transformers:
            self.decoder = Ensemble(self.decoders, self.weights) if len(self.decoders) > 1 else self.decoders[0]
        self.shortlist = self._candidates() if shortlist else None
        self.engine = exported.engine if exported else None
        if self.engine:
            self.engine.check(self.search)
        self._second = self._second_search() if retry else None
        reaches = [t.max_length for t in (*transformers, *([self.engine] if self.engine else ())) if t.max_length]
        self._reach = min(reaches, default=None)
        self.max_source = self.search.max_source
        if self._reach is not None:
            self.max_source = min(self.max_source, self._reach - 1)
        cap = self._limit(1 << 60)
        if self.search.min_length >= cap:
            raise InputError(
                f"--min-length {self.search.min_length} leaves no room for EOS within {cap:,} subwords, the most that "
                f"{'--max-length' if self.search.max_length else 'the model'} allows; choose a smaller one."
            )

    def translate(
        self, lines: Iterable[str], sampling: Sampling | None = None, *, prefixes: Iterable[str] | None = None
    ) -> Iterator[str]:
        """The best translation of each line, in order, a window at a time.

        A blank line gives a blank line and never meets the model. With `sampling` a translation is
        drawn instead; equal lines, at equal places, and seeds give equal draws.
        """
        return (best[0].text for best in self.nbest(lines, 1, sampling, prefixes=prefixes))

    def nbest(
        self,
        lines: Iterable[str],
        n: int = 1,
        sampling: Sampling | None = None,
        *,
        alignments: bool = False,
        prefixes: Iterable[str] | None = None,
    ) -> Iterator[list[Translation]]:
        """Exactly `n` translations of each line, best first (with `sampling`: drawn independently).

        Where the search finds fewer, empty ones with a score of -inf follow and are counted. With
        `alignments` each says which source words its words go back to. `prefixes`, one for each line, are
        how its translations begin; a blank one asks for nothing. The last word of a prefix may go on, unless
        a space stands behind it; the score counts the prefix too. Raises InputError at once if `n` is larger
        than the beam, or `lines` is one string.
        """
        for name, given in (("lines", lines), ("prefixes", prefixes)):
            if isinstance(given, str):
                raise InputError(f"{name} must be a list of strings, but is one string; write translate([line]).")
        self.check_nbest(n, sampling, alignments=alignments, prefixes=prefixes is not None)
        return self._windows(iter(lines), n, sampling, alignments, prefixes)

    def check_nbest(
        self, n: int, sampling: Sampling | None = None, *, alignments: bool = False, prefixes: bool = False
    ) -> None:
        """InputError unless `n` translations of a line can be had, and so."""
        if prefixes and self.engine:
            raise InputError(
                "--prefix is not for the engine ctranslate2; use the model that was exported, with the engine torch."
            )
        if alignments and self.engine:
            raise InputError(
                "--alignments are not for the engine ctranslate2, which does not show its attention; "
                "use the model that was exported, with the engine torch."
            )
        if n < 1:
            raise InputError(f"--nbest must be at least 1, but is {n}.")
        if sampling is not None and self.engine:
            raise InputError(
                "--sample is not for the engine ctranslate2, whose draws would depend on the batch; "
                "use the model that was exported, with the engine torch."
            )
        if sampling is None and n > self.search.beam:
            raise InputError(
                f"--nbest must be at most the beam, {self.search.beam}, but is {n}; use --beam {n}, or more, with it."
            )

    def _windows(
        self,
        lines: Iterator[str],
        n: int,
        sampling: Sampling | None,
        alignments: bool,
        prefixes: Iterable[str] | None,
    ) -> Iterator[list[Translation]]:
        first = 1
        windows = iter(lambda: list(islice(lines, WINDOW)), [])
        for window, begun in with_prefixes(windows, prefixes):
            yield from self.translate_window(window, n, sampling, first, alignments=alignments, prefixes=begun)
            first += len(window)

    def translate_window(
        self,
        lines: Sequence[str],
        n: int = 1,
        sampling: Sampling | None = None,
        first: int = 1,
        done: Callable[[], None] = lambda: None,
        *,
        alignments: bool = False,
        prefixes: Sequence[str] | None = None,
    ) -> list[list[Translation]]:
        """As `nbest`, for lines that are batched together.

        `first` is the number of the first one, for warnings and for sampling; `done` is called as
        each sentence has been translated.
        """
        self.check_nbest(n, sampling, alignments=alignments, prefixes=prefixes is not None)
        began = time.monotonic()
        pieces: list[list[int]] = []  # the sources to search, a line's pieces side by side
        names: list[str] = []  # of the pieces: line number/piece, from which sampling is seeded
        owners: list[range] = []  # for each line its pieces
        begun = None if prefixes is None else [self._prefix(text) for text in prefixes]
        encoded = self._encoded(lines, first)
        for number, (line, ids) in enumerate(zip(lines, encoded, strict=True), first):
            cut = cut_long(ids, self.max_source, self.src_vocab) if line.strip() else []
            if len(cut) > 1:
                self.counts.cut += 1
                self._warn(
                    f"line {number} has {len(ids):,} subwords, over the limit of {self.max_source:,}; "
                    f"it is translated in {len(cut)} pieces"
                )
            owners.append(range(len(pieces), len(pieces) + len(cut)))
            pieces += cut
            names += [f"{number}/{k}" for k in range(len(cut))]
        beginnings = None
        if begun is not None:
            # A line that is cut into pieces has its prefix at the first of them.
            opened = {owner.start: begun[i] for i, owner in enumerate(owners) if owner}
            beginnings = [opened.get(p, Prefix()) for p in range(len(pieces))]
        found = self._search(pieces, names, n, sampling, done, beginnings, self.search)
        looping, again = self._retry(pieces, names, n, sampling, beginnings, found)
        self.counts.looping += sum(not looping.isdisjoint(owner) for owner in owners)
        self.counts.retried += sum(not again.isdisjoint(owner) for owner in owners)
        self.counts.lines += len(lines)
        translations = [self._join([found[p] for p in owner], n) for owner in owners]
        if alignments:
            words = [source_words(line, ids, self.src_vocab) for line, ids in zip(lines, encoded, strict=True)]
            linked = self._links(words, pieces, owners, found)
            translations = [
                [replace(t, alignment=tuple(sorted(linked.get((i, rank), ())))) for rank, t in enumerate(best)]
                for i, best in enumerate(translations)
            ]
        self.counts.seconds += time.monotonic() - began
        return translations

    def _links(
        self,
        words: Sequence[list[int]],
        pieces: Sequence[list[int]],
        owners: Sequence[range],
        found: dict[int, list[Hypothesis]],
    ) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """The links of each (line, rank), which lie within the pieces of a cut line. `words` says of which
        word each subword of a line is; the rest is that of `translate_window`."""
        pairs: list[Pair] = []
        sides: list[tuple[list[int], list[int]]] = []
        places: list[tuple[int, int]] = []
        for i, owner in enumerate(owners):
            src_from, tgt_from = 0, Counter[int]()  # subwords and, by rank, target words of the pieces before
            for p in owner:
                src_words = words[i][src_from : src_from + len(pieces[p])]
                src_from += len(pieces[p])
                for rank, hyp in enumerate(found[p]):
                    pairs.append((pieces[p], hyp.tokens))
                    tgt_words = [tgt_from[rank] + j for j in target_words(hyp.tokens, self.tgt_vocab)]
                    tgt_from[rank] += len(self.tgt_vocab.decode(hyp.tokens).split())
                    sides.append((src_words, tgt_words))
                    places.append((i, rank))
        with torch.inference_mode():
            links = align([m.model for m in self.models], self.weights, pairs, sides, self.search.batch_tokens)
        linked: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for place, some in zip(places, links, strict=True):
            linked.setdefault(place, []).extend(some)
        return linked

    def _encoded(self, lines: Sequence[str], first: int, vocab: Vocabulary | None = None) -> list[list[int]]:
        for number, line in enumerate(lines, first):
            try:
                line.encode()
            except UnicodeEncodeError:
                raise InputError(f"line {number} holds half of a surrogate pair, which is no character.") from None
        return (vocab or self.src_vocab).encode_batch(lines)

    def one_piece(self, sentence: str) -> list[int]:
        """The subwords of a sentence, without EOS; InputError where it is blank, or one that is cut into pieces."""
        (ids,) = self._encoded([sentence], 1)
        if not sentence.strip() or not ids:
            raise InputError("the sentence is blank; give one with words in it.")
        if len(ids) > self.max_source:
            raise InputError(
                f"the sentence has {len(ids):,} subwords, over the {self.max_source:,} that are translated in one "
                "piece; give a shorter one."
            )
        return ids

    def logprob(
        self, sources: Iterable[str], targets: Iterable[str | Sequence[int]], done: Callable[[], None] = lambda: None
    ) -> Iterator[Translation]:
        """What the models make of given translations: their log-probabilities, and their scores by the
        length penalty of these search settings, in order, a window at a time.

        A target is a text, encoded as subwords and closed by EOS, or subword ids as `Translation.tokens`
        holds them, of which exactly those count: so a translation gets back the score that its search
        gave it, where its text might be encoded in other subwords than the search produced. A blank
        source has a blank target for certain, and any other with a log-probability of -inf. `max_length` is a
        limit of the search and does not apply here. A pair longer than the longest line that is translated in
        one piece gets NaN, and a warning. `done` is called for each pair that meets the models. Raises InputError
        for unequal numbers of sources and targets, and VtransError where a model gives NaN.
        """
        for name, given in (("sources", sources), ("targets", targets)):
            if isinstance(given, str):
                raise InputError(f"{name} must be a list of strings, but is one string; write [{name[:-1]}].")
        if self.engine:
            raise InputError(
                "log-probabilities of given translations are not for the engine ctranslate2; "
                "use the model that was exported, with the engine torch."
            )
        return self._logprobs(iter(sources), iter(targets), done)

    def _logprobs(
        self, sources: Iterator[str], targets: Iterator[str | Sequence[int]], done: Callable[[], None]
    ) -> Iterator[Translation]:
        first = 1
        while True:
            lines, given = list(islice(sources, WINDOW)), list(islice(targets, WINDOW))
            if len(lines) != len(given):
                n, m = (
                    first - 1 + len(part) + sum(1 for _ in rest) for part, rest in ((lines, sources), (given, targets))
                )
                raise InputError(f"there are {n:,} sources, but {m:,} targets; each source needs its target.")
            if not lines:
                return
            yield from self._logprob_window(lines, given, first, done)
            first += len(lines)

    def _logprob_window(
        self, lines: Sequence[str], given: Sequence[str | Sequence[int]], first: int, done: Callable[[], None]
    ) -> list[Translation]:
        began = time.monotonic()
        sources = self._encoded(lines, first)
        texts = self._encoded([t if isinstance(t, str) else "" for t in given], first, self.tgt_vocab)
        targets = [
            [*text, EOS_ID] if isinstance(target, str) else self._checked(target, number)
            for number, (text, target) in enumerate(zip(texts, given, strict=True), first)
        ]
        longest = self._room(self.max_source)
        known: dict[int, float] = {}  # the log-probabilities of the pairs that never meet the model
        for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if not source or not lines[i].strip():
                known[i] = -math.inf if any(token > EOS_ID for token in target) else 0.0
                self.counts.blank += 1
            elif len(source) > self.max_source or len(target) > longest:
                known[i] = math.nan
                self._warn(
                    f"line {first + i} has {len(source):,} and {len(target):,} subwords, over the limit of "
                    f"{self.max_source:,} and {longest:,}; it gets no log-probability"
                )
        with torch.inference_mode():
            found = token_logprobs(
                [m.model for m in self.models],
                self.weights,
                [(s, () if i in known else t) for i, (s, t) in enumerate(zip(sources, targets, strict=True))],
                self.search.batch_tokens,
                done,
            )
        self.counts.lines += len(lines)
        self.counts.tgt_tokens += sum(map(len, found))
        self.counts.seconds += time.monotonic() - began
        return [
            self._given(target, known.get(i, math.fsum(logprobs)), logprobs)
            for i, (target, logprobs) in enumerate(zip(targets, found, strict=True))
        ]

    def _given(self, tokens: Sequence[int], logprob: float, logprobs: Sequence[float]) -> Translation:
        if logprob == 0.0 and not logprobs:  # as translating a blank line gives it
            return Translation("", 0.0, 0.0, True)
        return Translation(
            one_line(self.tgt_vocab.decode(tokens)),
            logprob,
            logprob / length_penalty(len(tokens), self.search.alpha, self.search.length_penalty),
            tokens[-1] == EOS_ID,
            tuple(tokens),
            tuple(self.tgt_vocab.piece(t) for t in tokens),
            tuple(logprobs),
        )

    def _checked(self, tokens: Sequence[int], number: int) -> list[int]:
        """Subword ids that somebody gave, EOS at their end at most."""
        for place, token in enumerate(tokens, 1):
            if not isinstance(token, int) or token == PAD_ID or not 0 <= token < len(self.tgt_vocab):
                raise InputError(
                    f"target {number} must be a text or hold ids of subwords, from 1 to {len(self.tgt_vocab) - 1}, "
                    f"but holds {token!r}."
                )
            if token == EOS_ID and place < len(tokens):
                raise InputError(
                    f"target {number} goes on after EOS, {EOS_ID}, as that of a line which was translated in pieces "
                    "does; give the pieces one by one."
                )
        return list(tokens)

    def _warn(self, text: str) -> None:
        if self.console:
            self.console.warn(text)

    def say_what_is_blank(self) -> None:
        """Tells the console how many lines in were blank, and how many more lines out lack text."""
        if self.console and self.counts.blank:
            blank = self.counts.blank
            self.console.info(f"{blank:,} blank line{'' if blank == 1 else 's'} in, and as many blank translations")
        if self.counts.empty:
            empty = self.counts.empty
            self._warn(
                f"{empty:,} line{'' if empty == 1 else 's'} with text whose translation, or that of a piece of it, "
                f"came out empty{'' if self.search.min_length else '; --min-length 1 asks for a subword at least'}"
            )

    def _search(
        self,
        pieces: Sequence[list[int]],
        names: Sequence[str],
        n: int,
        sampling: Sampling | None,
        done: Callable[[], None],
        prefixes: Sequence[Prefix] | None,
        search: SearchConfig,
    ) -> dict[int, list[Hypothesis]]:
        """Hypotheses for each source (subwords without EOS), batched from the longest down."""
        order = sorted(range(len(pieces)), key=lambda i: -len(pieces[i]))
        sources = [[*pieces[i], EOS_ID] for i in order]
        limits = [self._limit(len(pieces[i]), len(prefixes[i].tokens) if prefixes else 0) for i in order]
        for i, limit in sorted(zip(order, limits, strict=True)):  # the first line at fault is named
            if prefixes and len(prefixes[i].tokens) >= limit:
                raise InputError(
                    f"the prefix of line {names[i].partition('/')[0]} has {len(prefixes[i].tokens):,} subwords, which "
                    f"leaves no room for EOS within {limit:,}; shorten it, or raise --max-length."
                )
        begun = None if prefixes is None else [prefixes[i] for i in order]
        found: dict[int, list[Hypothesis]] = {}
        with torch.inference_mode():
            if self.engine:
                results = self.engine.beam_search(sources, limits, config=search, nbest=n)
            elif sampling is None:
                results = beam_search(
                    self._decoder(begun, search),
                    sources,
                    limits,
                    config=search,
                    nbest=n,
                    bos_id=BOS_ID,
                    eos_id=EOS_ID,
                )
            else:
                results = sample(
                    self._decoder(begun, search),
                    sources,
                    limits,
                    seeds=[derived_seed("sample", sampling.seed, names[i]) for i in order],
                    n=n,
                    top_k=sampling.top_k,
                    top_p=sampling.top_p,
                    temperature=sampling.temperature,
                    batch_tokens=self.search.batch_tokens,
                    bos_id=BOS_ID,
                    eos_id=EOS_ID,
                )
            for i, hypotheses in results:
                found[order[i]] = hypotheses
                done()
        return found

    def _second_search(self) -> SearchConfig | None:
        """The settings with which a line is searched again; None if it never is."""
        if self.search.no_repeat_ngram:
            return None
        second = replace(self.search, no_repeat_ngram=RETRY_NGRAM)
        if self.engine:
            try:
                self.engine.check(second)
            except InputError:  # it has no such rule, and its first result is all there is
                return None
        return second

    def _retry(
        self,
        pieces: Sequence[list[int]],
        names: Sequence[str],
        n: int,
        sampling: Sampling | None,
        prefixes: Sequence[Prefix] | None,
        found: dict[int, list[Hypothesis]],
    ) -> tuple[set[int], set[int]]:
        """Searches again what `vtrans.decoding.retry` says, and puts what is better into `found`.

        Returns the sources whose best hypothesis ended but loops, and those that were searched again.
        """

        def quality(p: int, best: Hypothesis) -> tuple[bool, bool]:
            own = best.tokens[len(prefixes[p].tokens) :] if prefixes else best.tokens
            return best.finished, not loops(own, self.src_vocab.decode(pieces[p]))

        kept = {p: quality(p, hypotheses[0]) for p, hypotheses in found.items()}
        again = sorted(p for p in kept if not all(kept[p])) if self._second and sampling is None else []
        if again and self._second:
            begun = None if prefixes is None else [prefixes[p] for p in again]
            second = self._search(
                [pieces[p] for p in again], [names[p] for p in again], n, None, lambda: None, begun, self._second
            )
            for i, p in enumerate(again):
                if (better := quality(p, second[i][0])) > kept[p]:
                    found[p], kept[p] = second[i], better
        return {p for p, (ended, sound) in kept.items() if ended and not sound}, set(again)

    def _limit(self, length: int, prefix: int = 0) -> int:
        """Most target subwords, EOS counted, for a source of `length` subwords and a prefix of so many."""
        room = self._room(max(length, prefix))
        return min(room, self.search.max_length) if self.search.max_length else room

    def _room(self, length: int) -> int:
        """Most target subwords, EOS counted, for so many source subwords whatever the search's `max_length`."""
        room = max(length, self.search.min_length) + EXTRA_LENGTH
        return room if self._reach is None else min(room, self._reach)

    def _prefix(self, text: str) -> Prefix:
        tokens = tuple(self.tgt_vocab.encode(text)) if text.strip() else ()
        return Prefix(tokens, bool(tokens) and text[-1].isspace())

    def _candidates(self) -> Candidates:
        first = self.models[0]
        if first.shortlist is None:
            raise InputError(
                "--shortlist needs a model with a shortlist, but this one has none; run `vtrans shortlist` on it first."
            )
        return Candidates(first.shortlist, len(self.tgt_vocab), first.joint)

    def _decoder(self, prefixes: Sequence[Prefix] | None, search: SearchConfig) -> Decoder[Any]:
        """What searches under the settings of `search`: the models, in their shortlists, under constraints."""
        decoder = self.decoder
        if self.shortlist:
            forced = [p.tokens for p in prefixes] if prefixes is not None else None
            listed = [Shortlisted(decoder, self.shortlist, forced) for decoder in self.decoders]
            decoder = Ensemble(listed, self.weights) if len(listed) > 1 else listed[0]
        if prefixes is None and not (search.min_length or search.no_repeat_ngram or search.repetition_penalty != 1):
            return decoder
        starts_V = None
        if prefixes is not None and any(prefix.closed for prefix in prefixes):
            vocab = self.tgt_vocab
            starts_V = torch.tensor([i == EOS_ID or vocab.piece(i).startswith("\u2581") for i in range(len(vocab))])
        rules = Rules(EOS_ID, starts_V, search.min_length, search.no_repeat_ngram, search.repetition_penalty)
        return Constrained(decoder, rules, prefixes)

    def _join(self, pieces: list[list[Hypothesis]], n: int) -> list[Translation]:
        """The n translations of a line from the hypotheses of its pieces, rank by rank."""
        if not pieces:
            self.counts.blank += 1
            return [Translation("", 0.0, 0.0, True)] * n
        translations = []
        for rank in range(min(n, *map(len, pieces))):
            hyps = [p[rank] for p in pieces]
            tokens = [t for h in hyps for t in (*h.tokens, *([EOS_ID] if h.finished else []))]
            texts = [self.tgt_vocab.decode(h.tokens) for h in hyps]
            translations.append(
                Translation(
                    one_line(" ".join(t for t in texts if t)),
                    math.fsum(h.logprob for h in hyps),
                    math.fsum(h.score for h in hyps) / len(hyps),
                    all(h.finished for h in hyps),
                    tuple(tokens),
                    tuple(self.tgt_vocab.piece(t) for t in tokens),
                    tuple(p for h in hyps for p in h.token_logprobs),
                )
            )
            if rank == 0:
                self.counts.unfinished += not translations[0].finished
                self.counts.empty += not all(text.strip() for text in texts)
                self.counts.tgt_tokens += sum(len(h.tokens) + h.finished for h in hyps)
        self.counts.missing += n - len(translations)
        return translations + [Translation("", -math.inf, -math.inf, False)] * (n - len(translations))


def with_prefixes(
    windows: Iterable[list[str]], prefixes: Iterable[str] | None
) -> Iterator[tuple[list[str], list[str] | None]]:
    """Each window of lines with its prefixes; InputError when there are more of the one or the other."""
    if prefixes is None:
        yield from ((window, None) for window in windows)
        return
    rest, lines = iter(prefixes), 0
    for window in windows:
        begun = list(islice(rest, len(window)))
        if len(begun) < len(window):
            raise InputError(
                f"there are {lines + len(begun):,} prefixes, but more lines; each line needs its own, a blank one "
                "for none."
            )
        yield window, begun
        lines += len(window)
    extra = sum(1 for _ in rest)
    if extra:
        raise InputError(f"there are {lines + extra:,} prefixes, but {lines:,} lines; each line needs its own.")


def shares(models: int, weights: Sequence[float] | None) -> tuple[float, ...]:
    """The weights of an ensemble, made to sum to 1; InputError for what are none."""
    if weights is None:
        return (1 / models,) * models
    if len(weights) != models:
        raise InputError(
            f"--weight and --model go one by one, but there are {len(weights)} of --weight and {models} of --model; "
            "give as many of each."
        )
    for weight in weights:
        if not 0 < weight < math.inf:
            raise InputError(f"--weight must be a number above 0, but is {weight}; leave a model out to give it none.")
    if models == 1:
        raise InputError("--weight weighs the models of an ensemble, but there is one model; leave it out.")
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)


def cut_long(ids: list[int], limit: int, vocab: Vocabulary) -> list[list[int]]:
    """Subwords in pieces of at most `limit`, each ending before a word if any begins in its second half."""
    pieces, begin = [], 0
    while len(ids) - begin > limit:
        least, end = begin + limit // 2, begin + limit
        while end > least and not vocab.piece(ids[end]).startswith("\u2581"):
            end -= 1
        if end == least:
            end = begin + limit
        pieces.append(ids[begin:end])
        begin = end
    return [*pieces, ids[begin:]] if ids else pieces


def load(
    path: str | Path | Sequence[str | Path],
    *,
    device: str | None = None,
    console: Console | None = None,
    weights: Sequence[float] | None = None,
    engine: str | None = None,
    shortlist: bool = False,
    precision: str | None = None,
    retry: bool = True,
    **search: Any,
) -> Translator:
    """A Translator for a run folder, a model file, several (an ensemble, its average by `weights`), or a
    folder of `vtrans export`.

    Other keyword arguments override the model file's search settings, named as in `SearchConfig`:
    `vtrans.load("run", beam=8)`. `device` is cpu, cuda, cuda:N or mps, by default the best there is.
    `engine` is torch or ctranslate2, by default what the model is made for; with "ctranslate2" a run
    folder stands for the export in it. `shortlist` searches in the shortlist that `vtrans shortlist` has put
    into the (first) file. `precision` is float32 (the default), bfloat16, float16, or, on a CPU, int8, which
    has the projection alone in 8 bits. `retry` is that of `Translator`. Warnings go to `console`, and so does the
    choice among a run's checkpoints. Raises FileError for what is no model, InputError for a bad setting.
    """
    section_from(SearchConfig, "search", search, "load")  # before the models take their time
    if precision not in (None, *DECODING_PRECISIONS):
        raise InputError(f"--precision must be one of {', '.join(DECODING_PRECISIONS)}, but is {precision!r}.")
    if precision == "int8" and shortlist:
        raise InputError(
            "--precision int8 is for projecting to the whole vocabulary, which --shortlist spares; leave one out."
        )
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    if paths:
        shares(len(paths), weights)
    folders = [exported_folder(p, engine) for p in paths]
    if exported := [folder for folder in folders if folder]:
        if len(paths) > 1:
            raise InputError(
                f"{exported[0]} is an export for CTranslate2, which runs one model at a time; "
                "an ensemble is made of run folders or model files."
            )
        if shortlist:
            raise InputError(
                "--shortlist is not for the engine ctranslate2; use the model that was exported, with the engine torch."
            )
        if precision:
            raise InputError(
                "--precision is not for the engine ctranslate2, whose weights are as `vtrans export --quantization` "
                "has written them; leave it out."
            )
        return _load_exported(Path(paths[0]), exported[0], device, console, search, retry)
    where = pick_device(device)
    models = []
    for p in paths:
        chosen = choose_model(p)
        if console:
            console.info(f"{chosen.words}, on {where}")
        models.append(load_model(chosen.file, where))
        models[-1].model.eval().requires_grad_(False)
    settings = section_from(SearchConfig, "search", search, "load", models[0].search) if models else None
    return Translator(models, settings, console, weights, shortlist, retry, precision or DECODING_PRECISIONS[0])


def _load_exported(
    path: Path, folder: Path, device: str | None, console: Console | None, search: dict[str, Any], retry: bool
) -> Translator:
    """A Translator for the exported `folder`, which stands for the run folder `path` if that is another one.
    InputError if it was exported from another model than the run folder stands for now."""
    exported = load_exported(folder, device)
    if path != folder:
        file = choose_model(path).file
        if digest(file) != exported.source:
            raise InputError(
                f"{folder} was not exported from {file} as it is now; run `vtrans export {path}` again, or give "
                f"--model {folder} to translate with the export as it is."
            )
    if console:
        console.info(f"model: {folder} ({exported.quantization}), {exported.engine.place}")
    settings = section_from(SearchConfig, "search", search, "load", exported.search)
    return Translator(exported, settings, console, retry=retry)
