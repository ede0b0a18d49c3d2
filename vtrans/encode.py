"""Batches of parallel text to subword ids, here or in processes beside this one: what a pair becomes does not depend
on where it is encoded, nor the order of the results.

Nothing here needs torch, so that a process starts in a moment and stays small.
"""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import signal
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

import numpy as np

from vtrans.errors import VtransError
from vtrans.vocab import Vocabulary

Pair = tuple[str, str]

RATIO_FREE_TOKENS = 12
"""`max_ratio` applies only if the longer side has more tokens than this: short pairs vary freely."""

PAIRS_A_WORKER = 50_000
"""A process is started for so many pairs: for fewer its start would take longer than it saves."""

_GRACE = 5.0  # seconds in which a process that has nothing more to do must end


@dataclass(frozen=True)
class Task:
    """What encoding goes by."""

    src_proto: bytes
    tgt_proto: bytes
    pieces: int
    """Of the larger vocabulary."""
    max_tokens: int | None = None
    max_ratio: float | None = None
    sources: frozenset[int] = frozenset()
    """Hashes of sentences to look out for, on the source side ..."""
    pairs: frozenset[int] = frozenset()
    """... and of whole pairs."""

    @property
    def wide(self) -> bool:
        """Whether ids need more than two bytes."""
        return self.pieces > 1 << 16


@dataclass(frozen=True)
class Side:
    """One side of the pairs of a batch that were kept."""

    ids: np.ndarray[Any, Any]
    """All of them, one sentence behind the other."""
    lengths: np.ndarray[Any, Any]
    """Of each sentence, int64."""
    characters: int


@dataclass(frozen=True)
class Encoded:
    """What a batch of pairs became."""

    read: int
    kept: list[int]
    """The places in the batch of the pairs that were not dropped."""
    dropped: dict[str, int]
    src: Side
    tgt: Side
    sources: set[int] = field(default_factory=set)
    """Of the hashes to look out for, those found in the pairs that were kept."""
    pairs: set[int] = field(default_factory=set)


def hash_of(*lines: str, seed: int = 0) -> int:
    """8 bytes for a sentence or pair, blanks around it aside: no two sentences of a corpus collide."""
    digest = hashlib.blake2b(digest_size=8, key=seed.to_bytes(8, "little"))
    digest.update("\n".join(line.strip() for line in lines).encode())
    return int.from_bytes(digest.digest(), "little")


def reason_to_drop(src: int, tgt: int, max_tokens: int | None, max_ratio: float | None) -> str | None:
    """Why a pair with so many tokens a side is left out of the training text, if it is."""
    shorter, longer = (src, tgt) if src < tgt else (tgt, src)
    if not shorter:
        return "empty"
    if max_tokens is not None and longer > max_tokens:
        return "too_long"
    if max_ratio is not None and longer > max(RATIO_FREE_TOKENS, max_ratio * shorter):
        return "odd_ratio"
    return None


class Encoder:
    """Encodes, filters and looks out, batch by batch."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.src_vocab = self.tgt_vocab = Vocabulary(task.src_proto)
        if task.tgt_proto != task.src_proto:
            self.tgt_vocab = Vocabulary(task.tgt_proto)

    def __call__(self, batch: Sequence[Pair], threads: int = 1) -> Encoded:
        task = self.task
        src_ids = self.src_vocab.encode_batch([src for src, _ in batch], threads)
        tgt_ids = self.tgt_vocab.encode_batch([tgt for _, tgt in batch], threads)
        kept: list[int] = []
        dropped = {"empty": 0, "too_long": 0, "odd_ratio": 0}
        for i, (src, tgt) in enumerate(zip(src_ids, tgt_ids, strict=True)):
            reason = reason_to_drop(len(src), len(tgt), task.max_tokens, task.max_ratio)
            if reason:
                dropped[reason] += 1
            else:
                kept.append(i)
        sources, pairs = self._found(batch[i] for i in kept) if task.sources else (set(), set())
        sides = [self._side(ids, batch, kept, side) for side, ids in enumerate((src_ids, tgt_ids))]
        return Encoded(len(batch), kept, dropped, sides[0], sides[1], sources, pairs)

    def _side(self, ids: Sequence[list[int]], batch: Sequence[Pair], kept: Sequence[int], side: int) -> Side:
        rows = [ids[i] for i in kept]
        flat = np.fromiter(itertools.chain.from_iterable(rows), np.int32 if self.task.wide else np.uint16)
        return Side(flat, np.array([len(row) for row in rows], np.int64), sum(len(batch[i][side]) for i in kept))

    def _found(self, batch: Iterable[Pair]) -> tuple[set[int], set[int]]:
        sources, pairs = set(), set()
        for src, tgt in batch:
            key = hash_of(src)
            if key in self.task.sources:
                sources.add(key)
                both = hash_of(src, tgt)
                if both in self.task.pairs:
                    pairs.add(both)
        return sources, pairs


def encoders(total: int, threads: int) -> int:
    """How many processors encode a text of so many pairs."""
    return max(1, min(threads, total // PAIRS_A_WORKER))


def encode(batches: Iterable[Sequence[Pair]], task: Task, total: int, threads: int) -> Generator[Encoded, None, None]:
    """What each batch of a text of `total` pairs becomes, in order, by up to `threads` processors.

    A long text goes to processes: each has one batch at a time, so what is under way is bounded by their number.
    SentencePiece's own threads would leave filtering, counting and searching to one processor. Closing the
    generator ends the processes. VtransError if one dies.
    """
    workers = encoders(total, threads)
    if workers == 1:
        encoder = Encoder(task)
        for batch in batches:
            yield encoder(batch, threads)
        return
    with _team(task, workers) as team:
        busy: deque[_Worker] = deque()
        for batch in batches:
            worker, done = team[len(busy) % workers], None
            if len(busy) == workers:
                worker = busy.popleft()
                done = worker.result()
            worker.give(batch)  # before its result is seen to, so that it need not wait
            busy.append(worker)
            if done:
                yield done
        while busy:
            yield busy.popleft().result()


class _Worker:
    """A process that encodes, and our end of the pipe to it."""

    def __init__(self, task: Task) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that a thread of ours may hold
        self._pipe, theirs = context.Pipe()
        # What `start` hands over must be little: it hangs if the process dies before it has read all of it.
        self._process: BaseProcess = context.Process(target=_work, args=(theirs,), daemon=True)
        try:
            self._process.start()
        finally:
            theirs.close()  # ours is the only copy left: when it closes, the other side knows
        self.give(task)

    def give(self, what: Task | Sequence[Pair]) -> None:
        with self._alive():
            self._pipe.send(what)

    def result(self) -> Encoded:
        with self._alive():
            result = self._pipe.recv()
        if isinstance(result, BaseException):
            raise result
        assert isinstance(result, Encoded)
        return result

    def leave(self) -> None:
        """Tells the process that nothing more comes."""
        self._pipe.close()

    def end(self) -> None:
        """Returns when the process has ended."""
        self._process.join(_GRACE)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()

    @contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):  # the other end of the pipe is gone
            self._process.join(_GRACE)
            code = self._process.exitcode
            how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
            raise VtransError(
                f"a process that encodes text was ended {how}, perhaps for want of memory; "
                "run the command again, with a lower --threads if it happens again."
            ) from None


@contextmanager
def _team(task: Task, size: int) -> Iterator[list[_Worker]]:
    """So many processes, gone when the block ends, however it ends."""
    team: list[_Worker] = []
    try:
        with _no_interrupt(), _nameless_main():
            for _ in range(size):
                team.append(_Worker(task))
        yield team
    finally:
        for worker in team:
            worker.leave()
        for worker in team:
            worker.end()


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """A Ctrl-C comes after the block, and never to a process that is started in it: that ends with this one."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows: they ignore it once they run
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _nameless_main() -> Iterator[None]:
    """A process started in the block does not run the program of this one again, as it would do to find
    functions there: a script that does not expect it would start processes in its turn."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _work(pipe: Connection) -> None:
    """What a process does until its pipe is closed: take up a task, and encode what comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError):  # the one who asked is gone, perhaps killed: so nobody wants to hear of it
        encoder = Encoder(pipe.recv())
        while True:
            batch = pipe.recv()
            try:
                result: Encoded | Exception = encoder(batch)
            except Exception as error:
                result = error
            pipe.send(result)
