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

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrans.compiled import SOURCES
from vtrans.compiled.compiler import compiled_library
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.model import DecoderOnly, EncoderLayer, SSRULayer, Transformer
from vtrans.search.loop import Best, Block, bad_logprobs

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
        self.values_rm = self.ids_rm = torch.empty(0, 0)  # of the last step

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
        self.best = 0
        self.more: Callable[[Sequence[Sequence[int]]], Tensor] | None = None
        self.positions_PD = model.tgt_positions(1).float()  # as many as have been needed

    @property
    def library(self) -> ctypes.CDLL:
        return self.compiled.library

    def ranking(self, count: int) -> CompiledDecoder:
        """Returns the same decoder, except that its blocks have only the `count` best tokens of each row, so that the
        search need not look for them."""
        made = copy.copy(self)
        made.best = min(count, len(self.model.projection.weight))
        return made

    def limited(self, more: Callable[[Sequence[Sequence[int]]], Tensor]) -> CompiledDecoder:
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
        numbers_n, listed_n = (self.more(sources) if self.more else torch.empty(0, 2, dtype=torch.int64)).T.contiguous()
        counts_b = torch.bincount(numbers_n, minlength=len(sources))
        # Nothing depends on an EOS that is not attended to.
        sources = sources if self.model.config.source_eos else [source[:-1] for source in sources]
        lengths = [len(source) for source in sources]
        tokens_N = torch.tensor([token for source in sources for token in source], dtype=torch.int64)
        lengths_b, places_f = torch.tensor(lengths), torch.tensor(places, dtype=torch.int64)
        positions_SD = self.model.src_positions(max(lengths)).float()
        self.library.batch_admit(
            state.pointer,
            tokens_N.data_ptr(),
            lengths_b.data_ptr(),
            len(lengths),
            places_f.data_ptr(),
            len(places),
            positions_SD.data_ptr(),
            listed_n.data_ptr(),
            counts_b.data_ptr(),
        )

    def hidden(self, state: CompiledState, tokens_BK: Tensor, live_r: Tensor) -> Tensor:
        """Computes a step up to the projection: the decoder's output [r, D] of the live rows."""
        self._advance(state, tokens_BK)
        out_rD = torch.empty(len(live_r), self.model.config.d_model, dtype=torch.float32)
        self.library.batch_hidden(state.pointer, live_r.data_ptr(), len(live_r), out_rD.data_ptr())
        return out_rD

    def step(self, state: CompiledState, tokens_BK: Tensor, live_r: Tensor) -> Iterable[Block]:
        self._advance(state, tokens_BK)
        if self.best:
            return (self._best(state, live_r),)
        return (self._logprobs(state, live_n) for live_n in torch.split(live_r, self.rows))

    def _advance(self, state: CompiledState, tokens_BK: Tensor) -> None:
        tokens_BK, known_PD = tokens_BK.contiguous(), self.positions_PD
        while needed := self.library.batch_step(
            state.pointer, tokens_BK.data_ptr(), known_PD.data_ptr(), known_PD.shape[0]
        ):
            limit = self.model.max_length
            rows = max(needed, 2 * needed if limit is None else min(2 * needed, limit))
            known_PD = self.positions_PD = self.model.tgt_positions(rows).float()

    def _logprobs(self, state: CompiledState, live_n: Tensor) -> Tensor:
        out_nV = torch.empty(len(live_n), len(self.model.projection.weight), dtype=torch.float32)
        self.library.batch_logprobs(state.pointer, live_n.data_ptr(), len(live_n), out_nV.data_ptr())
        return out_nV

    def _best(self, state: CompiledState, live_r: Tensor) -> Best:
        r, m = live_r.shape[0], self.best
        if state.values_rm.shape[0] < r:
            state.values_rm, state.ids_rm = torch.empty(r, m, dtype=torch.float32), torch.empty(r, m, dtype=torch.int64)
        pointers = state.ids_rm.data_ptr(), state.values_rm.data_ptr()
        if self.library.batch_best(state.pointer, live_r.data_ptr(), r, m, *pointers):
            raise bad_logprobs()
        return Best(state.values_rm.numpy()[:r], state.ids_rm.numpy()[:r])

    def reorder(self, state: CompiledState, parents_BK: Tensor) -> None:
        parents_BK = parents_BK.contiguous()
        self.library.batch_reorder(state.pointer, parents_BK.data_ptr())

    def drop(self, state: CompiledState, sentences: Sequence[int]) -> None:
        places = torch.tensor(sentences, dtype=torch.int64)
        self.library.batch_drop(state.pointer, places.data_ptr(), len(places))

    def select(self, state: CompiledState, sentences: Sequence[int]) -> None:
        places = torch.tensor(sentences, dtype=torch.int64)
        self.library.batch_select(state.pointer, places.data_ptr(), len(places))
