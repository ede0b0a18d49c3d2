"""A dry run estimates and writes nothing."""

import re
from pathlib import Path

import pytest
from conftest import TINY
from runs import heard

import vtrans.data.augmentation
from vtrans.data.batches import plan_epoch
from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder


def test_a_dry_run_says_what_training_takes_and_writes_nothing(tmp_path: Path, tiny_data: DataFolder) -> None:
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
