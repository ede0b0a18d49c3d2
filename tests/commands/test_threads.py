"""`--threads` of the commands that compute with a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from cli_runner import SENTENCE, Done

from vtrans.storage.run_folder import RunFolder


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
