"""Imports of Hugging Face Marian folders, compared with transformers; folders that are refused."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign
import pytest
import torch
from cli_runner import Done
from drawn import some
from exports import assert_equal
from foreign import hugging_face_folder
from safetensors.torch import load_file, save_file

from vtrans.checkpoint import load_model
from vtrans.console import Console
from vtrans.errors import FileError, VtransError
from vtrans.interop.comparison import OWN, REAL, compare, outputs
from vtrans.interop.formats import import_model, read_model
from vtrans.interop.huggingface.importer import EXPECTED, EXPECTED_NORMS, KNOWN
from vtrans.interop.imported import install

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
    assert assert_equal(comparison, 1e-5).searches.keys() == {"beam 1", "beam 4", OWN}


@pytest.mark.parametrize(
    "settings", [{"repetition_penalty": 3.0}, {"exponential_decay_length_penalty": [1, 9.0]}, {"num_beam_groups": 2}]
)
def test_an_original_whose_own_settings_translate_otherwise_is_refused(settings: Any, tmp_path: Path) -> None:
    """The search is the same in both programs when its settings are given, and both comparisons of it succeed."""
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    folder = hugging_face_folder(tmp_path / "hf", **settings)
    with pytest.raises(VtransError):
        import_model(folder, tmp_path / "model.safetensors", QUIET, LINES[:4])
    assert not (tmp_path / "model.safetensors").exists()


def test_an_import_without_samples_compares_real_sentences_of_its_language(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    comparison = import_model(hugging_face_folder(tmp_path / "hf"), tmp_path / "model.safetensors", QUIET)
    assert comparison is not None
    assert {line.removeprefix(">>de<< ") for line in comparison.lines} <= {*REAL["en"]}


def test_sharded_weights_are_read(tmp_path: Path) -> None:
    folder = hugging_face_folder(tmp_path / "hf")
    expected = install(read_model(folder)).model.state_dict()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shards = {"one.safetensors": sorted(tensors)[::2], "two.safetensors": sorted(tensors)[1::2]}
    for file, stored in shards.items():
        save_file({weight: tensors[weight] for weight in stored}, folder / file)
    places = {weight: file for file, stored in shards.items() for weight in stored}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    weights = install(read_model(folder)).model.state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    wrongs: list[Any] = [
        places | {sorted(tensors)[0]: "two.safetensors"},  # the file lacks the weight
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
    original, right = imported.original.load(), outputs(install(imported), LINES[:-1], QUIET)
    assert compare(right, original, QUIET).problem() is None
    wrong = install(imported)
    with torch.no_grad():
        wrong.model.encoder.layers[0].feed_forward.inner.bias[0] += 0.01
    for changed in (
        outputs(wrong, LINES[:-1], QUIET),
        outputs(dataclasses.replace(wrong, src_vocab=wrong.tgt_vocab), LINES[:-1], QUIET),
        dataclasses.replace(right, translations={name: [[5], *rows[1:]] for name, rows in right.translations.items()}),
    ):
        with pytest.raises(VtransError, match="transformers"):
            compare(changed, original, QUIET).refuse(tmp_path / "x")


def test_without_transformers_the_import_says_that_nothing_was_compared(
    tmp_path: Path,
    run_cli: Callable[..., Done],
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
    expected = install(read_model(folder)).model.state_dict()
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"] = tensors["model.shared.weight"]
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    weights = install(read_model(folder)).model.state_dict()
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


def changed_json(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        values = json.loads((folder / name).read_text())
        change(values)
        (folder / name).write_text(json.dumps(values))

    return apply


def changed_config(**changes: Any) -> Callable[[Path], None]:
    return changed_json("config.json", lambda config: config.update(changes))


def changed_vocabulary(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return changed_json("vocab.json", change)


def changed_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return apply


def cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def written(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


HUGE_HEADER = (1 << 62).to_bytes(8, "little") + b"{}"
BAD_OFFSETS = json.dumps(
    {"final_logits_bias": {"dtype": "F32", "shape": [1, 9], "data_offsets": [0, 1 << 60]}}
).encode()
HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no vocabulary": (lambda f: (f / "vocab.json").unlink(), "vocab.json"),
    "no SentencePiece model": (lambda f: (f / "target.spm").unlink(), "target.spm"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "pytorch_model.bin"),
    "configuration is no JSON": (written("config.json", b"{"), "config.json"),
    "configuration is nested": (written("config.json", b"[" * 100_000), "config.json"),
    "configuration has a key twice": (written("config.json", b'{"d_model": 1, "d_model": 2}'), "config.json"),
    "configuration is not UTF-8": (written("config.json", b'{"a": "\xff"}'), "config.json"),
    "Pegasus without final norms": (
        changed_config(model_type="pegasus", activation_function="relu"), "model.encoder.layer_norm"
    ),
    "another activation": (changed_config(activation_function="tanh"), "activation_function"),
    "unequal stacks": (changed_config(decoder_ffn_dim=48), "encoder_ffn_dim"),
    "two depths of the encoder": (changed_config(num_hidden_layers=6), "num_hidden_layers"),
    "heads that do not divide": (changed_config(encoder_attention_heads=3, decoder_attention_heads=3), "heads"),
    "a huge size": (changed_config(d_model=1 << 40), "d_model"),
    "a huge position table": (changed_config(max_position_embeddings=1 << 23), "max_positions"),
    "a start beyond the vocabulary": (changed_config(decoder_start_token_id=10**6), "decoder_start_token_id"),
    "another end": (changed_config(eos_token_id=1), "eos_token_id"),
    "a size in quotes": (changed_config(d_model="32"), "'32'"),
    "another vocabulary size": (changed_config(vocab_size=7, decoder_vocab_size=7), "vocab.json"),
    "a wrong dropout": (changed_config(dropout=7), "dropout"),
    "a vocabulary with a gap": (changed_vocabulary(lambda ids: ids.update({"a": 10**6})), "vocab.json"),
    "no end of sentence": (changed_vocabulary(lambda ids: ids.update({"eos": ids.pop("</s>")})), "</s>"),
    "a piece that is no text": (changed_vocabulary(lambda ids: ids.update({"\ud800": ids.pop("</s>")})), "."),
    "a cut SentencePiece model": (cut("source.spm", 100), "source.spm"),
    "cut weights": (cut("model.safetensors", 5000), "model.safetensors"),
    "an impossible header": (written("model.safetensors", HUGE_HEADER), "model.safetensors"),
    "impossible places": (
        written("model.safetensors", len(BAD_OFFSETS).to_bytes(8, "little") + BAD_OFFSETS + bytes(36)), "safetensors"
    ),
    "a missing weight": (changed_weights(lambda t: t.pop("model.encoder.layers.1.fc1.bias")), "layers.1.fc1.bias"),
    "an unknown weight": (changed_weights(lambda t: t.update({"../x": torch.ones(1)})), "../x"),
    "a wrong shape": (changed_weights(lambda t: t.update({"final_logits_bias": torch.ones(9)})), "final_logits_bias"),
    "whole numbers as weights": (
        changed_weights(lambda t: t.update({"model.shared.weight": t["model.shared.weight"].int()})), "model.shared"
    ),
    "a weight that is not finite": (
        changed_weights(lambda t: t["model.shared.weight"].__setitem__((3, 2), torch.nan)), "src_embedding"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_folder_that_is_not_sound_gets_one_sentence_that_names_what_is_wrong(
    name: str,
    tmp_path: Path,
    run_cli: Callable[..., Done],
) -> None:
    folder = hugging_face_folder(tmp_path / "hf")
    damage, named = HOSTILE[name]
    damage(folder)
    done = run_cli("import", folder, "--out", tmp_path / "out" / "model.safetensors", "--quiet")
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert named in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", EXPECTED_NORMS)
def test_every_setting_that_changes_the_network_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    folder = hugging_face_folder(tmp_path / "hf", model_type=kind)
    for key in ("model_type", *EXPECTED, *EXPECTED_NORMS[kind]):
        right = (folder / "config.json").read_bytes()
        for value in ("bart", {"bits": 4}):
            changed_config(**{key: value})(folder)
            with pytest.raises(FileError, match=rf"config\.json: {key} must be .*, got "):
                read_model(folder)
            (folder / "config.json").write_bytes(right)
