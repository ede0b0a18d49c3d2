"""TensorBoard shows the values of metrics.jsonl, even after truncation or resuming."""

import importlib
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import tiny_train
from runs import lines

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import InputError

ON = "train.tensorboard=true"
Point = tuple[str, float, int]


class Writer:
    """A fake SummaryWriter that records its calls in a file in its folder."""

    def __init__(self, folder: str, purge_step: int) -> None:
        assert purge_step == 0
        Path(folder).mkdir()
        self.file = Path(folder) / "events.out.tfevents.1"
        self.points: list[Point] = []
        self.flush()

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.points.append((tag, value, step))

    def flush(self) -> None:
        self.file.write_text(json.dumps(self.points))

    def close(self) -> None:
        self.file.with_name("events.out.tfevents.closed").touch()


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)


def points(run: RunFolder) -> list[Point]:
    return [(tag, value, step) for tag, value, step in json.loads((run.events / "events.out.tfevents.1").read_text())]


def expected(run: RunFolder) -> list[Point]:
    return [
        (f"{record['kind']}/{key}", value, record["step"])
        for record in lines(run)
        for key, value in record.items()
        if isinstance(value, (int, float)) and key != "step"
    ]


@pytest.mark.usefixtures("writer")
def test_tensorboard_gets_the_figures_of_the_metrics(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = tiny_train(tiny_data, tmp_path / "run", "train.max_steps=10", ON)
    assert points(run) == expected(run)
    tags = {tag for tag, _, _ in points(run)}
    assert {"train/loss", "train/lr", "train/tgt_tokens", "valid/bleu", "valid/ppl"} <= tags
    assert not [tag for tag in tags if "signature" in tag or tag.endswith(("kind", "step"))]
    assert (run.events / "events.out.tfevents.closed").exists()
    # A resumed run has the records up to its checkpoint and none that were cut off.
    with run.metrics.open("ab") as file:
        file.write(b'{"kind":"train","step":11,"loss":1.0}\n')
    tiny_train(tiny_data, run.path, "train.max_steps=15", ON)
    assert points(run) == expected(run)
    assert max(step for _, _, step in points(run)) == 15
    assert "tensorboard = true" in run.recipe.read_text()


def test_the_error_names_the_extra(tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InputError) as caught:
        tiny_train(tiny_data, tmp_path / "run", ON)
    for named in ("TensorBoard is not installed", "'.[tensorboard]'", "train.tensorboard = false"):
        assert named in str(caught.value)
    assert not (tmp_path / "run").exists()

    def broken(name: str, imported: Callable[[str], Any] = importlib.import_module) -> Any:
        if "tensorboard" in name:
            raise ImportError("protobuf is too old")
        return imported(name)

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(InputError, match="protobuf is too old"):
        tiny_train(tiny_data, tmp_path / "run", ON)


@pytest.mark.filterwarnings("ignore")  # of the package and of those it imports
def test_the_real_tensorboard_reads_the_files(tmp_path: Path, tiny_data: DataFolder) -> None:
    name = "tensorboard.backend.event_processing.event_accumulator"
    reader = pytest.importorskip(name, reason="TensorBoard is not installed: pip install tensorboard")
    run = tiny_train(tiny_data, tmp_path / "run", "train.max_steps=10", ON)
    tiny_train(tiny_data, run.path, "train.max_steps=15", ON)
    assert len(list(run.events.iterdir())) == 1
    accumulator = reader.EventAccumulator(str(run.events))
    accumulator.Reload()
    seen = {(tag, e.step): e.value for tag in accumulator.Tags()["scalars"] for e in accumulator.Scalars(tag)}
    assert seen.keys() == {(tag, step) for tag, _, step in expected(run)}
    for tag, value, step in expected(run):
        assert seen[tag, step] == pytest.approx(value, rel=1e-6)
