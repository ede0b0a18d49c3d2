"""The plain search in compiled code: beam search by one model without phrases and groups, and with no rules but those
that forbid some tokens or determine the first ones of all sentences.

It finds what search/beam.py finds, which is the definition.

Legend: B places of sentences in the batch, T tokens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vtrans.config.threads import threads
from vtrans.engines.compiled.decoder import CompiledDecoder, CompiledState, memory
from vtrans.search.beam import beam_search
from vtrans.search.decoder import Decoder, bad_logprobs
from vtrans.search.history import Floats
from vtrans.search.loop import Hypothesis, SearchBatch, SearchTask, run
from vtrans.search.rules import Begin, MinimumLength, Suppressed

STOPS = ("count", "current", "exhaustive", "shrink")
# Source tokens of a batch for each thread, at most: what a step computes then stays in the cache. They do not change
# the result.
THREAD_TOKENS = 500


class Request(ctypes.Structure):
    """`Request` of plain_search.h."""

    _fields_ = (
        ("alpha", ctypes.c_double),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("suppressed", "begin")),
        *((name, ctypes.c_int32) for name in ("suppressed_count", "begin_count", "beam", "nbest", "stop")),
        *((name, ctypes.c_int32) for name in ("by_length", "min_length", "bos", "eos")),
    )


class Ending(ctypes.Structure):
    """`Ending` of plain_search.h."""

    _fields_ = (
        *((name, ctypes.c_double) for name in ("score", "logprob")),
        *((name, ctypes.c_int32) for name in ("length", "node", "finished")),
        ("eos_logprob", ctypes.c_float),
    )


def is_plain(task: SearchTask) -> bool:
    """Returns whether `plain_search` can search with these settings and rules."""
    simple = all(isinstance(rule, Suppressed | MinimumLength | Begin) for rule in task.rules.common)
    return task.config.beam_groups == 1 and not task.rules.own and simple


def search(decoder: Decoder[Any], task: SearchTask) -> Iterator[tuple[int, list[Hypothesis]]]:
    """As `beam_search`, which it calls for other decoders and for searches that are not plain."""
    if isinstance(decoder, CompiledDecoder) and is_plain(task):
        return plain_search(decoder, task)
    return beam_search(decoder, task)


def plain_search(decoder: CompiledDecoder, task: SearchTask) -> Iterator[tuple[int, list[Hypothesis]]]:
    """As `beam_search`, if the settings and rules are plain."""
    config, rules = task.config, task.rules.common
    suppressed = [id for rule in rules if isinstance(rule, Suppressed) for id in rule.tokens]
    begin = [id for rule in rules if isinstance(rule, Begin) for id in rule.tokens]
    request = Request(
        alpha=config.alpha,
        suppressed=(ctypes.c_int64 * len(suppressed))(*suppressed),
        begin=(ctypes.c_int64 * len(begin))(*begin),
        suppressed_count=len(suppressed),
        begin_count=len(begin),
        beam=config.beam,
        nbest=task.nbest,
        stop=STOPS.index(config.stop),
        by_length=config.length_penalty == "length",
        min_length=max((rule.steps for rule in rules if isinstance(rule, MinimumLength)), default=0),
        bos=task.bos_id,
        eos=task.eos_id,
    )
    return run(_PlainBatch(decoder, task, request))


class _PlainBatch(SearchBatch):
    """The sentences of a plain search, whose steps are calls of the compiled code."""

    pointer: int | None = None

    def __init__(self, decoder: CompiledDecoder, task: SearchTask, request: Request) -> None:
        super().__init__(task, min(task.config.batch_tokens, THREAD_TOKENS * threads()))
        self.decoder, self.library = decoder, decoder.library
        self.request = request  # the search refers to its array
        self.state = CompiledState(decoder.compiled, request.beam)
        self.endings = (Ending * request.nbest)()
        self.pointer = self.library.new_search(self.state.pointer, ctypes.byref(request))

    def __del__(self) -> None:
        self.library.delete_search(self.pointer)

    def select(self, places: Sequence[int]) -> None:
        self.sentences = [self.sentences[b] for b in places]
        self.decoder.select(self.state, places)

    def enter(self, sentences: Sequence[int]) -> None:
        empty = [b for b, i in enumerate(self.sentences) if i is None]
        self.decoder.admit(self.state, [self.task.sources[i] for i in sentences], empty)
        self.library.search_enter(
            self.pointer, memory(np.array([self.task.limits[i] for i in sentences], dtype=np.int64))
        )
        for b, i in zip(empty, sentences, strict=False):
            self.sentences[b] = i
        self.sentences += sentences[len(empty) :]

    def step(self) -> list[int]:
        rows_PD = self.decoder.tgt_positions(self.library.batch_positions(self.state.pointer))
        finished_B = np.zeros(len(self.sentences), dtype=np.bool_)
        if self.library.search_step(self.pointer, memory(rows_PD), memory(finished_B)):
            raise bad_logprobs()
        return list(map(int, finished_B.nonzero()[0]))

    def leave(self, b: int) -> list[Hypothesis]:
        number = self.sentences[b]
        assert number is not None
        paths_n2T = np.empty((len(self.endings), 2, self.task.limits[number]))
        count = self.library.search_leave(self.pointer, b, self.endings, memory(paths_n2T))
        return [_hypothesis(self.endings[n], *paths_n2T[n]) for n in range(count)]


def _hypothesis(ending: Ending, tokens_T: Floats, logprobs_T: Floats) -> Hypothesis:
    length, finished = ending.length, bool(ending.finished)
    tokens, logprobs = tokens_T[:length].tolist(), logprobs_T[: length + finished].tolist()
    return Hypothesis(tuple(map(int, tokens)), ending.logprob, ending.score, finished, tuple(logprobs))
