"""`--threads` of the commands that compute with a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from cli_runner import SENTENCE, Done

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import read_progress


@pytest.fixture(autouse=True)
def _one_thread_afterwards() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


def test_translate_and_logprob_compute_with_as_many_threads(
    run_cli: Callable[..., Done], tiny_run: RunFolder, tmp_path: Path
) -> None:
    model = "--model", tiny_run.path, "--device", "cpu"
    assert run_cli("translate", *model, "--threads", "2", stdin=SENTENCE).code == 0
    assert torch.get_num_threads() == 2
    text = tmp_path / "text"
    text.write_bytes(SENTENCE)
    assert run_cli("logprob", text, text, *model, "--threads", "3").code == 0
    assert torch.get_num_threads() == 3


def test_train_computes_with_as_many_threads_and_records_them(
    run_cli: Callable[..., Done], run_copy: RunFolder, tiny_data: DataFolder
) -> None:
    words = "train", "--data", tiny_data.path, "--out", run_copy.path, "--device", "cpu"
    done = run_cli(*words, "--set", "train.max_steps=31", "--threads", "2")
    assert "device: cpu (2 threads)" in done.err
    assert "threads 1 -> 2" in done.err  # a warning: resuming is not bit-exact
    assert read_progress(run_copy.state_file(31))["environment"]["threads"] == 2
    torch.set_num_threads(1)
    resumed = run_cli(*words, "--set", "train.max_steps=32")
    assert "device: cpu (2 threads)" in resumed.err
    assert "warning: resuming" not in resumed.err


@pytest.mark.parametrize("words", ["train", "translate", "logprob text text"])
def test_an_invalid_number_of_threads_is_refused(
    run_cli: Callable[..., Done], words: str, tiny_run: RunFolder, tiny_data: DataFolder, tmp_path: Path
) -> None:
    (tmp_path / "text").write_bytes(SENTENCE)
    given = [str(tmp_path / word) if word == "text" else word for word in words.split()]
    folders = ["--data", tiny_data.path] if words == "train" else ["--model", tiny_run.path]
    done = run_cli(*given, *folders, "--threads", "0")
    assert done.code == 2
    assert "--threads" in done.err
    assert "got 0" in done.err
