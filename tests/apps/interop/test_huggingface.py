"""Imports and exports of Hugging Face Marian folders, compared with transformers; folders that are refused."""

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

import exports
import foreign
import pytest
import torch
from cli_runner import Run
from drawn import some
from exports import assert_equal, assert_has_all_tensors, random_model
from foreign import hugging_face_folder
from safetensors.torch import load_file, save_file

from vtrans.apps.interop.comparison import REAL, Outputs, compare, outputs, real_sentences
from vtrans.apps.interop.formats import export_model, import_model, read_model
from vtrans.apps.interop.huggingface import exporter
from vtrans.apps.interop.huggingface.importer import EXPECTED, EXPECTED_NORMS, KNOWN
from vtrans.apps.interop.weights import STACKS
from vtrans.config import TIE_FORMS
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model, save_model
from vtrans.system.console import Console
from vtrans.system.errors import FileError, InputError, VtransError

QUIET = Console(quiet=True)
LINES = [*foreign.TEXT[:4], "", "a dog \u6771 cat", ">>de<< the man", ">>xx<< the man", " two  dogs ", "</s> a <pad>"]
VARIANTS: dict[str, dict[str, Any]] = {
    "one matrix": {},
    "separate vocabularies": {"separate": True},
    "relu, unscaled, nothing suppressed": {
        "activation_function": "relu",
        "scale_embedding": False,
        "bad_words_ids": None,
        "length_penalty": 0.6,
        "early_stopping": True,
    },
    "starts with EOS": {"decoder_start_token_id": 0},
    "the canonical search": {"early_stopping": "never", "num_beams": 2, "suppress_tokens": [3, 4]},
    "sampling by default, and a shortest translation": {"do_sample": True, "temperature": 9.0, "min_length": 20},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_an_import_equals_its_original(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    folder = hugging_face_folder(tmp_path / "hf", **VARIANTS[name])
    # transformers cuts a language off even if the vocabulary has none, as it does with separate vocabularies.
    lines = [line for line in LINES[:-1] if not (name == "separate vocabularies" and line.startswith(">>"))]
    comparison = import_model(folder, tmp_path / "model.safetensors", QUIET, lines)
    assert_equal(comparison, 1e-5)


@pytest.mark.parametrize(
    "settings", [{"repetition_penalty": 3.0}, {"exponential_decay_length_penalty": [1, 9.0]}, {"num_beam_groups": 2}]
)
def test_an_original_whose_own_settings_translate_otherwise_is_refused(settings: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    folder = hugging_face_folder(tmp_path / "hf", **settings)
    with pytest.raises(VtransError):
        import_model(folder, tmp_path / "model.safetensors", QUIET, LINES[:4])
    assert not (tmp_path / "model.safetensors").exists()


def test_an_import_without_samples_compares_real_sentences_of_its_language(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    comparison = import_model(hugging_face_folder(tmp_path / "hf"), tmp_path / "model.safetensors", QUIET)
    assert comparison is not None
    assert 0 < comparison.sentences <= len(REAL["en"])
    lines = real_sentences(load_model(tmp_path / "model.safetensors"))
    assert [line.removeprefix(">>de<< ") for line in lines] == REAL["en"]


def test_sharded_weights_are_read(tmp_path: Path) -> None:
    folder = hugging_face_folder(tmp_path / "hf")
    expected = read_model(folder).model.model.state_dict()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shards = {"one.safetensors": sorted(tensors)[::2], "two.safetensors": sorted(tensors)[1::2]}
    for file, stored in shards.items():
        save_file({weight: tensors[weight] for weight in stored}, folder / file)
    places = {weight: file for file, stored in shards.items() for weight in stored}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    weights = read_model(folder).model.model.state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    wrongs: list[Any] = [
        places | {sorted(tensors)[0]: "../one.safetensors"},
        places | {sorted(tensors)[0]: 3},
        {weight: file for weight, file in places.items() if file == "one.safetensors"},
        [],
        {},
    ]
    for wrong in wrongs:
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(FileError):
            read_model(folder)


def test_a_comparison_finds_what_differs(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    imported = read_model(hugging_face_folder(tmp_path / "hf"))
    assert imported.original
    original, vocab = imported.original(), imported.model.tgt_vocab
    right = outputs(imported.model, LINES[:-1], original)
    assert compare(right, original, vocab).problem() is None
    wrong = imported.model
    with torch.no_grad():
        wrong.model.encoder.layers[0].feed_forward.inner.bias[0] += 0.01

    def refused(changed: Outputs) -> str:
        with pytest.raises(VtransError, match="transformers") as caught:
            compare(changed, original, vocab).refuse(tmp_path / "x")
        return str(caught.value)

    refused(outputs(wrong, LINES[:-1], original))
    refused(outputs(dataclasses.replace(wrong, src_vocab=wrong.tgt_vocab), LINES[:-1], original))
    other = dataclasses.replace(right, translations=[[5] for _ in right.translations])
    assert f": {vocab.decode([5])!r} here, " in refused(other)


def test_without_transformers_the_import_says_that_nothing_was_compared(
    tmp_path: Path,
    run_cli: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    folder = hugging_face_folder(tmp_path / "hf")
    done = run_cli("import", folder, "--out", tmp_path / "model.safetensors", "--json")
    assert (done.code, json.loads(done.out)) == (0, None)
    assert ".[huggingface]" in done.err
    assert load_model(tmp_path / "model.safetensors").search.suppress == ("<s>",)
    done = run_cli("translate", "--model", tmp_path / "model.safetensors", stdin=b"a dog\n\nthe cat\n")
    assert (done.code, done.out.count(b"\n")) == (0, 3)


@pytest.mark.parametrize("zipped", [True, False])
def test_pickled_weights_are_read_as_weights_alone(tmp_path: Path, zipped: bool) -> None:
    folder = hugging_face_folder(tmp_path / "hf")
    expected = read_model(folder).model.model.state_dict()
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"] = tensors["model.shared.weight"]
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    weights = read_model(folder).model.model.state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    torch.save({"a": Path}, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(FileError, match="pytorch_model") as caught:
        read_model(folder)
    assert "weights_only" not in str(caught.value), "torch's advice is to run the code in the file"


ODD_VALUES: list[Any] = [None, True, -1, 0, 2**70, float("inf"), "x", "", [], [1], [[None]], [[[]]], {"a": 1}]


@pytest.mark.parametrize("value", some(ODD_VALUES, 4), ids=repr)
def test_a_setting_of_any_type_is_read_or_refused(value: Any, tmp_path: Path) -> None:
    folder = hugging_face_folder(tmp_path / "hf")
    file = folder / "config.json"
    config = json.loads(file.read_text())
    for key in (*KNOWN, "unknown"):
        file.write_text(json.dumps(config | {key: value}))
        with contextlib.suppress(FileError):
            read_model(folder)


@pytest.mark.parametrize("kind", EXPECTED_NORMS)
def test_every_setting_that_changes_the_network_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    folder = hugging_face_folder(tmp_path / "hf", model_type=kind)
    config = folder / "config.json"
    right = config.read_text()
    for key in ("model_type", *EXPECTED, *EXPECTED_NORMS[kind]):
        for value in ("bart", {"bits": 4}):
            config.write_text(json.dumps(json.loads(right) | {key: value}))
            with pytest.raises(FileError, match=rf"config\.json: {key} must be .*, got "):
                read_model(folder)


# Exports.

EXPORTED: dict[str, dict[str, Any]] = {
    "pre-norm": {"norm": "pre", "activation": "gelu"},
    "stored positions": {"positions": "stored", "max_positions": 80, "activation": "swish", "projection_bias": True},
    "shared layers": {"share_layers": "all", "share_stacks": True, "decoder_layers": 2},
    **{f"{tie}, {norm}-norm": {"tie": tie, "norm": norm} for tie in TIE_FORMS for norm in ("post", "pre")},
    "unscaled": {"scale_embedding": False, "norm": "pre", "projection_bias": True},
}


@pytest.mark.parametrize("name", EXPORTED)
def test_transformers_translates_an_export_as_the_model_does(name: str, tmp_path: Path, tiny_data: DataFolder) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    loaded = random_model(tiny_data, **EXPORTED[name])
    assert_equal(export_model(loaded, "huggingface", tmp_path / "out", QUIET, exports.LINES), 1e-5)
    assert_has_all_tensors(tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "D 16" in card
    assert "step" in card


@pytest.mark.parametrize("changes", [{}, {"separate": True}, {"decoder_start_token_id": 0}, {"early_stopping": True}])
def test_a_round_trip_gives_the_same_bytes(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = hugging_face_folder(tmp_path / "hf", **changes)
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    save_model(first, read_model(folder).model)
    (tmp_path / "out").mkdir()
    exporter.write(load_model(first), tmp_path / "out", QUIET)
    save_model(second, read_model(tmp_path / "out").model)
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
        export_model(read_model(pegasus).model, "huggingface", tmp_path / "out", QUIET)
