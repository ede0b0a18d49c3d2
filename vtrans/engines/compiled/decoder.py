"""Incremental decoding on a CPU with decoder.cpp, instead of incremental.py: a step is one call for all rows.

The C++ computes the same functions but sums in another order. Threads divide the sentences of a batch and do not change
the result. In bfloat16 and int8, only the operands of matrix products are rounded. The same library, compiled by
engines/compiled/compiler.py, serves every model.

Legend: B sentences, K rows per sentence, r live rows, n rows of a block, S source length, D model width, V vocabulary,
m best tokens of a row.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtrans.config.threads import threads
from vtrans.engines.candidates import More
from vtrans.engines.compiled import SOURCES
from vtrans.engines.compiled.compiler import compiled_library
from vtrans.engines.compiled.weights import Sizes, in_order, sizes_of
from vtrans.model.rotary import COMPUTED, computed, too_long
from vtrans.search.decoder import Best, LogprobBlock, Logprobs, bad_logprobs
from vtrans.search.history import Ints
from vtrans.storage.model_file import Weights
from vtrans.system.console import Console

# Rows whose log-probabilities are computed at a time.
ROWS = 32
# Rows of position encodings computed when a model is loaded.
FIRST_POSITIONS = 256


def _or_memory_error(result: int | None, *_: Any) -> int | None:
    if result is None or result < 0:
        raise MemoryError("the memory is exhausted")
    return result


_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_MEMORY = ctypes.c_char * 0
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "new_model": (_POINTER, (ctypes.POINTER(Sizes), _POINTER, _POINTER, _INT)),
    "delete_model": (None, (_POINTER,)),
    "new_batch": (_POINTER, (_POINTER, _INT, _INT)),
    "delete_batch": (None, (_POINTER,)),
    "batch_admit": (_INT, (_POINTER, _POINTER, _POINTER, _INT, _POINTER, _INT, _POINTER, _POINTER, _POINTER)),
    "batch_drop": (None, (_POINTER, _POINTER, _INT)),
    "batch_select": (_INT, (_POINTER, _POINTER, _INT)),
    "batch_positions": (_INT, (_POINTER,)),
    "batch_step": (_INT, (_POINTER, _POINTER, _POINTER)),
    "batch_reorder": (_INT, (_POINTER, _POINTER)),
    "batch_hidden": (_INT, (_POINTER, _POINTER, _INT, _POINTER)),
    "batch_logprobs": (_INT, (_POINTER, _POINTER, _INT, _POINTER)),
    "batch_best": (_INT, (_POINTER, _POINTER, _INT, _INT, _POINTER, _POINTER)),
    "new_search": (_POINTER, (_POINTER, _POINTER)),
    "delete_search": (None, (_POINTER,)),
    "search_enter": (_INT, (_POINTER, _POINTER)),
    "search_leave": (_INT, (_POINTER, _INT, _POINTER, _POINTER)),
    "search_step": (_INT, (_POINTER, _POINTER, _POINTER)),
    "attention_forward": (_INT, (_POINTER, *(_INT,) * 2, *(_POINTER,) * 4)),
    "attention_backward": (_INT, (_POINTER, *(_INT,) * 2, *(_POINTER,) * 7)),
    "residual": (_INT, (_INT, _INT, *(_POINTER,) * 3, ctypes.c_int64, _POINTER, _INT)),
    "loss_gradients": (_INT, (_INT, _INT, _POINTER, _POINTER, *(_INT,) * 3, ctypes.c_float, _POINTER)),
    "forced_pass": (_INT, (_POINTER, _POINTER, _POINTER, _POINTER, _INT, _POINTER, _POINTER)),
}


def compiled_decoder(console: Console | None) -> ctypes.CDLL:
    """Returns the library of decoder.cpp, with types and error checks for its functions. Raises CompilerError."""
    library = compiled_library(SOURCES, console)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
        if result is not None:
            function.errcheck = _or_memory_error
    return library


class CompiledModel:
    """A model in the compiled code's memory, which holds copies of the weights of matrix products. With a shortlist,
    `common` are the subwords that all sentences allow."""

    pointer: int | None = None

    def __init__(self, weights: Weights, library: ctypes.CDLL, precision: str, common: Sequence[int] = ()) -> None:
        self.weights, self.library = weights, library
        self.arrays = list(in_order(weights))  # the compiled code refers to some of them
        for array in self.arrays:
            assert array is None or (array.dtype == np.float32 and array.flags.c_contiguous)
        pointers = (_POINTER * len(self.arrays))(*(None if a is None else a.ctypes.data for a in self.arrays))
        common_v = np.array(common, dtype=np.int64)
        self.pointer = library.new_model(sizes_of(weights, precision), pointers, common_v.ctypes.data, len(common_v))

    def __del__(self) -> None:
        self.library.delete_model(self.pointer)


class _PositionRows:
    """The position encodings of one side, "src" or "tgt", computed as far as needed."""

    def __init__(self, weights: Weights, side: str) -> None:
        self._config = weights.config
        table_PD = weights.get(f"{side}_positions.weight")
        self._rows_PD = self._computed(FIRST_POSITIONS) if table_PD is None else table_PD

    def __call__(self, length: int) -> NDArray[np.float32]:
        """Returns the first P >= `length` rows [P, D]. Raises InputError if the model's table is shorter."""
        have = len(self._rows_PD)
        if length > have:
            if self._config.positions not in COMPUTED:
                raise too_long(have, length)
            self._rows_PD = self._computed(1 << (length - 1).bit_length())
        return self._rows_PD

    def _computed(self, length: int) -> NDArray[np.float32]:
        config = self._config
        rows_PD = computed(config.positions, length, config.d_model, config.heads)
        return np.ascontiguousarray(rows_PD, dtype=np.float32)


class CompiledState:
    """The sentences of a search in the compiled code's memory. The threads of this process divide the sentences."""

    pointer: int | None = None

    def __init__(self, compiled: CompiledModel, width: int) -> None:
        self.compiled, self.library = compiled, compiled.library
        self.pointer = self.library.new_batch(compiled.pointer, width, threads())

    def __del__(self) -> None:
        self.library.delete_batch(self.pointer)


class CompiledDecoder:
    """Implements `search.Decoder` with one model on a CPU, whose weights must not change.

    Equivalent to IncrementalDecoder. `library` is the compiled decoder.cpp; `precision`, one of PRECISIONS, is the
    precision of matrix products. With a shortlist, `common` are the subwords that all sentences allow, and `limited`
    adds the others.
    """

    def __init__(
        self, weights: Weights, library: ctypes.CDLL, precision: str = "float32", common: Sequence[int] = ()
    ) -> None:
        self.config, self.library, self.rows = weights.config, library, ROWS
        self.precision = precision
        self.compiled = CompiledModel(weights, library, precision, common)
        self.more: More | None = None
        self.vocabulary = len(weights["projection.weight"])
        self.src_positions, self.tgt_positions = _PositionRows(weights, "src"), _PositionRows(weights, "tgt")

    def limited(self, more: More) -> CompiledDecoder:
        """Returns a copy of this decoder in which sentences allow only the common subwords and `more`."""
        made = copy.copy(self)
        made.more = more
        return made

    def start(self, sources: Sequence[Sequence[int]], width: int) -> CompiledState:
        state = CompiledState(self.compiled, width)
        self.admit(state, sources, ())
        return state

    def admit(self, state: CompiledState, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        more_n2 = self.more(sources) if self.more else np.empty((0, 2), dtype=np.int64)
        numbers_n, listed_n = np.ascontiguousarray(more_n2.T)
        counts_b = np.bincount(numbers_n, minlength=len(sources))
        # An EOS that is not attended to changes nothing.
        sources = sources if self.config.source_eos else [source[:-1] for source in sources]
        lengths = [len(source) for source in sources]
        tokens_N = np.array([token for source in sources for token in source], dtype=np.int64)
        positions_SD = self.src_positions(max(lengths))
        self.library.batch_admit(
            state.pointer,
            memory(tokens_N),
            memory(np.array(lengths, dtype=np.int64)),
            len(lengths),
            memory(np.array(places, dtype=np.int64)),
            len(places),
            memory(positions_SD),
            memory(listed_n),
            memory(counts_b),
        )

    def step(
        self, state: CompiledState, tokens_BK: Ints, live_r: Ints, best: int | None = None
    ) -> Iterable[LogprobBlock]:
        rows_PD = self.tgt_positions(self.library.batch_positions(state.pointer))
        self.library.batch_step(state.pointer, memory(np.ascontiguousarray(tokens_BK, np.int64)), memory(rows_PD))
        if best is not None:
            return (self._best(state, live_r, best),)
        return (self._logprobs(state, live_r[i : i + self.rows]) for i in range(0, len(live_r), self.rows))

    def _logprobs(self, state: CompiledState, live_n: Ints) -> Logprobs:
        out_nV = np.empty((len(live_n), self.vocabulary), dtype=np.float32)
        self.library.batch_logprobs(state.pointer, memory(live_n), len(live_n), memory(out_nV))
        return out_nV

    def _best(self, state: CompiledState, live_r: Ints, count: int) -> Best:
        shape = len(live_r), min(count, self.vocabulary)
        values_rm, ids_rm = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.int64)
        if self.library.batch_best(state.pointer, memory(live_r), *shape, memory(ids_rm), memory(values_rm)):
            raise bad_logprobs()
        return Best(values_rm, ids_rm)

    def reorder(self, state: CompiledState, parents_BK: Ints) -> None:
        self.library.batch_reorder(state.pointer, memory(np.ascontiguousarray(parents_BK, np.int64)))

    def drop(self, state: CompiledState, sentences: Sequence[int]) -> None:
        self.library.batch_drop(state.pointer, memory(np.array(sentences, dtype=np.int64)), len(sentences))

    def select(self, state: CompiledState, sentences: Sequence[int]) -> None:
        self.library.batch_select(state.pointer, memory(np.array(sentences, dtype=np.int64)), len(sentences))


def memory(array: NDArray[Any]) -> ctypes.Array[ctypes.c_char]:
    """Returns an array's memory as an argument for compiled code, in a third of the time of `array.ctypes`. Raises
    TypeError if the array is not contiguous."""
    return _MEMORY.from_buffer(array.data)
