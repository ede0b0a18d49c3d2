"""Models with random weights for tests of model files."""

from typing import Any

import torch

from vtrans.config import ModelConfig, SearchConfig
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import LoadedModel
from vtrans.model.network import Transformer
from vtrans.text.vocabulary import PAD_ID

SHAPE: dict[str, Any] = {"d_model": 16, "d_ff": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 2}


def make(data: DataFolder, tie: str, *, seed: int = 5, **config: Any) -> LoadedModel:
    """Returns a model for the vocabularies of a data folder. Equal seeds give equal weights."""
    torch.manual_seed(seed)
    model = Transformer(
        ModelConfig(**SHAPE | {"tie": tie, "dropout": 0.0} | config),
        len(data.src_vocab),
        len(data.tgt_vocab),
        joint=data.joint,
        pad_id=PAD_ID,
    )
    return LoadedModel(model, data.src_vocab, data.tgt_vocab, SearchConfig(beam=3), {"step": 7})
