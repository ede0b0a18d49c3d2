"""Small models and their exports, shared by the tests of the CTranslate2 engine and of the export."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import VALID_PAIRS
from near_ties import equal_or_tied_hypotheses

from vtrans.checkpoint import LoadedModel
from vtrans.config import ModelConfig, SearchConfig
from vtrans.data.store import DataFolder
from vtrans.data.vocabulary import EOS_ID, PAD_ID
from vtrans.engines.ctranslate2_engine import CTranslate2Engine
from vtrans.engines.ctranslate2_folder import load_exported
from vtrans.engines.engine import Source
from vtrans.engines.torch_engine import TorchEngine
from vtrans.interop.ctranslate2 import exporter as exporting
from vtrans.model import Transformer
from vtrans.search.loop import Hypothesis
from vtrans.translate.sources import EXTRA_LENGTH
from vtrans.translate.translation import TranslateOptions

SMALL = ModelConfig(d_model=16, d_ff=24, heads=2, encoder_layers=2, decoder_layers=1, tie="src-tgt-softmax")


SHORT = SearchConfig(max_source=40)  # for a short position table


LINES = [pair[0] for pair in VALID_PAIRS]


def random_model(data: DataFolder, search: SearchConfig | None = None, **changes: Any) -> LoadedModel:
    """Returns an untrained model with enlarged weights, so that its decisions are not close."""
    config = dataclasses.replace(SMALL, **changes)
    torch.manual_seed(5)
    sizes = len(data.src_vocab), len(data.tgt_vocab)
    model = Transformer(config, *sizes, joint=data.joint, pad_id=PAD_ID)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:  # at their initial values, 0 and 1, biases and norms would not be tested
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif "embedding" in name or "projection" in name:
                parameter.mul_(1.5)
                parameter[EOS_ID] += 0.2
    return LoadedModel(model.eval(), data.src_vocab, data.tgt_vocab, search or SHORT, {"step": 0})


def written(loaded: LoadedModel, folder: Path, quantization: str = "float32") -> CTranslate2Engine:
    """Returns the export, without comparing it with the model."""
    folder.mkdir()
    exporting.write_files(loaded, folder, quantization)
    return load_exported(folder, "cpu")


def encoded(loaded: LoadedModel, lines: list[str]) -> list[list[int]]:
    return sorted(([*ids, EOS_ID] for ids in loaded.src_vocab.encode_batch(lines)), key=len, reverse=True)


def compared(
    loaded: LoadedModel, exported: CTranslate2Engine, config: SearchConfig, nbest: int, sources: list[list[int]]
) -> list[list[Hypothesis]]:
    """Returns the hypotheses of the torch engine for each source, with short and long limits. Asserts that those of
    the export are equal or near-ties."""
    limits = [(3, 7, len(source) + EXTRA_LENGTH)[i % 3] for i, source in enumerate(sources)]
    reach = exported.max_length or max(limits)
    asked = [Source(source, min(limit, reach), "") for source, limit in zip(sources, limits, strict=True)]
    options = TranslateOptions(nbest)
    runs = [dict(engine.translate(asked, config, options)) for engine in (TorchEngine([loaded]), exported)]
    ours, theirs = ([run[i] for i in range(len(sources))] for run in runs)
    for a, b, equal in zip(
        ours, theirs, equal_or_tied_hypotheses(loaded, asked, config, options, ours, theirs), strict=True
    ):
        if equal:
            assert [h.logprob for h in a] == pytest.approx([h.logprob for h in b], rel=1e-5, abs=2e-4)
            assert [h.score for h in a] == pytest.approx([h.score for h in b], rel=1e-5, abs=2e-4)
    return ours
