"""The forced pass of compiled code computes what that of torch computes."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
import torch
from drawn import some
from networks import EOS, SEQUENCES, SMALL, VARIANTS, V, make
from test_decoder import ALL, COMPILER, WIDE

from vtrans.checkpoint import arrays_of
from vtrans.compiled import compiler, forced
from vtrans.compiled.decoder import CompiledDecoder, compiled_decoder
from vtrans.compiled.weights import PRECISIONS
from vtrans.config import ModelConfig
from vtrans.engines.attention import mean_attention
from vtrans.engines.forced import forced_batches
from vtrans.engines.forced import token_logprobs as in_torch
from vtrans.errors import LogprobsError
from vtrans.model import Transformer
from vtrans.search.decoder import SubwordPair

pytestmark = pytest.mark.skipif(COMPILER is None, reason="a C++ compiler is not installed: apt-get install g++")
INSTRUCTIONS = ALL[ALL.index(compiler.instructions()) :]
CONFIGS = [
    *VARIANTS,
    *SEQUENCES,
    WIDE,
    dataclasses.replace(SMALL, source_eos=False),
    dataclasses.replace(SMALL, alignment_layer=2),
    dataclasses.replace(WIDE, alignment_layer=3, norm="pre", autoregression="ssru"),
    dataclasses.replace(SMALL, decoder_layers=4),
]


def decoders(config: ModelConfig, precision: str = "float32", **sizes: int) -> tuple[Transformer, CompiledDecoder]:
    model = make(config, **sizes).float().requires_grad_(False)
    return model, CompiledDecoder(arrays_of(model), compiled_decoder(None), precision)


def pairs(count: int, seed: int = 3) -> list[SubwordPair]:
    """Pairs of several blocks. Some targets are empty, some end in EOS."""
    numbers, made = random.Random(seed), list[SubwordPair]()
    for _ in range(count):
        source, target = ([numbers.randrange(4, V) for _ in range(numbers.randrange(n, 30))] for n in (1, 0))
        made.append((source, [*target, EOS] if numbers.random() < 0.7 else target))
    return made


def attention(model: Transformer, some: list[SubwordPair]) -> list[Any]:
    """The attention [T, S] of each pair, computed with torch."""
    found: list[Any] = [None] * len(some)
    with torch.inference_mode():
        for rows, batch in forced_batches(some, 200, model.device):
            for row, aligning_TS in zip(rows, mean_attention(model, batch), strict=True):
                source, target = some[row]
                found[row] = aligning_TS[: len(target), : len(source) + 1]
    return found


def check(model: Transformer, decoder: CompiledDecoder, some: list[SubwordPair], tolerance: float = 3e-5) -> None:
    expected = in_torch([model], [1.0], some, 200)
    for found, exact in zip(forced.token_logprobs(decoder, some, 1), expected, strict=True):
        np.testing.assert_allclose(found, np.array(exact), rtol=0, atol=tolerance)
    for (_, target), found, exact in zip(
        some, forced.mean_attention(decoder, some, 1), attention(model, some), strict=True
    ):
        if target:
            np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("config", some(CONFIGS, 6))
def test_logprobs_and_attention_are_those_of_torch(config: ModelConfig) -> None:
    check(*decoders(config), pairs(40))


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize("config", [WIDE, *some([SEQUENCES[-1], CONFIGS[-2]], 1)])
def test_each_instruction_set_computes_the_same(
    config: ModelConfig, instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "instructions", lambda: instructions)
    check(*decoders(config), pairs(20))


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize("precision", PRECISIONS[1:])
@pytest.mark.parametrize("config", some([WIDE, SEQUENCES[0], CONFIGS[-2]], 1))
def test_a_rounded_model_is_close_to_float32(
    config: ModelConfig, precision: str, instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "instructions", lambda: instructions)
    model, decoder = decoders(config, precision)
    some = [pair for pair in pairs(40) if pair[1]]
    exact = np.concatenate(in_torch([model], [1.0], some, 200))
    error = np.concatenate(forced.token_logprobs(decoder, some, 1)) - exact
    assert 0 < np.sqrt((error**2).mean()) < 0.05 * exact.std()
    found, full = forced.mean_attention(decoder, some, 1), attention(model, some)
    assert 0 < max(abs(a - b).max() for a, b in zip(found, full, strict=True)) < 0.1


@pytest.mark.parametrize("config", [SMALL, SEQUENCES[-1], VARIANTS[-3]])
def test_neither_threads_nor_other_pairs_change_a_bit(config: ModelConfig) -> None:
    _, decoder = decoders(config)
    some, both = pairs(300), list[list[bytes]]()
    for threads in (1, 2, 5):
        results = (*forced.token_logprobs(decoder, some, threads), *forced.mean_attention(decoder, some, threads))
        both.append([array.tobytes() for array in results])
    assert both[0] == both[1] == both[2]
    alone = [forced.token_logprobs(decoder, [pair], 1)[0].tobytes() for pair in some]
    assert alone == both[0][: len(some)]


def test_a_shortlist_has_no_effect() -> None:
    model, whole = decoders(SMALL)
    limited = CompiledDecoder(arrays_of(model), whole.library, "float32", (3, 5, 7, 11))
    some = pairs(20)
    for found, expected in zip(
        forced.token_logprobs(limited, some, 1), forced.token_logprobs(whole, some, 1), strict=True
    ):
        assert found.tolist() == expected.tolist()


def test_pairs_are_counted_as_they_are_done() -> None:
    _, decoder = decoders(SMALL)
    counts: list[int] = []
    forced.token_logprobs(decoder, pairs(400), 1, counts.append)
    assert len(counts) > 1
    assert sum(counts) == 400
    assert [*forced.token_logprobs(decoder, [], 1), *forced.mean_attention(decoder, [], 1)] == []


def test_nan_is_an_error() -> None:
    model, _ = decoders(SMALL)
    model.decoder.layers[0].feed_forward.inner.weight[0] = torch.nan
    with pytest.raises(LogprobsError):
        forced.token_logprobs(CompiledDecoder(arrays_of(model), compiled_decoder(None)), pairs(3), 1)
