"""Exports to Marian: its two networks by their definition, vocabularies, search, and what is refused."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import marian_models as marian
import networks
import numpy as np
import pytest
import torch
from cli_runner import Done
from test_marian import KINDS, imported
from translators import vocabulary

from vtrans.checkpoint import LoadedModel, load_model, save_model
from vtrans.config import ModelConfig, SearchConfig
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.interop.exports import export_model
from vtrans.interop.marian import original
from vtrans.interop.marian.exporter import MODEL, write
from vtrans.interop.marian.yaml import read_mapping
from vtrans.model import Transformer
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, Vocabulary

SMALL = networks.SMALL
NETWORKS = {
    "post-norm": SMALL,
    "pre-norm, swish": dataclasses.replace(SMALL, norm="pre", tie="tgt-softmax", activation="swish"),
    "learned positions, nothing tied": dataclasses.replace(SMALL, positions="learned", max_positions=64, tie="none"),
    "one learned table": dataclasses.replace(SMALL, positions="learned", share_positions=True, tie="src-tgt"),
    "shared layers": dataclasses.replace(SMALL, share_layers="all", norm="pre"),
    "shared stacks": dataclasses.replace(SMALL, share_stacks=True, encoder_layers=3, scale_embedding=False),
    "stored positions, a bias": dataclasses.replace(
        SMALL, positions="stored", max_positions=64, projection_bias=True, norm_eps=1e-6
    ),
}
HAS_MARIAN = importlib.util.find_spec("_pymarian") is not None


DEFAULT_SEARCH = SearchConfig()


def model(config: ModelConfig = SMALL, search: SearchConfig = DEFAULT_SEARCH) -> LoadedModel:
    vocab = vocabulary()
    return LoadedModel(networks.make(config, src=len(vocab), tgt=len(vocab)).float(), vocab, vocab, search, {"step": 1})


def quiet() -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(stream=stream), stream


def logprobs(network: Transformer, source: list[int], target: list[int]) -> marian.Array:
    keep = torch.ones(1, len(source), dtype=torch.bool)
    with torch.inference_mode():
        logits = network(torch.tensor([source]), keep, torch.tensor([[BOS_ID, *target]]))
    array: marian.Array = logits.log_softmax(-1)[0].numpy()
    return array


@pytest.mark.parametrize("name", NETWORKS)
def test_our_networks_are_marians_new_ones(tmp_path: Path, name: str) -> None:
    loaded = model(NETWORKS[name])
    write(loaded, tmp_path, quiet()[0])
    source, target = [5, 9, 7, 6, EOS_ID], [8, 6, 9]
    theirs = marian.logprobs(tmp_path / MODEL, source, target)
    ours = logprobs(loaded.model, source, target)
    assert (theirs[:, PAD_ID] < -1000).all()
    assert np.abs(theirs - ours)[:, PAD_ID + 1 :].max() < 2e-4  # Marian's epsilon of layer norms is 1e-5
    settings = read_mapping(np.load(tmp_path / MODEL)[marian.CONFIG].tobytes().rstrip(b"\0"), "settings")
    assert settings["type"] == "transformer-new"


@pytest.mark.parametrize("kind", KINDS)
def test_import_export_import_gives_the_same_bytes(tmp_path: Path, kind: str) -> None:
    changes, separate = KINDS[kind]
    decoder = {"beam-size": 6, "normalize": 0.7, "max-length-factor": 2.5, "allow-unk": "true"}
    first = imported(marian.folder(tmp_path / "m", changes, separate=separate, decoder=decoder))
    save_model(tmp_path / "first", first)
    (tmp_path / "export").mkdir()
    write(load_model(tmp_path / "first"), tmp_path / "export", quiet()[0])
    save_model(tmp_path / "again", imported(tmp_path / "export"))
    assert (tmp_path / "again").read_bytes() == (tmp_path / "first").read_bytes()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_network_with_marians_positions_and_start_is_the_usual_one(tmp_path: Path, norm: str) -> None:
    config = dataclasses.replace(SMALL, positions="marian", autoregression="ssru", norm=norm, norm_eps=1e-6)
    loaded = model(config)
    loaded.model.tgt_embedding.weight.data[BOS_ID] = 0.0  # as training keeps it
    write(loaded, tmp_path, quiet()[0])
    settings = read_mapping(np.load(tmp_path / MODEL)[marian.CONFIG].tobytes().rstrip(b"\0"), "settings")
    assert settings["type"] == "transformer"
    source, target = [5, 9, 7, 6, EOS_ID], [8, 6, 9]
    theirs, ours = marian.logprobs(tmp_path / MODEL, source, target), logprobs(loaded.model, source, target)
    assert np.abs(theirs - ours)[:, PAD_ID + 1 :].max() < 2e-5


def test_a_trained_start_needs_the_new_network(tmp_path: Path) -> None:
    loaded = imported(marian.folder(tmp_path / "m"))
    loaded.model.tgt_embedding.weight.data[BOS_ID] += 0.1  # as training does
    (tmp_path / "export").mkdir()
    write(loaded, tmp_path / "export", quiet()[0])
    table = loaded.tgt_vocab.table
    assert table is not None
    source, target = [*loaded.src_vocab.encode("two dogs see"), EOS_ID], loaded.tgt_vocab.encode("eine Katze")
    places = [[place for i in ids if (place := table.order[i]) is not None] for ids in (source, target)]
    theirs = marian.logprobs(tmp_path / "export" / MODEL, *places)
    ours = logprobs(loaded.model, source, target)
    ids = [id for id, place in enumerate(table.order) if place is not None]
    order = [place for place in table.order if place is not None]
    assert np.abs(ours[:, ids] - theirs[:, order]).max() < 2e-4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("activation", "gelu"),
        ("cross_attention_residual", False),
        ("source_eos", False),
        ("autoregression", "ssru"),
        ("norm_eps", 1e-3),
        ("architecture", "decoder-only"),
    ],
)
def test_what_marian_lacks_is_refused_by_name(tmp_path: Path, key: str, value: Any) -> None:
    changes = {key: value, **({"encoder_layers": 0} if key == "architecture" else {})}
    with pytest.raises(InputError, match=f"model.{key}"):
        write(model(dataclasses.replace(SMALL, **changes)), tmp_path, quiet()[0])


def test_the_search_is_the_nearest_one_with_warnings(tmp_path: Path) -> None:
    console, stream = quiet()
    search = SearchConfig(beam=3, beam_groups=3, alpha=0.5, no_repeat_ngram=3, max_length=30, suppress=("<unk>",))
    written = write(model(search=search), tmp_path, console)[0].search
    decoder = read_mapping((tmp_path / "decoder.yml").read_bytes(), "decoder.yml")
    assert (decoder["beam-size"], decoder["normalize"], decoder["max-length-factor"]) == ("3", "0.5", "3.0")
    assert (decoder["allow-unk"], decoder["allow-special"]) == ("false", "true")
    assert (written.stop, written.length_penalty, written.suppress) == ("shrink", "length", ("<unk>",))
    for key in ("stop", "beam_groups", "length_penalty", "no_repeat_ngram", "max_length"):
        assert f"search.{key} " in stream.getvalue()
    assert "search.suppress" not in stream.getvalue()


def test_the_longest_translation_has_positions(tmp_path: Path) -> None:
    loaded = model(dataclasses.replace(SMALL, positions="learned", max_positions=64))
    write(loaded, tmp_path, quiet()[0])
    decoder = read_mapping((tmp_path / "decoder.yml").read_bytes(), "decoder.yml")
    name = "TransformerBatchDecoder->decoder->positionEmbedding->embeddings"
    rows = len(np.load(tmp_path / MODEL)[name])
    assert decoder["max-length-crop"] == "true"
    assert 3 * (int(str(decoder["max-length"])) + 1) <= rows <= 64


def test_a_table_with_two_models_is_written_as_pieces_and_both_models(tmp_path: Path) -> None:
    pieces = ["</s>", "<unk>", "\u2581a", ":", '"', "\\", "\u00a0", "#x", "null", "\u2028", "é"]
    special = {"unk": 1, "eos": 0}
    src, tgt = (Vocabulary(pack(pieces, special, marian.spm(side, 30))) for side in ("source", "target"))
    network = networks.make(SMALL, src=len(src), tgt=len(tgt)).float()
    console, stream = quiet()
    write(LoadedModel(network, src, tgt, SearchConfig(), {}), tmp_path, console)
    listed = read_mapping((tmp_path / "vocab.yml").read_bytes(), "vocab.yml")
    assert listed == {piece: str(i) for i, piece in enumerate(pieces)}
    assert (tmp_path / "source.spm").read_bytes() == src.spm
    assert (tmp_path / "target.spm").read_bytes() == tgt.spm
    assert "spm_encode" in stream.getvalue()


def test_the_command_writes_a_folder_that_can_be_imported(
    tmp_path: Path, run_cli: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(original, "_MODULE", "no_such_module")
    save_model(tmp_path / "m.safetensors", imported(marian.folder(tmp_path / "m")))
    done = run_cli("export", tmp_path / "m.safetensors", "--to", "marian", "--out", tmp_path / "out")
    assert (done.code, sorted(file.name for file in (tmp_path / "out").iterdir())) == (
        0,
        ["decoder.yml", "model.npz", "vocab.spm"],
    )
    again = run_cli("import", tmp_path / "out", "--out", tmp_path / "again.safetensors")
    assert again.code == 0
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()
    for words in (("--quantization", "int8"), ()):  # another format's option, and a folder that is no export
        assert run_cli("export", tmp_path / "m.safetensors", "--to", "marian", "--out", tmp_path, *words).code == 2


@pytest.mark.skipif(not HAS_MARIAN, reason="pymarian is not installed (604 MB)")
@pytest.mark.parametrize("name", NETWORKS)
def test_marian_itself_gives_the_same(tmp_path: Path, name: str) -> None:
    verified = export_model(
        model(NETWORKS[name]), "marian", tmp_path / "out", quiet()[0], ["dog cat house", "small red cat"]
    )
    assert verified is not None
    assert verified.equal
    assert verified.problem() is None
