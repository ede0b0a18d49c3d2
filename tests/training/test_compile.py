"""Training with compiled layers."""

import os
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import EVERY_STEP, TINY, tiny_train
from drawn import SEED
from runs import SMOOTH, heard, lines, same
from safetensors.torch import load_file

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder


def test_without_a_compiler_training_continues_with_one_warning(
    tmp_path: Path, tiny_data: DataFolder, every_step_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            torch.rand(3)  # what has been drawn by then does not matter
            function(*arguments)
            raise RuntimeError("no C++ compiler found.\nA long story.")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    said = heard(tiny_data, tmp_path / "run", *TINY, *EVERY_STEP, compile=True)
    assert said.count("warning: ") == 1
    assert "(RuntimeError: no C++ compiler found)" in said
    same(RunFolder(tmp_path / "run"), every_step_run)


def test_only_training_is_compiled(tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fake(function: Callable[..., Any], *, dynamic: bool) -> Callable[..., Any]:
        assert dynamic

        def call(*arguments: Any) -> Any:
            calls.append(len(arguments))
            return function(*arguments)

        return call

    monkeypatch.setattr(torch, "compile", fake)
    settings = (*TINY, "train.max_steps=4", "train.checkpoint_every=2")
    heard(tiny_data, tmp_path / "run", *settings, compile=True)
    assert len(calls) == 1 + 4  # one trial and one per step; none in the two validations
    run = RunFolder(tmp_path / "run")
    same(tiny_train(tiny_data, tmp_path / "plain", *settings), run)
    assert not [name for name in load_file(run.last) if "_orig_mod" in name]
    said = heard(tiny_data, run.path, *settings, "train.max_steps=5")
    assert "compiled True -> False" in said


@pytest.mark.slow
@pytest.mark.skipif(
    SEED == "all" and shutil.which(os.environ.get("CXX") or "g++") is None,
    reason="a C++ compiler is not installed: apt-get install g++",
)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"][: 3 if SEED == "all" else 1])
def test_compiled_layers_learn_the_same(
    tmp_path: Path, tiny_data: DataFolder, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor, which `--compile` uses, takes a minute to compile what all of them trace, so it is tried with all
    cases only."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    settings = (*SMOOTH, "train.max_steps=6", "train.accumulate=2")
    plain = tiny_train(tiny_data, tmp_path / "plain", *settings)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with warnings.catch_warnings():  # of torch, in its own code
        warnings.simplefilter("ignore")
        said = heard(tiny_data, tmp_path / "run", *TINY, *settings, compile=True)
    assert "cannot be compiled" not in said
    assert 1 <= torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3
    for first, second in zip(lines(plain), lines(RunFolder(tmp_path / "run")), strict=True):
        assert second["nll"] == pytest.approx(first["nll"], rel=1e-3)
