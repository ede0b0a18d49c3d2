"""Adapts a model to one's own translations: divides the pairs, trains on new and old ones together, and keeps the
result only if it is better.

Training on new pairs alone makes a model forget what it knew, so as many old pairs are mixed in (Chu et al. 2017). If
the translations of the old text are not given, they are the model's own. A model that loses too much on old text is
averaged with the one that it began as (Wortsman et al. 2022), which keeps most of what was learned. Measurements on
pairs that are held out decide.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from vtrans.average import average, usual_checkpoints
from vtrans.checkpoint import load_model, save_model
from vtrans.console import Console
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.prepare import prepare
from vtrans.data.store import DataFolder
from vtrans.errors import InputError
from vtrans.files import file_sha256, replaced, write_atomically
from vtrans.score import corpus_scores
from vtrans.storage.model_file import read_abilities
from vtrans.storage.run_folder import RunFolder, choose_model
from vtrans.text.languages import Languages, check_language
from vtrans.text.lines import write_line, writing
from vtrans.text.piece_table import is_language
from vtrans.training.recipe import recipe_of_run
from vtrans.training.setup import TrainOptions
from vtrans.training.trainer import train
from vtrans.translate.loading import load
from vtrans.translate.translator import Translator

Pairs = list[tuple[str, str]]
FEWEST_PAIRS = 500
HELD_OUT = {"test": (0.1, 1000), "valid": (0.05, 300)}  # shares of the pairs, and the most
EPOCHS = 5  # at most; early stopping may end the training sooner
CHECKPOINTS = 10
BATCH_TOKENS = 2048
RATE = 0.2  # the learning rate, times the width: wide models need smaller updates (Yang et al. 2022)
NOISE = 0.3  # for models that have learned codes, so that they do not forget them
SEED = 1


@dataclass(frozen=True)
class OldText:
    """Text of the kind that the model was trained on. Without `targets`, the model translates the sources.

    What the model forgets is measured with the pairs `held_out`, which it should not have learned from. Without them, a
    part of the text is held out if it has targets.
    """

    sources: Sequence[str]
    targets: Sequence[str] | None = None
    held_out: Pairs = field(default_factory=list)


@dataclass(frozen=True)
class AdaptOptions:
    """The adapted model may lose up to `guard` BLEU on old text. `from_` and `to` are the languages of the pairs, for a
    model of several or one that does not record them. The others are those of `TrainOptions`."""

    model: Path
    out: Path
    guard: float = 1.0
    from_: str | None = None
    to: str | None = None
    overrides: Sequence[str] = ()
    device: str | None = None
    processes: int | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Adapted:
    """The result, and what was measured: BLEU by kind of text, `new` or `old`, of the given and the adapted model."""

    kept: bool
    """Whether the result is the adapted model, and not the one that was given."""
    file: Path
    scores: Mapping[str, tuple[float, float]]
    counts: Mapping[str, int]
    """The pairs by kind of text and part, such as `new.train`."""


def adapt(options: AdaptOptions, pairs: Pairs, old: OldText | None, console: Console) -> Adapted:
    """Adapts a model, and writes the better one to `options.out`/model.safetensors. Repeating an interrupted call
    continues it.

    Raises InputError for fewer than FEWEST_PAIRS different pairs, and for a folder with other text or another model.
    """
    work = _Adaptation(options, console)
    parts = work.divided(pairs, old)
    work.train(parts)
    scores: dict[str, Mapping[str, float]] = {}

    def loses_too_much(file: Path, part: str) -> bool:
        """Whether the model does not gain on the new text, or loses more than it may on the old text."""
        for name in (options.model, file):
            if f"{part} {name}" not in scores:
                scores[f"{part} {name}"] = work.scores(name, parts, part)
        before, after = scores[f"{part} {options.model}"], scores[f"{part} {file}"]
        return after["new"] <= before["new"] or before.get("old", 0.0) - after.get("old", 0.0) > options.guard

    chosen = RunFolder(options.out / "run").averaged
    kept = not (loses_too_much(chosen, "valid") or loses_too_much(chosen, "test"))
    if not kept:
        chosen = work.averaged_with_given(chosen)
        kept = not loses_too_much(chosen, "test")
    file = options.out / "model.safetensors"
    with replaced(file, "model") as path:
        work.write(chosen if kept else choose_model(options.model).file, path)
    before, after = scores[f"test {options.model}"], scores[f"test {chosen}"]
    return Adapted(
        kept,
        file,
        {kind: (before[kind], after[kind]) for kind in before},
        {name: len(part) for name, part in parts.items()},
    )


class _Adaptation:
    """The steps, each of which finds what an earlier call of it made."""

    def __init__(self, options: AdaptOptions, console: Console) -> None:
        self._options, self._console = options, console
        self._given = self._load(options.model)
        engine = self._given.engine
        self._languages = direction(engine.languages, bool(engine.tags), options.from_, options.to)
        self._tag = engine.tags.get(self._languages.tgt)
        self._given.reader.beginning(options.to)  # raises InputError for a wrong language
        begins = [piece for piece in self._given.search.begin if is_language(piece)]
        self._begins = "".join(f"{tag} " for tag in begins)
        """What the targets in the files begin with: the tag of a model such as NLLB."""

    def _load(self, model: Path) -> Translator:
        return load(model, device=self._options.device)

    def divided(self, pairs: Pairs, old: OldText | None) -> dict[str, Pairs]:
        """Returns the pairs of each kind and part, such as `new.train`, and writes them to a folder."""
        facts = {
            "model": file_sha256(choose_model(self._options.model).file),
            "to": self._options.to,
            "new": _digest(pairs),
            "old": old and [_digest(old.sources), old.targets and _digest(old.targets), _digest(old.held_out)],
        }
        if self._options.from_:
            facts["from"] = self._options.from_
        record = self._options.out / "text" / "made-from.json"
        with suppress(FileNotFoundError):
            if json.loads(record.read_bytes()) != facts:
                raise InputError(
                    f"{self._options.out} was made from other pairs or another model; name another folder, or delete "
                    "this one."
                )
        parts = _parts("new", pairs)
        if (count := sum(map(len, parts.values()))) < FEWEST_PAIRS:
            raise InputError(
                f"there must be at least {FEWEST_PAIRS} pairs of different sources to adapt a model, got {count}; use "
                "fewer as a glossary or a memory."
            )
        number = len(parts["new.train"])
        if old and old.targets:
            pairs = list(zip(old.sources, old.targets, strict=True))
            parts |= {"old.train": _shuffled(pairs)} if old.held_out else _parts("old", pairs)
            parts["old.train"] = parts["old.train"][:number]
        elif old:
            sources = [line for line in dict.fromkeys(old.sources) if line.strip()]
            parts["old.train"] = self._translated(random.Random(SEED).sample(sources, min(number, len(sources))))
        if old and old.held_out:
            held_out = _shuffled(old.held_out)
            count = min(HELD_OUT["valid"][1], len(held_out) // 4)
            parts |= {"old.valid": held_out[:count], "old.test": held_out[count:][: HELD_OUT["test"][1]]}
        for name, part in parts.items():
            sides = zip(*part, strict=True)
            for file, begins, lines in zip(self._files(name), ("", self._begins), sides, strict=True):
                file.parent.mkdir(parents=True, exist_ok=True)
                with writing(file) as stream:
                    for line in lines:
                        write_line(stream, begins + line)
        write_atomically(record, json.dumps(facts, indent=2).encode())
        return parts

    def _files(self, name: str) -> list[Path]:
        """The files of a part, whose names end in the languages of the model."""
        sides = self._languages if all(self._languages) else ("src", "tgt")
        return [self._options.out / "text" / f"{name}.{side}" for side in sides]

    def _translated(self, sources: Sequence[str]) -> Pairs:
        """Returns the sources with the translations of the model, which an earlier call may have written."""
        src, tgt = self._files("old.train")
        with suppress(FileNotFoundError):
            lines, targets = (path.read_text(encoding="utf-8").split("\n")[:-1] for path in (src, tgt))
            if lines == list(sources) and len(targets) == len(lines):
                return list(zip(lines, (text.removeprefix(self._begins) for text in targets), strict=True))
        return list(zip(sources, self._translations(self._given, sources), strict=True))

    def _translations(self, translator: Translator, sources: Sequence[str]) -> list[str]:
        with self._console.progress("translating", len(sources), "lines") as counter:
            found = []
            for text in translator.translate(sources, to=self._options.to):
                found.append(text)
                counter.advance()
        return found

    def train(self, parts: Mapping[str, Pairs]) -> None:
        """Trains on the new and the old pairs, and averages the last checkpoints."""
        options, models = self._options, self._given.engine.models
        codes, uses_matches = all(model.codes for model in models), all(model.matches for model in models)
        texts = [[self._files(name) for name in parts if name.endswith(part)] for part in (".train", ".valid")]
        tags, valid_tags = ((self._tag,) * len(files) if self._tag else () for files in texts)
        languages = self._languages if self._tag else ()  # those of others are in the names of the files
        (src, tgt), (valid_src, valid_tgt) = (tuple(zip(*files, strict=True)) for files in texts)
        vocabularies = self._given.engine.src_vocab.proto, self._given.engine.tgt_vocab.proto
        prepared = PrepareOptions(
            src, tgt, valid_src, valid_tgt, align=codes, src_lang=tuple(languages[:1]), tgt_lang=tuple(languages[1:]),
            tags=tags, valid_tags=valid_tags, vocabularies=vocabularies, fuzzy=uses_matches,
            out=str(options.out / "data"),
        )  # fmt: skip
        report = prepare(prepared, self._console)
        updates = max(1, max(report["train"]["tokens"].values()) // BATCH_TOKENS)
        settings = {
            "max_steps": EPOCHS * updates,
            "checkpoint_every": max(1, EPOCHS * updates // CHECKPOINTS),
            "warmup": max(1, updates // 10),
            "learning_rate": RATE / models[0].model.config.d_model,
            "schedule": "cosine",
            "batch_tokens": BATCH_TOKENS,
            "patience": 3,
            "best_metric": "nll",
            "noise": NOISE if codes else 0.0,
        }
        overrides = [f"train.{key}={value}" for key, value in settings.items()]
        run = RunFolder(options.out / "run")
        asked = TrainOptions(
            overrides=[*overrides, *options.overrides], device=options.device, processes=options.processes,
            threads=options.threads, init_from=options.model,
        )  # fmt: skip
        train(DataFolder.open(options.out / "data"), run, self._console, asked)
        recipe = recipe_of_run(run)
        assert recipe is not None
        average(usual_checkpoints(run, recipe.train), run.averaged, max(run.steps()))

    def write(self, model: Path, out: Path) -> None:
        """Writes a model with the languages and tags of the given one, as far as that has any. The training knows one
        direction only."""
        engine = self._given.engine
        if (engine.languages or engine.tags) and read_abilities(model).languages != tuple(engine.languages):
            save_model(out, replace(load_model(model), languages=tuple(engine.languages), tags=dict(engine.tags)))
        else:
            shutil.copyfile(model, out)

    def averaged_with_given(self, tuned: Path) -> Path:
        """Returns the mean of the given and the trained model."""
        file = self._options.out / "halfway.safetensors"
        average([choose_model(self._options.model).file, tuned], file)
        return file

    def scores(self, model: Path, parts: Mapping[str, Pairs], part: str) -> dict[str, float]:
        """Returns the BLEU of a model on the `part` of each kind of text that has one."""
        translator, scores = self._load(model), {}
        for name in [name for name in parts if name.endswith(f".{part}")]:
            sources, references = zip(*parts[name], strict=True)
            scores[name.split(".")[0]] = corpus_scores(self._translations(translator, sources), references)["bleu"]
        return scores


def direction(known: Sequence[Languages], tagged: bool, src: str | None, tgt: str | None) -> Languages:
    """Returns the languages of the pairs: those of a model that has `known` ones, as far as `src` and `tgt` are given.
    They are empty for a model of unknown languages that is not `tagged`. Raises InputError if the model has no such
    direction or several."""
    found = [pair for pair in known if src in (None, pair.src) and tgt in (None, pair.tgt)]
    if not known and src and tgt:
        return Languages(check_language("`from`", src), check_language("`to`", tgt))
    if len(found) == 1:
        return found[0]
    if known and (tagged or not found):
        pairs = ", ".join("-".join(pair) for pair in known)
        raise InputError(f"`from` and `to` must name one direction of the model, {pairs}, got {src} and {tgt}.")
    if tagged:
        raise InputError(
            "`from` and `to` are missing: the model has tags of languages, but does not record the languages that it "
            "translates from."
        )
    return Languages("", "")


def _parts(kind: str, pairs: Pairs) -> dict[str, Pairs]:
    """Divides pairs at random into `test`, `valid` and `train`. Pairs of one source are in one part, and a source is
    held out with its first translation only."""
    grouped: dict[str, Pairs] = {}
    for pair in dict.fromkeys(pairs):
        if all(side.strip() for side in pair):
            grouped.setdefault(pair[0], []).append(pair)
    groups = list(grouped.values())
    random.Random(SEED).shuffle(groups)
    left, parts = iter(groups), dict[str, Pairs]()
    for part, (share, most) in HELD_OUT.items():
        parts[f"{kind}.{part}"] = [group[0] for group in islice(left, min(int(share * len(groups)), most))]
    return {f"{kind}.train": [pair for group in left for pair in group], **parts}


def _shuffled(pairs: Pairs) -> Pairs:
    different = [pair for pair in dict.fromkeys(pairs) if all(side.strip() for side in pair)]
    random.Random(SEED).shuffle(different)
    return different


def _digest(lines: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(lines, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()
