"""Compares a model with the same model in another program, after an import or for an export.

`outputs` translates and scores sample sentences with vtrans; `compare` does the same with the other program, called
with its default settings, as its users do. For an import, only one of the two models is in memory at a time.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vtrans.config import SearchConfig
from vtrans.engines.engine import Source
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import LoadedModel
from vtrans.search.loop import length_penalty
from vtrans.search.rules import rules_of
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.text.languages import base
from vtrans.text.vocabulary import EOS_ID, Vocabulary
from vtrans.translate.steps.split import EXTRA_LENGTH

LOGITS = 1 << 21  # per search step; several copies of them are in memory
FORCED_TOKENS = 16  # padded subwords scored at a time; their logits are in memory at once
TIE = 1e-4  # largest score difference between two translations that counts as a tie
LONGEST = 2048  # maximum number of positions compared
SECONDS = 3600  # timeout for a run of another program
# Everyday sentences by language, including hard cases: names, numbers, quotation marks, capitals, single words.
REAL: dict[str, list[str]] = json.loads(Path(__file__).with_name("samples.json").read_text(encoding="utf-8"))

IdPair = tuple[Sequence[int], Sequence[int]]
"""A source and a target, which end in EOS."""
Score = Callable[[Sequence[IdPair]], Sequence[Sequence[float]]]
"""Returns the log-probabilities of each target's subwords."""


class Tolerance(NamedTuple):
    """Largest differences allowed between vtrans and another program on the same model, in nats."""

    token: float = 1e-4
    """Difference of the log-probability of a single subword of a given translation."""
    mean: float = 2e-5
    """Mean absolute difference of the log-probabilities."""
    lost: float | None = None
    """Decrease of the mean score of the translations. None: translations must be equal, except for ties and
    translations that the other program cuts off."""


@dataclass(frozen=True)
class Outputs:
    """Sample sentences with their translations and log-probabilities by vtrans."""

    lines: Sequence[str]
    sources: Sequence[list[int]]
    """Token ids with EOS."""
    limits: Sequence[int]
    """The maximum number of subwords of each translation."""
    search: SearchConfig
    translations: Sequence[list[int]] = ()
    """Token ids without EOS."""
    pairs: Sequence[IdPair] = ()
    logprobs: Sequence[Sequence[float]] = ()
    """Per subword of each pair's target."""


class Program:
    """Another program that runs a model. Token ids are ours."""

    name: str
    """Name and version, such as "transformers 5.0"."""
    path: Path
    """The model's file or folder."""
    tolerance = Tolerance()
    search: SearchConfig | None = None
    """The program's default search; None for the model's search."""

    def encode(self, lines: Sequence[str]) -> list[list[int]] | None:
        """Returns the ids of each source line with EOS; None if the program does not split text."""
        return None

    def logprobs(self, pairs: Sequence[IdPair]) -> Sequence[Sequence[float]]:
        """Returns the log-probabilities of each target's tokens; [] if the program does not score."""
        return []

    def translate(self, ours: Outputs) -> list[list[int]] | None:
        """Returns the translation of each source without EOS, within our limits; None if it cannot be compared."""
        return None

    def run(
        self, command: Sequence[str], count: int, folder: Path, given: str = "", out: Path | None = None
    ) -> list[str]:
        """Runs a command in a folder, and returns the `count` lines that it writes to `out` or to standard output.
        Raises VtransError if it fails or writes another number of lines."""
        options: dict[str, Any] = {"capture_output": True, "timeout": SECONDS, "encoding": "utf-8", "errors": "replace"}
        try:
            done = subprocess.run(command, input=given, cwd=folder, **options)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise VtransError(f"{self.name} cannot run {self.path}: {error}.") from None
        written = out.read_bytes().decode() if out and out.exists() else done.stdout
        lines = written.split("\n")[:-1]
        if done.returncode or len(lines) != count:
            said = done.stderr.strip().split("\n")
            # Marian's first error says what is wrong, its second where it aborted.
            why = next((line.partition("Error: ")[2] for line in said if "Error: " in line), said[-1])
            why = why.strip()[:300].rstrip(".") or f"exit code {done.returncode}"
            raise VtransError(f"{self.name} cannot run {self.path}: {why}.")
        return lines


@dataclass(frozen=True)
class Imported:
    """A model of another program, in float32 on the CPU."""

    kind: str
    """The recognised format, in words: "a Hugging Face Marian folder"."""
    notes: tuple[str, ...]
    """Further facts for the user, one sentence each, without a full stop."""
    model: LoadedModel
    original: Callable[[], Program] | None = None
    """Returns the other program for the comparison; it loads the model on first use. Raises InputError if the program
    is not installed. None for a model of vtrans."""


@dataclass(frozen=True)
class Differences:
    """Differences between our translations and the other program's."""

    equal: int
    excused: int
    """Translations that differ, but whose scores differ only by rounding, or that reach the length limit in the other
    program, which handles it differently."""
    missed: list[str]
    """The lines whose translations differ for another reason."""
    lost: float
    """The mean score of our translations minus the other program's."""
    first: str
    """The first line in `missed`, with both translations."""


@dataclass(frozen=True)
class Comparison:
    """Differences between vtrans and another program on the same model."""

    original: str
    """The name of the other program."""
    sentences: int
    split: list[str] | None
    """The lines that the other program segments differently; None if it does not split text."""
    logprobs: int
    largest: float
    """The largest absolute difference of a log-probability."""
    mean: float
    """The mean of the absolute differences."""
    tolerance: Tolerance
    translations: Differences | None
    """None if the translations cannot be compared."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"tolerance": self.tolerance.token}

    def problem(self) -> str | None:
        """Returns a description of the first difference that exceeds the tolerance, or None."""
        allowed, count, found = self.tolerance, self.sentences, self.translations
        if self.split:
            return f"it splits {len(self.split)} of {count} sentences into other subwords, first {self.split[0][:80]!r}"
        for value, limit, what in (
            (self.largest, allowed.token, "a log-probability differs by {:.2g}"),
            (self.mean, allowed.mean, "log-probabilities differ by {:.2g} in the mean"),
            (found.lost if found else 0, allowed.lost, "translations score {:.2g} less"),
        ):
            if limit is not None and not value <= limit:  # also for NaN
                return f"{what.format(value)}, more than {limit:g}"
        if found and found.missed and allowed.lost is None:
            return f"{len(found.missed)} of {count} translations differ by more than rounding, first {found.first}"
        return None

    def show(self, console: Console) -> None:
        """Prints the results."""
        count, found = self.sentences, self.translations
        said = [] if self.split is None else [f"{count - len(self.split)} of {count} sentences are split alike"]
        if self.logprobs:
            differ = f"differ by {self.mean:.2g} in the mean and {self.largest:.2g} at most"
            said.append(f"{self.logprobs:,} log-probabilities {differ}")
        if found:
            said.append(f"{found.equal} of {count} translations are equal")
            said += [f"{found.excused} others are ties or cut off at the length limit"] if found.excused else []
            said += [f"they score {found.lost:.4f} less in the mean"] if self.tolerance.lost is not None else []
            said += [f"the first other translation is that of {found.first}"] if found.first else []
        console.info(f"compared with {self.original}: {'; '.join(said)}")

    def refuse(self, out: Path, advice: str = "") -> None:
        """Raises VtransError, which names the file `out`, if the differences exceed the tolerance."""
        if problem := self.problem():
            raise VtransError(
                f"{out} was not written, because the model differs in {self.original}: {problem}"
                f"{'; ' if advice else ''}{advice}."
            )


def real_sentences(loaded: LoadedModel) -> list[str]:
    """Returns the built-in sentences in the model's source languages, or in all languages if there are none. They begin
    with a tag if the model needs one."""
    languages = {base(pair.src) for pair in loaded.languages}
    lines = [line for language in languages & REAL.keys() or REAL for line in REAL[language]]
    tag = "" if loaded.search.begin else next(iter(loaded.tags.values()), "")
    return [f"{tag} {line}".strip() for line in lines]


def encoded(loaded: LoadedModel, lines: Sequence[str]) -> Outputs:
    """Returns Outputs without translations for the nonblank lines that are short enough to be translated whole. Raises
    InputError if there are none."""
    search, reach = loaded.search, _reach(loaded)
    if search.begin:  # translations begin with the target language's tag, and sources with their own
        tag = next(iter(loaded.tags.values()), "")
        lines = [f"{tag} {line}".strip() for line in lines if line.strip()]
    longest = min(search.max_source, reach - 1)
    ids = zip(lines, loaded.src_vocab.encode_batch(list(lines)), strict=True)
    sources = {line: [*tokens, EOS_ID] for line, tokens in ids if 0 < len(tokens) <= longest}
    if not sources:
        raise InputError(
            f"all sample sentences are blank or have more than {longest:,} subwords; give others to compare the two "
            "programs on."
        )
    # EOS needs a position too, because it is scored even after an unfinished translation.
    limit = min(max(map(len, sources.values())) + EXTRA_LENGTH, reach - 1, search.max_length or reach)
    limits = [min(limit, math.ceil(search.max_ratio * len(ids)) or limit) for ids in sources.values()]
    return Outputs(list(sources), list(sources.values()), limits, search)


def _reach(loaded: LoadedModel) -> int:
    """Returns the maximum number of positions of a sentence, including EOS."""
    return min(loaded.model.config.max_length or loaded.search.max_source + EXTRA_LENGTH, LONGEST)


def outputs(loaded: LoadedModel, lines: Sequence[str] | None, program: Program) -> Outputs:
    """Translates and scores the lines that `encoded` returns, on the CPU in float32, with a program's search. By
    default, the lines are `real_sentences`.

    If the tolerance lets translations differ, also scores a pair that reaches the end of the position table.
    """
    search = replace(program.search or loaded.search, max_source=loaded.search.max_source)
    given = encoded(replace(loaded, search=search), real_sentences(loaded) if lines is None else lines)
    translations = translated(loaded, given)
    targets = [[*tokens, EOS_ID] for tokens in translations]
    pairs: list[IdPair] = list(zip(given.sources, targets, strict=True))
    if program.tolerance.lost is not None:
        reach = _reach(loaded)
        sides = zip(pairs[0], (min(search.max_source, reach - 1), reach - 1), strict=True)
        src, tgt = ([*islice(cycle(ids[:-1] or ids), length), EOS_ID] for ids, length in sides)
        pairs.append((src, tgt))
    return replace(given, translations=translations, pairs=pairs, logprobs=scorer(loaded)(pairs))


def scorer(loaded: LoadedModel) -> Score:
    """Returns a function that scores translations with our model."""
    engine = TorchEngine([loaded])
    return lambda pairs: engine.token_logprobs([(source[:-1], target) for source, target in pairs], FORCED_TOKENS)


def translated(loaded: LoadedModel, given: Outputs) -> list[list[int]]:
    """Returns our best translation of each source, searched on the CPU with the shortlist if there is one."""
    loaded.model.cpu().eval()
    search, asked = given.search, [Source(*each, "") for each in zip(given.sources, given.limits, strict=True)]
    at_a_time = max(1, LOGITS // (len(loaded.tgt_vocab) * search.beam))  # so that the model dominates memory
    tokens = min(at_a_time * max(map(len, given.sources)), search.batch_tokens)
    engine = TorchEngine([loaded], shortlist=loaded.shortlist is not None)
    rules = rules_of(search, loaded.tgt_vocab)
    found = dict(engine.search(asked, replace(search, batch_tokens=tokens), rules=rules))
    return [list(found[i][0].tokens) for i in range(len(asked))]


def compare(ours: Outputs, program: Program, tgt: Vocabulary, score: Score | None = None) -> Comparison:
    """Compares our outputs, whose target vocabulary is `tgt`, with the outputs of another program.

    `score` scores the translations that differ: by default the program's `logprobs`; for an export, pass our `scorer`.
    """
    split = None
    if rows := program.encode(ours.lines):  # before the weights are in memory, because a tokenizer may be large
        split = [line for line, ids, row in zip(ours.lines, ours.sources, rows, strict=True) if ids != row]
    theirs, found = program.logprobs(ours.pairs), None
    gaps = np.abs(np.concatenate(ours.logprobs) - np.concatenate(theirs)) if theirs else np.zeros(0)
    largest, mean = (float(gaps.max()), float(gaps.mean())) if gaps.size else (0.0, 0.0)
    if (translations := program.translate(ours)) is not None:
        found = differences(score or program.logprobs, ours, translations, tgt.decode)
    return Comparison(program.name, len(ours.lines), split, gaps.size, largest, mean, program.tolerance, found)


def differences(
    score: Score, ours: Outputs, theirs: Sequence[list[int]], decode: Callable[[Sequence[int]], str]
) -> Differences:
    """Compares our translations with the other program's. Two translations tie if their scores, or the
    log-probabilities of the first subwords that differ, differ by at most TIE, so that rounding may decide.

    Translations of the other program that reach the length limit are excused: all of them with a beam, because programs
    handle the limit differently; in greedy search, only if one translation is a prefix of the other.
    """
    judged: dict[int, int | None] = {}  # by sentence: the first position that differs
    pairs, equal = [], 0
    for i, (mine, other, limit) in enumerate(zip(ours.translations, theirs, ours.limits, strict=True)):
        ended = [tokens if len(tokens) >= limit else [*tokens, EOS_ID] for tokens in (mine, other)]
        place = next((k for k, (a, b) in enumerate(zip(*ended, strict=False)) if a != b), None)
        if mine == other:
            equal += 1
        elif len(other) < limit or (ours.search.beam == 1 and place is not None):
            judged[i] = place
            pairs += [(ours.sources[i], tokens) for tokens in ended]
    rows = score(pairs) if pairs else []
    losses, missed = [], []
    for (i, place), row, other_row in zip(judged.items(), rows[::2], rows[1::2], strict=True):
        losses.append(_score(row, ours.search) - _score(other_row, ours.search))
        tied = place is not None and abs(row[place] - other_row[place]) <= TIE
        if not tied and not abs(losses[-1]) <= TIE:  # also for NaN
            missed.append(i)
    first = ""
    if missed:
        here, there = (decode(translations[missed[0]])[:80] for translations in (ours.translations, theirs))
        first = f"{ours.lines[missed[0]][:80]!r}: {here!r} here, {there!r} there"
    excused, lost = len(theirs) - equal - len(missed), math.fsum(losses) / len(theirs)
    return Differences(equal, excused, [ours.lines[i] for i in missed], lost, first)


def _score(logprobs: Sequence[float], search: SearchConfig) -> float:
    """Returns a translation's score from the log-probabilities of its subwords, including EOS if present. The forced
    subwords at the start, `search.begin`, cost nothing."""
    return math.fsum(logprobs[len(search.begin) :]) / length_penalty(len(logprobs), search.alpha, search.length_penalty)
