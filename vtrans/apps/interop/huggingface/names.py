"""The files, embeddings and positions of Hugging Face's Marian models, for the import and the export."""

from __future__ import annotations

import torch
from torch import Tensor

CONFIG, GENERATION, WEIGHTS, PICKLED = "config.json", "generation_config.json", "model.safetensors", "pytorch_model.bin"
SHARDS = "model.safetensors.index.json"
SOURCE_SPM, TARGET_SPM, VOCAB, TARGET_VOCAB = "source.spm", "target.spm", "vocab.json", "target_vocab.json"
TOKENIZER = "tokenizer_config.json"
# The rules of `search.stop` there, as `early_stopping`.
STOPS = {"count": True, "current": False, "exhaustive": "never"}


def positions(length: int, D: int) -> Tensor:
    """Returns the position table [length, D]: sin(p / 10000^(2i/D)) in the first half, the cosines in the second."""
    p = torch.arange(length, dtype=torch.float64)[:, None]
    angle = p / 10000 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
    return torch.cat([angle.sin(), angle.cos()], 1).float()
