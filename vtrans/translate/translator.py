"""Translates lines, and scores translations, in order and in bounded memory.

A window of lines is encoded, sorted by length, searched in batches and put back in order before the next window is
read.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from threading import RLock
from typing import Any

from vtrans.config import SearchConfig
from vtrans.engines.engine import Engine
from vtrans.search.loop import length_penalty
from vtrans.search.options import Sampling
from vtrans.search.rules import with_certain
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.lines import one_line
from vtrans.text.vocabulary import EOS_ID, PAD_ID
from vtrans.translate.steps.line import Constraints, Counts, Line, lines_of, together
from vtrans.translate.steps.steps import Steps, StepsOfEngine
from vtrans.translate.translation import TranslateOptions, Translation
from vtrans.translate.wording.glossary import NOTHING, Beside
from vtrans.translate.wording.phrases import NO_WORDING

WINDOW = 2000  # lines sorted together: enough for batches of similar length, few enough to wait for
DEFAULT_OPTIONS = TranslateOptions()


class Translator:
    """Translates lines with an engine and search settings; `search` replaces the settings stored with the model.

    With `retry`, a line whose translation loops or reaches its length limit is searched again with a no-repeat rule.
    Lines with other problems are always searched again (`vtrans.translate.steps.search`). The n-best list comes from
    the search that is kept. Loops are not searched again if `search` already has a no-repeat rule, or for samples. See
    `SourceReader` for `limit`. `beside` holds the files next to the model. `own` are the user's `rules` and `steps`.

    `counts` holds the totals so far; warnings go to `console`. A translator is thread-safe: while one thread translates
    a window of lines, the others wait, and the results are the same as with one thread. Raises InputError for settings
    that contradict each other.
    """

    def __init__(
        self,
        engine: Engine,
        search: SearchConfig | None = None,
        console: Console | None = None,
        *,
        retry: bool = True,
        limit: Callable[[int], int] | None = None,
        beside: Beside = NOTHING,
        **own: Any,
    ) -> None:
        self.engine = engine
        self.search = engine.settings if search is None else search
        self.src_vocab, self.tgt_vocab = engine.src_vocab, engine.tgt_vocab
        self.console = console
        self.counts = Counts()
        self.turn = RLock()
        if reason := self.search.contradiction("`{}`"):
            raise InputError(reason)
        self._make_steps = StepsOfEngine(engine, self.search, retry=retry, limit=limit, beside=beside, **own)
        self._last: tuple[TranslateOptions, Steps] | None = None
        self.reader = self._make_steps.reader
        self.uses_matches = all(model.matches for model in engine.models)
        """Whether the models were trained with fuzzy matches."""

    def translate(self, lines: Iterable[str], sampling: Sampling | None = None, **options: Any) -> Iterator[str]:
        """Yields the best translation of each line, in order. A blank line gives a blank translation without using the
        model.

        With `sampling`, yields a sample instead, which depends on the line, its number and the seed. See `nbest` for
        the other options.
        """
        return (best[0].text for best in self.nbest(lines, 1, sampling, **options))

    def nbest(
        self,
        lines: Iterable[str],
        n: int = 1,
        sampling: Sampling | None = None,
        *,
        prefixes: Iterable[str] | None = None,
        constraints: Iterable[Constraints] | None = None,
        **options: Any,
    ) -> Iterator[list[Translation]]:
        """Yields exactly `n` translations of each line, best first, or `n` independent samples. Texts differ, except
        those of samples: if several hypotheses spell the same text in different subwords, only the best counts.

        If the beam has fewer, empty translations with a score of -inf follow, and are counted. `prefixes` are target
        prefixes, one per line; a blank one means none. The last word of a prefix may be continued unless whitespace
        follows it. The score includes the prefix. `constraints`, one per line, have the form of `phrases.wording_of`,
        such as {"constraints": ["a phrase"], "avoid": ["another"]}; a line whose translation violates them is counted,
        with a warning. `options` are fields of TranslateOptions, such as `mbr`, `alignments`, `to` and `raw`. Raises
        InputError immediately if `n` is larger than the beam, `lines` is a single string, or `to` is not a language of
        the model.
        """
        for name, given in (("lines", lines), ("prefixes", prefixes)):
            if isinstance(given, str):
                raise InputError(f"`{name}` must be a list of strings, but is one string; pass [line].")
        chosen = TranslateOptions(n, sampling, **options)
        self.check(chosen, constraints=constraints is not None)
        made = lines_of(lines, prefixes, constraints)
        windows = iter(lambda: list(islice(made, WINDOW)), [])
        return chain.from_iterable(self.translate_window(window, chosen) for window in windows)

    def check(self, options: TranslateOptions, *, constraints: bool = False) -> None:
        """Raises InputError if the search settings do not support these options."""
        self._steps(options)
        if constraints:
            self._check_phrases("constraints", options)

    def _steps(self, options: TranslateOptions) -> Steps:
        """Returns the steps for these options, and keeps them for the next window. Raises InputError like `check`."""
        last = self._last  # another thread may replace it meanwhile
        if last is None or last[0] is not options:
            last = options, self._make_steps(options)
            if options.glossary is not None:
                self._check_phrases("glossary", options)
            options.check(self.search.beam)
            self._last = last
        return last[1]

    def _check_phrases(self, name: str, options: TranslateOptions) -> None:
        if options.sampling is not None:
            raise InputError(f"`{name}` only applies to a search; leave out `{name}` or the sampling.")
        if reason := self.search.contradicts_phrases(f"`{name}`"):
            raise InputError(reason)

    def translate_window(
        self,
        lines: Sequence[Line],
        options: TranslateOptions = DEFAULT_OPTIONS,
        *,
        ready: Callable[[Line], None] = lambda line: None,
    ) -> list[list[Translation]]:
        """Translates lines in common batches. Returns the translations of each line, like `nbest`.

        `ready` is called with each line as soon as it has its translations; with word alignments, at the end of the
        window.
        """
        steps = self._steps(options)
        if any(line.wording != NO_WORDING for line in lines):
            self._check_phrases("constraints", options)
        with self._in_turn(lines):
            for step in steps.before:
                step(lines)
            self._warn(lines)
            at_end = options.alignments  # linking words is cheaper for a whole window
            left = Counter(piece.line for line in lines for piece in line.pieces)

            def end(some: Sequence[Line]) -> None:
                for step in steps.after:
                    step(some)
                for line in some:
                    ready(line)

            if not at_end:
                end([line for line in lines if not line.pieces])
            for piece in steps.search([piece for line in lines for piece in line.pieces]):
                left[piece.line] -= 1
                if not at_end and not left[piece.line]:
                    end([piece.line])
            if at_end:
                end(lines)
        return [line.translations for line in lines]

    @contextmanager
    def _in_turn(self, lines: Sequence[Line]) -> Iterator[None]:
        """Waits until no other thread translates, and adds the counts and time of the block to the totals."""
        with self.turn:
            began = time.monotonic()
            yield
            self._warn(lines)
            for line in lines:
                self.counts.add(line.counts)
            self.counts.seconds += time.monotonic() - began

    def _warn(self, lines: Iterable[Line]) -> None:
        """Passes the lines' warnings to the console, in order. Without a console, the lines keep them."""
        if self.console is None:
            return
        for line in lines:
            for warning in line.warnings:
                self.console.warn(warning)
            line.warnings.clear()

    def logprob(
        self,
        sources: Iterable[str],
        targets: Iterable[str | Sequence[int]],
        done: Callable[[], None] = lambda: None,
        *,
        to: str | None = None,
    ) -> Iterator[Translation]:
        """Yields existing translations with their log-probabilities, and scores by the length penalty of `search`.

        A target is a text, which is encoded with EOS, or subword ids as in `Translation.tokens`. Given its ids, a
        translation gets the same score as in its search; its text may be encoded as other subwords. A blank source has
        only a blank translation, with log-probability 0; any other gets -inf. `max_length` does not apply. A pair that
        is too long to translate in one piece gets NaN and a warning. `done` is called for each pair that the model
        scores. Raises InputError for unequal numbers of sources and targets, and VtransError if a model returns NaN.
        """
        for name, given in (("sources", sources), ("targets", targets)):
            if isinstance(given, str):
                raise InputError(f"`{name}` must be a list of strings, but is one string; pass [{name[:-1]}].")
        tag, pairs = self.reader.beginning(to), together(sources=sources, targets=targets)
        windows = iter(lambda: list(islice(pairs, WINDOW)), [])
        return chain.from_iterable(self._scored(window, tag, done, to) for window in windows)

    def _scored(
        self, window: Sequence[tuple[int, dict[str, Any]]], tag: list[int], done: Callable[[], None], to: str | None
    ) -> list[Translation]:
        """Returns the targets of a window of pairs with their log-probabilities. See `logprob`."""
        reader, lines, targets = self.reader, [Line(number, pair["sources"]) for number, pair in window], []
        known: dict[Line, float] = {}  # log-probabilities of pairs that bypass the model
        longest = reader.max_target(reader.max_source)
        with self._in_turn(lines):
            for line, (number, pair) in zip(lines, window, strict=True):
                line.ids = reader.encode(self.src_vocab.as_source(line.text), number, to=to)
                target = self._target(pair["targets"], number, to)
                targets.append(target)
                if not line.ids or not line.text.strip():
                    known[line] = -math.inf if any(token > EOS_ID for token in target) else 0.0
                    line.counts.blank = 1
                elif len(line.ids) > reader.max_source or len(target) > longest:
                    known[line] = math.nan
                    line.warnings.append(
                        f"line {number} has {len(line.ids):,} source and {len(target):,} target subwords, more than "
                        f"{reader.max_source:,} and {longest:,}; it gets no log-probability"
                    )
            unknown = [() if line in known else target for line, target in zip(lines, targets, strict=True)]
            asked = [([*tag, *line.ids], target) for line, target in zip(lines, unknown, strict=True)]
            scored = self.engine.token_logprobs(asked, self.search.batch_tokens, done)
            for line, target, given in zip(lines, targets, scored, strict=True):
                logprobs = with_certain(reader.begin, target, given)
                logprob = known.get(line, math.fsum(logprobs))
                line.counts.tgt_tokens = len(logprobs)
                line.translations = [self._given(target, logprob, logprobs)]
        return [line.translations[0] for line in lines]

    def _given(self, target: list[int], logprob: float, logprobs: Sequence[float]) -> Translation:
        """Returns a given translation. That of a blank line has no subwords."""
        if logprob == 0.0 and not logprobs:
            return Translation("", 0.0, 0.0, True)
        score = logprob / length_penalty(len(target), self.search.alpha, self.search.length_penalty)
        text, subwords = one_line(self.tgt_vocab.decode(target)), tuple(map(self.tgt_vocab.piece, target))
        return Translation(text, logprob, score, target[-1] == EOS_ID, tuple(target), subwords, tuple(logprobs))

    def _target(self, given: str | Sequence[int], number: int, to: str | None) -> list[int]:
        """Returns the subword ids of target `number`. Raises InputError for an invalid id, and for EOS anywhere but at
        the end."""
        if isinstance(given, str):
            return [*self.reader.begin, *self.reader.encode(given, number, self.tgt_vocab, to=to), EOS_ID]
        size = len(self.tgt_vocab)
        for place, token in enumerate(given, 1):
            if not isinstance(token, int) or token == PAD_ID or not 0 <= token < size:
                allowed = f"a text or subword ids from 1 to {size - 1:,}"
                raise InputError(f"target {number} must be {allowed}, got {token!r}.")
            if token == EOS_ID and place < len(given):
                raise InputError(
                    f"target {number} must have EOS, {EOS_ID}, only at its end; if its line was translated in pieces, "
                    "give the pieces one by one."
                )
        return list(given)
