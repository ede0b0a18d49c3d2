"""Models of Bergamot: what is read, its round trip through the export, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import bergamot_models as bergamot
import marian_models
import numpy as np
import pytest
import torch
from bergamot_models import VARIANTS, model, read_model, the_model, written
from cli_runner import Done
from drawn import some
from exports import LINES
from torch import Tensor

from vtrans.checkpoint import LoadedModel, load_model, save_model
from vtrans.data.store import DataFolder
from vtrans.interop.bergamot.binary import Matrix
from vtrans.interop.bergamot.importer import read
from vtrans.interop.imported import install
from vtrans.interop.marian import layout
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import BOS_ID, EOS_ID

Tensors = dict[str, Tensor | Matrix]


def imported(path: Path) -> LoadedModel:
    return install(read(path))


def plain(value: Tensor | Matrix) -> tuple[list[Any], float]:
    return (value.integers.tolist(), value.multiplier) if isinstance(value, Matrix) else (value.tolist(), 0.0)


# The round trip.


@pytest.mark.parametrize("name", some(VARIANTS, 2))
def test_an_export_of_an_import_has_the_same_weights(
    tmp_path: Path, tiny_data: DataFolder, tiny_data_separate: DataFolder, name: str
) -> None:
    data = tiny_data_separate if "tie" in VARIANTS[name] else tiny_data
    loaded = replace(model(data, shortlist=True, **VARIANTS[name]), languages=[Languages("en", "de")])
    written(loaded, tmp_path / "one")
    again = imported(tmp_path / "one")
    save_model(tmp_path / "model", again)
    written(load_model(tmp_path / "model"), tmp_path / "two")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "two").iterdir())
    one, two = (read_model(the_model(tmp_path / folder)) for folder in ("one", "two"))
    assert one.keys() == two.keys()
    assert [key for key in one if plain(one[key]) != plain(two[key]) and not key.endswith("_QuantMultA")] == []
    for file in names:
        if not file.startswith("model"):
            assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def dequantized(loaded: LoadedModel, tensors: Tensors) -> LoadedModel:
    """The model with the values of a file in place of its matrices."""
    exact = copy.deepcopy(loaded.model)
    for weight in layout.weights_of_layers(exact.config):
        parts = [part.values for name in weight.theirs if isinstance(part := tensors[name], Matrix)]
        if parts:
            exact.get_parameter(weight.ours).data.copy_(torch.cat(parts))
    for side, name in (("src", "encoder_Wemb"), ("tgt", "decoder_Wemb")):
        table = tensors[name if name in tensors else "Wemb"]
        assert isinstance(table, Matrix)
        parameter = exact.get_parameter(f"{side}_embedding.weight")
        parameter.data.copy_(table.values[: len(parameter)])
    return replace(loaded, model=exact)


def logits(loaded: LoadedModel, line: str, target: str) -> Tensor:
    """In the order of the SentencePiece model."""
    source = torch.tensor([[*loaded.src_vocab.encode(line), EOS_ID]])
    prefix = torch.tensor([[BOS_ID, *loaded.tgt_vocab.encode(target)]])
    with torch.inference_mode():
        scores: Tensor = loaded.model(source, torch.ones_like(source, dtype=torch.bool), prefix)[0]
    ids = {place: id for id, place in enumerate(loaded.tgt_vocab.order) if place is not None}
    return scores[:, [ids[place] for place in sorted(ids)]]


@pytest.mark.parametrize("name", some(VARIANTS, 2))
def test_an_import_computes_with_the_values_of_the_file(
    tmp_path: Path, tiny_data: DataFolder, tiny_data_separate: DataFolder, name: str
) -> None:
    loaded = model(tiny_data_separate if "tie" in VARIANTS[name] else tiny_data, **VARIANTS[name])
    written(loaded, tmp_path / "out")
    expected = dequantized(loaded, read_model(the_model(tmp_path / "out")))
    again = imported(tmp_path / "out")
    for line in LINES[:5]:
        ours, theirs = (logits(each, line, LINES[1]) for each in (again, expected))
        possible = ours[0] > -1000  # not the padding
        assert possible.sum() >= len(possible) - 1
        assert (ours - theirs)[:, possible].abs().max() < 1e-4


# Folders.


@pytest.mark.parametrize("separate", [False, True])
def test_a_folder_as_firefox_has_it_is_imported(tmp_path: Path, separate: bool) -> None:
    changes = {"tied-embeddings-all": "false", "tied-embeddings": "true"} if separate else {}
    path = bergamot.folder(tmp_path / "m", changes, separate=separate)
    loaded, found = imported(path), read(path / "model.ende.intgemm.alphas.bin")
    assert (loaded.search.beam, loaded.search.max_ratio, loaded.search.suppress) == (1, 2.0, ("<unk>",))
    assert [*loaded.languages] == [Languages("en", "de")]
    assert loaded.joint is not separate
    assert loaded.shortlist is not None
    assert found.model == loaded.model.config
    (path / "lex.ende.s2t.bin").unlink()
    for name in ("model.ende.intgemm.alphas.bin", "other.intgemm8.bin"):
        the_model(path).rename(path / f"model.{name}")
        assert imported(path).shortlist is None


# Refusals.

W, PADDED = "encoder_l1_ffn_W1", layout.padded(marian_models.size_of(marian_models.spm()))
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "pre-norm": ({"changes": marian_models.PRE}, "norm"),
    "another network": ({"claims": {"type": "amun"}}, "type"),
    "a missing tensor": ({"spoil": lambda t: t.pop(W)}, W),
    "an unknown tensor": ({"spoil": lambda t: t.update(other=torch.ones(2))}, "other"),
    "another shape": ({"spoil": lambda t: t.update({W: Matrix(t[W].integers[:, :2], 1.0)})}, W),
    "a multiplier of 0": ({"spoil": lambda t: t.update({W: t[W]._replace(multiplier=0.0)})}, W),
    "a multiplier that is no number": ({"spoil": lambda t: t.update({W: t[W]._replace(multiplier=np.nan)})}, W),
    "a tiny multiplier": ({"spoil": lambda t: t.update({W: t[W]._replace(multiplier=1e-42)})}, "finite"),
    "no settings": ({"spoil": lambda t: t.pop("special:model.yml")}, "special:model.yml"),
    "a vocabulary of another size": ({"claims": {"dim-vocabs": "[90, 90]"}}, "vocab.spm"),
    "a subword without a piece": ({"claims": {"dim-vocabs": f"[{PADDED}, {PADDED}]"}, "spoil": lambda t: t.update(
        Wemb=Matrix(torch.ones(PADDED, 8).char(), 1.0), decoder_ff_logit_out_b=torch.zeros(1, PADDED))}, "piece"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_vtrans_cannot_express_is_refused_by_name(tmp_path: Path, name: str, run_cli: Callable[..., Done]) -> None:
    options, named = REFUSED[name]
    done = run_cli("import", bergamot.folder(tmp_path / "m", **options), "--out", tmp_path / "out")
    assert (done.code, done.err.count("error: "), named in done.err) == (2, 1, True)
    assert not (tmp_path / "out").exists()
