"""Compiled decoding equals decoding with torch."""

import ctypes
import dataclasses
import math

import numpy as np
import pytest
import torch
from compilers import needs_compiler
from drawn import each_with, seeded, some
from networks import BOS, SEQUENCES, SMALL, VARIANTS, V, arrays_of, make, padded, sequences

from vtrans.config import ModelConfig
from vtrans.engines.compiled import compiler
from vtrans.engines.compiled.decoder import CompiledDecoder, compiled_decoder, memory
from vtrans.engines.compiled.weights import PRECISIONS
from vtrans.search.decoder import Best, logprobs_of

pytestmark = needs_compiler
LINES = ["The dog sees me today.", "", "a dog runs in the park", "the cat sleeps", "We see the old house."]


@pytest.fixture
def library() -> ctypes.CDLL:
    return compiled_decoder(None)


def close(found: torch.Tensor, full: torch.Tensor) -> None:
    torch.testing.assert_close(found, full, rtol=0, atol=3e-5)


WIDE = dataclasses.replace(SMALL, d_model=96, d_ff=88, heads=2)  # heads of a whole number of vectors, and a part


EVERY = [*VARIANTS, *SEQUENCES, WIDE, dataclasses.replace(SMALL, source_eos=False)]


@pytest.mark.parametrize(("config", "width"), each_with(some(EVERY, 9), [1, 3]))
def test_each_row_attends_to_its_own_history(library: ctypes.CDLL, config: ModelConfig, width: int) -> None:
    check_histories(library, config, width)


ALL = list(compiler.INSTRUCTIONS)


@pytest.mark.parametrize("instructions", ALL[ALL.index(compiler.instructions()) :])
@pytest.mark.parametrize("config", [WIDE, *some([VARIANTS[-5], VARIANTS[-3], SEQUENCES[-1]], 1)])
def test_each_instruction_set_computes_the_same(
    config: ModelConfig, instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "instructions", lambda: instructions)
    check_histories(compiled_decoder(None), config, 3)


@pytest.mark.parametrize("instructions", ALL[ALL.index(compiler.instructions()) :])
@pytest.mark.parametrize("precision", PRECISIONS[1:])
def test_a_product_has_rounded_operands_and_exact_sums(
    instructions: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By definition, a bfloat16 product multiplies both operands rounded to bfloat16. In int8, both are rounded to 127
    steps on each side of zero, of the largest number of the row. The projection shows it. Its 37 inputs fill no whole
    number of any processor's groups."""
    monkeypatch.setattr(compiler, "instructions", lambda: instructions)
    config = dataclasses.replace(SMALL, d_model=38, heads=1, d_ff=41)
    model = make(config).float()
    model.projection.weight.data *= torch.logspace(-1, 2, V)[:, None]  # each output has a scale of its own
    decoder = CompiledDecoder(arrays_of(model), compiled_decoder(None), precision)
    state, live = decoder.start(sequences(6, 20, 9), 3), np.arange(9)

    def rounded(x: torch.Tensor) -> torch.Tensor:
        if precision == "bfloat16":
            return x.bfloat16().double()
        step = x.abs().amax(1, keepdim=True) / 127
        return ((x / step).round() * step.double()).double()

    with torch.inference_mode():
        for tokens in ([[BOS] * 3] * 3, [[5, 6, 7]] * 3):
            [block] = decoder.step(state, np.array(tokens), live)
            hidden = np.empty((9, 38), dtype=np.float32)
            decoder.library.batch_hidden(state.pointer, memory(live), 9, memory(hidden))
            logits = rounded(torch.from_numpy(hidden)) @ rounded(model.projection.weight).T
            if model.projection.bias is not None:
                logits += model.projection.bias
            logits[:, 0] = -torch.inf
            found = torch.from_numpy(logprobs_of(block)).double()
            torch.testing.assert_close(found[:, 1:], logits.log_softmax(1)[:, 1:], rtol=1e-5, atol=3e-5)


def check_histories(library: ctypes.CDLL, config: ModelConfig, width: int) -> None:
    """Rows change parents and die, sentences end, others take their places, the batch grows and shrinks: each live row
    still equals its full forward pass, and has the same best tokens in the same order."""
    model, numbers = make(config).float(), seeded(3)
    decoder = CompiledDecoder(arrays_of(model), library)
    batch: list[list[int] | None] = list(sequences(6, 20, 9))  # the sources; None: an empty place
    histories: list[list[list[int]]] = [[[] for _ in range(width)] for _ in batch]
    with torch.inference_mode():
        state = decoder.start([source for source in batch if source], width)
        for t in range(45):
            tokens = np.array([[numbers.randrange(4, V) for _ in range(width)] for _ in batch])
            histories = [
                [[*row, token] for row, token in zip(rows, new, strict=True)]
                for rows, new in zip(histories, tokens.tolist(), strict=True)
            ]
            live = [b * width + k for b, s in enumerate(batch) for k in range(width) if s and (k != 1 or t % 3 != 1)]
            [block] = decoder.step(state, tokens, np.array(live), width + 2 if t % 2 else None)
            for place, row in enumerate(live if t % 5 == 0 or t > 42 else ()):
                src, keep = padded([batch[row // width] or []])
                full = model(src, keep, torch.tensor([histories[row // width][row % width]]))[0, -1].log_softmax(-1)
                if isinstance(block, Best):
                    close(torch.tensor(block.logprobs[place]), full.topk(width + 2).values)
                    close(torch.tensor(block.logprobs[place]), full[torch.tensor(block.ids[place])])
                else:
                    close(torch.from_numpy(block[place, 1:]), full[1:])  # without padding
            parents = [[numbers.randrange(width) for _ in range(width)] for _ in batch]
            decoder.reorder(state, np.array(parents))
            histories = [[rows[parent] for parent in own] for rows, own in zip(histories, parents, strict=True)]
            if t in (8, 20):
                decoder.drop(state, [1])
                batch[1] = None
            if t == 12:
                decoder.admit(state, [*sequences(4), *sequences(15)], [1])
                batch[1:] = [*sequences(4), batch[2], *sequences(15)]
                histories[1:] = [[[]] * width, histories[2], [[]] * width]
            if t == 25:
                decoder.select(state, [0, 2])
                batch, histories = [batch[0], batch[2]], [histories[0], histories[2]]


@pytest.mark.parametrize("config", [SMALL, SEQUENCES[-1], VARIANTS[-3]])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_threads_change_no_bit(library: ctypes.CDLL, config: ModelConfig, precision: str) -> None:
    """Threads divide the sentences, and a row's sums do not depend on the rows computed with it."""
    decoder = CompiledDecoder(arrays_of(make(config).float()), library, precision)
    sources, numbers = sequences(*[3 + n % 11 for n in range(37)]), seeded(5)
    tokens = [np.array([[numbers.randrange(4, V) for _ in range(3)] for _ in sources]) for _ in range(6)]
    live = np.array([row for row in range(3 * len(sources)) if row % 7 and row // 3 != 3])
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        try:
            state = decoder.start(sources[:30], 3)
        finally:
            torch.set_num_threads(1)
        decoder.admit(state, sources[30:], ())
        decoder.drop(state, [3])
        steps = []
        for step in tokens:
            [block] = decoder.step(state, step, live, 5)
            assert isinstance(block, Best)
            steps += [block.logprobs.tobytes(), block.ids.tobytes()]
            decoder.reorder(state, np.array([[0, 2, 1]] * len(sources)))
        results.append(steps)
    assert results[0] == results[1] == results[2]


def test_narrow_integers_are_widened(library: ctypes.CDLL) -> None:
    """NumPy 1 makes 32-bit arrays on Windows, but the compiled code reads 64-bit integers."""
    decoder, live, results = CompiledDecoder(arrays_of(make(SMALL).float()), library), np.arange(4), []
    for dtype in (np.int64, np.int32):
        state, steps = decoder.start(sequences(4, 7), 2), []
        for tokens in ([[5, 6], [7, 8]], [[9, 10], [11, 12]]):
            [block] = decoder.step(state, np.array(tokens, dtype), live)
            steps.append(logprobs_of(block))
            decoder.reorder(state, np.array([[1, 0], [0, 0]], dtype))
        results.append(np.array(steps))
    assert np.array_equal(results[0], results[1])


@pytest.mark.parametrize("best", [1, 2, 5, 20, 300])
def test_the_best_tokens_equal_a_sort_of_the_whole_vocabulary(library: ctypes.CDLL, best: int) -> None:
    model = make(SMALL, src=1000, tgt=1000).float()
    model.projection.weight.data[500:] = model.projection.weight.data[:500]  # each logit is there twice
    decoder = CompiledDecoder(arrays_of(model), library)
    first = np.array([[BOS]]), np.array([0])
    [every] = decoder.step(decoder.start(sequences(4), 1), *first)
    whole = logprobs_of(every)[0]
    [block] = decoder.step(decoder.start(sequences(4), 1), *first, best)
    assert isinstance(block, Best)
    assert block.ids[0].tolist() == (-whole).argsort(kind="stable")[:best].tolist()
    assert np.array_equal(block.logprobs[0], whole[block.ids[0]])


def test_equal_logprobs_rank_by_id_whether_a_listed_subword_is_common_or_not(library: ctypes.CDLL) -> None:
    model = make(SMALL).float()
    model.projection.weight.data[:] = 0
    decoder = CompiledDecoder(arrays_of(model), library, "float32", (5, 9, 20))
    decoder = decoder.limited(lambda sources: np.array([[0, 4], [0, 7], [0, 12], [0, 30]]))
    [block] = decoder.step(decoder.start(sequences(4), 1), np.array([[BOS]]), np.array([0]), 5)
    assert isinstance(block, Best)
    assert block.ids.tolist() == [[4, 5, 7, 9, 12]]
    assert block.logprobs[0] == pytest.approx(-math.log(7), abs=1e-6)
