"""Training from start to end: log, metrics and learning; and dry runs, which estimate and write nothing."""

import math
import re
from pathlib import Path

import pytest
import torch
from conftest import TINY, tiny_train
from runs import heard, lines, set_up_run

import vtrans.data.augmentation
from vtrans.data.epochs import plan_epoch
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.storage.run_folder import RunFolder
from vtrans.text.vocabulary import BOS_ID
from vtrans.training.optimization.optimizer import learning_rate
from vtrans.training.recipe import load_recipe
from vtrans.training.trainer import Trainer


def test_metrics_are_as_documented(tiny_run: RunFolder, tiny_data: DataFolder) -> None:
    kinds: dict[str, list[str]] = {
        "train": [
            *("kind", "step", "epoch", "loss", "nll", "lr"),
            *("src_tokens", "tgt_tokens", "padding", "seconds", "skipped"),
        ],
        "valid": ["kind", "step", "nll", "ppl", "bleu", "chrf", "signature"],
    }
    records = lines(tiny_run)
    for record in records:
        assert list(record) == kinds[record["kind"]]
    assert [(r["kind"], r["step"]) for r in records] == [
        *(("train", 5), ("train", 10), ("valid", 10)),
        *(("train", 15), ("train", 20), ("valid", 20)),
        *(("train", 25), ("train", 30), ("valid", 30)),
    ]
    recipe = load_recipe(str(tiny_run.recipe))
    store, trained = tiny_data.train, [r for r in records if r["kind"] == "train"]
    plan = [
        *plan_epoch(store.src_lengths, store.tgt_lengths, 240, 1, 1),
        *plan_epoch(store.src_lengths, store.tgt_lengths, 240, 1, 2),
    ]
    for r in trained:
        assert r["lr"] == learning_rate(r["step"], recipe.train, 32)
        numbers = torch.cat(plan[r["step"] - 5 : r["step"]])
        assert r["src_tokens"] == int(store.src_lengths[numbers].sum())
        assert r["tgt_tokens"] == int(store.tgt_lengths[numbers].sum()) + len(numbers)
        sides = (store.src_lengths, store.tgt_lengths)
        padded = sum(len(p) * int((side[p] + 1).max()) for p in plan[r["step"] - 5 : r["step"]] for side in sides)
        assert r["padding"] == pytest.approx(1 - (r["src_tokens"] + r["tgt_tokens"] + len(numbers)) / padded)
        assert r["nll"] < r["loss"] or r["step"] <= 10
        assert r["seconds"] > 0
    assert trained[-1]["loss"] < trained[0]["loss"] - 1
    valid = [r for r in records if r["kind"] == "valid"]
    assert valid[-1]["nll"] < valid[0]["nll"]
    for r in valid:
        assert r["ppl"] == pytest.approx(math.exp(r["nll"]))
        assert "|beam:1|" in r["signature"]
        assert "|max_length:20|" in r["signature"]
        assert r["signature"].endswith("|sentences:4")
        assert "version:" in r["signature"]


def test_the_loss_is_printed_after_the_first_update_of_each_command(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = (*TINY, "train.log_every=4", "train.checkpoint_every=99")
    told = heard(tiny_data, tmp_path / "run", *settings, "train.max_steps=6")
    told += heard(tiny_data, tmp_path / "run", *settings, "train.max_steps=9")
    shown = re.findall(r"^step (\d+)  left \d.* loss (\S+)  ppl", told, re.M)
    assert [int(step) for step, _ in shown] == [1, 4, 6, 7, 8, 9]
    written = {r["step"]: r["loss"] for r in lines(RunFolder(tmp_path / "run")) if r["kind"] == "train"}
    assert list(written) == [4, 6, 8, 9]
    assert all(float(loss) == pytest.approx(written[int(step)], abs=1e-3) for step, loss in shown if step not in "17")


@pytest.mark.parametrize(
    ("steps", "minutes", "share"), [(40, 0, 0.5), (40, 100, 0.5), (40, 5, 0.8), (10**9, 5, 0.8), (20, 4, 1.0)]
)
def test_the_nearer_limit_counts(tmp_path: Path, tiny_data: DataFolder, steps: int, minutes: int, share: float) -> None:
    settings = (f"train.max_steps={steps}", f"train.max_minutes={minutes}")
    trainer = Trainer(set_up_run(tiny_data, tmp_path, *settings))
    trainer.progress.step, trainer.progress.seconds = 20, 240
    assert trainer.share == share


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_marians_start_stays_zero(tiny_data: DataFolder, tmp_path: Path, optimizer: str) -> None:
    settings = ("model.positions=marian", f"train.optimizer={optimizer}", "train.weight_decay=0.1", "train.ema=0.5")
    run = tiny_train(tiny_data, tmp_path / "run", "train.max_steps=4", "train.checkpoint_every=4", *settings)
    weight = load_model(run.last).model.tgt_embedding.weight
    assert not weight[BOS_ID].any()
    assert weight[BOS_ID + 1].any()


def test_a_dry_run_reports_time_and_memory_and_writes_nothing(tmp_path: Path, tiny_data: DataFolder) -> None:
    said = heard(tiny_data, tmp_path / "run", *TINY, "train.accumulate=2", dry_run=True)
    assert not (tmp_path / "run").exists()
    store = tiny_data.train
    plan = plan_epoch(store.src_lengths, store.tgt_lengths, 240, 1, 1)
    assert f"{len(store):,} pairs, {int(store.src_lengths.sum()):,} source and" in said
    assert f"in {len(plan)} batches, " in said
    assert f"; {len(plan) / 2:,.1f} updates" in said
    assert re.search(r"\d+\.\d\d seconds per update \(mean of 10\), .* for 30 steps", said)
    peak = re.search(r"memory: (\d+\.\d\d) GB", said)
    assert peak
    assert 0.01 < float(peak[1]) < 100
    assert said.endswith("dry run: nothing was written\n")


def test_estimates_sample_bpe_dropout(tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    said = heard(tiny_data, tmp_path / "run", *TINY, "train.bpe_dropout=0.1", dry_run=True)
    pairs = len(tiny_data.train)
    whole = re.search(rf"{pairs} pairs, (\d,\d+) source and .* [0-9.]+% padding; [0-9.]+ updates\n", said)
    assert whole
    monkeypatch.setattr(vtrans.data.augmentation, "SHARD", 40)
    monkeypatch.setattr(vtrans.data.augmentation, "WINDOW", 2)
    said = heard(tiny_data, tmp_path / "run", *TINY, "train.bpe_dropout=0.1", dry_run=True)
    part = re.search(rf"{pairs} pairs, (\d,\d+) source and .* padding; [0-9.]+ updates \(from 80 pairs\)\n", said)
    assert part
    tokens = [int(found[1].replace(",", "")) for found in (whole, part)]
    assert tokens[1] == pytest.approx(tokens[0], rel=0.05)
    assert min(tokens) > 1.05 * int(tiny_data.train.src_lengths.sum())
    assert "BPE-dropout 0.1" in said


def test_a_training_limited_by_time_alone_names_no_number_of_steps(tmp_path: Path, tiny_data: DataFolder) -> None:
    limits = ("train.max_steps=1000000000", "train.max_minutes=5")
    said = heard(tiny_data, tmp_path / "run", *TINY, *limits, dry_run=True)
    assert "000,000" not in said
    assert "5 minutes" in said
    assert "1,000,000,000 steps" in heard(tiny_data, tmp_path / "run", *TINY, limits[0], dry_run=True)


def test_a_dry_run_heeds_the_minutes(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    settings = ("train.max_steps=1000000000", "train.max_minutes=10")
    said = heard(tiny_data, run_copy.path, *settings, dry_run=True)
    match = re.search(r"train\.max_minutes ends training in (?:9|10) min \d+ s, after at most ([\d,]+) steps", said)
    assert match
    assert 100 < int(match[1].replace(",", "")) < 10**7
    assert "max_minutes ends" not in heard(tiny_data, run_copy.path, "train.max_steps=50", settings[1], dry_run=True)
    settings = (settings[0], "train.max_minutes=1e-6")
    assert "is finished at step 30 (train.max_minutes = 1e-06)" in heard(
        tiny_data, run_copy.path, *settings, dry_run=True
    )
