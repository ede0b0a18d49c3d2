"""An imported model goes through every command: new text in its vocabulary, training, average, translation, export."""

from pathlib import Path

import pytest
import torch
from cli_runner import Run
from conftest import TRAIN_PAIRS, VALID_PAIRS, write_pairs
from foreign import hugging_face_folder

from vtrans.apps.interop.formats import read_model
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model, save_model, weights_of
from vtrans.storage.run_folder import RunFolder

STEPS = ("train.max_steps=2", "train.checkpoint_every=1", "train.learning_rate=0.01", "train.warmup=1")


@pytest.mark.parametrize("separate", [False, True])
def test_an_import_is_fine_tuned_averaged_translated_with_and_exported(
    separate: bool, tmp_path: Path, run_cli: Run
) -> None:
    imported = read_model(hugging_face_folder(tmp_path / "hf", separate=separate)).model
    file, data, run = tmp_path / "model.safetensors", tmp_path / "data", tmp_path / "run"
    save_model(file, imported)
    src, tgt = write_pairs(tmp_path, "train", TRAIN_PAIRS[:30])
    valid_src, valid_tgt = write_pairs(tmp_path, "valid", VALID_PAIRS[:4])
    text = ("--src", src, "--tgt", tgt, "--valid-src", valid_src, "--valid-tgt", valid_tgt, "--out", data)
    assert run_cli("prepare-bpe", *text, "--vocab-from", file, "--vocab-size", "300").code == 2
    assert run_cli("prepare-bpe", *text, "--vocab-from", file, "--dry-run").code == 0
    assert run_cli("prepare-bpe", *text, "--vocab-from", file, "--quiet").code == 0
    prepared = DataFolder.open(data)
    assert prepared.joint is not separate
    assert (prepared.src_vocab.digest, prepared.tgt_vocab.digest) == (
        imported.src_vocab.digest,
        imported.tgt_vocab.digest,
    )
    sets = [word for value in STEPS for word in ("--set", value)]
    done = run_cli("train", "--data", data, "--out", run, "--init-from", file, "--device", "cpu", *sets)
    assert done.code == 0, done.err
    for vocab in (imported.src_vocab, imported.tgt_vocab):
        assert f"{len(vocab):,} of {len(vocab):,} rows" in done.err
    assert load_model(RunFolder(run).last).search == imported.search
    assert run_cli("average", run, "--last", "2", "--quiet").code == 0
    averaged = load_model(RunFolder(run).averaged)
    table = "src_positions.weight"
    assert torch.equal(weights_of(averaged.model)[table], weights_of(imported.model)[table])
    assert not torch.equal(averaged.model.projection.weight, imported.model.projection.weight)
    done = run_cli("translate", "--model", run, "--quiet", stdin=b"the big dog\n\nthe cat\n")
    assert (done.code, done.out.count(b"\n")) == (0, 3)
    done = run_cli("export", run, "--to", "huggingface", "--quiet")
    assert done.code == 0, done.err
    assert (run / "huggingface" / "config.json").exists()
