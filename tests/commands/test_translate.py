"""`vtrans translate`: its report, its threads, and translating in chunks."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cli_runner import SENTENCE, Done

from vtrans.commands.texts import Text, report
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.translate.steps.line import Counts


def reported(counts: Counts, **settings: int) -> list[str]:
    """Returns the lines of the report, without the first one about the speed."""
    stream = io.StringIO()
    report(counts, Console(stream=stream), **settings)
    return stream.getvalue().split("\n")[1:-1]


def test_translating_under_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process would translate the whole text."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"torchrun .*`shard` I/2"):
        Text().division(None, None)


@pytest.mark.parametrize("name", ["empty", "unfinished", "looping", "missing"])
def test_dubious_translations_are_counted_in_a_warning(name: str) -> None:
    for count in (1, 2000):
        (line,) = reported(Counts(lines=3000, **{name: count}))
        assert line.startswith(f"warning: {count:,} ")


def test_translate_and_logprob_compute_with_as_many_threads(
    run_cli: Callable[..., Done], tiny_run: RunFolder, tmp_path: Path
) -> None:
    text, model = tmp_path / "text", ("--model", tiny_run.path, "--device", "cpu")
    text.write_bytes(SENTENCE)
    try:
        for threads, words in ((2, ("translate", "--input", text)), (3, ("logprob", text, text))):
            assert run_cli(*words, *model, "--threads", threads).code == 0
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(1)


# Chunks.

TEXT = b"\xef\xbb\xbf" + SENTENCE + b"\n \r\nThe old cat\xe2\x80\xa8sees me.\n" + 4 * SENTENCE + b"The end"


@pytest.mark.parametrize(
    "processes", [1, pytest.param(2, marks=pytest.mark.skipif(sys.platform != "linux", reason="no copies"))]
)
def test_jobs_share_a_folder_and_collect_checks_it(
    run_cli: Callable[..., Done], ending_run: RunFolder, tmp_path: Path, processes: int
) -> None:
    text, out = tmp_path / "text", tmp_path / "deep" / "out"
    text.write_bytes(TEXT)
    model = "--model", ending_run.path, "--device", "cpu"
    words = "translate", *model, "--input", text, "--output", out, "--chunk-lines", "3", "--processes", str(processes)
    whole = run_cli("translate", *model, "--input", text)
    assert run_cli(*words, "--shard", "2/2").code == 0
    incomplete = run_cli("collect", out)
    assert (incomplete.code, incomplete.out) == (2, b"")
    assert "2 of 3" in incomplete.err
    assert run_cli(*words, "--shard", "1/2", "--quiet").code == 0
    collected = run_cli("collect", out)
    assert (collected.code, collected.out) == (0, whole.out)
    assert run_cli("collect", out, "--output", tmp_path / "all").code == 0
    assert (tmp_path / "all").read_bytes() == whole.out
    other = run_cli(*words, "--nbest", "2")
    assert (other.code, "--nbest" in other.err) == (2, True)
