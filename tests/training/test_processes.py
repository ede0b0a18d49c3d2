"""Training by several processes."""

import re
import signal
import sys
from pathlib import Path

import pytest
from conftest import TINY, tiny_train
from runs import SMOOTH, alike, command, heard, lines, process, ranks_of, wait_for_line

from vtrans.data.epochs import plan_epoch
from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder


@pytest.mark.slow
def test_two_processes_stop_together_and_resume(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = (*SMOOTH, "train.max_steps=60", "train.log_every=1", "train.ema=0.9")
    run = RunFolder(tmp_path / "two")
    words = command(tiny_data, run.path, *settings)
    with ranks_of(2, words) as (first, second):
        wait_for_line(first, run, 7)
        second.terminate()  # only one of them gets the signal
        _, said = first.communicate(timeout=60)
        second.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (1, 1), said
    stopped = re.search(r"^error: stopped by SIGTERM after step (\d+);", said, re.MULTILINE)
    assert stopped, said
    assert 7 <= int(stopped[1]) < 60
    assert run.state_steps() == [int(stopped[1])]
    python, *rest = words
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with process([*torchrun, *rest]) as child:
        _, said = child.communicate(timeout=120)
    assert child.returncode == 0, said
    assert f"resuming {run.path} after step {stopped[1]}" in said
    alike(run, tiny_train(tiny_data, tmp_path / "one", *settings), rel=1e-3, atol=1e-4)


HURT = """
import os, sys, time
from vtrans import cli
from vtrans.training.trainer import Trainer

rank, where, number, pause = os.environ["RANK"], sys.argv.pop(1), int(sys.argv.pop(1)), float(sys.argv.pop(1))
update, interrupted = Trainer.update, Trainer._interrupted


def hurt_update(trainer, group):
    if (rank, where, trainer.progress.step) == ("1", "update", 7):
        os.kill(os.getpid(), number)
    update(trainer, group)


def slow_validation(trainer):
    time.sleep(pause)
    if where == "validation":
        os.kill(os.getpid(), number)
    return interrupted(trainer)


Trainer.update, Trainer._interrupted = hurt_update, slow_validation
cli.main()
"""


def hurt(folder: Path, where: str, number: signal.Signals, words: list[str], pause: float = 0.0) -> list[str]:
    """Returns a training command in which a rank gets a signal in an update or in a validation, whose parts take at
    least `pause` seconds each."""
    script = folder / "hurt.py"
    script.write_text(HURT)
    return [sys.executable, str(script), where, str(int(number)), str(pause), *words[3:]]


@pytest.mark.slow
def test_if_a_rank_dies_the_run_ends_and_fewer_ranks_resume_it(tmp_path: Path, tiny_data: DataFolder) -> None:
    # Some batches have a single pair, so that one rank has none.
    settings = (
        *(*SMOOTH, "train.batch_tokens=44", "train.max_steps=12"),
        *("train.checkpoint_every=5", "train.log_every=1"),
    )
    plan = plan_epoch(tiny_data.train.src_lengths, tiny_data.train.tgt_lengths, 44, 1, 1)
    assert {1, 2} <= set(map(len, plan[:5]))
    run = RunFolder(tmp_path / "two")
    words = hurt(tmp_path, "update", signal.SIGKILL, command(tiny_data, run.path, *settings))
    with ranks_of(2, words) as (first, second):
        _, said = first.communicate(timeout=60)
        second.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (1, -signal.SIGKILL)
    own = [line for line in said.split("\n") if line.startswith("error: ")]
    assert len(own) == 1, said
    assert re.search(r"one of the 2 processes.* \([^\[].*\).* step 5\.", own[0])
    told = heard(tiny_data, run.path, *TINY, *settings)
    assert "ranks 2 -> 1" in told
    alike(run, tiny_train(tiny_data, tmp_path / "one", *settings))


@pytest.mark.slow
@pytest.mark.parametrize(("where", "hanging"), [("update", 1), ("validation", 0)])
def test_only_a_rank_that_hangs_ends_the_run(tmp_path: Path, tiny_data: DataFolder, where: str, hanging: int) -> None:
    """A slow machine needs more than the first limit, which suits an idle machine."""
    told = []
    for limit in (2.4, 15.0, 90.0):
        noticed, said = _training_with_a_hang(tmp_path / f"{limit:g}", tiny_data, where, hanging, limit)
        told.append(said)
        if noticed:
            return
    pytest.fail("\n".join(told))


def _training_with_a_hang(folder: Path, data: DataFolder, where: str, hanging: int, limit: float) -> tuple[bool, str]:
    """Trains with a limit in seconds, which each part of the validation keeps and its five parts together exceed.
    Returns whether only the hang ended the training, and the other rank's output."""
    settings = (*SMOOTH, "train.max_steps=10", "train.checkpoint_every=5", f"train.rank_timeout={limit / 60}")
    folder.mkdir()
    run = RunFolder(folder / "two")
    words = hurt(folder, where, signal.SIGSTOP, command(data, run.path, *settings), 0.375 * limit)
    with ranks_of(2, words) as ranks:
        alive = ranks[1 - hanging]
        _, said = alive.communicate(timeout=600)
        stopped = ranks[hanging].poll() is None
    own = [line for line in said.split("\n") if "error: " in line]
    told = len(own) == 1 and re.search(r"one of the 2 processes .*answer.* step 5\.", own[0]) is not None
    noticed = stopped and told and alive.returncode == 1
    return noticed and validated(run) == ([5] if where == "update" else []), said


def validated(run: RunFolder) -> list[int]:
    """The steps with a validation."""
    return [line["step"] for line in lines(run) if line["kind"] == "valid"]
