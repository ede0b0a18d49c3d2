"""Training by two and three processes, which share the weights (`train.parallel = "fsdp"`) or have all of them,
compared with one process.

Three groups of processes, of three, two and one, run all commands once; the tests compare what they wrote. Most rows
are trained by three ranks only, which divide nothing evenly that two divide unevenly. Two of these rows are drawn.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from drawn import some
from runs import SMOOTH, alike, by_ranks, command, lines
from safetensors.torch import load_file

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import read_progress
from vtrans.system.errors import InputError
from vtrans.system.ranks import Ranks
from vtrans.training.optimization.learner import ShardedLearner, learner_of
from vtrans.training.recipe import load_recipe

DEEP = ("model.encoder_layers=2", "model.decoder_layers=2")
SPOILT_SEED = 13  # in runs with this seed, the loss of the last rank is NaN in the second update
# Neither two nor three ranks can divide every weight evenly. The model of `narrow` has weights with four rows, of which
# the third rank has none.
ROWS = {
    "tied": (),
    "layers": (*DEEP, "model.share_layers=all"),
    "stacks": (*DEEP, "model.share_stacks=true", "train.clip_norm=0.3", "train.guided_alignment=0.5"),
    "narrow": ("model.architecture=decoder-only", "model.encoder_layers=0", "model.d_model=4", "model.d_ff=5"),
    "separate": (
        *("model.tie=none", "model.positions=learned", "model.max_positions=64", "model.projection_bias=true"),
        *("model.norm=pre", "train.ema=0.9", "train.weight_decay=0.1"),
    ),
    "spoilt": (*DEEP, "model.autoregression=ssru", f"train.seed={SPOILT_SEED}", "train.ema=0.9"),
}
DRAWN = some([name for name in ROWS if name not in ("tied", "spoilt")], 2)
BY_THREE = ("tied", *DRAWN, "spoilt")
TOGETHER = {  # trained by two ranks, each of which has all weights
    "drawn": ("train.bpe_dropout=0.1", "train.noise=0.3"),
    "shared": (*DEEP, "model.share_stacks=true", "model.share_layers=all"),
    "guided": ("train.guided_alignment=0.5",),
}
SETTINGS = (*SMOOTH, "train.max_steps=3", "train.warmup=1", "train.log_every=1", "train.valid_sentences=1")
EXACT = ("train.warmup=1", "model.dropout=0.2", "train.ema=0.9", "train.clip_norm=0.3", "train.valid_sentences=1")
STOPS = (2, 4)

WATCHED = f"""
import gc, json, os, torch
from vtrans.training.optimization.loss import Objective
from vtrans.training.trainer import Trainer

forward, update, last = Objective.forward, Trainer.update, int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1


def spoiling(objective, batch):
    loss, nll = forward(objective, batch)
    return loss * float("nan") if spoilt else loss, nll


def size(tensors):
    storages = {{t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t is not None}}
    return sum(storages.values())


def watching(trainer, group):
    global spoilt
    learner = trainer.learner

    def measure(optimizer, *_):
        parameters = list(learner.parameters.values())
        state = [value for p in parameters for value in optimizer.state[p].values() if value.dim()]
        gc.collect()
        there = [t for t in gc.get_objects() if type(t) in (torch.Tensor, torch.nn.Parameter)]
        sizes = {{"parameters": size(parameters), "gradient": size(p.grad for p in parameters)}}
        sizes |= {{"state": size(state), "all": size(there)}}
        (trainer.job.run.path / "held.json").write_text(json.dumps(sizes))

    spoilt = last and learner.config.seed == {SPOILT_SEED} and trainer.progress.step == 1
    measuring = last and trainer.progress.step == 2 and learner.optimizer.register_step_pre_hook(measure)
    update(trainer, group)
    if measuring:
        measuring.remove()
    spoilt = False


Objective.forward, Trainer.update = spoiling, watching
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, linked_data: DataFolder, tiny_data_separate: DataFolder) -> Path:
    """A folder with the runs of each number of ranks, `ranks`/`name`, and with those that are named in the tests."""
    folder = tmp_path_factory.mktemp("parallel")

    def rows(count: int) -> list[list[str]]:
        chosen = [(name, ROWS[name], "fsdp") for name in (("tied",) if count == 2 else BY_THREE)]
        chosen += [(name, row, "ddp") for name, row in TOGETHER.items() if count != 3]
        return [
            command(
                tiny_data_separate if name == "separate" else linked_data,
                folder / str(count) / name,
                *(*SETTINGS, *row, f"train.parallel={kind}", "train.accumulate=2"),
            )
            for name, row, kind in chosen
        ]

    def trained(name: str, steps: int, *settings: str) -> list[str]:
        return command(linked_data, folder / name, *settings, f"train.max_steps={steps}")

    parts = (("whole", STOPS[-1]), *(("stopped", step) for step in STOPS))
    exact = [trained(name, steps, *EXACT, "train.parallel=fsdp") for name, steps in parts]
    by_ranks(3, [*rows(3), *exact, trained("moved", 2, *SETTINGS, "train.parallel=fsdp")], WATCHED)
    half = [
        trained(f"half-{kind}", 3, *SETTINGS, "train.precision=bfloat16", f"train.parallel={kind}")
        for kind in ("ddp", "fsdp")
    ]
    on = [trained("moved", steps, *SETTINGS, f"train.parallel={kind}") for steps, kind in ((4, "ddp"), (6, "fsdp"))]
    said, other = by_ranks(2, [*rows(2), *half, *on], WATCHED)
    assert "2 ranks" in said
    # The last is how torch's own warnings start, such as those about slow connections.
    expected = ("warning: resuming", "warning: this processor has no bfloat16 instructions", "[W")
    assert not [line for line in other.split("\n")[:-1] if not line.startswith(expected)]
    by_ranks(1, [*rows(1), trained("moved", 8, *SETTINGS), trained("unmoved", 8, *SETTINGS)], WATCHED)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ranks"), [*((name, 3) for name in BY_THREE), *((name, 2) for name in ("tied", *TOGETHER))]
)
def test_several_ranks_train_the_model_of_one(folder: Path, name: str, ranks: int) -> None:
    alike(RunFolder(folder / str(ranks) / name), RunFolder(folder / "1" / name), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3])
def test_all_ranks_skip_an_update_that_one_of_them_spoils(folder: Path, ranks: int) -> None:
    skipped = [line["skipped"] for line in lines(RunFolder(folder / str(ranks) / "spoilt")) if line["kind"] == "train"]
    assert skipped == [0, 1]


@pytest.mark.slow
def test_sharded_ranks_resume_to_equal_bytes(folder: Path) -> None:
    whole, stopped = RunFolder(folder / "whole"), RunFolder(folder / "stopped")
    assert stopped.last.read_bytes() == whole.last.read_bytes()
    a, b = (load_file(run.state_file(STOPS[-1])) for run in (whole, stopped))
    assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.slow
def test_a_run_resumes_with_other_ranks_and_another_way_of_sharing_the_work(folder: Path) -> None:
    moved, unmoved = RunFolder(folder / "moved"), RunFolder(folder / "unmoved")
    a, b = load_file(unmoved.last), load_file(moved.last)
    for key in a:
        torch.testing.assert_close(b[key], a[key], rtol=0, atol=1e-5)
    assert read_progress(moved.state_file(8))["environment"]["parallel"] == "ddp"  # what it means with one process


@pytest.mark.slow
def test_the_memory_of_a_rank_falls_with_their_number(folder: Path) -> None:
    held: dict[int, dict[str, int]] = {
        ranks: json.loads((folder / str(ranks) / "tied" / "held.json").read_text()) for ranks in (1, 2, 3)
    }

    def rest(sizes: dict[str, int]) -> int:
        return 2 * sizes["all"] - sum(sizes.values())

    for ranks in (2, 3):
        for part in ("parameters", "gradient", "state"):
            assert held[ranks][part] <= held[1][part] * (1 / ranks + 0.02), (part, held)
        assert rest(held[ranks]) <= rest(held[1]), held  # such as position tables and the batch


@pytest.mark.parametrize(
    ("settings", "compiled", "named"),
    [
        (("train.optimizer=muon",), False, "train.optimizer.*muon"),
        (("train.optimizer=adam", "model.positions=marian"), False, "model.positions.*marian"),
        (("train.optimizer=adam",), True, "`compile`"),
    ],
)
def test_shards_refuse_what_they_do_not_support(settings: tuple[str, ...], compiled: bool, named: str) -> None:
    recipe = load_recipe("small", (*settings, "train.parallel=fsdp"))
    ranks = cast(Ranks, SimpleNamespace(world=2, processes=1))
    with pytest.raises(InputError, match=rf"train\.parallel.*{named}"):
        learner_of(recipe, ranks, compiled=compiled)


@pytest.mark.parametrize("rows", range(1, 9))
def test_the_parts_of_the_ranks_make_up_a_tensor(rows: int) -> None:
    def part(rank: int) -> torch.Tensor:
        shards: Any = SimpleNamespace(ranks=SimpleNamespace(rank=rank, world=3))
        return ShardedLearner.part(shards, whole)

    whole = torch.randn(rows, 2)
    assert torch.equal(torch.cat([part(rank) for rank in range(3)]), whole)
