"""recipes/sharing/scale.py: the shares of each layer, also in models whose layers share weights; errors."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
import torch
from conftest import write_pairs
from networks import SMALL, V, make, sequences

from recipes.sharing.scale import main, residual_shares, variances
from vtrans.checkpoint import aliases
from vtrans.config import ModelConfig
from vtrans.model import Transformer
from vtrans.storage.run_folder import RunFolder

PAIRS = [(source[:-1], source) for source in sequences(5, 9, 2)]


def apart(shared: Transformer, config: ModelConfig) -> Transformer:
    """A model without sharing, with equal weights in each layer."""
    model, own, owner = make(config), dict(shared.named_parameters()), aliases(shared)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(own[owner.get(name, name)])
    return model


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_layers_that_share_weights_are_measured_separately(norm: str) -> None:
    config = dataclasses.replace(SMALL, norm=norm)
    model = make(dataclasses.replace(config, share_layers="all"))
    with torch.inference_mode():
        shares = residual_shares(model, PAIRS)
        assert shares == [pytest.approx(layer) for layer in residual_shares(apart(model, config), PAIRS)]
    assert len({layer["|x|"] for layer in shares}) == len(shares) == config.decoder_layers
    assert all(layer["residual"] + layer["attention"] == pytest.approx(1) for layer in shares)


def test_a_missing_residual_has_no_share() -> None:
    with torch.inference_mode():
        shares = residual_shares(make(dataclasses.replace(SMALL, cross_attention_residual=False)), PAIRS)
    assert [layer["residual"] for layer in shares] == [0, 0, 0]
    assert [layer["attention"] for layer in shares] == pytest.approx([1, 1, 1])


def test_scaled_embeddings_and_logits_start_at_unit_variance() -> None:
    """Without the scaling, the variance of the embeddings is 1/D."""
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


def test_the_script_prints_both_tables_or_an_error(
    tiny_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    src, tgt = write_pairs(tmp_path, "some", [("The big dog.", "Der Hund."), ("", "nichts"), ("A cat.", "Ein Kater.")])
    assert started(monkeypatch, tiny_run.path, src, tgt) == 0
    rows = [line.split() for line in capsys.readouterr().out.split("\n")]
    assert [row[0] for row in rows if row] == ["variance", "initial", "trained", "layer", "initial", "trained"]
    tgt.write_text("Der Hund.\n")
    for words, message in (
        ((tiny_run.path, src, tgt), f"{src} and {tgt}"),
        ((tiny_run.path, tgt, tgt, "--pairs", 0), f"{tgt} and {tgt}"),
        ((tmp_path / "missing", src, tgt), "missing"),
    ):
        assert started(monkeypatch, *words) == 2
        assert message in capsys.readouterr().err
