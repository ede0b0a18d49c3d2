"""Validation, ranking checkpoints, and keeping checkpoints."""

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY, VALID_PAIRS, tiny_pairs, tiny_train
from corpora import made, options
from runs import heard, lines, run_trainer, set_up_run

from vtrans.config import SearchConfig, TrainConfig
from vtrans.data.batches import collate
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import read_progress
from vtrans.system.errors import InputError, VtransError
from vtrans.training.progress import Progress
from vtrans.training.trainer import Trainer
from vtrans.training.validation import Validation, signature_end


def test_validation_does_not_disturb_training(tmp_path: Path, tiny_data: DataFolder) -> None:
    trainer = Trainer(set_up_run(tiny_data, tmp_path, "model.dropout=0.5"))
    model = trainer.learner.model
    model.train()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    random_state = torch.random.get_rng_state()
    record = trainer.validation.measure(0)
    assert record is not None
    assert record == trainer.validation.measure(0)  # without dropout
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.random.get_rng_state(), random_state)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    # The likelihood is the mean per token over all pairs.
    store = tiny_data.valid
    batch = collate([store.src(i) for i in range(len(store))], [store.tgt(i) for i in range(len(store))])
    model.eval()
    with torch.inference_mode():
        logits = model(batch.src_BS, batch.keep_BS, batch.tgt_in_BT).flatten(0, 1)[batch.real_N]
        nll = torch.nn.functional.cross_entropy(logits, batch.targets_N).item()
    assert record["nll"] == pytest.approx(nll, rel=1e-5)
    assert len(store) == len(VALID_PAIRS)


def test_the_signature_has_exactly_the_settings_that_translations_depend_on(tiny_data: DataFolder) -> None:
    train, search = TrainConfig(), SearchConfig()
    other: dict[str, Any] = {
        "alpha": 1.0,
        "length_penalty": "length",
        "stop": "exhaustive",
        "max_length": 6,
        "min_length": 2,
        "no_repeat_ngram": 3,
        "repetition_penalty": 1.5,
        "suppress": ("a",),
        "begin": ("a",),
        "max_ratio": 3.0,
        "max_source": 9,
        "beam": 7,  # validation has its own, in one group
        "beam_groups": 7,
        "diversity": 1.0,
        "batch_tokens": 9,
    }
    inert = {"beam", "beam_groups", "diversity", "batch_tokens"}
    assert set(other) == {field.name for field in dataclasses.fields(SearchConfig)}
    for beam, unused in ((1, inert | {"alpha", "length_penalty"}), (2, inert)):
        train = dataclasses.replace(train, valid_beam=beam)
        signature = signature_end(train, search, tiny_data)
        for name, value in other.items():
            changed = dataclasses.replace(search, **{name: value})
            assert (signature_end(train, changed, tiny_data) == signature) == (name in unused), name
    count = len(tiny_data.valid)
    every, few = (TrainConfig(valid_sentences=sentences) for sentences in (count, count - 1))
    assert signature_end(every, search, tiny_data) == signature_end(TrainConfig(), search, tiny_data)
    assert signature_end(few, search, tiny_data) != signature_end(TrainConfig(), search, tiny_data)


def test_validation_translates_to_lengths_usual_in_training(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = ("search.max_length=0", "train.max_steps=1", "train.valid_sentences=0")
    run, limit, store = tmp_path / "run", tiny_data.length_limit, tiny_data.valid
    said = heard(tiny_data, run, *TINY, *settings)
    assert f"greedy, at most {limit} subwords" in said
    record = lines(RunFolder(run))[-1]
    assert record["signature"] not in said
    assert f"|limit:{limit}|".replace(" ", "") in record["signature"]
    # A model that has hardly begun repeats itself up to the limit.
    translator = Trainer(set_up_run(tiny_data, run, *settings)).validation._translator(1)
    for i, (best,) in enumerate(translator.nbest([store.text("src", i) for i in range(len(store))])):
        assert len(best.tokens) == limit.of(len(store.src(i)))


@pytest.mark.parametrize("setting", ['search.begin=["missing"]', "search.min_length=20"])
def test_an_impossible_search_is_refused_before_training(tmp_path: Path, tiny_data: DataFolder, setting: str) -> None:
    with pytest.raises(InputError, match=re.escape(setting.split(".")[1].split("=")[0])):
        tiny_train(tiny_data, tmp_path / "run", setting)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "back"),
    [
        ("train.valid_sentences=2", "train.valid_sentences=4"),
        ("train.valid_beam=2", "train.valid_beam=1"),
        ("search.max_length=6", "search.max_length=20"),
    ],
)
def test_scores_of_different_searches_are_not_compared(
    run_copy: RunFolder, tiny_data: DataFolder, change: str, back: str
) -> None:
    said = heard(tiny_data, run_copy.path, change, "train.max_steps=40", "train.keep_last=9")
    assert "`best`" in said
    bleu = {line["step"]: line["bleu"] for line in lines(run_copy) if line["kind"] == "valid"}
    new = [(bleu[step], step) for step in bleu if step > 30]
    best = [tuple(entry) for entry in read_progress(run_copy.state_file(40))["best"]]
    assert best == sorted(new, key=lambda entry: (-entry[0], entry[1]))[: len(best)]
    assert best
    # With the first setting again, the first scores count and those in between do not.
    tiny_train(tiny_data, run_copy.path, back, "train.max_steps=50", "train.keep_last=9")
    bleu = {line["step"]: line["bleu"] for line in lines(run_copy) if line["kind"] == "valid"}
    old = [(bleu[step], step) for step in (20, 30, 50) if step in run_copy.steps()]
    best = [tuple(entry) for entry in read_progress(run_copy.state_file(50))["best"]]
    assert best == sorted(old, key=lambda entry: (-entry[0], entry[1]))[: len(best)]
    assert len(best) == 2


class Scripted(Validation):
    """A validation with scores given by the test for each step."""

    def __init__(self, figures: Callable[[int], dict[str, float]]) -> None:
        self.figures = figures

    def measure(self, step: int, cancelled: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        record = {"kind": "valid", "step": step, "nll": 1.0, "ppl": math.e, "chrf": 1.0, "signature": "x"}
        return record | self.figures(step)


def scripted(data: DataFolder, run: Path, bleu: list[float], *overrides: str) -> tuple[RunFolder, Progress]:
    """A run with a checkpoint every two steps, whose validations find these BLEU scores."""
    trainer = Trainer(set_up_run(data, run, "train.checkpoint_every=2", "train.max_steps=20", *overrides))
    trainer.validation = Scripted(lambda step: {"bleu": bleu[step // 2 - 1]})
    return trainer.job.run, run_trainer(trainer)


def test_the_newest_and_the_best_checkpoints_are_kept(tmp_path: Path, tiny_data: DataFolder) -> None:
    bleu = [1.0, 9.0, 3.0, 8.0, 2.0, 2.0, 2.0, 1.0, 1.0, 0.0]
    run, progress = scripted(tiny_data, tmp_path / "run", bleu)
    assert run.steps() == [4, 8, 18, 20]
    assert progress.best == [(9.0, 4), (8.0, 8)]
    assert load_model(run.best).training["step"] == 4
    assert load_model(run.last).training["step"] == 20
    assert run.state_steps() == [20]
    assert not list(run.path.rglob(".*"))
    run, _ = scripted(tiny_data, tmp_path / "one", bleu, "train.keep_last=1", "train.keep_best=1")
    assert run.steps() == [4, 20]


@pytest.mark.parametrize("stop", [0, 2, 5, 8, 9])
def test_patience_ends_a_run_also_after_a_resume(tmp_path: Path, tiny_data: DataFolder, stop: int) -> None:
    bleu = [1.0, 5.0, 4.0, 5.0, 5.0, 9.0, 9.0, 9.0, 9.0, 9.0]
    if stop:
        scripted(tiny_data, tmp_path / "run", bleu, "train.patience=3", f"train.max_steps={stop}")
    run, progress = scripted(tiny_data, tmp_path / "run", bleu, "train.patience=3")
    # A run that ends between two validations, at step 5 or 9, validates once more at its end.
    assert progress.step == {0: 10, 2: 10, 5: 8, 8: 10, 9: 9}[stop]
    assert progress.stopped_early
    said = heard(tiny_data, run.path)
    assert "train.patience" in said
    if not stop:
        _, progress = scripted(tiny_data, run.path, bleu, "train.patience=4")
        assert progress.step == 20
        assert progress.best[0] == (9.0, 12)


def spoil(trainer: Trainer, step: int, value: float) -> None:
    """Sets the embeddings to this value during the validation after `step`."""
    measure, weight = trainer.validation.measure, trainer.learner.model.src_embedding.weight

    def spoilt(at: int, *how: Any) -> dict[str, Any] | None:
        kept = weight.data.clone()
        if at == step:
            weight.data.fill_(value)
        record = measure(at, *how)
        weight.data.copy_(kept)
        return record

    trainer.validation.measure = spoilt  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("settings", [(), ("train.valid_beam=2", "train.best_metric=nll", "train.ema=0.9")])
def test_training_survives_a_bad_validation(tmp_path: Path, tiny_data: DataFolder, settings: tuple[str, ...]) -> None:
    settings = ("train.max_steps=6", "train.checkpoint_every=3", *settings)
    whole = tiny_train(tiny_data, tmp_path / "whole", *settings)
    for value in (math.nan, math.inf, 1e30):
        trainer = Trainer(set_up_run(tiny_data, tmp_path / str(value), *settings))
        spoil(trainer, 3, value)
        progress, run = run_trainer(trainer), trainer.job.run
        assert run.last.read_bytes() == whole.last.read_bytes()
        record = next(line for line in lines(run) if (line["kind"], line["step"]) == ("valid", 3))
        assert (record["nll"], record["ppl"], record["bleu"], record["chrf"]) == (None, None, 0, 0)
        assert run.translations(3).read_bytes() == b"\n" * 4
        assert [step for _, step in progress.best] == [6], "the spoilt checkpoint is not ranked"


def test_weights_that_are_not_finite_never_replace_a_checkpoint(tmp_path: Path, tiny_data: DataFolder) -> None:
    def spoilt(step: int) -> None:
        trainer = Trainer(set_up_run(tiny_data, tmp_path / "run", "train.max_steps=20"))
        update = trainer.update

        def then_spoil(group: Any) -> None:
            update(group)
            if trainer.progress.step == step:
                trainer.learner.model.src_embedding.weight.data[7, 3] = math.nan

        trainer.update = then_spoil  # type: ignore[method-assign]
        run_trainer(trainer)

    with pytest.raises(VtransError, match=r"step 20 .*src_embedding\.weight.*step-00000010\.safetensors"):
        spoilt(20)
    run = tiny_train(tiny_data, tmp_path / "run", "train.max_steps=20")
    whole = tiny_train(tiny_data, tmp_path / "whole", "train.max_steps=20")
    assert run.last.read_bytes() == whole.last.read_bytes()


@pytest.mark.parametrize(
    ("code", "first", "metric", "tokenizer"), [("ja", "\u3042", "chrf", "char"), ("zh", "\u4e00", "bleu", "zh")]
)
def test_the_metric_fits_the_language(tmp_path: Path, code: str, first: str, metric: str, tokenizer: str) -> None:
    """Words become characters without blanks, for which BLEU with the tokenizer 13a is always 0."""
    words = sorted({word for _, tgt in tiny_pairs() for word in tgt.split()})
    characters = {word: chr(ord(first) + place) for place, word in enumerate(words)}
    pairs = [(src, "".join(characters[word] for word in tgt.split())) for src, tgt in tiny_pairs()]
    values = {"vocab_size": 320, "src_lang": ("en",), "tgt_lang": (code,)}
    made(options(tmp_path, pairs[12:], pairs[:12], **values))
    run = tiny_train(
        DataFolder.open(tmp_path / "data"), tmp_path / "run", "train.max_steps=60", "train.valid_sentences=0"
    )
    assert f'best_metric = "{metric}"' in run.recipe.read_text()
    records = [line for line in lines(run) if line["kind"] == "valid"]
    assert records[-1][metric] > 0
    assert f"tok:{tokenizer}|" in records[-1]["signature"]
    best = max(records, key=lambda record: record[metric])
    assert run.best.read_bytes() == run.step_file(best["step"]).read_bytes()
