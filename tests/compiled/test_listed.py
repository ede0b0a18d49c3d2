"""Compiled code that projects only the subwords that a sentence lists."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compilers import needs_compiler
from networks import BOS, SMALL, arrays_of, make, sequences

from vtrans.compiled.decoder import CompiledDecoder, compiled_decoder
from vtrans.search.decoder import Best

pytestmark = needs_compiler


def test_equal_logprobs_rank_by_id_whether_a_subword_is_common_or_not() -> None:
    model = make(SMALL).float()
    model.projection.weight.data[:] = 0
    decoder = CompiledDecoder(arrays_of(model), compiled_decoder(None), "float32", (5, 9, 20))
    decoder = decoder.limited(lambda sources: np.array([[0, 4], [0, 7], [0, 12], [0, 30]]))
    [block] = decoder.step(decoder.start(sequences(4), 1), np.array([[BOS]]), np.array([0]), 5)
    assert isinstance(block, Best)
    assert block.ids.tolist() == [[4, 5, 7, 9, 12]]
    assert block.logprobs[0] == pytest.approx(-math.log(7), abs=1e-6)
