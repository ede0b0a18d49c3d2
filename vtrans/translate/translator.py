"""Translates lines, in order and in bounded memory.

A window of lines is encoded, sorted by length, searched in batches and put back in order before the next window is
read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from threading import RLock

from vtrans.config import SearchConfig
from vtrans.console import Console
from vtrans.engines.engine import Engine, Source
from vtrans.errors import InputError
from vtrans.processes.turns import in_turn
from vtrans.search.loop import Hypothesis
from vtrans.search.options import Mbr, Sampling
from vtrans.text.lines import one_line
from vtrans.text.vocabulary import EOS_ID
from vtrans.text.words import words_of_line
from vtrans.translate.asked import Asked, Constraints, asked_of, beside
from vtrans.translate.confidence import Calibration
from vtrans.translate.linking import linked
from vtrans.translate.mbr import chosen
from vtrans.translate.retry import RETRY_NGRAM, quality
from vtrans.translate.scorer import Scorer, Target, windows_of_pairs
from vtrans.translate.sources import SourceReader
from vtrans.translate.terms import Draft, draft_of, with_terms
from vtrans.translate.translation import Counts, TranslateOptions, Translation
from vtrans.wording.typed import Typed

WINDOW = 2000  # lines sorted together: enough for batches of similar length, few enough to wait for
DEFAULT_OPTIONS = TranslateOptions()


class Translator:
    """Translates lines with an engine and search settings; `search` replaces the settings stored with the model.

    With `retry`, a line whose best translation loops or reaches its length limit is searched again with a no-repeat
    rule, as `vtrans.translate.retry` defines it. The n-best list is that of the search that is kept. There is no second
    search if `search` already has a no-repeat rule, or for samples.

    A line in capitals or title case is translated in lower case, and characters that the vocabulary lacks are copied,
    as `vtrans.wording.typed` defines it.

    `counts` holds what has been done so far; warnings go to `console`. Several threads may use a translator: each gets
    what it would get alone, and while one translates a window of lines, the others wait. Raises InputError for
    settings that contradict each other.
    """

    def __init__(
        self,
        engine: Engine,
        search: SearchConfig | None = None,
        console: Console | None = None,
        *,
        retry: bool = True,
    ) -> None:
        self.engine = engine
        self.search = engine.search if search is None else search
        self.src_vocab, self.tgt_vocab = engine.src_vocab, engine.tgt_vocab
        self.console = console
        self.counts = Counts()
        self.turn = RLock()
        if reason := self.search.contradiction("`{}`"):
            raise InputError(reason)
        self._typed = Typed(self.src_vocab, self.tgt_vocab)
        self._reader = SourceReader(engine, self.search)
        self.max_source = self._reader.max_source
        self._scorer = Scorer(engine, self.search, self._reader, self._warn)
        self.one_piece, self.tag = self._reader.one_piece, self._reader.tag
        self.uses_matches = all(model.matches for model in engine.models)
        """Whether the model has learned to use fuzzy matches."""
        second = replace(self.search, no_repeat_ngram=RETRY_NGRAM)
        self._second_search = second if retry and not self.search.no_repeat_ngram else None

    def translate(
        self,
        lines: Iterable[str],
        sampling: Sampling | None = None,
        *,
        mbr: Mbr | None = None,
        to: str | None = None,
        raw: bool = False,
        prefixes: Iterable[str] | None = None,
        constraints: Iterable[Constraints] | None = None,
    ) -> Iterator[str]:
        """Yields the best translation of each line, in order. A blank line gives a blank line, without the model.

        With `sampling`, a translation is drawn instead; it depends on the line, its number and the seed. With `mbr`, it
        is the candidate with the highest expected utility. `to` is the target language, such as "de"; a model of
        several needs it. With `raw`, the model sees each line as it is.
        """
        translations = self.nbest(
            lines, 1, sampling, mbr=mbr, to=to, raw=raw, prefixes=prefixes, constraints=constraints
        )
        return (best[0].text for best in translations)

    def nbest(
        self,
        lines: Iterable[str],
        n: int = 1,
        sampling: Sampling | None = None,
        *,
        mbr: Mbr | None = None,
        alignments: bool = False,
        to: str | None = None,
        raw: bool = False,
        calibration: Calibration | None = None,
        prefixes: Iterable[str] | None = None,
        constraints: Iterable[Constraints] | None = None,
    ) -> Iterator[list[Translation]]:
        """Yields exactly `n` translations of each line, best first, or independent samples. With `mbr`, yields the `n`
        candidates with the highest expected utility. All texts differ, except those of samples: of hypotheses that
        spell one text in different subwords, the best one counts.

        If the beam has fewer, empty translations with a score of -inf follow, and are counted. `prefixes` are the
        beginnings of the translations, one per line; a blank one means none. The last word of a prefix may be
        continued unless whitespace follows it. The score includes the prefix. `constraints` are what
        `phrases.wording_of` reads, one per line, such as {"constraints": ["a phrase"], "avoid": ["another"]}; a line
        whose translation does not obey them is counted, with a warning. `to` and `raw` are those of `translate`.
        `calibration` gives each translation its confidence. Raises InputError at once if `n` is larger than the beam,
        `lines` is a single string, or `to` is not a language of the model.
        """
        for name, given in (("lines", lines), ("prefixes", prefixes)):
            if isinstance(given, str):
                raise InputError(f"`{name}` must be a list of strings, but is one string; pass [line].")
        options = TranslateOptions(n, sampling, mbr, alignments, raw=raw, calibration=calibration, to=to)
        self.check(options, constraints=constraints is not None)
        return self._windows(iter(lines), options, prefixes, constraints)

    def check(self, options: TranslateOptions, *, constraints: bool = False) -> None:
        """Raises InputError if the search settings do not support these options."""
        self.tag(options.to)
        for name, wanted in (("constraints", constraints), ("glossary", options.glossary is not None)):
            if wanted and options.sampling is not None:
                raise InputError(f"`{name}` only applies to a search; leave it or the sampling out.")
            if wanted and (reason := self.search.contradicts_phrases(f"`{name}`")):
                raise InputError(reason)
        options.check(self.search.beam)

    def _windows(
        self,
        lines: Iterator[str],
        options: TranslateOptions,
        prefixes: Iterable[str] | None,
        constraints: Iterable[Constraints] | None,
    ) -> Iterator[list[Translation]]:
        first = 1
        windows = iter(lambda: list(islice(lines, WINDOW)), [])
        for window, begun, asked in beside(windows, prefixes, constraints):
            yield from self.translate_window(window, options, first=first, prefixes=begun, constraints=asked)
            first += len(window)

    @in_turn
    def translate_window(
        self,
        lines: Sequence[str],
        options: TranslateOptions = DEFAULT_OPTIONS,
        *,
        first: int = 1,
        prefixes: Sequence[str] | None = None,
        constraints: Sequence[Constraints] | None = None,
        done: Callable[[], None] = lambda: None,
        ready: Callable[[int, list[Translation]], None] | None = None,
    ) -> list[list[Translation]]:
        """Returns the translations of lines that are batched together, as `nbest`.

        `first` is the number of the first line, for warnings and sampling. `done` is called once per sentence. `ready`
        is called with the index of a line and its translations as soon as nothing can change them. Lines that are
        blank, cut or searched again are ready only at the end, and so are all lines with word alignments.
        """
        self.check(options, constraints=constraints is not None)
        began = time.monotonic()
        prefixes = prefixes or [""] * len(lines)
        asked, encoded, before = self._read(lines, options, first, prefixes, constraints or [{}] * len(lines))
        lines, wordings = [line.text for line in asked], [line.wording for line in asked]
        sources, owners = self._reader.window(lines, encoded, before, first, prefixes, wordings)
        self._count_cut(encoded, owners, first)
        kept: dict[int, tuple[bool, bool]] = {}  # the quality of each source's best hypothesis
        early: dict[int, list[Translation]] = {}

        def each(p: int, hypotheses: list[Hypothesis]) -> None:
            kept[p] = self._quality(sources[p], hypotheses)
            final = all(kept[p]) or self._second_search is None or options.sampling is not None
            if ready and final and not options.alignments and p in singles:
                i = singles[p]
                early[i] = self._joined([hypotheses], options.nbest)
                ready(i, asked[i].finished(early[i], options, self.tgt_vocab))
            done()

        singles = {owner.start: i for i, owner in enumerate(owners) if len(owner) == 1}
        drafts = {
            p: draft
            for p, i in singles.items()
            if (draft := draft_of(self.engine, self.search, sources[p], asked[i], encoded[i]))
        }
        results = self._searched(sources, drafts, options, each)
        self._retry(sources, owners, results, kept, options)
        self.counts.lines += len(lines)
        translations = [
            early.get(i) or asked[i].from_memory(options) or self._joined([results[p] for p in owner], options.nbest)
            for i, owner in enumerate(owners)
        ]
        if options.alignments:
            words = [words_of_line(line, ids, self.src_vocab) for line, ids in zip(lines, encoded, strict=True)]
            translations = linked(translations, self.engine, self.search, words, sources, owners, results)
        translations = self._finished(asked, translations, options, first)
        self.counts.seconds += time.monotonic() - began
        return translations

    def _read(
        self,
        lines: Sequence[str],
        options: TranslateOptions,
        first: int,
        prefixes: Sequence[str],
        constraints: Sequence[Constraints],
    ) -> tuple[list[Asked], list[list[int]], list[list[int]]]:
        """Returns what is asked of each line, the subwords of the line, and those that stand before it: a tag, and a
        fuzzy match. Counts the lines that a memory knows or has a match for."""
        codes = options.sampling is None and self.search.can_require_phrases
        typed, tag = None if options.raw else self._typed, self.tag(options.to)
        asked = [
            asked_of(line, number, wanted, options, typed, begun=bool(prefix.strip()), codes=codes)
            for number, (line, prefix, wanted) in enumerate(zip(lines, prefixes, constraints, strict=True), first)
        ]
        encoded, before = self._reader.encode([line.text for line in asked], first, to=options.to), []
        for i, (line, ids) in enumerate(zip(asked, encoded, strict=True)):
            match = self._reader.match(ids, line.match[0]) if line.match and ids else []
            before.append([*tag, *match])
            asked[i] = line if match else replace(line, match=None)
            self.counts.matched += bool(match)
            self.counts.known += line.known is not None
        return asked, encoded, before

    def _count_cut(self, encoded: Sequence[list[int]], owners: Sequence[range], first: int) -> None:
        """Counts the lines that are cut, and warns of each."""
        for number, (ids, owner) in enumerate(zip(encoded, owners, strict=True), first):
            if len(owner) > 1:
                self.counts.cut += 1
                self._warn(
                    f"line {number} has {len(ids):,} subwords, more than {self.max_source:,}; it is translated in "
                    f"{len(owner)} pieces"
                )

    def _finished(
        self, asked: Sequence[Asked], found: Sequence[list[Translation]], options: TranslateOptions, first: int
    ) -> list[list[Translation]]:
        """Returns translations as they are given to the user. Counts the lines whose best one is doubtful or does not
        obey its constraints, and warns of the latter."""
        translations = [line.finished(best, options, self.tgt_vocab) for line, best in zip(asked, found, strict=True)]
        for number, (line, best) in enumerate(zip(asked, translations, strict=True), first):
            self.counts.doubtful += (best[0].confidence or 0.0) < options.min_confidence
            if unmet := line.unmet(best[0].text):
                self.counts.unmet += 1
                self._warn(f"line {number}: its translation does not obey the constraint {unmet[0]!r}")
        return translations

    def _searched(
        self,
        sources: Sequence[Source],
        drafts: Mapping[int, Draft],
        options: TranslateOptions,
        each: Callable[[int, list[Hypothesis]], None],
    ) -> dict[int, list[Hypothesis]]:
        """Returns the hypotheses of each source; with the terms of its draft, if it has one that can be written."""
        results = self._with_terms(drafts, options)
        for p, hypotheses in results.items():
            each(p, hypotheses)
        rest = [p for p in range(len(sources)) if p not in results]
        searched = self._search(
            [sources[p] for p in rest], self.search, options, lambda k, hypotheses: each(rest[k], hypotheses)
        )
        return results | {rest[k]: hypotheses for k, hypotheses in searched.items()}

    def _search(
        self,
        sources: Sequence[Source],
        search: SearchConfig,
        options: TranslateOptions,
        each: Callable[[int, list[Hypothesis]], None] = lambda p, hypotheses: None,
    ) -> dict[int, list[Hypothesis]]:
        """Returns the hypotheses of each source, which are batched from the longest to the shortest. `each` is called
        with a source's index and its hypotheses when they are found."""
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i].tokens))
        results: dict[int, list[Hypothesis]] = {}
        asked = replace(options, nbest=options.candidates(search.beam))
        for i, hypotheses in self.engine.translate([sources[i] for i in order], search, asked):
            results[order[i]] = chosen(hypotheses, options, self.tgt_vocab)
            each(order[i], results[order[i]])
        return results

    def _with_terms(self, drafts: Mapping[int, Draft], options: TranslateOptions) -> dict[int, list[Hypothesis]]:
        """Returns the hypotheses of the sources whose terms can be written as `vtrans.translate.terms` defines it."""
        if not drafts or options.mbr or self.search.no_repeat_ngram or self.search.repetition_penalty != 1:
            return {}
        without = {p: replace(draft.source, phrases=draft.phrases) for p, draft in drafts.items()}
        searched = self._search(list(without.values()), self.search, options)
        written = with_terms(self.engine, self.search, list(drafts.values()), [searched[k] for k in range(len(drafts))])
        return {
            p: hypotheses[: options.nbest]
            for p, hypotheses in zip(drafts, written, strict=True)
            if len(hypotheses) >= options.nbest and all(self._quality(drafts[p].source, hypotheses))
        }

    def _quality(self, source: Source, hypotheses: list[Hypothesis]) -> tuple[bool, bool]:
        return quality(hypotheses[0], len(source.prefix.tokens), lambda: self.src_vocab.decode(source.tokens[:-1]))

    def _retry(
        self,
        sources: Sequence[Source],
        owners: Sequence[range],
        results: dict[int, list[Hypothesis]],
        kept: dict[int, tuple[bool, bool]],
        options: TranslateOptions,
    ) -> None:
        """Searches again as `vtrans.translate.retry` defines it. Puts better hypotheses into `results`, and their
        quality into `kept`. Counts the lines, each with its sources, that were searched again, and those whose best
        hypothesis is finished but loops."""
        again: list[int] = []
        if self._second_search and options.sampling is None:
            again = sorted(p for p in kept if not all(kept[p]))
            second = self._search([sources[p] for p in again], self._second_search, options) if again else {}
            for i, p in enumerate(again):
                if (better := self._quality(sources[p], second[i])) > kept[p]:
                    results[p], kept[p] = second[i], better
        looping = {p for p, (finished, sound) in kept.items() if finished and not sound}
        self.counts.looping += sum(not looping.isdisjoint(owner) for owner in owners)
        self.counts.retried += sum(not {*again}.isdisjoint(owner) for owner in owners)

    def _joined(self, pieces: list[list[Hypothesis]], n: int) -> list[Translation]:
        """Returns the n translations of a line, given the hypotheses of its pieces."""
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
                    tuple(map(self.tgt_vocab.piece, tokens)),
                    tuple(p for h in hyps for p in h.token_logprobs),
                )
            )
            if rank == 0:
                self.counts.unfinished += not translations[0].finished
                self.counts.empty += not all(text.strip() for text in texts)
                self.counts.tgt_tokens += sum(len(h.tokens) + h.finished for h in hyps)
        self.counts.missing += n - len(translations)
        return translations + [Translation("", -math.inf, -math.inf, False)] * (n - len(translations))

    def logprob(
        self,
        sources: Iterable[str],
        targets: Iterable[Target],
        done: Callable[[], None] = lambda: None,
        *,
        to: str | None = None,
    ) -> Iterator[Translation]:
        """Yields given translations with their log-probabilities, and scores by the length penalty of `search`.

        A target is a text, encoded as subwords with EOS, or subword ids as in `Translation.tokens`. With its ids, a
        translation gets the score that its search gave it; its text may be encoded as other subwords. The only
        translation of a blank source is blank, with log-probability 0; any other has -inf. `max_length` does not apply.
        A pair that is too long to be translated in one piece gets NaN and a warning. `done` is called for each pair
        that is given to the model. Raises InputError for unequal numbers of sources and targets, and VtransError if a
        model returns NaN.
        """
        for name, given in (("sources", sources), ("targets", targets)):
            if isinstance(given, str):
                raise InputError(f"`{name}` must be a list of strings, but is one string; pass [{name[:-1]}].")
        self.tag(to)
        return self._logprobs(windows_of_pairs(iter(sources), iter(targets), WINDOW), done, to)

    def _logprobs(
        self, windows: Iterable[tuple[int, list[str], list[Target]]], done: Callable[[], None], to: str | None
    ) -> Iterator[Translation]:
        for window in windows:
            yield from self._logprob_window(*window, done, to)

    @in_turn
    def _logprob_window(
        self, first: int, lines: list[str], given: list[Target], done: Callable[[], None], to: str | None
    ) -> list[Translation]:
        began = time.monotonic()
        scored = self._scorer.score(lines, given, first, self.counts, done, to)
        self.counts.seconds += time.monotonic() - began
        return scored

    def _warn(self, text: str) -> None:
        if self.console:
            self.console.warn(text)
