"""Small models and their exports, shared by the tests of exports."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from conftest import VALID_PAIRS
from model_files import make
from safetensors.torch import load_file

from vtrans.apps.interop.comparison import Comparison, Program
from vtrans.apps.interop.ctranslate2 import exporter as exporting
from vtrans.config import SearchConfig
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import LoadedModel
from vtrans.system.console import Console
from vtrans.text.vocabulary import EOS_ID

SHORT = SearchConfig(max_source=40)  # for a short position table
LINES = [pair[0] for pair in VALID_PAIRS]


def random_model(data: DataFolder, search: SearchConfig | None = None, **changes: Any) -> LoadedModel:
    """Returns an untrained model with enlarged weights, so that its decisions are not close."""
    shape: dict[str, Any] = {"tie": "src-tgt-softmax", "encoder_layers": 2, "decoder_layers": 1}
    loaded = make(data, **shape | changes)
    with torch.no_grad():
        for name, parameter in loaded.model.named_parameters():
            if parameter.dim() == 1:  # at their initial values, 0 and 1, biases and norms would not be tested
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif "embedding" in name or "projection" in name:
                parameter.mul_(1.5)
                parameter[EOS_ID] += 0.2
    loaded.model.eval()
    return dataclasses.replace(loaded, search=search or SHORT, training={"step": 0})


def written(loaded: LoadedModel, folder: Path, quantization: str = "float32") -> tuple[LoadedModel, Program]:
    """Writes the export for CTranslate2, without comparing it with the model. Returns what is to be compared."""
    folder.mkdir()
    expressed, load = exporting.write(loaded, folder, Console(quiet=True), quantization)
    return expressed, load()


def assert_equal(comparison: Comparison | None, largest: float) -> Comparison:
    """The sentences are split alike, translations differ by rounding alone, and not all are cut off at the limit."""
    assert comparison is not None
    assert comparison.largest < largest
    assert comparison.split == []
    assert comparison.translations is not None
    assert comparison.translations.missed == []
    assert comparison.translations.equal > 0
    return comparison


def assert_has_all_tensors(folder: Path) -> None:
    """transformers finds every tensor of an export and no other, would save the same ones, and would compute the same
    positions, which its Marian does not save."""
    import transformers

    model, found = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(found.values()), found
    model.save_pretrained(folder / "again")
    ours, theirs = (load_file(path / "model.safetensors") for path in (folder, folder / "again"))
    positions = {name for name in ours if "embed_positions" in name}
    for name in positions:
        theirs[name] = model.get_submodule(name.removesuffix(".weight")).create_weight()
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], theirs[name], rtol=0, atol=1e-6 if name in positions else 0) for name in ours)
