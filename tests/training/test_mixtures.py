"""BPE-dropout and weighted corpora: what an epoch consists of."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from conftest import EVERY_STEP, TINY, make_data, tiny_train
from runs import (
    heard,
    interrupted,
    lines,
    run_trainer,
    same,
    set_up_run,
)

from vtrans.data.batches import Mixture, plan_epoch
from vtrans.data.store import DataFolder
from vtrans.errors import InputError, RecipeError
from vtrans.training.feed import Feed
from vtrans.training.trainer import Trainer


def test_bpe_dropout_cuts_pairs_into_more_subwords(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = tiny_train(tiny_data, tmp_path / "run", "train.bpe_dropout=0.2", "train.log_every=1")
    store = tiny_data.train
    first = [line for line in lines(run) if line["kind"] == "train" and line["epoch"] == 1]
    src_tokens, tgt_tokens = (sum(line[key] for line in first) for key in ("src_tokens", "tgt_tokens"))
    assert 1.1 * int(store.src_lengths.sum()) < src_tokens < 2 * int(store.src_lengths.sum())
    assert 1.05 * int(store.tgt_lengths.sum()) < tgt_tokens - len(store) < 2 * int(store.tgt_lengths.sum())
    assert max(line["src_tokens"] for line in first) < 240  # the drawn segmentations fit the budget


def test_bpe_dropout_stays_within_learned_positions(tmp_path: Path, tiny_data: DataFolder) -> None:
    # A decoder-only model has half of its positions for either side, which dropped merges may not outgrow.
    store = tiny_data.train
    longest = max(int(store.src_lengths.max()), int(store.tgt_lengths.max())) + 1
    settings = ("model.architecture=decoder-only", "model.encoder_layers=0", "model.positions=learned")
    tiny_train(
        tiny_data,
        tmp_path / "run",
        *(*settings, f"model.max_positions={2 * longest}", "train.bpe_dropout=0.9", "train.max_steps=20"),
    )


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_corpus_weights_decide_what_an_epoch_has_and_resume_exactly(
    tmp_path: Path, two_corpora: DataFolder, dropout: float
) -> None:
    settings = (*EVERY_STEP, "train.max_steps=24", "train.corpus_weights=3,0.25", f"train.bpe_dropout={dropout}")
    whole = tiny_train(two_corpora, tmp_path / "whole", *settings)
    sentences = 3 * 40 + round((len(two_corpora.train) - 40) * 0.25)
    said = heard(two_corpora, tmp_path / "dry", *TINY, *settings, dry_run=True)
    assert f"an epoch: {sentences:,} pairs" in said
    if not dropout:
        batches = len(plan_epoch(two_corpora.train.src_lengths, two_corpora.train.tgt_lengths, 240, 1, 1))
        mixture = Mixture(two_corpora.corpora, (3, 0.25))
        numbers = mixture.pairs(1)
        store = two_corpora.train
        plan = plan_epoch(store.src_lengths, store.tgt_lengths, 240, 1, 1, numbers)
        assert len(plan) != batches
        first = [line for line in lines(whole) if line["kind"] == "train" and line["epoch"] == 1]
        tokens = sum(int(store.tgt_lengths[p].sum()) + len(p) for p in plan)
        assert sum(line["tgt_tokens"] for line in first) == tokens
        assert len(first) == len(plan) < 24
    for step in (3, 13, 22):
        interrupted(two_corpora, tmp_path / "run", step, *settings)
    same(tiny_train(two_corpora, tmp_path / "run", *settings), whole)
    with pytest.raises(InputError, match=r"train\.corpus_weights"):
        tiny_train(two_corpora, tmp_path / "run", *settings, "train.corpus_weights=3,1")


def test_worker_processes_of_bpe_dropout_change_nothing_and_end_with_the_run(
    tmp_path: Path, tiny_data: DataFolder
) -> None:
    settings = (*EVERY_STEP, "train.bpe_dropout=0.2", "train.max_steps=9")
    whole = tiny_train(tiny_data, tmp_path / "whole", *settings)
    trainer = Trainer(set_up_run(tiny_data, tmp_path / "run", *settings))
    job = trainer.job
    trainer.feed = Feed(job.data, job.recipe, job.ranks, job.device, workers=2)
    run_trainer(trainer)
    same(job.run, whole)
    assert not multiprocessing.active_children()


def test_corpus_weights_that_do_not_fit_the_data_are_refused(tmp_path: Path, two_corpora: DataFolder) -> None:
    def refused(data: DataFolder, weights: str, error: type[InputError], message: str) -> None:
        with pytest.raises(error, match=message):
            tiny_train(data, tmp_path / "run", f"train.corpus_weights={weights}")
        assert not (tmp_path / "run").exists()

    for weights in ("2", "1, 2, 3"):
        refused(
            two_corpora, weights, RecipeError,
            rf"corpus_weights .*a\.en 40 pairs, b\.en \d+ pairs.*got \[{weights}\]",
        )  # fmt: skip
    refused(two_corpora, "0.001,0", RecipeError, "leaves no pair")
    # An early version of vtrans did not record the corpora.
    old = DataFolder.open(two_corpora.path)
    old.corpora = (len(old.train),)
    refused(old, "2,1", InputError, "corpus_weights")


def test_weights_of_one_train_like_no_weights(tmp_path: Path, two_corpora: DataFolder) -> None:
    """The pairs are those of a run without weights, and so are the batches and their order."""
    plain, weighed = (
        tiny_train(two_corpora, tmp_path / name, *EVERY_STEP, *extra)
        for name, extra in (("plain", ()), ("weighed", ("train.corpus_weights=1,1",)))
    )
    assert plain.last.read_bytes() == weighed.last.read_bytes()


def test_bpe_dropout_refuses_a_unigram_vocabulary(tmp_path: Path) -> None:
    data = make_data(tmp_path, subword="unigram", vocab_size=None)
    with pytest.raises(RecipeError, match=r"train\.bpe_dropout = 0\.1 .* a unigram vocabulary"):
        tiny_train(data, tmp_path / "run", "train.bpe_dropout=0.1")
    assert not (tmp_path / "run").exists()
