"""The layout of a model file is that of the network."""

import random
import typing

import pytest
from drawn import seeded, some
from networks import SEQUENCES, VARIANTS, make

from vtrans.config import ModelConfig, contradiction
from vtrans.model.checkpoint import aliases, weights_of
from vtrans.storage.layout import layout_of

SHAPES = {
    "tie": ("src-tgt-softmax", "tgt-softmax", "src-tgt", "none"),
    "norm": ("pre", "post"),
    "positions": ("sinusoidal", "learned", "stored", "rotary"),
    "share_positions": (False, True),
    "share_layers": ("none", "attention", "feed-forward", "all"),
    "share_group": (0, 2),
    "share_stacks": (False, True),
    "autoregression": ("self-attention", "ssru"),
    "architecture": ("encoder-decoder", "decoder-only"),
    "projection_bias": (False, True),
    "encoder_layers": (0, 1, 2, 3, 4),
    "decoder_layers": (1, 2, 3, 4),
}


def random_config(numbers: random.Random) -> ModelConfig:
    """A random architecture that is none of the contradictory ones."""
    while True:
        values: dict[str, typing.Any] = {name: numbers.choice(choices) for name, choices in SHAPES.items()}
        config = ModelConfig(d_model=16, d_ff=24, heads=4, max_positions=32, **values)
        if contradiction(config) is None:
            return config


RANDOM = seeded(7)


@pytest.mark.parametrize(
    "config", some([*VARIANTS, *SEQUENCES, *(random_config(RANDOM) for _ in range(60))], 20), ids=str
)
def test_a_layout_has_the_names_shapes_and_aliases_of_the_network(config: ModelConfig) -> None:
    network = make(config)
    layout = layout_of(config, 40, 40, joint=True)
    assert layout.shapes == {name: tuple(weight.shape) for name, weight in weights_of(network).items()}
    assert layout.aliases == aliases(network)
