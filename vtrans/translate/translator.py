"""Translates lines, in order and in bounded memory.

A window of lines is encoded, sorted by length, searched in batches and put back in order before the next window is
read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from threading import RLock
from typing import Any

from vtrans.config import SearchConfig
from vtrans.engines.engine import Engine
from vtrans.search.options import Sampling
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.translate.scorer import Target, lines_to_score, score
from vtrans.translate.steps.line import Constraints, Counts, Line, lines_of
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
        return self._windows(lines_of(lines, prefixes, constraints), chosen)

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

    def _windows(self, lines: Iterator[Line], options: TranslateOptions) -> Iterator[list[Translation]]:
        while window := list(islice(lines, WINDOW)):
            yield from self.translate_window(window, options)

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
            together = options.alignments  # linking words is cheaper for a whole window
            left = Counter(piece.line for line in lines for piece in line.pieces)

            def end(some: Sequence[Line]) -> None:
                for step in steps.after:
                    step(some)
                for line in some:
                    ready(line)

            if not together:
                end([line for line in lines if not line.pieces])
            for piece in steps.search([piece for line in lines for piece in line.pieces]):
                left[piece.line] -= 1
                if not together and not left[piece.line]:
                    end([piece.line])
            if together:
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
        targets: Iterable[Target],
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
        self.reader.beginning(to)
        return self._logprobs(lines_to_score(sources, targets), done, to)

    def _logprobs(
        self, given: Iterator[tuple[Line, Target]], done: Callable[[], None], to: str | None
    ) -> Iterator[Translation]:
        while window := list(islice(given, WINDOW)):
            with self._in_turn([line for line, _ in window]):
                score(window, self.engine, self.search, self.reader, to, done)
            for line, _ in window:
                yield line.translations[0]
