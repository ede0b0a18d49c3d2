"""Targets of the fuzzing: readers that the modules fuzz_* add to TARGETS.

An input consists of parts with CUT between them, one for each file that a reader reads; the last seed has all parts,
and stands in for those that an input lacks.
"""

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from vtrans.config import ModelConfig, SearchConfig
from vtrans.model.checkpoint import LoadedModel
from vtrans.model.network import Transformer
from vtrans.system.errors import VtransError
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import PAD_ID, Vocabulary

CUT = b"\n%%\n"
LINES = ["a b c", "", "b"]

TARGETS: dict[str, "Target"] = {}


@dataclass(frozen=True)
class Target:
    """A reader: `read` is given the parts of an input and an empty folder, `seeds` has inputs that it accepts."""

    read: Callable[[Sequence[bytes], Path], None]
    seeds: Callable[[], list[bytes]]
    expected: tuple[type[Exception], ...]

    def check(self, data: bytes, folder: Path) -> bool:
        """Returns whether the reader accepts an input. It raises what the reader should not have raised."""
        given, complete = data.split(CUT), self.complete
        folder.mkdir()
        try:
            self.read([*given, *complete[len(given) :]], folder)
        except self.expected as error:
            if not str(error):
                raise AssertionError("an error without a sentence") from error
            return False
        finally:
            shutil.rmtree(folder)
        return True

    @functools.cached_property
    def complete(self) -> list[bytes]:
        return self.seeds()[-1].split(CUT)


def target(
    seeds: Callable[[], list[bytes]], *expected: type[Exception]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a reader under its name. It may raise `expected`, or else VtransError."""

    def add(read: Callable[..., None]) -> Callable[..., None]:
        TARGETS[read.__name__.strip("_")] = Target(read, functools.cache(seeds), expected or (VtransError,))
        return read

    return add


def in_files(*names: str, made: Callable[[Path], object]) -> Callable[[], list[bytes]]:
    """The seed whose parts are these files of a folder that `made` makes."""

    def seeds() -> list[bytes]:
        with scratch() as folder:
            made(folder / "made")
            return [CUT.join((folder / "made" / name).read_bytes() for name in names)]

    return seeds


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory, where the system has one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@functools.cache
def tiny_model() -> LoadedModel:
    vocabulary = Vocabulary(pack(["</s>", "<unk>", "a", "b", "c"], {"eos": 0, "unk": 1}, b""))
    config = ModelConfig(d_model=2, d_ff=1, heads=1, encoder_layers=1, decoder_layers=1, tie="src-tgt-softmax")
    torch.manual_seed(1)
    model = Transformer(config, len(vocabulary), len(vocabulary), joint=True, pad_id=PAD_ID)
    return LoadedModel(model, vocabulary, vocabulary, SearchConfig(beam=2), {"step": 1})
