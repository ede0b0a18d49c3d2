"""The plain search in compiled code: beam search with one model, without phrases or groups. Its only rules forbid some
tokens or determine the first tokens of all sentences.

It gives the same results as search/beam.py, which defines the search.

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
from vtrans.search.loop import Hypothesis, SearchBatch, SearchTask, run
from vtrans.search.rules import Begin, MinimumLength, Suppressed

STOPS = ("count", "current", "exhaustive", "shrink")
# Source tokens of a batch for each thread, at most. Few of them stay in the cache with the intermediate results of a
# step; many of them divide the time for reading the weights, which is longer in float32. Chosen on one machine: 1,000
# instead of 500 took 0.77 (greedy) and 0.93 (beam 4) of the time in float32, and 1.07 in int8. Neither they nor the
# number of threads changes the result, because the sums of a row do not depend on the other rows.
THREAD_TOKENS = {"float32": 1000, "bfloat16": 500, "int8": 500}


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


def plain_search(decoder: Decoder[Any], task: SearchTask) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Like `beam_search`, to which it delegates for other decoders, settings and rules."""
    are_plain = all(isinstance(rule, Suppressed | MinimumLength | Begin) for rule in task.rules.common)
    are_plain = are_plain and not task.rules.by_sentence
    if isinstance(decoder, CompiledDecoder) and are_plain and task.config.beam_groups == 1:
        return run(_PlainBatch(decoder, task))
    return beam_search(decoder, task)


class _PlainBatch(SearchBatch):
    """A batch of the plain search, whose steps are calls of the compiled code."""

    pointer: int | None = None

    def __init__(self, decoder: CompiledDecoder, task: SearchTask) -> None:
        config = task.config
        super().__init__(task, min(config.batch_tokens, THREAD_TOKENS[decoder.precision] * threads()))
        self.decoder, self.library = decoder, decoder.library
        self.state = CompiledState(decoder.compiled, config.beam)
        self.endings = (Ending * task.nbest)()
        suppressed, begin, min_length = list[int](), list[int](), 0
        for rule in task.rules.common:
            if isinstance(rule, Suppressed):
                suppressed += rule.tokens
            elif isinstance(rule, Begin):
                begin += rule.tokens
            elif isinstance(rule, MinimumLength):
                min_length = max(min_length, rule.steps)
        self.request = Request(  # the compiled search keeps pointers to its arrays
            alpha=config.alpha,
            suppressed=(ctypes.c_int64 * len(suppressed))(*suppressed),
            begin=(ctypes.c_int64 * len(begin))(*begin),
            suppressed_count=len(suppressed),
            begin_count=len(begin),
            beam=config.beam,
            nbest=task.nbest,
            stop=STOPS.index(config.stop),
            by_length=config.length_penalty == "length",
            min_length=min_length,
            bos=task.bos_id,
            eos=task.eos_id,
        )
        self.pointer = self.library.new_search(self.state.pointer, ctypes.byref(self.request))

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
        hypotheses = []
        for ending, (tokens_T, logprobs_T) in zip(self.endings[:count], paths_n2T, strict=False):
            finished = bool(ending.finished)
            tokens = tuple(map(int, tokens_T[: ending.length]))
            logprobs = tuple(logprobs_T[: ending.length + finished].tolist())
            hypotheses.append(Hypothesis(tokens, ending.logprob, ending.score, finished, logprobs))
        return hypotheses
