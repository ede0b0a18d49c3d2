"""Exports to Hugging Face: what transformers makes of them, and round trips."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from exports import LINES, random_model
from foreign import hugging_face_folder

from vtrans.checkpoint import load_model, save_model
from vtrans.config import SearchConfig
from vtrans.console import Console
from vtrans.data.store import DataFolder
from vtrans.errors import InputError
from vtrans.interop.exports import export_model
from vtrans.interop.formats import import_model, read_model
from vtrans.interop.huggingface import exporter
from vtrans.interop.imported import install
from vtrans.text.vocabulary import EOS_ID

QUIET = Console(quiet=True)
VARIANTS: dict[str, dict[str, Any]] = {
    "post-norm": {"decoder_layers": 2},
    "pre-norm": {"norm": "pre", "activation": "gelu"},
    "stored positions": {"positions": "stored", "max_positions": 80, "activation": "swish", "projection_bias": True},
    "shared layers": {"share_layers": "all", "share_stacks": True, "decoder_layers": 2},
    "unscaled": {"scale_embedding": False, "norm": "pre", "projection_bias": True},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_transformers_translates_an_export_as_the_model_does(name: str, tmp_path: Path, tiny_data: DataFolder) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    loaded = random_model(tiny_data, **VARIANTS[name])
    verified = export_model(loaded, "huggingface", tmp_path / "out", QUIET, LINES)
    assert verified is not None
    assert verified.largest < 1e-5
    assert verified.split_alike == verified.sentences == len(LINES)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "D 16" in card
    assert "step" in card


def test_a_model_with_separate_vocabularies(tmp_path: Path, tiny_data_separate: DataFolder) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    loaded = random_model(tiny_data_separate, tie="tgt-softmax")
    verified = export_model(loaded, "huggingface", tmp_path / "out", QUIET, LINES)
    assert verified is not None
    assert verified.largest < 1e-5


def test_the_shortest_translation_has_as_many_tokens_there_and_back(tmp_path: Path, tiny_data: DataFolder) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    loaded = random_model(tiny_data, SearchConfig(beam=1, length_penalty="length", min_length=7, max_source=40))
    loaded.model.projection.weight.data[EOS_ID] *= 100  # EOS is the best or the worst token
    exporter.write(loaded, tmp_path, QUIET)
    search = install(read_model(tmp_path)).search
    assert (search.min_length, search.max_source) == (7, 40)
    model = transformers.MarianMTModel.from_pretrained(tmp_path)
    source = torch.tensor([[5, 6, 7, model.config.eos_token_id]])
    lengths = {len(model.generate(source + k * (source > 4))[0]) - 2 for k in range(8)}  # without start and EOS
    assert min(lengths) == 7


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


@pytest.mark.parametrize("beam", [1, 2])
def test_only_a_beam_search_has_the_repetition_penalty(beam: int, tmp_path: Path, tiny_data: DataFolder) -> None:
    """In transformers, greedy search applies the penalty to logits; beam search applies it to log-probabilities, as
    ours does."""
    heard = io.StringIO()
    loaded = random_model(tiny_data, SearchConfig(beam=beam, length_penalty="length", repetition_penalty=1.5))
    exporter.write(loaded, tmp_path, Console(stream=heard))
    assert ("repetition_penalty" in heard.getvalue()) == (beam == 1)
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert generation["repetition_penalty"] == (1.0 if beam == 1 else 1.5)


def test_what_hugging_face_cannot_express_is_refused_by_name(tmp_path: Path, tiny_data: DataFolder) -> None:
    with pytest.raises(InputError, match=r"model\.norm_eps"):
        export_model(random_model(tiny_data, norm_eps=1e-9), "huggingface", tmp_path / "out", QUIET)
    assert not (tmp_path / "out").exists()


def test_a_search_in_groups_is_written_as_one_beam_with_a_warning(tmp_path: Path, tiny_data: DataFolder) -> None:
    stream = io.StringIO()
    loaded = random_model(tiny_data, SearchConfig(beam=4, beam_groups=2, length_penalty="length", max_source=40))
    exporter.write(loaded, tmp_path, Console(stream=stream))
    assert json.loads((tmp_path / "generation_config.json").read_text())["num_beams"] == 4
    assert "search.beam_groups = 2 " in stream.getvalue()


def test_positions_of_another_kind_are_refused(tmp_path: Path, tiny_data: DataFolder) -> None:
    loaded = random_model(tiny_data, positions="stored", max_positions=90)
    loaded.model.get_buffer("src_positions.weight").mul_(1.01)
    with pytest.raises(InputError, match="positions"):
        export_model(loaded, "huggingface", tmp_path / "out", QUIET)


def test_an_export_of_a_pre_norm_model_is_imported_as_transformers_computes_it(
    tmp_path: Path, tiny_data: DataFolder
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    exporter.write(random_model(tiny_data, norm="pre"), tmp_path, QUIET)
    assert import_model(tmp_path, tmp_path / "model.safetensors", QUIET, LINES) is not None
