"""Decoding on a CPU with decoder.cpp, which takes the place of incremental.py: a step is one call for all rows.

It computes the same functions, but adds in another order. Threads divide the sentences of a batch and do not change the
result. In bfloat16 and int8, only the operands of matrix products are rounded. The code is the same for every model,
and compiled/compiler.py compiles it.

Legend: B sentences, K rows per sentence, r live rows, n rows of a block, S source length, D model width, V vocabulary,
m best tokens of a row.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from vtrans.compiled import SOURCES
from vtrans.compiled.compiler import compiled_library
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.model import DecoderOnly, EncoderLayer, SSRULayer, Transformer
from vtrans.search.history import Ints
from vtrans.search.loop import Best, Block, Logprobs, bad_logprobs

ACTIVATIONS = ("relu", "gelu", "swish")
PRECISIONS = ("float32", "bfloat16", "int8")
# Rows whose log-probabilities are computed at a time.
ROWS = 32


class Sizes(ctypes.Structure):
    """`Sizes` of model.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("width", "feed_forward", "heads", "vocabulary", "pad_id")),
        *((name, ctypes.c_int32) for name in ("encoder_layers", "decoder_layers", "activation", "precision")),
        *((name, ctypes.c_int32) for name in ("pre", "cross_skip", "decoder_only", "prefix", "ssru", "rotary")),
        *((name, ctypes.c_float) for name in ("epsilon", "embedding_scale")),
    )


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
    "batch_slots": (_INT, (_POINTER,)),
    "batch_step": (_INT, (_POINTER, _POINTER, _POINTER, _INT)),
    "batch_reorder": (_INT, (_POINTER, _POINTER)),
    "batch_hidden": (_INT, (_POINTER, _POINTER, _INT, _POINTER)),
    "batch_logprobs": (_INT, (_POINTER, _POINTER, _INT, _POINTER)),
    "batch_best": (_INT, (_POINTER, _POINTER, _INT, _INT, _POINTER, _POINTER)),
    "forced_pass": (_INT, (_POINTER, _POINTER, _POINTER, _POINTER, _INT, _POINTER, _POINTER)),
}


def compiled_decoder(console: Console | None) -> ctypes.CDLL:
    """Returns decoder.cpp, compiled, with the types and errors of its functions. Raises CompilerError."""
    library = compiled_library(SOURCES, console)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
        if result is not None:
            function.errcheck = _or_memory_error
    return library


class CompiledModel:
    """A model in the memory of the compiled code, which copies the weights of matrix products.
    A copied or unpickled object has only the model, and loads the code again. All sentences list the `common` subwords;
    without a shortlist, there are none."""

    pointer: int | None = None

    def __init__(self, model: Transformer, library: ctypes.CDLL, precision: str, common: Sequence[int] = ()) -> None:
        self.model, self.library, self.precision, self.common = model, library, precision, common
        # The compiled code refers to some of them. Detached, they keep their memory if the model is moved.
        self.tensors = [None if tensor is None else tensor.detach() for tensor in tensors_of(model)]
        for tensor in self.tensors:
            if tensor is not None and (tensor.dtype is not torch.float32 or tensor.device.type != "cpu"):
                raise InputError(
                    "the engine compiled needs a model in float32 on `device` cpu, got "
                    f"{tensor.dtype} on {tensor.device}."
                )
            assert tensor is None or tensor.is_contiguous()
        pointers = (_POINTER * len(self.tensors))(*(None if t is None else t.data_ptr() for t in self.tensors))
        common_v = torch.tensor(common, dtype=torch.int64)
        self.pointer = library.new_model(sizes_of(model, precision), pointers, common_v.data_ptr(), len(common_v))

    def __del__(self) -> None:
        self.library.delete_model(self.pointer)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.model, self.precision, self.common)


def _again(model: Transformer, precision: str, common: Sequence[int]) -> CompiledModel:
    return CompiledModel(model, compiled_decoder(None), precision, common)


def sizes_of(model: Transformer, precision: str) -> Sizes:
    c = model.config
    return Sizes(
        width=c.d_model,
        feed_forward=c.d_ff,
        heads=c.heads,
        vocabulary=len(model.projection.weight),
        pad_id=model.pad_id,
        encoder_layers=c.encoder_layers,
        decoder_layers=c.decoder_layers,
        activation=ACTIVATIONS.index(c.activation),
        precision=PRECISIONS.index(precision),
        pre=c.norm == "pre",
        cross_skip=c.cross_attention_residual,
        decoder_only=isinstance(model.decoder, DecoderOnly),
        prefix=c.source_mask == "prefix",
        ssru=c.autoregression == "ssru",
        rotary=c.positions == "rotary",
        epsilon=c.norm_eps,
        embedding_scale=model.tgt_embedding.scale,
    )


def tensors_of(model: Transformer) -> Iterator[Tensor | None]:
    """Yields the weights in the order in which model.h reads them."""
    yield from (model.src_embedding.weight, model.tgt_embedding.weight)
    for stack in (model.encoder, model.decoder):
        for layer in stack.layers:
            inner = layer.feed_forward
            if isinstance(layer, SSRULayer):
                yield layer.ssru.zf.weight
                yield F.pad(layer.ssru.forget_bias, (model.config.d_model, 0))
                yield from _parameters(layer.ssru_residual.norm)
            else:
                attention = layer.self_attention
                yield from _parameters(attention.qkv, attention.out, layer.self_attention_residual.norm)
            if not isinstance(layer, EncoderLayer):
                cross = layer.cross_attention
                yield from _parameters(cross.query, cross.kv, cross.out, layer.cross_attention_residual.norm)
            yield from _parameters(inner.inner, inner.outer, layer.feed_forward_residual.norm)
        yield from _parameters(stack.final_norm)
    yield from _parameters(model.projection)


def _parameters(*modules: Any) -> Iterator[Tensor | None]:
    for module in modules:
        yield from (None, None) if isinstance(module, nn.Identity) else (module.weight, module.bias)


class CompiledState:
    """The sentences of a search in the memory of the compiled code, which computes them in as many threads as torch."""

    pointer: int | None = None

    def __init__(self, compiled: CompiledModel, width: int) -> None:
        self.compiled, self.library = compiled, compiled.library
        self.pointer = self.library.new_batch(compiled.pointer, width, torch.get_num_threads())

    def __del__(self) -> None:
        self.library.delete_batch(self.pointer)


class CompiledDecoder:
    """Implements `search.Decoder` with one model in float32 on a CPU, whose weights must not change.

    `library` is decoder.cpp, compiled, and `precision`, one of PRECISIONS, that of matrix products. It does what
    IncrementalDecoder does. With a shortlist, `common` are the subwords that it lists for every sentence, and `limited`
    gives the others.
    """

    def __init__(
        self, model: Transformer, library: ctypes.CDLL, precision: str = "float32", common: Sequence[int] = ()
    ) -> None:
        self.model, self.device, self.rows = model, model.device, ROWS
        self.compiled = CompiledModel(model, library, precision, common)
        self.more: Callable[[Sequence[Sequence[int]]], Ints] | None = None
        self.positions_PD = _array(model.tgt_positions(1))  # as many as have been needed

    @property
    def library(self) -> ctypes.CDLL:
        return self.compiled.library

    def limited(self, more: Callable[[Sequence[Sequence[int]]], Ints]) -> CompiledDecoder:
        """Returns the same decoder, except that a sentence lists `more` besides the common subwords, and no others are
        possible. `more` returns these for sources that enter, as pairs of a source and a subword [n, 2], in increasing
        order."""
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
        # Nothing depends on an EOS that is not attended to.
        sources = sources if self.model.config.source_eos else [source[:-1] for source in sources]
        lengths = [len(source) for source in sources]
        tokens_N = np.array([token for source in sources for token in source], dtype=np.int64)
        positions_SD = _array(self.model.src_positions(max(lengths)))
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

    def hidden(self, state: CompiledState, tokens_BK: Ints, live_r: Ints) -> Logprobs:
        """Computes a step up to the projection: the decoder's output [r, D] of the live rows."""
        self._advance(state, tokens_BK)
        out_rD = np.empty((len(live_r), self.model.config.d_model), dtype=np.float32)
        self.library.batch_hidden(state.pointer, memory(live_r), len(live_r), memory(out_rD))
        return out_rD

    def step(self, state: CompiledState, tokens_BK: Ints, live_r: Ints, best: int | None = None) -> Iterable[Block]:
        self._advance(state, tokens_BK)
        if best is not None:
            return (self._best(state, live_r, best),)
        return (self._logprobs(state, live_r[i : i + self.rows]) for i in range(0, len(live_r), self.rows))

    def _advance(self, state: CompiledState, tokens_BK: Ints) -> None:
        tokens, known_PD = memory(np.ascontiguousarray(tokens_BK)), self.positions_PD
        while needed := self.library.batch_step(state.pointer, tokens, memory(known_PD), len(known_PD)):
            limit = self.model.max_length
            rows = max(needed, 2 * needed if limit is None else min(2 * needed, limit))
            known_PD = self.positions_PD = _array(self.model.tgt_positions(rows))

    def _logprobs(self, state: CompiledState, live_n: Ints) -> Logprobs:
        out_nV = np.empty((len(live_n), len(self.model.projection.weight)), dtype=np.float32)
        self.library.batch_logprobs(state.pointer, memory(live_n), len(live_n), memory(out_nV))
        return out_nV

    def _best(self, state: CompiledState, live_r: Ints, count: int) -> Best:
        shape = len(live_r), min(count, len(self.model.projection.weight))
        values_rm, ids_rm = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.int64)
        if self.library.batch_best(state.pointer, memory(live_r), *shape, memory(ids_rm), memory(values_rm)):
            raise bad_logprobs()
        return Best(values_rm, ids_rm)

    def reorder(self, state: CompiledState, parents_BK: Ints) -> None:
        self.library.batch_reorder(state.pointer, memory(np.ascontiguousarray(parents_BK)))

    def drop(self, state: CompiledState, sentences: Sequence[int]) -> None:
        self.library.batch_drop(state.pointer, memory(np.array(sentences, dtype=np.int64)), len(sentences))

    def select(self, state: CompiledState, sentences: Sequence[int]) -> None:
        self.library.batch_select(state.pointer, memory(np.array(sentences, dtype=np.int64)), len(sentences))


def memory(array: NDArray[Any]) -> ctypes.Array[ctypes.c_char]:
    """Returns the memory of an array as an argument of the compiled code, in a third of the time of `array.ctypes`.
    Raises TypeError if the array is not contiguous."""
    return _MEMORY.from_buffer(array.data)


def _array(positions_PD: Tensor) -> Logprobs:
    floats_PD: Logprobs = positions_PD.detach().float().contiguous().numpy()
    return floats_PD
