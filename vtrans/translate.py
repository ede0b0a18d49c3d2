"""Lines in, lines out: the order kept, memory bounded, one line out for every line in.

A window of lines is encoded, sorted by length, searched in batches, put back in order and handed
out before the next one is read.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from vtrans.batching import derived_seed
from vtrans.checkpoint import LoadedModel, choose_model, load_model
from vtrans.config import SearchConfig, section_from
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.search import Decoder, Ensemble, Hypothesis, beam_search, sample
from vtrans.vocab import BOS_ID, EOS_ID, Vocabulary

WINDOW = 2000  # lines sorted together: enough for batches of one length, little enough to wait for
IDLE = 0.2  # seconds without input after which an open pipe gets its answers
EXTRA_LENGTH = 50  # a translation has at most this many subwords more than its source (the paper, section 6.1)


@dataclass(frozen=True)
class Sampling:
    """Draws translations instead of searching the best; each line has its own generator, seeded from
    (seed, line number), so that no draw depends on the batch. `top_k` 0 and `top_p` 1 filter nothing."""

    seed: int = 1
    top_k: int = 0
    top_p: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.top_k < 0:
            raise InputError(f"--top-k must be 0 or more, but is {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise InputError(f"--top-p must be above 0 and at most 1, but is {self.top_p}.")
        if not self.temperature > 0 or math.isinf(self.temperature):
            raise InputError(f"--temperature must be above 0, but is {self.temperature}.")


@dataclass(frozen=True)
class Translation:
    """A translation of one line."""

    text: str
    logprob: float  # natural logarithm, summed over subwords, EOS counted; of all pieces of a cut line
    score: float  # logprob over the length penalty; what the list is sorted by
    finished: bool  # whether it ended by itself rather than at its length limit


@dataclass
class Counts:
    """What a Translator has met so far."""

    lines: int = 0
    blank: int = 0
    cut: int = 0  # lines longer than max_source, translated in pieces
    unfinished: int = 0  # lines whose best hypothesis did not end within its limit
    missing: int = 0  # n-best places for which the search found no hypothesis
    src_tokens: int = 0
    tgt_tokens: int = 0


class Translator:
    """One model, or an ensemble whose probabilities are averaged, with its search settings.

    `search` overrides what the (first) model file stores. The models must be on one device and of
    equal vocabularies. Raises InputError otherwise.
    """

    def __init__(
        self,
        models: Sequence[LoadedModel],
        search: SearchConfig | None = None,
        console: Console | None = None,
    ) -> None:
        first = models[0]
        for number, other in enumerate(models[1:], 2):
            if other.src_vocab.digest != first.src_vocab.digest or other.tgt_vocab.digest != first.tgt_vocab.digest:
                raise InputError(
                    f"model {number} of the ensemble has another vocabulary than model 1; "
                    "models can be averaged only when they were trained on one data folder."
                )
        self.models = list(models)
        self.src_vocab: Vocabulary = first.src_vocab
        self.tgt_vocab: Vocabulary = first.tgt_vocab
        self.search = search if search is not None else first.search
        self.console = console
        self.counts = Counts()
        transformers = [m.model for m in models]
        self.decoder: Decoder[Any] = Ensemble(transformers) if len(transformers) > 1 else transformers[0]
        reaches = [t.max_length for t in transformers if t.max_length is not None]
        self._reach = min(reaches, default=None)
        self.max_source = self.search.max_source
        if self._reach is not None:
            self.max_source = min(self.max_source, self._reach - 1)

    def translate(self, lines: Iterable[str], sampling: Sampling | None = None) -> Iterator[str]:
        """The best translation of each line, in order, a window at a time.

        A blank line gives a blank line and never meets the model.
        """
        for best in self.nbest(lines, 1, sampling):
            yield best[0].text

    def nbest(self, lines: Iterable[str], n: int = 1, sampling: Sampling | None = None) -> Iterator[list[Translation]]:
        """Exactly `n` translations of each line, best first (with `sampling`: drawn independently).

        Where the search finds fewer, empty ones with a score of -inf follow and are counted. `n` must
        be at most the beam.
        """
        iterator = iter(lines)
        while window := list(islice(iterator, WINDOW)):
            yield from self.translate_window(window, n, sampling)

    def translate_window(
        self, lines: Sequence[str], n: int = 1, sampling: Sampling | None = None
    ) -> list[list[Translation]]:
        """As `nbest`, for lines that are batched together."""
        if n < 1 or (sampling is None and n > self.search.beam):
            raise InputError(f"--nbest must be from 1 to the beam, {self.search.beam}, but is {n}.")
        pieces: list[list[int]] = []  # the sources to search, a line's pieces side by side
        owners: list[range] = []  # for each line its pieces
        encoded = self.src_vocab.encode_batch(list(lines))
        for number, (line, ids) in enumerate(zip(lines, encoded, strict=True), self.counts.lines + 1):
            cut = cut_long(ids, self.max_source, self.src_vocab) if line.strip() else []
            if len(cut) > 1:
                self.counts.cut += 1
                if self.console:
                    self.console.warn(
                        f"line {number} has {len(ids)} subwords, over the limit of {self.max_source}; "
                        f"it is translated in {len(cut)} pieces"
                    )
            owners.append(range(len(pieces), len(pieces) + len(cut)))
            pieces += cut
        names = [f"{self.counts.lines + i}/{k}" for i, owner in enumerate(owners, 1) for k in range(len(owner))]
        found = self._search(pieces, names, n, sampling)
        self.counts.src_tokens += sum(map(len, pieces))
        translations = [self._join([found[p] for p in owner], n) for owner in owners]
        self.counts.lines += len(lines)
        return translations

    def _search(
        self, pieces: Sequence[list[int]], names: Sequence[str], n: int, sampling: Sampling | None
    ) -> dict[int, list[Hypothesis]]:
        """Hypotheses for each source (subwords without EOS), batched from the longest down.

        `names` are the line numbers from which sampling is seeded.
        """
        order = sorted(range(len(pieces)), key=lambda i: -len(pieces[i]))
        sources = [[*pieces[i], EOS_ID] for i in order]
        limits = [self._limit(len(pieces[i])) for i in order]
        found: dict[int, list[Hypothesis]] = {}
        with torch.inference_mode():
            if sampling is None:
                results = beam_search(
                    self.decoder, sources, limits, config=self.search, nbest=n, bos_id=BOS_ID, eos_id=EOS_ID
                )
            else:
                results = sample(
                    self.decoder,
                    sources,
                    limits,
                    seeds=[derived_seed("sample", sampling.seed, names[i]) for i in order],
                    n=n,
                    top_k=sampling.top_k,
                    top_p=sampling.top_p,
                    temperature=sampling.temperature,
                    batch_tokens=self.search.batch_tokens,
                    bos_id=BOS_ID,
                    eos_id=EOS_ID,
                )
            for i, hypotheses in results:
                found[order[i]] = hypotheses
        return found

    def _limit(self, length: int) -> int:
        """Most target subwords, EOS counted, for a source of `length` subwords."""
        limit = length + EXTRA_LENGTH
        if self.search.max_length:
            limit = min(limit, self.search.max_length)
        return limit if self._reach is None else min(limit, self._reach)

    def _join(self, pieces: list[list[Hypothesis]], n: int) -> list[Translation]:
        """The n translations of a line from the hypotheses of its pieces, rank by rank."""
        if not pieces:
            self.counts.blank += 1
            return [Translation("", 0.0, 0.0, True)] * n
        translations = []
        for rank in range(min(n, *map(len, pieces)) if pieces else 0):
            hyps = [p[rank] for p in pieces]
            texts = [self.tgt_vocab.decode(h.tokens) for h in hyps]
            translations.append(
                Translation(
                    " ".join(t for t in texts if t),
                    math.fsum(h.logprob for h in hyps),
                    math.fsum(h.score for h in hyps) / len(hyps),
                    all(h.finished for h in hyps),
                )
            )
            if rank == 0:
                self.counts.unfinished += not translations[0].finished
                self.counts.tgt_tokens += sum(len(h.token_logprobs) for h in hyps)
        self.counts.missing += n - len(translations)
        return translations + [Translation("", -math.inf, -math.inf, False)] * (n - len(translations))


def cut_long(ids: list[int], limit: int, vocab: Vocabulary) -> list[list[int]]:
    """Subwords in pieces of at most `limit`, each ending before a word if any begins in its second half."""
    pieces = []
    while len(ids) > limit:
        at = limit
        while at > limit // 2 and not vocab.piece(ids[at]).startswith("\u2581"):
            at -= 1
        if at <= limit // 2:
            at = limit
        pieces.append(ids[:at])
        ids = ids[at:]
    return [*pieces, ids] if ids else pieces


def windows(lines: Iterable[str], size: int = WINDOW, idle: float = IDLE) -> Iterator[list[str]]:
    """Lines in windows of `size`, or fewer when no line has come for `idle` seconds.

    A thread reads ahead, at most two windows. What reading raises is raised here, after the lines
    before it have been handed out.
    """
    waiting: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=2 * size)

    def read() -> None:
        try:
            for line in lines:
                waiting.put(line)
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        item = waiting.get()
        window: list[str] = []
        while isinstance(item, str):
            window.append(item)
            if len(window) == size:
                break
            try:
                item = waiting.get(timeout=idle)
            except queue.Empty:
                break
        if window:
            yield window
        if item is None:
            return
        if isinstance(item, BaseException):
            raise item


def pick_device(name: str | None = None) -> torch.device:
    """The device of that name, or the best there is: CUDA, then Apple's MPS, then the CPU."""
    if name is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(f"--device {name} can't be used: {reason}.") from None
    return device


def load(
    path: str | Path | Sequence[str | Path],
    *,
    device: str | None = None,
    console: Console | None = None,
    **search: Any,
) -> Translator:
    """A Translator for a run folder, a model file, or several (an ensemble).

    Keyword arguments override the model file's search settings: `vtrans.load("run", beam=8)`; see
    `SearchConfig`. Raises FileError for what is no model, InputError for a bad setting.
    """
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    where = pick_device(device)
    models = []
    for p in paths:
        file, reason = choose_model(p)
        if console and reason:
            console.info(f"model: {file} ({reason})")
        models.append(load_model(file, where))
    return Translator(models, override_search(models[0].search, search, "load"), console)


def override_search(base: SearchConfig, values: dict[str, Any], where: str) -> SearchConfig:
    """`base` with the values that are not None, checked."""
    return section_from(SearchConfig, "search", {k: v for k, v in values.items() if v is not None}, where, base)
