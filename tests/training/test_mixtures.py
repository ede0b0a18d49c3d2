"""BPE-dropout and weighted corpora: the pairs of an epoch."""

from pathlib import Path

import pytest
from conftest import EVERY_STEP, TINY, make_data, tiny_train
from corpora import VALID, made, two_languages
from runs import heard, lines

from vtrans.data.epochs import Mixture, plan_epoch, tempered
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.score.metrics import corpus_scores
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import InputError, RecipeError
from vtrans.training.average import average
from vtrans.translate.loading import load


def test_corpus_weights_decide_the_pairs_of_an_epoch(tmp_path: Path, two_corpora: DataFolder) -> None:
    settings = (*EVERY_STEP, "train.max_steps=24", "train.corpus_weights=3,0.25")
    run = tiny_train(two_corpora, tmp_path / "run", *settings)
    sentences = 3 * 40 + round((len(two_corpora.train) - 40) * 0.25)
    said = heard(two_corpora, tmp_path / "dry", *TINY, *settings, dry_run=True)
    assert f"an epoch: {sentences:,} pairs" in said
    store, mixture = two_corpora.train, Mixture(two_corpora.corpora, (3, 0.25))
    plan = plan_epoch(store.src_lengths, store.tgt_lengths, 240, 1, 1, mixture.pairs(1))
    assert len(plan) != len(plan_epoch(store.src_lengths, store.tgt_lengths, 240, 1, 1))
    first = [line for line in lines(run) if line["kind"] == "train" and line["epoch"] == 1]
    assert sum(line["tgt_tokens"] for line in first) == sum(int(store.tgt_lengths[p].sum()) + len(p) for p in plan)
    assert len(first) == len(plan) < 24
    with pytest.raises(InputError, match=r"train\.corpus_weights"):
        tiny_train(two_corpora, tmp_path / "run", *settings, "train.corpus_weights=3,1")


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
    refused(two_corpora, "0.001,0", RecipeError, "selects no pairs")


@pytest.mark.parametrize("temperature", [1.5, 5, 1e6])
def test_a_temperature_shares_an_epoch_by_roots_of_the_sizes(temperature: float) -> None:
    sizes = (900, 100, 0, 10)
    weights = tempered(sizes, temperature)
    shares = [weight * n / sum(sizes) for weight, n in zip(weights, sizes, strict=True)]
    assert sum(shares) == pytest.approx(1)
    assert shares[0] / shares[1] == pytest.approx(9 ** (1 / temperature))
    assert shares[1] / shares[3] == pytest.approx(10 ** (1 / temperature))
    assert len(Mixture(sizes, weights)) == pytest.approx(sum(sizes), abs=len(sizes))
    assert tempered(sizes, 1) == ()


def test_several_languages_train_with_a_temperature(tmp_path: Path) -> None:
    made(two_languages(tmp_path, vocab_size=320))
    data = DataFolder.open(tmp_path / "data")
    settings = (
        *EVERY_STEP, "train.max_steps=24", "train.valid_sentences=6", "train.corpus_temperature=5",
        "train.bpe_dropout=0.2",
    )  # fmt: skip
    whole = tiny_train(data, tmp_path / "whole", *settings)
    weights = tempered(data.corpora, 5)
    assert weights[1] > 1.5 > 1 > weights[0]
    said = heard(data, tmp_path / "dry", *TINY, *settings, dry_run=True)
    assert f"an epoch: {len(Mixture(data.corpora, weights)):,} pairs" in said
    with pytest.raises(InputError, match=r"train\.corpus_temperature"):
        tiny_train(data, whole.path, *settings, "train.corpus_temperature=1")
    _check_validation(data, whole)
    average([whole.step_file(21), whole.step_file(24)], whole.averaged, 24)
    for file in (whole.last, whole.averaged):
        loaded = load_model(file)
        assert (loaded.tags, loaded.languages) == (data.tags, data.languages)
    text = [src for src, _ in VALID]
    assert list(load(whole.path).translate(text, to="de")) != list(load(whole.path).translate(text, to="fr"))


def _check_validation(data: DataFolder, run: RunFolder) -> None:
    """Asserts that half of the validated pairs belong to each language, and that each language has its own scores."""
    (record,) = [line for line in lines(run) if line["kind"] == "valid" and line["step"] == 24]
    files = (run.valid_src, run.valid_ref, run.translations(24))
    sources, references, found = (file.read_text(encoding="utf-8").split("\n")[:-1] for file in files)
    assert sources == [src for src, _ in VALID[:3]] * 2
    assert references == [tgt for _, tgt in VALID[:3]] * 2
    assert record["chrf"] == corpus_scores(found, references)["chrf"]
    for place, code in enumerate(data.tags):
        own = slice(3 * place, 3 * place + 3)
        assert record[f"bleu_{code}"] >= 0
        assert record[f"chrf_{code}"] == corpus_scores(found[own], references[own])["chrf"]


def test_bpe_dropout_refuses_a_unigram_vocabulary(tmp_path: Path) -> None:
    data = make_data(tmp_path, subword="unigram", vocab_size=None)
    with pytest.raises(RecipeError, match=r"train\.bpe_dropout = 0\.1 .* a unigram vocabulary"):
        tiny_train(data, tmp_path / "run", "train.bpe_dropout=0.1")
    assert not (tmp_path / "run").exists()
