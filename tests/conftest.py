"""A small corpus, data folders made from it and a trained run, for tests of training and everything above it.

Fixtures of session scope are read-only. Copy a folder before writing to it.
"""

import gc
import itertools
import os
import random
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Several suites run on two cores, and equal bytes need equal thread counts on every processor. Set another value to run
# the suite with several threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Keeps the compiled decoder between sessions. Its name depends on its code and the compiler's command.
os.environ.setdefault("VTRANS_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "vtrans"))

import forking
import hypothesis
import pytest
import torch
from cli_runner import children, run_cli  # noqa: F401 - a fixture for all tests
from corpora import made, options, write
from drawn import seed_of
from suite import (  # noqa: F401 - hooks of pytest
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_report_header,
)

from vtrans.data.store import DataFolder
from vtrans.model import kernels
from vtrans.model.kernels import Kernels
from vtrans.storage.run_folder import RunFolder
from vtrans.training.trainer import Trainer, train

# A slow or busy machine is not a failure. The same cases are drawn each time (suite.py seeds those of `make soak`).
hypothesis.settings.register_profile(
    "vtrans", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("vtrans")

SIZES = (("big", "große"), ("old", "alte"), ("little", "kleine"))
NOUNS = (("dog", "Hund"), ("cat", "Kater"), ("horse", "Esel"), ("bird", "Vogel"), ("man", "Mann"))
VERBS = (("sees", "sieht"), ("hears", "hört"), ("likes", "mag"))
TIMES = (("today", "heute"), ("often", "oft"), ("now", "jetzt"), ("never", "nie"))


def _sentence(side: int, size: int, noun: int, verb: int, time: int) -> str:
    size_word, noun_word = SIZES[size][side], NOUNS[noun][side]
    verb_word, time_word = VERBS[verb][side], TIMES[time][side]
    if side == 0:
        return f"The {size_word} {noun_word} {verb_word} me{' again' if time % 2 else ''} {time_word}."
    return f"Der {size_word} {noun_word} {verb_word} mich {time_word}{' wieder' if time % 2 else ''}."


def tiny_pairs() -> list[tuple[str, str]]:
    """180 distinct English-German pairs, always in the same order."""
    choices = itertools.product(range(len(SIZES)), range(len(NOUNS)), range(len(VERBS)), range(len(TIMES)))
    return [(_sentence(0, *c), _sentence(1, *c)) for c in choices]


def tiny_links(english: str) -> str:
    """The words of a sentence and its translation that belong together, in Pharaoh format."""
    last = "5-6 6-5" if " again " in english else "5-5"
    return f"0-0 1-1 2-2 3-3 4-4 {last}"


VALID_PAIRS = tiny_pairs()[::15]
TRAIN_PAIRS = [pair for pair in tiny_pairs() if pair not in VALID_PAIRS]

# A step takes some 4 ms; about 20 batches are an epoch. As `--set` values over the recipe `small`.
TINY = (
    'model.norm="post"',
    'model.positions="sinusoidal"',
    'train.optimizer="adam"',
    'train.schedule="inverse-sqrt"',
    "train.guided_alignment=0",
    'train.embeddings="random"',
    "model.d_model=32",
    "model.d_ff=48",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.dropout=0.1",
    "train.batch_tokens=240",
    "train.warmup=10",
    "train.learning_rate=0.01",
    "train.max_steps=30",
    "train.log_every=5",
    "train.checkpoint_every=10",
    "train.keep_last=2",
    "train.keep_best=2",
    "train.valid_sentences=4",
    "train.samples=1",
    'train.kernels="onednn"',
    "train.compiled=true",
    'train.precision="float32"',
    "search.beam=2",
    "search.alpha=0.6",
    "search.min_length=0",
    "search.max_length=20",
)

# A run that logs every step and has checkpoints, ends of epochs and other steps close together.
EVERY_STEP = (
    "train.max_steps=22",
    "train.log_every=1",
    "train.checkpoint_every=7",
    "train.valid_sentences=1",
    "model.dropout=0.2",
)


write_pairs = write


def make_data(
    folder: Path,
    *,
    train: Sequence[tuple[str, str]] = tuple(TRAIN_PAIRS),
    vocab_size: int | None = 320,
    linked: bool = False,
    **values: Any,
) -> DataFolder:
    """Makes the data folder `folder`/data from the tiny corpus, with its word alignments if it is to be linked."""
    if linked:
        values["alignments"] = (folder / "train.align",)
        (folder / "train.align").write_text("".join(f"{tiny_links(english)}\n" for english, _ in train))
    made(options(folder, train, VALID_PAIRS, vocab_size=vocab_size, **values))
    return DataFolder.open(folder / "data")


def tiny_train(
    data: DataFolder,
    run: Path,
    *overrides: str,
    fresh: bool = False,
    init_from: Path | None = None,
    processes: int | None = None,
    trainer: type[Trainer] | None = None,
) -> RunFolder:
    """Trains (or resumes) in this process with TINY and `overrides`."""
    folder = RunFolder(run)
    chosen: dict[str, Any] = {"fresh": fresh, "device": "cpu", "init_from": init_from, "processes": processes}
    train(data, out=run, trainer=trainer, overrides=(*TINY, *overrides), **chosen)
    return folder


@pytest.fixture
def no_orphans() -> Iterator[None]:
    """Asserts that a test leaves no process behind, except the server that starts others."""
    before = children(os.getpid())
    yield
    assert set(children(os.getpid())) <= {*before, *forking.PIDS}


def pytest_collection_finish() -> None:
    """Spares the garbage collector what collection has made, which it would look through again and again, and what each
    forked process would copy."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def heed_ctrl_c() -> None:
    """Restores SIGINT and SIGHUP, which a suite in the background or under nohup ignores, as would its commands."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _threads() -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


@pytest.fixture(scope="session", autouse=True)
def _no_flushing() -> Iterator[None]:
    """Flushing to disk takes half the time of such small runs, and no test can see what it protects against."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """A test draws the same numbers and uses the same kernels whichever tests ran before it."""
    random.seed(seed_of(1))
    torch.default_generator.manual_seed(seed_of(1))  # torch.manual_seed also formats the stack for CUDA
    kernels.use(Kernels())


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """A data folder with a joint vocabulary of 320 subwords."""
    return make_data(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_data_separate(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """The same corpus with one vocabulary per side."""
    return make_data(tmp_path_factory.mktemp("tiny-separate"), separate=True)


@pytest.fixture(scope="session")
def linked_data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """The same corpus with a joint vocabulary and with word alignments."""
    return make_data(tmp_path_factory.mktemp("tiny-linked"), linked=True)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, tiny_data: DataFolder) -> RunFolder:
    """A run of 30 steps on `tiny_data`, with checkpoints at 10, 20 and 30. Never write to it."""
    return tiny_train(tiny_data, tmp_path_factory.mktemp("tiny-run") / "run")


@pytest.fixture(scope="session")
def two_corpora(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """The tiny corpus as two corpora, the first 40 pairs and the rest."""
    folder = tmp_path_factory.mktemp("two")
    files = [write(folder, name, part) for name, part in (("a", TRAIN_PAIRS[:40]), ("b", TRAIN_PAIRS[40:]))]
    src, tgt = zip(*files, strict=True)
    made(options(folder, TRAIN_PAIRS, VALID_PAIRS, src=src, tgt=tgt, vocab_size=320))
    return DataFolder.open(folder / "data")


@pytest.fixture(scope="session")
def every_step_run(tmp_path_factory: pytest.TempPathFactory, tiny_data: DataFolder) -> RunFolder:
    """A run of 22 steps with EVERY_STEP, checkpoints at 7, 14, 21 and 22; never write into it."""
    return tiny_train(tiny_data, tmp_path_factory.mktemp("every-step") / "run", *EVERY_STEP)


@pytest.fixture(scope="session")
def ending_run(tmp_path_factory: pytest.TempPathFactory, tiny_data: DataFolder) -> RunFolder:
    """A run whose model ends some of its translations; never write into it."""
    return tiny_train(
        tiny_data, tmp_path_factory.mktemp("ending-run") / "run", "train.batch_tokens=280", "train.compiled=false"
    )


@pytest.fixture
def run_copy(tmp_path: Path, tiny_run: RunFolder) -> RunFolder:
    """A copy of `tiny_run` to write to."""
    return RunFolder(shutil.copytree(tiny_run.path, tmp_path / "run"))
