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
import math
import random
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from vtrans.average import average, usual_checkpoints
from vtrans.checkpoint import load_model, save_model
from vtrans.console import Console
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.prepare import prepare
from vtrans.data.store import DataFolder
from vtrans.errors import InputError
from vtrans.files import file_sha256, replaced, write_atomically
from vtrans.processes.threads import set_threads
from vtrans.score import corpus_scores
from vtrans.storage.model_file import read_abilities
from vtrans.storage.run_folder import RunFolder, choose_model
from vtrans.text.languages import direction
from vtrans.text.lines import write_line, writing
from vtrans.text.piece_table import is_language
from vtrans.text.vocabulary import FORMALITY, Formality
from vtrans.training.recipe import recipe_of_run
from vtrans.training.setup import TrainOptions
from vtrans.training.trainer import train
from vtrans.translate.loading import load
from vtrans.translate.translator import Translator

Pairs = list[tuple[str, str]]
Kept = Literal["adapted", "mean", "given"]
FEWEST_PAIRS = 500
HELD_OUT = {"test": (0.1, 1000), "valid": (0.05, 300)}  # shares of the pairs, and the most
OLD_HELD_OUT = {"test": (0.75, 1000), "valid": (0.25, 300)}  # of the pairs that are given for it
EPOCHS = 5  # at most; early stopping may end the training sooner
PATIENCE = 2  # validations, of which there is one per epoch
SHOWN = 20  # sentences that a validation translates for the reader; early stopping asks for the likelihood only
BATCH_TOKENS = 2048
RATE = 0.2  # the learning rate, times the width: wide models need smaller updates (Yang et al. 2022)
NOISE = 0.3  # for models that have learned codes, so that they do not forget them
FORMS = 0.05  # share of the new and the old sources that are also translated in each form of address
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
    model of several or one that does not record them. `training` may replace values of the recipe, and says where to
    train."""

    model: Path
    out: Path
    guard: float = 1.0
    from_: str | None = None
    to: str | None = None
    training: TrainOptions = field(default_factory=TrainOptions)


@dataclass(frozen=True)
class Adapted:
    """The result, and what was measured: BLEU by kind of text, `new` or `old`, of the given model, and of the one that
    is kept or, if that is the given one, was tried last."""

    kept: Kept
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
    adapted, halfway = work.train(parts), options.out / "halfway.safetensors"
    before = work.scores(work.given, parts)

    def good_enough(scores: Mapping[str, float]) -> bool:
        return scores["new"] > before["new"] and before.get("old", 0.0) - scores.get("old", 0.0) <= options.guard

    kept: Kept = "adapted"
    chosen, after = adapted, work.scores(adapted, parts)
    if not good_enough(after):
        average([work.given, adapted], halfway)
        kept, chosen, after = "mean", halfway, work.scores(halfway, parts)
        if not good_enough(after):
            kept, chosen = "given", work.given
    file = options.out / "model.safetensors"
    with replaced(file, "model") as path:
        work.write(chosen, path)
    counts = {name: len(part) for name, part in parts.items()}
    return Adapted(kept, file, {kind: (before[kind], after[kind]) for kind in before}, counts)


class _Adaptation:
    """The steps, each of which finds what an earlier call of it made."""

    def __init__(self, options: AdaptOptions, console: Console) -> None:
        self._options, self._console = options, console
        self.given = choose_model(options.model).file
        set_threads(options.training.threads)
        self._translator = self._load(self.given)
        engine = self._translator.engine
        self._languages = direction(engine.languages, bool(engine.tags), options.from_, options.to)
        self._translator.reader.beginning(options.to)  # raises InputError for a wrong language
        begins = [piece for piece in self._translator.search.begin if is_language(piece)]
        self._begins = "".join(f"{tag} " for tag in begins)
        """What the targets in the files begin with: the tag of a model such as NLLB."""

    def _load(self, model: Path) -> Translator:
        return load(model, device=self._options.training.device)

    def divided(self, pairs: Pairs, old: OldText | None) -> Mapping[str, Pairs]:
        """Returns the pairs of each kind and part, such as `new.train`, which are kept for a repeated call."""
        text = [pairs, old and [old.sources, old.targets, old.held_out]]
        made_from = {
            "model": file_sha256(self.given),
            "from": self._options.from_,
            "to": self._options.to,
            "text": hashlib.sha256(json.dumps(text).encode()).hexdigest(),
        }
        file = self._options.out / "pairs.json"
        if not file.exists():
            made = {"made_from": made_from, "parts": self._parts(pairs, old)}
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, json.dumps(made, indent=0).encode())
        found = json.loads(file.read_bytes())
        if found["made_from"] != made_from:
            raise InputError(
                f"{self._options.out} was made from other pairs or another model; name another folder, or delete this "
                "one."
            )
        parts: dict[str, Pairs] = found["parts"]
        return parts

    def _parts(self, pairs: Pairs, old: OldText | None) -> dict[str, Pairs]:
        parts = _divided("new", pairs, HELD_OUT)
        if (count := sum(map(len, parts.values()))) < FEWEST_PAIRS:
            raise InputError(
                f"there must be at least {FEWEST_PAIRS} pairs of different sources to adapt a model, got {count}; use "
                "fewer as a glossary or a memory."
            )
        if old:
            sources, targets = old.sources, old.targets
            if targets is None:
                different = [line for line in dict.fromkeys(sources) if line.strip()]
                sources = random.Random(SEED).sample(different, min(len(parts["new.train"]), len(different)))
                targets = self._translations(self._translator, sources)
            held_out = {} if old.held_out or old.targets is None else HELD_OUT
            parts |= _divided("old", old.held_out, OLD_HELD_OUT)
            parts |= _divided("old", zip(sources, targets, strict=True), held_out)
            for part in ("train", "valid"):
                parts[f"old.{part}"] = parts[f"old.{part}"][: len(parts[f"new.{part}"])]
        if self._translator.src_vocab.formality:
            count = math.ceil(FORMS * len(parts["new.train"]))
            kinds = parts["new.train"][:count], parts.get("old.train", [])[:count]
            parts["formality.train"] = self._in_both_forms([src for kind in kinds for src, _ in kind])
        return {name: part for name, part in parts.items() if part}

    def _in_both_forms(self, sources: Sequence[str]) -> Pairs:
        """Returns the model's translations in each form of address, of the sources for which they differ. They keep the
        model from forgetting the symbols of the forms, which the other pairs lack."""
        polite, familiar = (self._translations(self._translator, sources, form) for form in FORMALITY)
        pairs: Pairs = []
        for src, more, less in zip(sources, polite, familiar, strict=True):
            if more != less:
                pairs += [(f"{FORMALITY['more']} {src}", more), (f"{FORMALITY['less']} {src}", less)]
        return pairs

    def _translations(
        self, translator: Translator, sources: Sequence[str], formality: Formality | None = None
    ) -> list[str]:
        with self._console.progress("translating", len(sources), "lines") as counter:
            found = []
            for text in translator.translate(sources, to=self._options.to, formality=formality):
                found.append(text)
                counter.advance()
        return found

    def train(self, parts: Mapping[str, Pairs]) -> Path:
        """Trains on the new and the old pairs, and returns the mean of the last checkpoints."""
        models, out = self._translator.engine.models, self._options.out
        learned_codes = all(model.codes for model in models)
        report = prepare(self._data(parts, align=learned_codes), self._console)
        updates = max(1, max(report["train"]["tokens"].values()) // BATCH_TOKENS)
        settings = {
            "max_steps": EPOCHS * updates,
            "checkpoint_every": updates,
            "warmup": max(1, updates // 10),
            "learning_rate": RATE / models[0].model.config.d_model,
            "schedule": "cosine",
            "batch_tokens": BATCH_TOKENS,
            "patience": PATIENCE,
            "keep_last": PATIENCE + 1,  # averaged if training ends early: the best checkpoint and those after it
            "best_metric": "nll",
            "valid_sentences": SHOWN,
            "noise": NOISE if learned_codes else 0.0,
        }
        training, run = self._options.training, RunFolder(out / "run")
        overrides = [*(f"train.{key}={value}" for key, value in settings.items()), *training.overrides]
        asked = replace(training, overrides=overrides, init_from=self.given)
        train(DataFolder.open(out / "data"), run, self._console, asked)
        recipe = recipe_of_run(run)
        assert recipe is not None
        average(usual_checkpoints(run, recipe.train), run.averaged, max(run.steps()))
        return run.averaged

    def _data(self, parts: Mapping[str, Pairs], *, align: bool) -> PrepareOptions:
        """Writes the training and validation pairs to files, and returns how to prepare them."""
        folder, engine = self._options.out / "text", self._translator.engine
        folder.mkdir(exist_ok=True)
        for name, part in parts.items():
            with writing(folder / f"{name}.src") as src, writing(folder / f"{name}.tgt") as tgt:
                for source, target in part:
                    write_line(src, source)
                    write_line(tgt, self._begins + target)

        def files(part: str, side: str) -> tuple[Path, ...]:
            return tuple(folder / f"{name}.{side}" for name in parts if name.endswith(part))

        src_files, valid_files = files("train", "src"), files("valid", "src")
        tags = [tag] if (tag := engine.tags.get(self._languages.tgt)) else []
        known = self._languages if all(self._languages) else ()
        return PrepareOptions(
            src_files, files("train", "tgt"), valid_files, files("valid", "tgt"), align=align,
            src_lang=tuple(known[:1]), tgt_lang=tuple(known[1:]), tags=tuple(tags * len(src_files)),
            valid_tags=tuple(tags * len(valid_files)), fuzzy=self._translator.uses_matches,
            vocabularies=(engine.src_vocab.proto, engine.tgt_vocab.proto),
            threads=self._options.training.threads or 0, out=self._options.out / "data",
        )  # fmt: skip

    def write(self, model: Path, out: Path) -> None:
        """Writes a model with the languages and tags of the given one, as far as that has any. The training knows one
        direction only."""
        engine = self._translator.engine
        if (engine.languages or engine.tags) and read_abilities(model).languages != tuple(engine.languages):
            save_model(out, replace(load_model(model), languages=tuple(engine.languages), tags=dict(engine.tags)))
        else:
            shutil.copyfile(model, out)

    def scores(self, model: Path, parts: Mapping[str, Pairs]) -> dict[str, float]:
        """Returns the BLEU of a model on the test pairs of each kind."""
        translator, scores = self._load(model), {}
        for kind in ("new", "old"):
            if pairs := parts.get(f"{kind}.test"):
                sources, references = zip(*pairs, strict=True)
                scores[kind] = corpus_scores(self._translations(translator, sources), references)["bleu"]
        return scores


def _divided(
    kind: str, pairs: Iterable[tuple[str, str]], held_out: Mapping[str, tuple[float, int]]
) -> dict[str, Pairs]:
    """Divides pairs at random into `train` and the parts `held_out`. Pairs of one source are in one part, and a source
    is held out with its first translation only."""
    grouped: dict[str, Pairs] = {}
    for pair in dict.fromkeys(pairs):
        if all(side.strip() for side in pair):
            grouped.setdefault(pair[0], []).append(pair)
    groups = list(grouped.values())
    random.Random(SEED).shuffle(groups)
    left, parts = iter(groups), dict[str, Pairs]()
    for part, (share, most) in held_out.items():
        parts[f"{kind}.{part}"] = [group[0] for group in islice(left, min(int(share * len(groups)), most))]
    return {f"{kind}.train": [pair for group in left for pair in group], **parts}
