"""The CTranslate2 engine: a folder that `vtrans export` wrote, and beam search on it.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) is an optional extra, imported at its first use.
Its search ranks, finishes and refills the beam as `vtrans.decoding.search` does, and stops by count; five things
are done here so that the results are the same (read in its `decoding.cc`, versions 4.6 to 4.8, and tested):

- It divides by |Y| ** alpha only, and with alpha = 0 ends as soon as the best live hypothesis has. So it is
  asked for an alpha so small that the power is 1 in its arithmetic, and ranks by bare sums; the length
  penalty is applied here.
- It returns no more hypotheses than the beam is wide, the best by its own ranking, though more may have
  finished in the last step. Where one that was left out could have won, that sentence is searched again with
  room for all of them.
- A call has one limit on the length, ours is each sentence's own. A batch goes with the largest; who has
  been longer than his own limit is searched again with that.
- At the limit it counts what has not ended as finished. The end token is asked for, and tells them apart.
- A rule (`min_length`, `no_repeat_ngram`) removes subwords before the softmax, so the others gain their
  probability; ours removes them afterwards. Greedy search chooses the same subwords either way. With a wider
  beam and a minimum length of 1, all sums of a sentence are too large by one constant, since the first step
  extends a single row. Forced decoding gives the difference.

Other settings give other results, so `unsupported` names them. Under the other rules, rows of a wider beam
gain unequal amounts. The repetition penalty scales logits, not log-probabilities. After a prefix, EOS counts
only if it is the best subword, and a prefix can't end a word. Samples come from one generator for the batch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vtrans.config import SearchConfig, section_from
from vtrans.data.vocabulary import EOS_ID, JOINT_FILE, SRC_FILE, TGT_FILE, Vocabulary
from vtrans.decoding.search import Hypothesis, length_penalty
from vtrans.errors import FileError, InputError, VtransError
from vtrans.text import check_path

ENGINES = ("torch", "ctranslate2")
FOLDER = "ctranslate2"  # of the export in a run folder
DESCRIPTION = "vtrans.json"  # what CTranslate2 does not read: vocabularies, search settings, origin
FORMAT = 1
_NO_PENALTY = 1e-30  # an exponent that is not 0, of which every |Y| ** alpha is 1
_SCORED = 2048  # padded subwords that are scored together: their logits lie in memory, [subwords, V]
_SURE = 0.9  # above this probability of EOS, 1 - p has too few digits in float32
_QUEUED = 4  # batches a worker has waiting: enough to keep it busy, few enough that results come early


def ctranslate2() -> Any:
    """The package; InputError where it is not installed."""
    try:
        return importlib.import_module("ctranslate2")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "ctranslate2":
            reason = "CTranslate2 is not installed"
        else:
            reason = f"CTranslate2 can't be imported ({error})"
        raise InputError(f"{reason}; install it with `pip install 'vtrans[ctranslate2]'`.") from None


@dataclass(frozen=True)
class ExportedModel:
    """An exported model with all that translating needs; of the fields of LoadedModel it lacks the network."""

    engine: Engine
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    search: SearchConfig
    training: Mapping[str, Any]
    quantization: str
    source: str | None = None  # SHA-256 of the model file that it was made from, if it was made from one


class Engine:
    """CTranslate2 with one model. `max_length` is the longest sequence, BOS or EOS counted, that its
    position table reaches; longer ones are for the caller to refuse or cut, as CTranslate2 would fail."""

    def __init__(self, translator: Any, src_vocab: Vocabulary, tgt_vocab: Vocabulary, max_length: int) -> None:
        self.translator, self.max_length = translator, max_length
        self.token_logprobs = False  # whether hypotheses get theirs, which takes another pass over them
        self._src_pieces = [src_vocab.piece(i) for i in range(len(src_vocab))]
        self._tgt_pieces = [tgt_vocab.piece(i) for i in range(len(tgt_vocab))]
        self._tgt_ids = {piece: i for i, piece in enumerate(self._tgt_pieces)}
        workers = int(translator.num_translators)
        self.place = f"on {translator.device}, {workers} worker{'' if workers == 1 else 's'} of CTranslate2"
        self._in_flight = _QUEUED * workers

    def check(self, config: SearchConfig) -> None:
        """InputError for a setting that the engine does not support."""
        for setting in unsupported(config, len(self._tgt_pieces)):
            option = f"--{setting.name.replace('_', '-')}"
            raise InputError(
                f"the engine ctranslate2 does not support {option} {setting.value}: {setting.reason}; "
                f"use {option} {setting.nearest}, or the engine torch."
            )

    def beam_search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        *,
        config: SearchConfig,
        nbest: int,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """As `vtrans.decoding.search.beam_search`, whose result this is but for near-ties.

        The hypotheses have `token_logprobs` if the engine's attribute of that name says so. Batches go to
        as many workers as the engine has.
        """
        assert 1 <= nbest <= config.beam, (nbest, config.beam)
        assert all(source[-1] == EOS_ID for source in sources)
        self.check(config)
        under_way: deque[tuple[range, list[Any]]] = deque()
        for batch in _batches([len(source) for source in sources], config.batch_tokens):
            if len(under_way) == self._in_flight:
                yield from self._results(*under_way.popleft(), sources, limits, config, nbest)
            longest = max(limits[i] for i in batch)
            under_way.append((batch, self._ask([sources[i] for i in batch], longest, config)))
        while under_way:
            yield from self._results(*under_way.popleft(), sources, limits, config, nbest)

    def _ask(
        self, sources: Sequence[Sequence[int]], limit: int, config: SearchConfig, *, all_of_them: bool = False
    ) -> list[Any]:
        """Starts a search; with `all_of_them` every hypothesis is returned that has finished up to `limit`,
        if fewer than the beam is wide have before."""
        beam = config.beam
        room = 2 if all_of_them and beam > 1 else 1
        futures: list[Any] = self.translator.translate_batch(
            [[self._src_pieces[i] for i in source[:-1]] for source in sources],  # the model adds EOS
            asynchronous=True,
            beam_size=beam,
            num_hypotheses=room * beam,
            patience=room,
            length_penalty=_NO_PENALTY,
            max_input_length=0,  # else it would cut the source without a word
            max_decoding_length=limit,
            min_decoding_length=min(config.min_length, limit),
            no_repeat_ngram_size=config.no_repeat_ngram,
            return_scores=True,
            return_end_token=True,
        )
        return futures

    def _results(
        self,
        batch: range,
        futures: Sequence[Any],
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        config: SearchConfig,
        nbest: int,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        again: dict[int, list[int]] = defaultdict(list)
        for i, found in zip(batch, self._found([sources[i] for i in batch], futures, config), strict=True):
            limit = self._search_again(found, limits[i], config, nbest)
            if limit is None:
                yield i, self._with_logprobs(sources[i], _ranked(found)[:nbest])
            else:
                again[limit].append(i)
        for limit, members in again.items():
            asked = [sources[i] for i in members]
            futures = self._ask(asked, limit, config, all_of_them=True)
            for i, found in zip(members, self._found(asked, futures, config), strict=True):
                yield i, self._with_logprobs(sources[i], _ranked(found)[:nbest])

    def _with_logprobs(self, source: Sequence[int], found: list[Hypothesis]) -> list[Hypothesis]:
        if not self.token_logprobs:
            return found
        scored = self.score([source] * len(found), [hypothesis.tokens for hypothesis in found])
        return [
            dataclasses.replace(hyp, token_logprobs=tuple(logprobs if hyp.finished else logprobs[:-1]))
            for hyp, logprobs in zip(found, scored, strict=True)
        ]

    def _found(
        self, sources: Sequence[Sequence[int]], futures: Sequence[Any], config: SearchConfig
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, with the log-probabilities of the whole vocabulary."""
        results = [future.result() for future in futures]
        tokens = [[[self._tgt_ids[piece] for piece in pieces] for pieces in result.hypotheses] for result in results]
        sums = [list(result.scores) for result in results]
        if config.min_length or config.no_repeat_ngram:
            bests = [(of_one[0], sums_of_one[0]) for of_one, sums_of_one in zip(tokens, sums, strict=True)]
            gains = self._gains(sources, bests, config)
            sums = [[logprob - gain for logprob in of_one] for of_one, gain in zip(sums, gains, strict=True)]
        return [self._hypotheses(*pair, config) for pair in zip(tokens, sums, strict=True)]

    def _gains(
        self, sources: Sequence[Sequence[int]], found: Sequence[tuple[list[int], float]], config: SearchConfig
    ) -> list[float]:
        """By how much the engine's sums for each source exceed those under the whole vocabulary; `found` holds the
        tokens and the sum of one hypothesis of each."""
        gains: dict[int, float] = {}
        if config.min_length == 1 and not config.no_repeat_ngram:
            # EOS was removed in the first step. One step costs a sixth of scoring a hypothesis, but its float32 has
            # too few digits for 1 - p where p is close to 1.
            eos = (math.exp(logprob) for (logprob,) in self.score(sources, [[]] * len(sources)))
            gains = {i: -math.log1p(-p) for i, p in enumerate(eos) if p < _SURE}
        rest = [i for i in range(len(sources)) if i not in gains]
        if rest:
            scored = self.score([sources[i] for i in rest], [_without_eos(found[i][0]) for i in rest])
            for i, logprobs in zip(rest, scored, strict=True):
                tokens, logprob = found[i]
                gains[i] = logprob - math.fsum(logprobs[: len(tokens)])
        return [gains[i] for i in range(len(sources))]

    def _hypotheses(
        self, found: Sequence[list[int]], logprobs: Sequence[float], config: SearchConfig
    ) -> list[Hypothesis]:
        hypotheses = []
        for tokens, logprob in zip(found, logprobs, strict=True):
            if math.isnan(logprob):
                raise VtransError(
                    "the engine's log-probabilities are not numbers; the exported weights are damaged: export again."
                )
            score = logprob / length_penalty(max(len(tokens), 1), config.alpha, config.length_penalty)
            bare = _without_eos(tokens)
            hypotheses.append(Hypothesis(tuple(bare), logprob, score, len(bare) < len(tokens), ()))
        return hypotheses

    def _search_again(self, found: Sequence[Hypothesis], limit: int, config: SearchConfig, nbest: int) -> int | None:
        """The limit with which a sentence must be searched again, or None if all that counts was found."""
        lengths = [len(hypothesis.tokens) + hypothesis.finished for hypothesis in found]
        if max(lengths) > limit:
            return limit
        if config.beam == 1:
            return None
        if not all(hypothesis.finished for hypothesis in found):
            return limit  # they crowd out what has finished
        # Fewer than the beam had finished before the last step, so one of those here finished in it: what was left
        # out is no longer than the longest of them, and no more probable than the least probable.
        kind, last = config.length_penalty, max(lengths)
        least = min(hypothesis.logprob for hypothesis in found)
        bound = least / max(length_penalty(n, config.alpha, kind) for n in (1, last))
        return None if _ranked(found)[nbest - 1].score >= bound else last

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of each target's subwords and of its EOS (forced decoding); sources end in EOS."""
        results = self.translator.score_batch(
            [[self._src_pieces[i] for i in source[:-1]] for source in sources],
            [[self._tgt_pieces[i] for i in target] for target in targets],
            max_batch_size=_SCORED,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]


@dataclass(frozen=True)
class Unsupported:
    """A search setting that the engine does not support."""

    name: str  # as in SearchConfig
    value: Any
    nearest: Any  # the nearest value that it supports
    reason: str


def unsupported(config: SearchConfig, tgt_size: int) -> list[Unsupported]:
    """The settings under which the engine would not find what the search of vtrans does; see the top of this file."""
    most = (tgt_size - 1) // 2  # a step ranks 2 * beam subwords of the first row, never padding
    greedy = "it supports a larger value with --beam 1 only"
    checks = (
        ("stop", "count", config.stop == "count", "it stops by count only"),
        ("beam", most, config.beam <= most, "its beam is at most half of the vocabulary"),
        ("min_length", 1, config.beam == 1 or config.min_length <= 1, greedy),
        ("no_repeat_ngram", 0, config.beam == 1 or config.no_repeat_ngram == 0, greedy),
        ("repetition_penalty", 1.0, config.repetition_penalty == 1, "it scales logits, not log-probabilities"),
    )
    return [
        Unsupported(name, getattr(config, name), nearest, reason)
        for name, nearest, supported, reason in checks
        if not supported
    ]


def _without_eos(tokens: list[int]) -> list[int]:
    return tokens[:-1] if tokens[-1:] == [EOS_ID] else tokens


def _ranked(found: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Those that ended, best first; if none did, the most probable one. Of equal ones the shorter was first."""
    finished = [hypothesis for hypothesis in found if hypothesis.finished]
    if not finished:
        return [max(found, key=lambda hypothesis: hypothesis.logprob)]
    return sorted(finished, key=lambda hypothesis: (-hypothesis.score, len(hypothesis.tokens)))


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[range]:
    """Neighbouring sources, as many as fit into `batch_tokens` padded subwords, at least one."""
    start, longest = 0, 0
    for i, length in enumerate(lengths):
        longest = max(longest, length)
        if i > start and (i + 1 - start) * longest > batch_tokens:
            yield range(start, i)
            start, longest = i, length
    if lengths:
        yield range(start, len(lengths))


# The folder.


def is_exported(path: str | Path) -> bool:
    """Whether it is a folder that `vtrans export` wrote."""
    return (Path(path) / DESCRIPTION).is_file()


def exported_folder(path: str | Path, engine: str | None) -> Path | None:
    """The exported folder to run `path` from, or None where torch is to run it.

    An exported folder runs on its engine whether that is named or not; with `engine` "ctranslate2" a run
    folder stands for the export in it. InputError for a model that the named engine can't run.
    """
    path = Path(path)
    if engine is not None and engine not in ENGINES:
        raise InputError(f"--engine must be one of {', '.join(ENGINES)}, but is {engine!r}.")
    if is_exported(path):
        if engine == "torch":
            raise InputError(
                f"{path} is an export for CTranslate2, which the engine torch can't run; "
                "give the run folder or the model file that it was made from, or leave out --engine."
            )
        return path
    if engine != "ctranslate2":
        return None
    if is_exported(path / FOLDER):
        return path / FOLDER
    if not path.exists():
        raise FileError(f"there is no model {path}; give a folder that `vtrans export` wrote.")
    raise InputError(
        f"{path} is not exported, and the engine ctranslate2 runs only what is; "
        f"run `vtrans export {path} --out FOLDER` first, and give that folder."
    )


def load_exported(folder: str | Path, device: str | None = None) -> ExportedModel:
    """The model of an exported folder, ready to run on `device`: cpu, cuda or cuda:N, by default CUDA where
    the engine has it. FileError for a folder that is none, or not whole; InputError without CTranslate2."""
    folder = Path(folder)
    check_path(folder)
    description = _read_description(folder)
    for name, expected in description["files"].items():
        try:
            found = digest(folder / name)
        except OSError as error:
            raise FileError(f"{folder / name} can't be read: {error.strerror}; export the model again.") from None
        if found != expected:
            raise FileError(f"{folder / name} has been changed since it was exported; export the model again.")
    vocabularies = {name: Vocabulary((folder / name).read_bytes(), str(folder)) for name in description["vocabularies"]}
    src_vocab = vocabularies.get(JOINT_FILE) or vocabularies[SRC_FILE]
    tgt_vocab = vocabularies.get(JOINT_FILE) or vocabularies[TGT_FILE]
    search = section_from(SearchConfig, "search", description["search"], str(folder / DESCRIPTION))
    translator = _translator(folder, device, description["quantization"])
    engine = Engine(translator, src_vocab, tgt_vocab, description["positions"])
    training, quantization = description["training"], description["quantization"]
    return ExportedModel(engine, src_vocab, tgt_vocab, search, training, quantization, source=description.get("source"))


def digest(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_description(folder: Path) -> dict[str, Any]:
    file = folder / DESCRIPTION
    try:
        description: Any = json.loads(file.read_bytes())
    except OSError as error:
        raise FileError(f"{file} can't be read: {error.strerror}; give a folder of `vtrans export`.") from None
    except ValueError:
        description = None
    if not isinstance(description, dict) or description.get("kind") != FOLDER:
        raise FileError(f"{file} describes no export of vtrans; export the model again.")
    if description.get("format") != FORMAT:
        raise FileError(
            f"{folder} is of format {description.get('format')}, but this version reads {FORMAT}; "
            "export the model again."
        )
    wanted = {
        "files": dict,
        "vocabularies": list,
        "search": dict,
        "training": dict,
        "positions": int,
        "quantization": str,
    }
    for key, kind in wanted.items():
        if not isinstance(description.get(key), kind):
            raise FileError(f"{file} lacks {key}; export the model again.")
    names = description["vocabularies"]
    if names not in ([JOINT_FILE], [SRC_FILE, TGT_FILE]) or not set(names) <= set(description["files"]):
        raise FileError(f"{file} names no vocabulary; export the model again.")
    return description


def _translator(folder: Path, device: str | None, quantization: str) -> Any:
    package = ctranslate2()
    if device is None:
        device = "cuda" if package.get_cuda_device_count() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", device):
        raise InputError(f"--device must be cpu, cuda or cuda:N on the engine ctranslate2, but is {device!r}.")
    kind, _, index = device.partition(":")
    # Many batches at once on one thread each are faster than many threads on one batch.
    workers = torch.get_num_threads() if kind == "cpu" else 1
    try:
        return package.Translator(
            str(folder),
            device=kind,
            device_index=int(index or 0),
            # Half precision saves space on a CPU, which computes in float32: said, or it would warn.
            compute_type="float32" if (kind, quantization) == ("cpu", "float16") else "default",
            inter_threads=workers,
            intra_threads=1,
        )
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        if kind == "cuda":
            raise InputError(f"--device {device} can't be used here: {reason}.") from None
        raise FileError(f"{folder} can't be loaded by CTranslate2: {reason}; export the model again.") from None
