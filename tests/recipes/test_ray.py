"""The class that translates the rows of a Ray dataset."""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TRAIN_PAIRS

import vtrans
from vtrans.errors import InputError
from vtrans.storage.run_folder import RunFolder

FOLDER = Path(__file__).parents[2] / "recipes" / "at-scale"
LINES = ["The big dog sees me today.", "", " ", "The old\u2028cat", "a\nb"]


@pytest.fixture
def translate_rows(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class, imported as from a script beside it, so that it can be pickled."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("ray_rows").Translate


def test_a_batch_keeps_its_rows_and_columns(translate_rows: Any, ending_run: RunFolder) -> None:
    translate = translate_rows(ending_run.path, src="en", tgt="de", device="cpu", beam=3)
    expected = list(vtrans.load(ending_run.path, device="cpu", beam=3).translate(LINES))
    batch = {"id": np.arange(len(LINES)), "en": np.array(LINES, dtype=object)}
    # A worker receives a copy, and loads the model once.
    used = translate
    for _ in range(2):
        used = pickle.loads(pickle.dumps(used))
        found = used(batch)
        assert list(found) == ["id", "en", "de"]
        assert list(found["id"]) == list(batch["id"])
        assert list(found["de"]) == expected
        assert len(pickle.dumps(used)) < 2000
        assert used._loaded() is used._loaded()
    assert len(used({"en": np.array([], dtype=object)})["de"]) == 0


def test_a_batch_without_texts_is_refused(translate_rows: Any, tiny_run: RunFolder) -> None:
    translate = translate_rows(tiny_run.path)
    with pytest.raises(InputError, match=r"`src`.*source"):
        translate({"source": ["a dog"]})
    for wrong in (None, 3, b"a dog"):
        with pytest.raises(InputError, match="text"):
            translate({"text": ["a dog", wrong]})


@pytest.mark.slow
def test_a_worker_of_ray_that_is_killed_loses_nothing(ending_run: RunFolder, tmp_path: Path) -> None:
    pytest.importorskip("ray.data", reason="Ray is not installed: pip install '.[ray]'")
    text, out = tmp_path / "text", tmp_path / "out"
    lines = [src for src, _ in TRAIN_PAIRS] * 30
    lines[5] = ""
    text.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    script = FOLDER / "translate_with_ray.py"
    words = [sys.executable, str(script), "--model", str(ending_run.path), "--input", str(text), "--output", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(script.parents[2]), "RAY_TMPDIR": "/tmp"}
    killed: list[int] = []
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:

        def kill_one() -> None:
            while not killed and process.poll() is None:
                killed.extend(workers_of(process.pid)[:1])
                time.sleep(0.05)
            time.sleep(1.0)  # the worker is loading its model, or translates
            os.kill(killed[0], signal.SIGKILL)

        thread = threading.Thread(target=kill_one)
        thread.start()
        _, err = process.communicate()
        thread.join()
    assert process.returncode == 0, err
    assert killed
    expected = list(vtrans.load(ending_run.path, device="cpu").translate(lines))
    assert out.read_text(encoding="utf-8").split("\n")[:-1] == expected


def workers_of(driver: int) -> list[int]:
    """The processes in which Ray runs `Translate` for this driver."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if b"MapWorker" in command and b"Translate" in command:
                found.append(int(folder.name))
    return sorted(found)
