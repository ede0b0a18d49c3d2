"""The files, settings and positions of Hugging Face's Marian models, for the import and the export."""

from __future__ import annotations

import torch
from torch import Tensor

CONFIG, GENERATION, WEIGHTS, PICKLED = "config.json", "generation_config.json", "model.safetensors", "pytorch_model.bin"
SHARDS = "model.safetensors.index.json"
SOURCE_SPM, TARGET_SPM, VOCAB, TARGET_VOCAB = "source.spm", "target.spm", "vocab.json", "target_vocab.json"
TOKENIZER = "tokenizer_config.json"
# Keys of config.json by our names: sizes, which must be equal in both stacks, and other values.
SIZES = {
    "d_model": ("d_model",),
    "d_ff": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "encoder_layers": ("encoder_layers",),
    "decoder_layers": ("decoder_layers",),
}
VALUES = ("scale_embedding", "dropout", "attention_dropout", "activation_dropout")
# Keys of generation_config.json by our names.
SEARCH = {"beam": "num_beams", "alpha": "length_penalty", "no_repeat_ngram": "no_repeat_ngram_size"}
# Values of `early_stopping` by `search.stop`.
STOPS = {"count": True, "current": False, "exhaustive": "never"}


def positions(length: int, D: int) -> Tensor:
    """Returns the position table [length, D]: sin(p / 10000^(2i/D)) in the first half, the cosines in the second."""
    p = torch.arange(length, dtype=torch.float64)[:, None]
    angle = p / 10000 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
    return torch.cat([angle.sin(), angle.cos()], 1).float()
