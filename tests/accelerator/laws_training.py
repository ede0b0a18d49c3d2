"""Training on a pretended device gives what training on the CPU gives. test_pretended.py runs this file."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import gpu_check
import pretended
import pytest
import torch
from drawn import some
from pretended import waits
from runs import BRIEF, CPU, SMOOTH, alike, lines, run_trainer, same, set_up_run
from torch.nn.attention import SDPBackend, sdpa_kernel

from vtrans.config import SearchConfig
from vtrans.data.store import DataFolder
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import load_model
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import VtransError
from vtrans.training.trainer import Trainer
from vtrans.translate.translator import Translator

pretended.register()
DEVICE = torch.device(pretended.NAME)
FEW = (
    *("train.max_steps=3", "train.checkpoint_every=3", "train.log_every=1", "train.warmup=2"),
    *('train.kernels="blas"', "train.compiled=false"),  # as on the device
)
FEATURES: dict[str, tuple[str, ...]] = {
    "plain": (),
    "muon": (
        *('train.optimizer="muon"', "train.ema=0.9", "train.clip_norm=0.5", "train.accumulate=2"),
        "train.guided_alignment=0.1",
    ),
    "r-drop": ("train.r_drop=2.0", "model.attention_dropout=0.2", 'model.positions="rotary"', 'model.norm="pre"'),
    "ssru": ('model.autoregression="ssru"', 'model.positions="marian"', "model.projection_bias=true"),
    "decoder-only": (
        *('model.architecture="decoder-only"', "model.encoder_layers=0", 'model.tie="none"'),
        *("train.bpe_dropout=0.1", "train.noise=0.1"),
    ),
}


@pytest.fixture(autouse=True)
def _same_attention() -> Iterator[None]:
    """The fused kernels of a CPU round otherwise than the products that the device uses."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def trained(
    data: DataFolder,
    run: Path,
    *overrides: str,
    device: torch.device = DEVICE,
    validated: Callable[[], None] = lambda: None,
) -> RunFolder:
    ready = set_up_run(data, run, *SMOOTH, *FEW, *BRIEF, *overrides, device=device)

    class Telling(Trainer):
        def after_validation(self, record: Mapping[str, Any]) -> None:
            validated()

    run_trainer(Telling(ready))
    return ready.job.run


@pytest.mark.parametrize("feature", some(FEATURES, 2))
def test_training_in_float32_gives_results_of_the_cpu(feature: str, linked_data: DataFolder, tmp_path: Path) -> None:
    run, other = (trained(linked_data, tmp_path / d.type, *FEATURES[feature], device=d) for d in (DEVICE, CPU))
    alike(run, other, rel=1e-5)
    assert run.translations(3).read_text() == other.translations(3).read_text()
    search = SearchConfig(beam=2, max_length=4)
    engines = [TorchEngine([load_model(run.last, device)]) for device in (DEVICE, CPU)]
    ours, theirs = ([*Translator(engine, search).translate(["The big dog sees me."])] for engine in engines)
    assert ours == theirs


def test_training_in_bfloat16_rounds_as_on_the_cpu(linked_data: DataFolder, tmp_path: Path) -> None:
    everything = (
        'train.precision="bfloat16"',
        *FEATURES["muon"],
        "train.r_drop=1.0",
        "model.attention_dropout=0.1",
    )
    run, other = (trained(linked_data, tmp_path / d.type, *everything, device=d) for d in (DEVICE, CPU))
    alike(run, other, rel=5e-3, atol=5e-3)
    exact = trained(linked_data, tmp_path / "exact", *everything, 'train.precision="float32"', device=CPU)
    assert lines(exact)[0]["loss"] != lines(run)[0]["loss"]


def test_a_run_that_was_stopped_resumes_to_equal_bytes(linked_data: DataFolder, tmp_path: Path) -> None:
    masks = (
        "train.max_steps=4",
        "train.checkpoint_every=2",
        "model.dropout=0.2",
        "train.ema=0.9",
        'train.optimizer="muon"',
    )
    whole = trained(linked_data, tmp_path / "whole", *masks)
    with pytest.raises(VtransError, match="SIGTERM after step 3"):
        trained(linked_data, tmp_path / "parts", *masks, validated=lambda: os.kill(os.getpid(), signal.SIGTERM))
    same(trained(linked_data, tmp_path / "parts", *masks), whole)


@pytest.mark.parametrize("feature", ["muon", "r-drop"])
def test_updates_wait_only_where_their_losses_are_read(feature: str, linked_data: DataFolder, tmp_path: Path) -> None:
    settings = (*SMOOTH, *FEW, *FEATURES[feature], 'train.precision="bfloat16"')
    trainer = Trainer(set_up_run(linked_data, tmp_path / "run", *settings, device=DEVICE))
    with closing(trainer._batches()) as batches, waits() as waited:
        for _ in range(3):
            trainer.update([*islice(batches, 2)])
    assert not waited
    with waits() as waited:
        trainer.read()
    assert len(waited) == 1


def test_the_check_of_a_gpu_passes_and_counts_what_the_documentation_says(tmp_path: Path) -> None:
    size = gpu_check.Size(60, 2, (), 2, (2048,), 0.0, 8)
    check = gpu_check.Check(DEVICE, size, tmp_path, waits)
    assert check.equal_results()["passed"]
    found = check.waits()
    assert [found["per update"], found["per read of losses"]] == [0, 1]
    assert 1 <= found["per step of a search"] < 1.2  # a little more for rows with equal subwords
