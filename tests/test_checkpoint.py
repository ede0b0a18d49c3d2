"""One matrix in memory and in the file; model files that are whole, strict, equal and complete."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import resource
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import vtrans.storage.run_folder
import vtrans.storage.writing
from vtrans.checkpoint import LoadedModel, aliases, load_model, load_weights, save_model
from vtrans.config import TIE_FORMS, ModelConfig, SearchConfig, TrainConfig
from vtrans.data.batches import Batch, collate
from vtrans.data.store import DataFolder
from vtrans.engines.torch_engine import TorchEngine
from vtrans.errors import FileError, WriteError
from vtrans.model import Transformer
from vtrans.storage.columns import MOST_HEADER
from vtrans.storage.run_folder import RunFolder, choose_model
from vtrans.storage.states import read_progress, read_state, save_state, state_of
from vtrans.storage.tensors import FORMAT
from vtrans.storage.writing import write_tensors
from vtrans.text.vocabulary import PAD_ID, Vocabulary, _fields
from vtrans.training.optimization.loss import Objective
from vtrans.training.optimization.optimizer import make_optimizer
from vtrans.translate.translator import Translator

SHAPE: dict[str, Any] = {"d_model": 16, "d_ff": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 2}

# For each form of tying, the owners of the matrices with their aliases.
OWNERS: dict[str, dict[str, list[str]]] = {
    "src-tgt-softmax": {"src_embedding": ["tgt_embedding", "projection"]},
    "tgt-softmax": {"src_embedding": [], "tgt_embedding": ["projection"]},
    "src-tgt": {"src_embedding": ["tgt_embedding"], "projection": []},
    "none": {"src_embedding": [], "tgt_embedding": [], "projection": []},
}


def make(data: DataFolder, tie: str, **config: Any) -> LoadedModel:
    torch.manual_seed(5)
    model = Transformer(
        ModelConfig(**SHAPE | {"tie": tie, "dropout": 0.0} | config),
        len(data.src_vocab),
        len(data.tgt_vocab),
        joint=data.joint,
        pad_id=PAD_ID,
    )
    return LoadedModel(model, data.src_vocab, data.tgt_vocab, SearchConfig(beam=3), {"step": 7})


def weight(model: Transformer, place: str) -> Tensor:
    return model.get_parameter(f"{place}.weight")


def check_ties(model: Transformer, tie: str) -> None:
    """Exactly the places that the tie names share their storage."""
    places = ("src_embedding", "tgt_embedding", "projection")
    owner = {alias: name for name, shared in OWNERS[tie].items() for alias in [name, *shared]}
    for a in places:
        for b in places:
            same = owner[a] == owner[b]
            assert (weight(model, a) is weight(model, b)) == same
            assert (weight(model, a).data_ptr() == weight(model, b).data_ptr()) == same
    found = {f"{alias}.weight": f"{name}.weight" for name, shared in OWNERS[tie].items() for alias in shared}
    assert aliases(model) == found


def tensor_bytes(path: Path) -> int:
    """The bytes of the weights, without vocabularies and header."""
    return sum(t.nbytes for name, t in load_file(path).items() if not name.startswith("vocabulary."))


@pytest.mark.parametrize("tie", TIE_FORMS)
def test_a_tie_is_one_matrix_wherever_the_model_goes(tmp_path: Path, tiny_data: DataFolder, tie: str) -> None:
    loaded = make(tiny_data, tie)
    check_ties(loaded.model, tie)
    file = tmp_path / "model.safetensors"
    save_model(file, loaded)
    again = load_model(file)
    check_ties(again.model, tie)
    for name, parameter in loaded.model.named_parameters():
        assert torch.equal(parameter, again.model.get_parameter(name)), name
    check_ties(again.model.to(torch.float64), tie)
    check_ties(again.model.to(torch.bfloat16), tie)
    check_ties(again.model.to("cpu"), tie)
    own = make(tiny_data, tie).model
    load_weights(file, own)
    check_ties(own, tie)


@pytest.mark.parametrize("tie", TIE_FORMS)
def test_writing_through_one_alias_is_read_through_the_others(tmp_path: Path, tiny_data: DataFolder, tie: str) -> None:
    save_model(tmp_path / "m.safetensors", make(tiny_data, tie))
    model = load_model(tmp_path / "m.safetensors").model
    for name, shared in OWNERS[tie].items():
        for place in [name, *shared]:
            with torch.no_grad():
                weight(model, place)[4, 3] += 1.5
            for other in [name, *shared]:
                assert weight(model, other)[4, 3] == weight(model, place)[4, 3]
    values = {weight(model, name)[4, 3].item() for name in OWNERS[tie]}
    assert len(values) == len(OWNERS[tie])  # other matrices do not change


def test_the_file_of_a_three_way_tie_holds_one_matrix(tmp_path: Path, tiny_data: DataFolder) -> None:
    V, D = len(tiny_data.src_vocab), SHAPE["d_model"]
    sizes = {}
    for tie in TIE_FORMS:
        save_model(tmp_path / tie, make(tiny_data, tie))
        sizes[tie] = tensor_bytes(tmp_path / tie)
        shapes = [list(t.shape) for t in load_file(tmp_path / tie).values()]
        assert shapes.count([V, D]) == len(OWNERS[tie])
    assert sizes["none"] - sizes["src-tgt-softmax"] == 2 * V * D * 4
    assert sizes["none"] - sizes["tgt-softmax"] == sizes["none"] - sizes["src-tgt"] == V * D * 4
    with safe_open(tmp_path / "src-tgt-softmax", "pt") as file:
        metadata = file.metadata()
    header = json.loads(metadata["vtrans"])
    assert header["aliases"] == {
        "tgt_embedding.weight": "src_embedding.weight",
        "projection.weight": "src_embedding.weight",
    }


def batch_of(data: DataFolder, count: int = 6) -> Batch:
    return collate([data.train.src(i) for i in range(count)], [data.train.tgt(i) for i in range(count)])


@pytest.mark.parametrize("tie", TIE_FORMS)
def test_the_optimizer_has_one_state_per_unique_weight(tmp_path: Path, tiny_data: DataFolder, tie: str) -> None:
    loaded = make(tiny_data, tie)
    optimizer = make_optimizer(loaded.model.parameters(), TrainConfig())
    batch = batch_of(tiny_data)
    Objective(loaded.model, 0.1)(batch)[0].backward()
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    names = [name for name, _ in loaded.model.named_parameters()]
    assert len(optimizer.state) == len(names)
    assert sum("embedding" in n or n.startswith("projection") for n in names) == len(OWNERS[tie])
    assert all(float(state["step"]) == 1 for state in optimizer.state.values())
    state = tmp_path / "state.safetensors"
    save_state(state, state_of(optimizer, dict(loaded.model.named_parameters())), {"step": 1})
    assert set(load_file(state)) == {f"{n}:{part}" for n in names for part in ("step", "exp_avg", "exp_avg_sq")}
    other = make(tiny_data, tie).model
    again = read_state(state, other)
    assert set(again) == set(names)
    for name, parameter in loaded.model.named_parameters():
        for part, value in optimizer.state[parameter].items():
            assert torch.equal(value, again[name][part])


def test_shared_positions_are_in_the_file_once(tmp_path: Path, tiny_data: DataFolder) -> None:
    shared = make(tiny_data, "none", positions="learned", max_positions=64, share_positions=True)
    save_model(tmp_path / "m", shared)
    assert len(aliases(shared.model)) == 1
    model = load_model(tmp_path / "m").model
    assert model.src_positions is model.tgt_positions


# The file.


def test_saving_twice_gives_equal_bytes(tmp_path: Path, tiny_data: DataFolder) -> None:
    save_model(tmp_path / "a", make(tiny_data, "src-tgt-softmax"))
    save_model(tmp_path / "b", make(tiny_data, "src-tgt-softmax"))
    save_model(tmp_path / "c", load_model(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()
    with safe_open(tmp_path / "a", "pt") as file:
        metadata = file.metadata()
    assert list(metadata) == ["vtrans"]
    header = json.loads(metadata["vtrans"])
    assert metadata["vtrans"] == json.dumps(header, sort_keys=True, ensure_ascii=False)
    assert header["format"] == FORMAT
    assert header["kind"] == "model"
    assert header["training"] == {"step": 7}
    assert str(tmp_path) not in metadata["vtrans"]


def test_the_umask_decides_who_can_read_a_model_file(tmp_path: Path, tiny_data: DataFolder) -> None:
    (tmp_path / "plain").touch()
    save_model(tmp_path / "m", make(tiny_data, "none"))
    assert (tmp_path / "m").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("separate", [False, True])
def test_a_model_file_is_complete(
    tmp_path: Path, tiny_data: DataFolder, tiny_data_separate: DataFolder, separate: bool
) -> None:
    data = tiny_data_separate if separate else tiny_data
    loaded = make(data, "tgt-softmax" if separate else "src-tgt-softmax")
    save_model(tmp_path / "m.safetensors", loaded)
    alone = tmp_path / "elsewhere"
    alone.mkdir()
    shutil.move(tmp_path / "m.safetensors", alone / "renamed.safetensors")
    again = load_model(alone / "renamed.safetensors")
    assert again.joint is not separate
    assert again.src_vocab.proto == data.src_vocab.proto
    assert again.tgt_vocab.proto == data.tgt_vocab.proto
    assert again.search == loaded.search
    assert again.model.config == loaded.model.config
    lines = ["The big dog sees me today.", "", "The old cat likes me now."]
    loaded.model.eval()
    assert list(Translator(TorchEngine([again])).translate(lines)) == list(
        Translator(TorchEngine([loaded])).translate(lines)
    )


def test_loading_draws_nothing_from_the_generator(tmp_path: Path, tiny_data: DataFolder) -> None:
    save_model(tmp_path / "m", make(tiny_data, "none"))
    before = torch.random.get_rng_state()
    load_model(tmp_path / "m")
    assert torch.equal(before, torch.random.get_rng_state())


# Bad files.


def changed(
    source: Path, target: Path, tensors: Callable[[dict[str, Tensor]], None], header: Callable[[dict[str, Any]], None]
) -> Path:
    """Writes a copy of a model file with changed tensors or a changed header."""
    with safe_open(source, "pt") as file:
        head = json.loads(file.metadata()["vtrans"])
    parts = load_file(source)
    tensors(parts)
    header(head)
    write_tensors(target, parts, head)
    return target


def nothing(_: Any) -> None:
    """Changes nothing."""


BAD: dict[str, tuple[Callable[[dict[str, Tensor]], Any], Callable[[dict[str, Any]], Any], str]] = {
    "missing tensor": (lambda t: t.pop("src_embedding.weight"), nothing, "src_embedding.weight"),
    "extra tensor": (lambda t: t.update({"zzz": torch.zeros(1)}), nothing, "zzz"),
    "a copy under an alias": (
        lambda t: t.update({"projection.weight": t["src_embedding.weight"].clone()}),
        nothing,
        "projection.weight",
    ),
    "ill-shaped tensor": (
        lambda t: t.update({"src_embedding.weight": t["src_embedding.weight"][:-1].clone()}),
        nothing,
        "src_embedding.weight",
    ),
    "transposed tensor": (
        lambda t: t.update({"src_embedding.weight": t["src_embedding.weight"].T.contiguous()}),
        nothing,
        "[320, 16]",
    ),
    "whole numbers": (
        lambda t: t.update({"src_embedding.weight": t["src_embedding.weight"].int()}),
        nothing,
        "I32",
    ),
    "floating-point numbers of eight bits": (
        lambda t: t.update({"src_embedding.weight": t["src_embedding.weight"].to(torch.float8_e4m3fn)}),
        nothing,
        "F8_E4M3",
    ),
    "a weight that is not a number": (
        lambda t: t["src_embedding.weight"].index_fill_(0, torch.tensor([3]), torch.nan),
        nothing,
        "src_embedding.weight",
    ),
    "an infinite weight": (
        lambda t: t["decoder.layers.0.feed_forward.outer.bias"].index_fill_(0, torch.tensor([3]), -torch.inf),
        nothing,
        "decoder.layers.0.feed_forward.outer.bias",
    ),
    "a weight beyond float32": (
        lambda t: t.update({"src_embedding.weight": t["src_embedding.weight"].double() * 1e300}),
        nothing,
        "src_embedding.weight",
    ),
    "a vocabulary of numbers": (
        lambda t: t.update({"vocabulary.joint": t["vocabulary.joint"].to(torch.float8_e4m3fn)}),
        nothing,
        "vocabulary.joint",
    ),
    "a vocabulary with rows": (
        lambda t: t.update({"vocabulary.joint": t["vocabulary.joint"][None].clone()}),
        nothing,
        "vocabulary.joint",
    ),
    "no vocabulary": (lambda t: t.pop("vocabulary.joint"), nothing, "vocabulary"),
    "two kinds of vocabulary": (
        lambda t: t.update({"vocabulary.source": t["vocabulary.joint"].clone()}),
        nothing,
        "vocabulary",
    ),
    "a broken vocabulary": (
        lambda t: t.update({"vocabulary.joint": t["vocabulary.joint"][:-9].clone()}),
        nothing,
        "",
    ),
    "an alias too few": (nothing, lambda h: h["aliases"].pop("projection.weight"), "aliases"),
    "no aliases": (nothing, lambda h: h.pop("aliases"), "aliases"),
    "an alias too many": (nothing, lambda h: h["aliases"].update({"a": "b"}), "aliases"),
    "another owner": (
        nothing,
        lambda h: h["aliases"].update({"projection.weight": "tgt_embedding.weight"}),
        "aliases",
    ),
    "another tie": (nothing, lambda h: h["model"].update(tie="none"), "projection.weight"),
    "an unknown tie": (nothing, lambda h: h["model"].update(tie="all"), "model.tie"),
    "an open tie": (nothing, lambda h: h["model"].update(tie="auto"), "model.tie"),
    "an unknown key": (nothing, lambda h: h["model"].update(depth=3), "model.depth"),
    "heads that do not divide": (nothing, lambda h: h["model"].update(heads=3), "model.heads"),
    "no configuration": (nothing, lambda h: h.pop("model"), "model"),
    "a list for a configuration": (nothing, lambda h: h.update(model=[1]), "model"),
    "an empty list for a configuration": (nothing, lambda h: h.update(model=[]), "model"),
    "a word for a configuration": (nothing, lambda h: h.update(model="small"), "model"),
    "no search": (nothing, lambda h: h.pop("search"), "search"),
    "a list for a search": (nothing, lambda h: h.update(search=[]), "search"),
    "a list for a tie": (nothing, lambda h: h["model"].update(tie=["none"]), "model.tie"),
    "a width below zero": (nothing, lambda h: h["model"].update(d_model=-16), "model.d_model"),
    "half a width": (nothing, lambda h: h["model"].update(d_model=16.5), "model.d_model"),
    "a width beyond all numbers": (nothing, lambda h: h["model"].update(d_model=10**400), "model.d_model"),
    "a dropout that is not a number": (nothing, lambda h: h["model"].update(dropout=float("nan")), "model.dropout"),
    "a width that no memory holds": (
        nothing,
        lambda h: h["model"].update(d_model=65536, d_ff=1 << 20),
        "[320, 65536]",
    ),
    "more layers than there are": (nothing, lambda h: h["model"].update(decoder_layers=100), "decoder"),
    "positions that no memory holds": (
        nothing,
        lambda h: h["model"].update(positions="learned", max_positions=1 << 20, d_model=65536),
        "src_positions.weight",
    ),
    "aliases in a list": (nothing, lambda h: h.update(aliases=[]), "aliases"),
    "a list for a training": (nothing, lambda h: h.update(training=[1]), "training"),
    "a word for a step": (nothing, lambda h: h.update(training={"step": "7"}), "training.step"),
    "an average of nothing": (nothing, lambda h: h.update(training={"average_of": []}), "training.average_of"),
    "an average of words": (nothing, lambda h: h.update(training={"average_of": ["a"]}), "training.average_of"),
    "the next format": (nothing, lambda h: h.update(format=FORMAT + 1), f"format {FORMAT + 1}"),
    "no format": (nothing, lambda h: h.pop("format"), "format None"),
    "another kind": (nothing, lambda h: h.update(kind="state"), "model"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_file_must_match_its_architecture_exactly(tmp_path: Path, tiny_data: DataFolder, what: str) -> None:
    good = tmp_path / "good.safetensors"
    save_model(good, make(tiny_data, "src-tgt-softmax"))
    tensors, header, message = BAD[what]
    bad = changed(good, tmp_path / "bad.safetensors", tensors, header)
    with pytest.raises(FileError) as caught:
        load_model(bad)
    assert message in str(caught.value)
    assert str(bad) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_without_a_training_section_is_read(tmp_path: Path, tiny_data: DataFolder) -> None:
    save_model(tmp_path / "good", make(tiny_data, "src-tgt-softmax"))
    run = RunFolder(tmp_path)
    changed(tmp_path / "good", run.averaged, nothing, lambda h: h.pop("training"))
    assert load_model(run.averaged).training == {}
    assert run.choose_model().file == run.averaged


NESTED = 100_000


@pytest.mark.parametrize(
    "text",
    [
        "[" * NESTED,
        '{"kind": "model", "format": 2, "model": ' + "[" * NESTED,
        "1" * 5000,
        '{"kind": "model", "format": 2, "\\ud800": 1}',
    ],
)
def test_a_header_must_be_readable_json(tmp_path: Path, text: str) -> None:
    save_file({"a": torch.zeros(3)}, tmp_path / "bad.safetensors", metadata={"vtrans": text})
    with pytest.raises(FileError, match=r"bad\.safetensors"):
        load_model(tmp_path / "bad.safetensors")


# Damage.


@pytest.mark.parametrize("separate", [False, True])
def test_a_flipped_bit_is_detected_anywhere_in_the_file(
    tmp_path: Path, tiny_data: DataFolder, tiny_data_separate: DataFolder, separate: bool
) -> None:
    data, tie = (tiny_data_separate, "none") if separate else (tiny_data, "src-tgt-softmax")
    save_model(tmp_path / "good", make(data, tie))
    whole = (tmp_path / "good").read_bytes()
    bad, numbers = tmp_path / "bad", random.Random(3)
    header = int.from_bytes(whole[:8], "little") + 8
    places = [*range(8), *(numbers.randrange(8, header) for _ in range(150))] + [
        numbers.randrange(header, len(whole)) for _ in range(60)
    ]
    unnoticed = 0
    for place in [*places, header, len(whole) - 1]:
        raw = bytearray(whole)
        raw[place] ^= 1 << numbers.randrange(8)
        bad.write_bytes(raw)
        with suppress(FileError):
            loaded = load_model(bad)
            # A change that leaves the meaning of the header alone, such as other white space, is allowed.
            assert place < header
            save_model(bad, loaded)
            assert bad.read_bytes() == whole
            unnoticed += 1
    assert unnoticed < 5


def test_an_error_names_the_damaged_tensor(tmp_path: Path, tiny_data: DataFolder) -> None:
    good, bad = tmp_path / "good.safetensors", tmp_path / "bad.safetensors"
    save_model(good, make(tiny_data, "src-tgt-softmax"))
    names = list(load_file(good))
    assert {"decoder.layers.1.feed_forward.inner.weight", "vocabulary.joint"} <= set(names)
    for name in names:
        shutil.copyfile(good, bad)
        damage(bad, name)
        with pytest.raises(FileError, match=rf"bad\.safetensors .*{re.escape(name)}"):
            load_model(bad)


def damage(path: Path, name: str) -> None:
    """Flips the lowest bit of the first byte of a tensor."""
    raw = bytearray(path.read_bytes())
    length = int.from_bytes(raw[:8], "little")
    at = 8 + length + json.loads(raw[8 : 8 + length])[name]["data_offsets"][0]
    raw[at] ^= 1
    path.write_bytes(raw)


def test_a_damaged_search_setting_is_detected(tmp_path: Path, tiny_data: DataFolder) -> None:
    good = tmp_path / "good.safetensors"
    save_model(good, make(tiny_data, "src-tgt-softmax"))
    raw = good.read_bytes()
    assert raw.count(rb"\"beam\": 3") == 1
    good.write_bytes(raw.replace(rb"\"beam\": 3", rb"\"beam\": 7"))
    with pytest.raises(FileError, match=r"good\.safetensors .*header"):
        load_model(good)


def test_a_file_without_checksums_is_refused(tmp_path: Path, tiny_data: DataFolder) -> None:
    save_model(tmp_path / "good", make(tiny_data, "src-tgt-softmax"))
    with safe_open(tmp_path / "good", "pt") as file:
        header = json.loads(file.metadata()["vtrans"])
    del header["crc32"]
    save_file(load_file(tmp_path / "good"), tmp_path / "bare", metadata={"vtrans": json.dumps(header)})
    with pytest.raises(FileError, match="checksum"):
        load_model(tmp_path / "bare")


def test_a_damaged_state_is_refused(run_copy: RunFolder) -> None:
    state = run_copy.state_file(30)
    damage(state, "src_embedding.weight:exp_avg")
    model = load_model(run_copy.last).model
    with pytest.raises(FileError, match=r"src_embedding\.weight:exp_avg"):
        read_state(state, model)


def test_foreign_and_missing_files_are_refused(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3)}, tmp_path / "foreign.safetensors")
    save_file({"a": torch.zeros(3)}, tmp_path / "pt.safetensors", metadata={"format": "pt"})
    save_file({"a": torch.zeros(3)}, tmp_path / "words.safetensors", metadata={"vtrans": "not JSON"})
    save_file({"a": torch.zeros(3)}, tmp_path / "list.safetensors", metadata={"vtrans": "[1]"})
    (tmp_path / "empty.safetensors").write_bytes(b"")
    (tmp_path / "text.safetensors").write_text("A dog runs.\n" * 20)
    (tmp_path / "pickle.safetensors").write_bytes(b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01a\x94.")
    (tmp_path / "folder.safetensors").mkdir()
    for path in [*tmp_path.iterdir(), tmp_path / "missing.safetensors"]:
        with pytest.raises(FileError, match=path.name):
            load_model(path)
    with pytest.raises(FileError, match="there is no model"):
        choose_model(tmp_path / "missing")


def test_a_shipped_model_is_found_by_its_name_and_a_file_of_that_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "recipes" / "fr" / "fr-en.safetensors"
    shipped.parent.mkdir(parents=True)
    shipped.touch()
    monkeypatch.setattr(vtrans.storage.run_folder, "shipped", lambda: tmp_path / "recipes")
    monkeypatch.chdir(tmp_path)
    assert choose_model("fr-en") == (shipped, "")
    with pytest.raises(FileError, match="fr-en"):
        choose_model("fr-de")
    mine = tmp_path / "fr-en"
    mine.touch()
    assert choose_model("fr-en").file == Path("fr-en")


FOREIGN = {
    "onnx": b"\x08\x08\x12\x07pytorch\x1a\x052.1.0:\x80\x01" + bytes(200),
    "gguf": b"GGUF\x03\0\0\0" + (2**60).to_bytes(8, "little") * 2 + bytes(200),
    "zip": b"PK\x03\x04\x14\0\0\0" + bytes(200) + b"PK\x05\x06" + bytes(18),
    "gzip": b"\x1f\x8b\x08\0" + bytes(200),
    "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(200),
    "numpy": b"\x93NUMPY\x01\0v\0{'descr': '|O', 'fortran_order': False, 'shape': (1,), }" + bytes(80),
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_files_of_other_formats_are_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / kind).write_bytes(FOREIGN[kind])
    with pytest.raises(FileError, match=kind):
        load_model(tmp_path / kind)


def lied(source: Path, target: Path, lie: Callable[[dict[str, Any]], None]) -> Path:
    """Writes a copy of a model file with a changed safetensors header, which says where the tensors are."""
    raw = source.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    lie(header)
    text = json.dumps(header).encode()
    target.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    return target


EMBEDDING, NORM = "src_embedding.weight", "decoder.layers.0.feed_forward_residual.norm.weight"
LIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "beyond the file": lambda h: h[EMBEDDING].update(data_offsets=[0, 1 << 40]),
    "before the file": lambda h: h[EMBEDDING].update(data_offsets=[-8, 20472]),
    "backwards": lambda h: h[EMBEDDING]["data_offsets"].reverse(),
    "overlapping": lambda h: h[NORM].update(data_offsets=h[NORM.replace("weight", "bias")]["data_offsets"]),
    "a shape beyond the bytes": lambda h: h[EMBEDDING].update(shape=[320, 1 << 40]),
    "a shape that overflows": lambda h: h[EMBEDDING].update(shape=[1 << 63, 1 << 63]),
    "a negative shape": lambda h: h[EMBEDDING].update(shape=[-320, -16]),
    "a wider type": lambda h: h[EMBEDDING].update(dtype="F64"),
    "an unknown type": lambda h: h[EMBEDDING].update(dtype="OBJECT"),
    "another shape of the same size": lambda h: h[EMBEDDING].update(shape=[16, 320]),
    "other numbers of the same size": lambda h: h[EMBEDDING].update(dtype="I32"),
    "two tensors changed over": lambda h: (
        h.update({NORM: (one := h[NORM.replace("weight", "bias")])}) or h.update({NORM.replace("weight", "bias"): one})
    ),
    "no tensors": lambda h: [h.pop(name) for name in list(h) if name != "__metadata__"],
    "a link for a tensor": lambda h: h.update({EMBEDDING: "/etc/passwd"}),
    "another file for a tensor": lambda h: h[EMBEDDING].update(file="/etc/passwd", data_offsets=[0, 0]),
}


@pytest.mark.parametrize("what", LIES)
def test_a_header_that_lies_is_refused(tmp_path: Path, tiny_data: DataFolder, what: str) -> None:
    save_model(tmp_path / "good", make(tiny_data, "src-tgt-softmax"))
    with pytest.raises(FileError, match="bad"):
        load_model(lied(tmp_path / "good", tmp_path / "bad", LIES[what]))


def test_a_long_header_is_refused_before_it_is_read(tmp_path: Path) -> None:
    for length in (MOST_HEADER + 1, 100_000_000):
        with (tmp_path / "bad").open("wb") as file:
            file.write(length.to_bytes(8, "little") + b"{")
            file.truncate(length + 100)  # a sparse file
        with pytest.raises(FileError, match=rf"bad .*{MOST_HEADER:,} .*{length:,}"):
            load_model(tmp_path / "bad")


def test_absurd_dimensions_take_no_memory(tmp_path: Path, tiny_data: DataFolder) -> None:
    good = tmp_path / "good"
    save_model(good, make(tiny_data, "src-tgt-softmax"))
    sizes: tuple[dict[str, int], ...] = (
        {"d_model": 10**6},
        {"encoder_layers": 10**9},
        {"d_model": 65536, "d_ff": 1 << 20, "encoder_layers": 50, "decoder_layers": 50},
    )
    for changes in sizes:
        bad = changed(good, tmp_path / "bad", nothing, lambda h, changes=changes: h["model"].update(changes))  # type: ignore[misc]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(FileError, match="bad"):
            load_model(bad)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


def test_reading_a_file_opens_no_other_and_runs_nothing(tmp_path: Path, tiny_data: DataFolder) -> None:
    file = tmp_path / "m.safetensors"
    hostile = "/etc/passwd"
    loaded = dataclasses.replace(make(tiny_data, "none"), training={"step": 1, "data": hostile, "file": hostile})
    save_model(file, loaded)
    load_model(file)  # whatever is imported at first use
    seen: list[tuple[str, Any]] = []
    watching = True

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if watching and event.split(".")[0] in ("open", "exec", "compile", "import", "os", "subprocess", "socket"):
            seen.append((event, args[0] if args else None))

    sys.addaudithook(hook)
    load_model(file)
    watching = False
    assert {(event, str(what)) for event, what in seen} == {("open", str(file))}


def charsmap(proto: bytes) -> tuple[int, int]:
    """Where the units of the trie of a SentencePiece model's normalization rules begin, and their bytes."""
    rules = next(value for number, value in _fields(proto) if number == 3)
    assert isinstance(rules, bytes)
    packed = next(value for number, value in _fields(rules) if number == 2)
    assert isinstance(packed, bytes)
    return proto.index(packed) + 4, int.from_bytes(packed[:4], "little")


def test_a_sentencepiece_model_is_read_within_its_bounds(tmp_path: Path, tiny_data: DataFolder) -> None:
    """Versions of SentencePiece before 0.2.2 follow offsets out of the trie, and crash."""
    proto = tiny_data.src_vocab.proto
    begin, size = charsmap(proto)
    far = bytearray(proto)
    far[begin : begin + size] = b"\xff\xff\xff\x7f" * (size // 4)
    longer = bytearray(proto)
    longer[begin - 4 : begin] = (1 << 31).to_bytes(4, "little")
    text = b"A dog runs. \xff" * 20
    for bad in (bytes(far), bytes(longer), proto[: len(proto) // 2], text, b"\x0a\xff\xff\xff\xff\x0f" + proto, b""):
        with pytest.raises(FileError, match="bad"):
            Vocabulary(bad, "bad")


def test_a_file_that_is_truncated_anywhere_is_refused(tmp_path: Path, tiny_data: DataFolder) -> None:
    save_model(tmp_path / "good", make(tiny_data, "src-tgt-softmax"))
    whole = (tmp_path / "good").read_bytes()
    header = int.from_bytes(whole[:8], "little") + 8
    lengths = {*range(12), *range(header - 3, header + 4), *range(0, len(whole), len(whole) // 60), len(whole) - 1}
    bad = tmp_path / "bad"
    for length in sorted(lengths):
        bad.write_bytes(whole[:length])
        with pytest.raises(FileError, match="truncated" if length else "empty"):
            load_model(bad)
    bad.write_bytes(whole + b"\0")
    with pytest.raises(FileError, match="truncated"):
        load_model(bad)


# Writing.


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "m.safetensors"
    save_model(target, make(tiny_data, "none"))
    before = target.read_bytes()

    def half(tensors: object, path: Path, metadata: object) -> None:
        path.write_bytes(before[:1000])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(vtrans.storage.writing, "save_file", half)
    with pytest.raises(WriteError, match="No space left on device"):
        save_model(target, make(tiny_data, "tgt-softmax"))
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path, tiny_data: DataFolder) -> None:
    (tmp_path / "file").write_text("")
    for folder in ("missing", "file"):
        with pytest.raises(FileError, match=rf"{folder}/m\.safetensors"):
            save_model(tmp_path / folder / "m.safetensors", make(tiny_data, "none"))


# The run folder.


def run_of(tmp_path: Path, data: DataFolder, *steps: int) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.states.mkdir(parents=True)
    loaded = make(data, "src-tgt-softmax")
    for step in steps:
        save_model(
            run.step_file(step),
            LoadedModel(loaded.model, data.src_vocab, data.tgt_vocab, loaded.search, {"step": step}),
        )
    return run


@pytest.mark.parametrize("hard_links", [True, False])
def test_a_link_is_replaced_and_not_written_through(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch, hard_links: bool
) -> None:
    run = run_of(tmp_path, tiny_data, 1, 2)
    if not hard_links:

        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr("os.link", refuse)
    for step in (1, 1, 2, 2):
        run.link(step, run.last)
        run.link(step, run.best)
        assert run.last.read_bytes() == run.best.read_bytes() == run.step_file(step).read_bytes()
        assert run.last.samefile(run.step_file(step)) == hard_links
    names = {p.name for p in run.path.iterdir()}
    assert names == {"state", run.last.name, run.best.name, run.step_file(1).name, run.step_file(2).name}
    assert load_model(run.step_file(1)).training == {"step": 1}


def test_pruning_removes_only_files_of_the_run(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = run_of(tmp_path, tiny_data, 1, 2, 3)
    for step in (1, 2, 3):
        run.state_file(step).write_bytes(b"")
    strangers = ["notes.txt", "step-3.safetensors", "step-00000001.safetensors.bak", ".hidden", "my.tmp"]
    for name in [*strangers, ".averaged.safetensors.9.tmp", ".test.de.9.tmp", ".recipe.toml.9.tmp"]:
        (run.path / name).write_text("mine")
    (run.path / ".step-00000003.safetensors.9.tmp").mkdir()
    (run.path / ".step-00000003.safetensors.9.tmp" / ".tmpX").write_text("half")
    run.prune([2], 3)
    assert run.steps() == [2]
    assert run.state_steps() == [3]
    left = {p.name for p in run.path.iterdir()} - {"state", run.step_file(2).name}
    assert left == {*strangers, ".averaged.safetensors.9.tmp", ".test.de.9.tmp"}  # other processes may be writing them


def test_the_average_is_chosen_unless_training_has_passed_it(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    with pytest.raises(FileError, match=str(run.path)):
        run.choose_model()
    run = run_of(tmp_path / "b", tiny_data, 10, 20)
    run.link(20, run.last)
    assert choose_model(run.path).file == run.last
    run.link(10, run.best)
    assert choose_model(run.path).file == run.best
    loaded = make(tiny_data, "src-tgt-softmax")
    averaged = LoadedModel(
        loaded.model, tiny_data.src_vocab, tiny_data.tgt_vocab, loaded.search, {"average_of": [10, 20]}
    )
    save_model(run.averaged, averaged)
    file, why = choose_model(run.path)
    assert file == run.averaged
    assert "20" in why
    save_model(run.step_file(30), loaded)
    run.link(30, run.last)
    file, why = choose_model(run.path)
    assert file == run.best
    assert re.search(r"averaged\.safetensors .*20.*30", why)
    assert choose_model(run.step_file(10)) == (run.step_file(10), "")


# States.


def test_a_state_of_other_parameters_is_refused(tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder) -> None:
    state = tiny_run.state_file(30)
    assert read_progress(state)["step"] == 30
    with pytest.raises(FileError, match="not a state"):
        read_progress(tiny_run.last)
    with pytest.raises(FileError, match="model"):
        load_model(state)
    other = make(tiny_data, "none").model
    with pytest.raises(FileError, match="another architecture"):
        read_state(state, other)
    with pytest.raises(FileError, match="another architecture"):
        load_weights(tiny_run.last, other)
    own = load_model(tiny_run.last).model
    parts = load_file(state)
    name = "src_embedding.weight"
    header = {"format": FORMAT, "kind": "state", "progress": {}}
    write_tensors(tmp_path / "s", {k: v for k, v in parts.items() if k != f"{name}:exp_avg"}, header)
    with pytest.raises(FileError, match=name):
        read_state(tmp_path / "s", own)
    write_tensors(tmp_path / "s", parts | {f"{name}:exp_avg": torch.zeros(3, 2)}, header)
    with pytest.raises(FileError, match=rf"{name} .*\[3, 2\]"):
        read_state(tmp_path / "s", own)


def test_a_file_of_this_format_gives_the_same_translation() -> None:
    """The format has changed if this fails: give it another number."""
    file = Path(__file__).parent / "models" / "tiny.safetensors"
    with safe_open(file, "pt") as tensors:
        assert json.loads(tensors.metadata()["vtrans"])["format"] == FORMAT
    loaded = load_model(file)
    assert loaded.model.config.positions == "stored"
    search = dataclasses.replace(loaded.search, beam=2, max_length=8)
    ((best,),) = Translator(TorchEngine([loaded]), search, retry=False).nbest(["ab ba a"], n=1)
    assert best.text == "ba ba ba ba ba"
    assert best.logprob == pytest.approx(-7.679163932800293, abs=1e-5)
