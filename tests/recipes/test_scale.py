"""recipes/sharing/scale.py: each layer's shares are its own, however the layers share; its errors are sentences."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
import torch
from conftest import write_pairs
from test_model import SMALL, V, make, sequences

from recipes.sharing.scale import main, residual_shares, variances
from vtrans.checkpoint import RunFolder, aliases
from vtrans.config import ModelConfig
from vtrans.model import Transformer

PAIRS = [(source[:-1], source) for source in sequences(5, 9, 2)]


def apart(shared: Transformer, config: ModelConfig) -> Transformer:
    """A model whose layers have weights of their own, the same as those that are shared."""
    model, own, owner = make(config), dict(shared.named_parameters()), aliases(shared)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(own[owner.get(name, name)])
    return model


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_layers_that_share_their_weights_have_shares_of_their_own(norm: str) -> None:
    config = dataclasses.replace(SMALL, norm=norm)
    model = make(dataclasses.replace(config, share_layers="all"))
    with torch.inference_mode():
        found = residual_shares(model, PAIRS)
        assert found == [pytest.approx(layer) for layer in residual_shares(apart(model, config), PAIRS)]
    assert len({layer["|x|"] for layer in found}) == len(found) == config.decoder_layers
    assert all(layer["residual"] + layer["attention"] == pytest.approx(1) for layer in found)


def test_without_the_residual_nothing_comes_through_it() -> None:
    with torch.inference_mode():
        found = residual_shares(make(dataclasses.replace(SMALL, cross_attention_residual=False)), PAIRS)
    assert [layer["residual"] for layer in found] == [0, 0, 0]
    assert [layer["attention"] for layer in found] == pytest.approx([1, 1, 1])


def test_the_scaled_embedding_and_the_logits_start_alike() -> None:
    """Of weights as they are drawn; without the scaling the embedding's variance is 1/D."""
    torch.manual_seed(1)
    config = dataclasses.replace(SMALL, d_model=64, norm="pre")
    for scaled, expected in ((True, 1.0), (False, 1 / 64)):
        model = Transformer(
            dataclasses.replace(config, scale_embedding=scaled), V, V, joint=True, pad_id=0
        ).eval()  # fmt: skip
        with torch.inference_mode():
            found = variances(model, PAIRS)
        assert found["embedding"] == pytest.approx(expected, rel=0.3)
        assert found["logits"] == pytest.approx(1, rel=0.4)


def started(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["scale.py", *map(str, words)])
    return main()


def test_the_script(
    tiny_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    src, tgt = write_pairs(tmp_path, "some", [("The big dog.", "Der Hund."), ("", "nichts"), ("A cat.", "Ein Kater.")])
    assert started(monkeypatch, tiny_run.path, src, tgt) == 0
    rows = [line.split() for line in capsys.readouterr().out.split("\n")]
    assert [row[0] for row in rows if row] == ["variance", "at", "trained", "layer", "start", "trained"]
    tgt.write_text("Der Hund.\n")
    for words, message in (
        ((tiny_run.path, src, tgt), f"{src} has 3 lines among its first 200, but {tgt} has 1"),
        ((tiny_run.path, tgt, tgt, "--pairs", 0), "holds no pair with words on both sides"),
        ((tmp_path / "missing", src, tgt), "there is no model"),
    ):
        assert started(monkeypatch, *words) == 2
        assert message in capsys.readouterr().err
