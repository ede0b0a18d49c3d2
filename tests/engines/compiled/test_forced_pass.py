"""The compiled forced pass equals torch's."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from compilers import needs_compiler
from drawn import seeded, some
from networks import EOS, SEQUENCES, SMALL, VARIANTS, V, arrays_of, make
from test_decoder import WIDE

from vtrans.config import ModelConfig
from vtrans.engines.compiled import forced
from vtrans.engines.compiled.decoder import CompiledDecoder, compiled_decoder
from vtrans.engines.forced import forced_batches, mean_attention
from vtrans.engines.forced import token_logprobs as in_torch
from vtrans.model.network import Transformer
from vtrans.search.decoder import SubwordPair

pytestmark = needs_compiler
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
    numbers, made = seeded(seed), list[SubwordPair]()
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
    with torch.inference_mode():
        expected = dict(in_torch(model, some, 200))
    for i, found in enumerate(forced.token_logprobs(decoder, some, 1)):
        np.testing.assert_allclose(found, np.array(expected.get(i, ())), rtol=0, atol=tolerance)
    for (_, target), found, exact in zip(
        some, forced.mean_attention(decoder, some, 1), attention(model, some), strict=True
    ):
        if target:
            np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("config", some(CONFIGS, 6))
def test_logprobs_and_attention_equal_torch(config: ModelConfig) -> None:
    check(*decoders(config), pairs(40))


@pytest.mark.parametrize("config", [SMALL, SEQUENCES[-1], VARIANTS[-3]])
def test_neither_threads_nor_other_pairs_change_a_bit(config: ModelConfig) -> None:
    _, decoder = decoders(config)
    some, both = pairs(300), list[list[bytes]]()
    for threads in (1, 2, 5):
        results = (*forced.token_logprobs(decoder, some, threads), *forced.mean_attention(decoder, some, threads))
        both.append([array.tobytes() for array in results])
    assert both[0] == both[1] == both[2]
    alone = [next(forced.token_logprobs(decoder, [pair], 1)).tobytes() for pair in some]
    assert alone == both[0][: len(some)]
