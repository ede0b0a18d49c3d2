"""Exports to Hugging Face: what transformers makes of them, and round trips."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from exports import LINES, assert_equal, assert_has_all_tensors, random_model
from foreign import hugging_face_folder
from safetensors.torch import load_file, save_file

from vtrans.checkpoint import load_model, save_model
from vtrans.config import TIE_FORMS
from vtrans.console import Console
from vtrans.data.store import DataFolder
from vtrans.errors import InputError
from vtrans.interop.exports import export_model
from vtrans.interop.formats import read_model
from vtrans.interop.huggingface import exporter
from vtrans.interop.imported import install
from vtrans.interop.weight_names import STACKS

QUIET = Console(quiet=True)
VARIANTS: dict[str, dict[str, Any]] = {
    "pre-norm": {"norm": "pre", "activation": "gelu"},
    "stored positions": {"positions": "stored", "max_positions": 80, "activation": "swish", "projection_bias": True},
    "shared layers": {"share_layers": "all", "share_stacks": True, "decoder_layers": 2},
    **{f"{tie}, {norm}-norm": {"tie": tie, "norm": norm} for tie in TIE_FORMS for norm in ("post", "pre")},
    "unscaled": {"scale_embedding": False, "norm": "pre", "projection_bias": True},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_transformers_translates_an_export_as_the_model_does(name: str, tmp_path: Path, tiny_data: DataFolder) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    loaded = random_model(tiny_data, **VARIANTS[name])
    assert_equal(export_model(loaded, "huggingface", tmp_path / "out", QUIET, LINES), 1e-5)
    assert_has_all_tensors(tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "D 16" in card
    assert "step" in card


@pytest.mark.parametrize("changes", [{}, {"separate": True}, {"decoder_start_token_id": 0}, {"early_stopping": True}])
def test_a_round_trip_gives_the_same_bytes(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = hugging_face_folder(tmp_path / "hf", **changes)
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    save_model(first, install(read_model(folder)))
    (tmp_path / "out").mkdir()
    exporter.write(load_model(first), tmp_path / "out", QUIET)
    save_model(second, install(read_model(tmp_path / "out")))
    assert first.read_bytes() == second.read_bytes()
    assert json.loads((folder / "vocab.json").read_text()) == json.loads((tmp_path / "out/vocab.json").read_text())


def test_what_hugging_face_cannot_express_is_refused_by_name(tmp_path: Path, tiny_data: DataFolder) -> None:
    with pytest.raises(InputError, match=r"model\.norm_eps"):
        export_model(random_model(tiny_data, norm_eps=1e-9), "huggingface", tmp_path / "out", QUIET)
    assert not (tmp_path / "out").exists()
    pegasus = hugging_face_folder(tmp_path / "hf", separate=True, model_type="pegasus")  # its two sizes do not fit
    weights = load_file(pegasus / "model.safetensors")
    norms = {f"model.{stack}.layer_norm.{kind}": torch.ones(16) for stack in STACKS for kind in ("weight", "bias")}
    save_file(weights | norms, pegasus / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.norm = .* got 29 and 35.*model\.norm=post"):
        export_model(install(read_model(pegasus)), "huggingface", tmp_path / "out", QUIET)
