"""One matrix in memory and in the file; model files that are whole, equal and complete."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from model_files import SHAPE, make
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from vtrans.config import TIE_FORMS
from vtrans.data.store import DataFolder
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import aliases, load_model, load_weights, save_model
from vtrans.model.network import Transformer
from vtrans.storage.tensors import FORMAT
from vtrans.translate.translator import Translator

# For each form of tying, the owners of the matrices with their aliases.
OWNERS: dict[str, dict[str, list[str]]] = {
    "src-tgt-softmax": {"src_embedding": ["tgt_embedding", "projection"]},
    "tgt-softmax": {"src_embedding": [], "tgt_embedding": ["projection"]},
    "src-tgt": {"src_embedding": ["tgt_embedding"], "projection": []},
    "none": {"src_embedding": [], "tgt_embedding": [], "projection": []},
}


def weight(model: Transformer, place: str) -> Tensor:
    return model.get_parameter(f"{place}.weight")


def check_ties(model: Transformer, tie: str) -> None:
    """Asserts that exactly the places named by the tie share storage."""
    places = ("src_embedding", "tgt_embedding", "projection")
    owner = {alias: name for name, shared in OWNERS[tie].items() for alias in [name, *shared]}
    for a in places:
        for b in places:
            same = owner[a] == owner[b]
            assert (weight(model, a) is weight(model, b)) == same
            assert (weight(model, a).data_ptr() == weight(model, b).data_ptr()) == same
    found = {f"{alias}.weight": f"{name}.weight" for name, shared in OWNERS[tie].items() for alias in shared}
    assert aliases(model) == found


@pytest.mark.parametrize("tie", TIE_FORMS)
def test_a_tie_survives_saving_loading_and_moving(tmp_path: Path, tiny_data: DataFolder, tie: str) -> None:
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


def test_the_file_of_a_three_way_tie_holds_one_matrix(tmp_path: Path, tiny_data: DataFolder) -> None:
    V, D = len(tiny_data.src_vocab), SHAPE["d_model"]
    sizes = {}
    for tie in TIE_FORMS:
        save_model(tmp_path / tie, make(tiny_data, tie))
        tensors = load_file(tmp_path / tie)
        sizes[tie] = sum(t.nbytes for name, t in tensors.items() if not name.startswith("vocabulary."))
        shapes = [list(t.shape) for t in tensors.values()]
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
    assert not any(module.training for module in again.model.modules())
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


def test_a_file_of_this_format_gives_the_same_translation() -> None:
    """If this fails, the format has changed: increase its revision."""
    file = Path(__file__).parents[1] / "models" / "tiny.safetensors"
    with safe_open(file, "pt") as tensors:
        assert json.loads(tensors.metadata()["vtrans"])["format"] == FORMAT
    loaded = load_model(file)
    assert loaded.model.config.positions == "stored"
    search = dataclasses.replace(loaded.search, beam=2, max_length=8)
    ((best,),) = Translator(TorchEngine([loaded]), search, retry=False).nbest(["ab ba a"], n=1)
    assert best.text == "ba ba ba ba ba"
    assert best.logprob == pytest.approx(-7.679163932800293, abs=1e-5)
