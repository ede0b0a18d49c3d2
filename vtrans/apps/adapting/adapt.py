"""Adapts a model to the user's own translations: splits the pairs, trains on new and old ones together, and keeps the
result only if it is better.

Training on new pairs alone makes a model forget, so as many old pairs are mixed in (Chu et al. 2017). If the old text
has no translations, the model's own are used. An adapted model that loses too much on old text is averaged with the
given one (Wortsman et al. 2022), which keeps most of the gain. Scores on held-out pairs decide.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from vtrans.config import Recipe
from vtrans.config.threads import set_threads
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.prepare import prepare
from vtrans.data.store import DataFolder
from vtrans.score.metrics import corpus_scores, deciding_metric, fitting_tokenizer
from vtrans.storage.run_folder import RunFolder, choose_model
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.files import destination, file_sha256, overwritten, replaced, write_atomically
from vtrans.text.languages import direction
from vtrans.text.lines import write_lines
from vtrans.text.piece_table import is_language
from vtrans.text.vocabulary import FORMALITY, Formality
from vtrans.training.average import average, usual_checkpoints
from vtrans.training.parts import TrainOptions
from vtrans.training.recipe import merged, recipe_of_model, with_overrides
from vtrans.training.trainer import train
from vtrans.translate.loading import load
from vtrans.translate.translator import Translator

Pairs = list[tuple[str, str]]
Kept = Literal["adapted", "mean", "given"]
FEWEST_PAIRS = 500
HELD_OUT = {"test": (0.1, 1000), "valid": (0.05, 300)}  # share of the pairs, and maximum number
OLD_HELD_OUT = {"test": (0.75, 1000), "valid": (0.25, 300)}  # of OldText.held_out
EPOCHS = 5  # maximum, counted in tokens; with padding about three, and fewer with early stopping
PATIENCE = 2  # validations; a training that is not stopped early has EPOCHS of them
SHOWN = 20  # sentences that a validation translates for the user; early stopping needs only the likelihood
BATCH_TOKENS = 2048
FORMS = 0.05  # share of the new and the old sources that are also translated in each form of address
SEED = 1


@dataclass(frozen=True)
class OldText:
    """Text like the model's training text. Without `targets`, the model translates the sources.

    Forgetting is measured on the pairs `held_out`, which the model should not have been trained on. Without them, part
    of the text is held out if it has targets.
    """

    sources: Sequence[str]
    targets: Sequence[str] | None = None
    held_out: Pairs = field(default_factory=list)


@dataclass(frozen=True)
class AdaptOptions:
    """Options of `adapt`. The adapted model may lose up to `guard` BLEU on old text, or chrF if that is the metric.
    `from_` and `to` are the languages of the pairs, for a multilingual model or one that does not record them.
    `training` has overrides of the recipe, the device and the processes."""

    model: Path
    out: Path
    guard: float = 1.0
    from_: str | None = None
    to: str | None = None
    training: TrainOptions = field(default_factory=TrainOptions)


@dataclass(frozen=True)
class Adapted:
    """The result. `scores` has, for `new` and `old` text, the `metric` of the given model and of the kept one, or of
    the last one tried if the given model is kept."""

    kept: Kept
    file: Path
    scores: Mapping[str, tuple[float, float]]
    counts: Mapping[str, int]
    """The number of pairs by kind of text and part, such as `new.train`."""
    metric: str
    """bleu or chrf."""


def adapt(options: AdaptOptions, pairs: Pairs, old: OldText | None, console: Console) -> Adapted:
    """Adapts a model, and writes the better one to `options.out`/model.safetensors. Repeating an interrupted call
    resumes it.

    Raises InputError for fewer than FEWEST_PAIRS different sources, and for a folder with other pairs, models or
    options, or in which the given model would be overwritten.
    """
    out = destination(options.out, "folder")  # before the work
    given, file = choose_model(options.model).file, options.out / "model.safetensors"
    if overwritten(given, (file, out / "halfway.safetensors", *(out / "run").glob("*.safetensors"))):
        raise InputError(f"`out` must not be a folder in which {given} would be overwritten, got {options.out}.")
    work = _Adaptation(options, console)
    parts = work.parts(pairs, old)
    chosen = adapted = work.train(parts)
    before, after = work.scores(work.given, parts), work.scores(adapted, parts)

    def good_enough() -> bool:
        return after["new"] > before["new"] and before.get("old", 0.0) - after.get("old", 0.0) <= options.guard

    kept: Kept = "adapted"
    if not good_enough():
        kept, chosen = "mean", options.out / "halfway.safetensors"
        average([work.given, adapted], chosen)
        after = work.scores(chosen, parts)
        if not good_enough():
            kept, chosen = "given", work.given
    with replaced(file, "model") as path:
        shutil.copyfile(chosen, path)
    counts = {name: len(part) for name, part in parts.items()}
    return Adapted(kept, file, {kind: (before[kind], after[kind]) for kind in before}, counts, work.metric(parts))


def divided(pairs: Iterable[tuple[str, str]], held_out: Mapping[str, tuple[float, int]], seed: int) -> dict[str, Pairs]:
    """Returns the distinct pairs with text on both sides, divided at random into `train` and the parts in `held_out`.

    `held_out` gives each part's share of the sources and its maximum number. All pairs of a source are in one part; a
    held-out source has only its first translation.
    """
    grouped: dict[str, Pairs] = {}
    for pair in dict.fromkeys(pairs):
        if all(side.strip() for side in pair):
            grouped.setdefault(pair[0], []).append(pair)
    groups = list(grouped.values())
    random.Random(seed).shuffle(groups)
    left, parts = iter(groups), dict[str, Pairs]()
    for part, (share, most) in held_out.items():
        parts[part] = [group[0] for group in islice(left, min(int(share * len(groups)), most))]
    return {"train": [pair for group in left for pair in group], **parts}


class _Adaptation:
    """The steps of an adaptation. Each reuses the result of an earlier call."""

    def __init__(self, options: AdaptOptions, console: Console) -> None:
        self._options, self._console = options, console
        self.given = choose_model(options.model).file
        set_threads(options.training.threads)
        self._translator = load(self.given, device=options.training.device)
        engine = self._translator.engine
        self._languages = direction(engine.languages, bool(engine.tags), options.from_, options.to)
        self._translator.reader.beginning(options.to)  # raises InputError for a wrong language
        base = recipe_of_model(self.given, joint=engine.models[0].joint)
        with_overrides(base, options.training.overrides, "the recipe of the model")  # raises it for a wrong value

    def parts(self, pairs: Pairs, old: OldText | None) -> Mapping[str, Pairs]:
        """Returns the pairs by kind and part, such as `new.train`; a repeated call returns the same ones."""
        options, file = self._options, self._options.out / "pairs.jsonl"
        settings = [file_sha256(self.given), options.from_, options.to, *options.training.overrides]
        digest = hashlib.sha256(json.dumps([settings, pairs, old and vars(old)]).encode()).hexdigest().encode()
        if not file.exists():
            made = json.dumps(self._divided(pairs, old)).encode()
            options.out.mkdir(parents=True, exist_ok=True)
            write_atomically(file, digest + b"\n" + made)
        made_from, _, made = file.read_bytes().partition(b"\n")
        if made_from != digest:
            raise InputError(
                f"{options.out} is for another model, other pairs or other options; name another folder, or delete it."
            )
        parts: dict[str, Pairs] = json.loads(made)
        return parts

    def _divided(self, pairs: Pairs, old: OldText | None) -> dict[str, Pairs]:
        new = divided(pairs, HELD_OUT, SEED)
        if (count := sum(map(len, new.values()))) < FEWEST_PAIRS:
            raise InputError(
                f"there must be at least {FEWEST_PAIRS} different sources, got {count}; use a glossary or a memory."
            )
        kinds = {"new": new}
        if old:
            sources, targets = old.sources, old.targets
            if targets is None:
                different = [line for line in dict.fromkeys(sources) if line.strip()]
                sources = random.Random(SEED).sample(different, min(len(new["train"]), len(different)))
                targets = self._translations(self._translator, sources)
            held_out = {} if old.held_out or old.targets is None else HELD_OUT
            given = divided(old.held_out, OLD_HELD_OUT, SEED)
            kinds["old"] = given | divided(zip(sources, targets, strict=True), held_out, SEED)
            for part in ("train", "valid"):
                kinds["old"][part] = kinds["old"][part][: len(new[part])]
        if self._translator.src_vocab.formality:
            count = int(FORMS * len(new["train"])) + 1
            chosen = [src for parts in kinds.values() for src, _ in parts["train"][:count]]
            kinds["formality"] = {"train": self._in_both_forms(chosen)}
        return {f"{kind}.{name}": part for kind, parts in kinds.items() for name, part in parts.items() if part}

    def _in_both_forms(self, sources: Sequence[str]) -> Pairs:
        """Returns the sources whose translations differ by form of address, paired with each translation. They keep the
        model from forgetting the formality symbols, which the other pairs lack."""
        polite, familiar = (self._translations(self._translator, sources, form) for form in FORMALITY)
        pairs: Pairs = []
        for src, more, less in zip(sources, polite, familiar, strict=True):
            if more != less:
                pairs += [(f"{FORMALITY['more']} {src}", more), (f"{FORMALITY['less']} {src}", less)]
        return pairs

    def _translations(self, translator: Translator, sources: Sequence[str], form: Formality | None = None) -> list[str]:
        found = translator.translate(sources, to=self._options.to, formality=form)
        return list(self._console.counted(found, "translating", len(sources), "lines"))

    def train(self, parts: Mapping[str, Pairs]) -> Path:
        """Trains on the new and the old pairs, and returns the file of the averaged checkpoints."""
        engine, out = self._translator.engine, self._options.out
        learned_codes = all(model.codes for model in engine.models)
        report = prepare(self._data(parts), self._console)
        updates = max(1, max(report["train"]["tokens"].values()) // BATCH_TOKENS)
        settings = {
            "max_steps": EPOCHS * updates,
            "checkpoint_every": updates,
            "warmup": max(1, updates // 10),
            "learning_rate": 0.2 / engine.models[0].model.config.d_model,  # lower for wider models (Yang et al. 2022)
            "schedule": "cosine",
            "batch_tokens": BATCH_TOKENS,
            "patience": PATIENCE,
            "keep_last": PATIENCE + 1,  # averaged if training ends early: the best checkpoint and those after it
            "best_metric": "nll",
            "valid_sentences": SHOWN,
            "noise": 0.3 if learned_codes else 0.0,  # so that the model does not forget codes
        }
        training, run = self._options.training, RunFolder(out / "run")
        overrides = [*(f"train.{key}={value}" for key, value in settings.items()), *training.overrides]
        data = DataFolder.open(out / "data")
        data.languages = tuple(engine.languages) or data.languages  # keep the model's other languages
        data.tags = dict(engine.tags) or data.tags
        given = engine.models[0].pair
        data.pair = data.pair.over(given) if data.pair and len(data.languages) < 2 else given
        training = replace(training, overrides=overrides, init_from=self.given)
        progress = train(data, out=run.path, console=self._console, **vars(training))
        recipe = merged(Recipe(), progress.recipe, str(run.path))
        average(usual_checkpoints(run, recipe.train), run.averaged, progress.step)
        return run.averaged

    def _data(self, parts: Mapping[str, Pairs]) -> PrepareOptions:
        """Writes the training and validation pairs to files, and returns the options that prepare them."""
        folder, engine = self._options.out / "text", self._translator.engine
        folder.mkdir(exist_ok=True)
        begins = "".join(f"{piece} " for piece in self._translator.search.begin if is_language(piece))  # as of NLLB
        for name, part in parts.items():
            write_lines(folder / f"{name}.src", (src for src, _ in part))
            write_lines(folder / f"{name}.tgt", (begins + tgt for _, tgt in part))

        def files(part: str, side: str) -> tuple[Path, ...]:
            return tuple(folder / f"{name}.{side}" for name in parts if name.endswith(part))

        src_files, valid_files = files("train", "src"), files("valid", "src")
        tags = [tag] if (tag := engine.tags.get(self._languages.tgt)) else []
        known = self._languages if all(self._languages) else ()
        return PrepareOptions(
            src_files, files("train", "tgt"), valid_files, files("valid", "tgt"),
            src_lang=tuple(known[:1]), tgt_lang=tuple(known[1:]), tags=tuple(tags * len(src_files)),
            valid_tags=tuple(tags * len(valid_files)), fuzzy=self._translator.uses_matches,
            vocabularies=(engine.src_vocab.proto, engine.tgt_vocab.proto),
            threads=self._options.training.threads or 0, out=self._options.out / "data",
        )  # fmt: skip

    def scores(self, model: Path, parts: Mapping[str, Pairs]) -> dict[str, float]:
        """Returns the score of a model on the test pairs of each kind, in the metric `self.metric(parts)`."""
        translator, scores = load(model, device=self._options.training.device), {}
        tokenizer, metric = self._tokenizer(parts), self.metric(parts)
        for kind in ("new", "old"):
            if pairs := parts.get(f"{kind}.test"):
                sources, references = zip(*pairs, strict=True)
                scores[kind] = corpus_scores(self._translations(translator, sources), references, tokenizer)[metric]
        return scores

    def metric(self, parts: Mapping[str, Pairs]) -> str:
        """Returns the metric that decides for the target language of the new pairs."""
        return deciding_metric(self._tokenizer(parts))

    def _tokenizer(self, parts: Mapping[str, Pairs]) -> str:
        return fitting_tokenizer([target for _, target in parts["new.test"]], self._languages.tgt)
