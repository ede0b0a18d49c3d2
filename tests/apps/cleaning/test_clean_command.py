"""`vtrans clean` on the command line."""

import json
import math
from pathlib import Path

from cli_runner import Run
from conftest import TRAIN_PAIRS, tiny_train, write_pairs

from vtrans.apps.cleaning.commands.clean import scorer_of
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.prepare import prepare
from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.translate.loading import load


def test_a_text_is_cleaned_and_can_be_prepared(run_cli: Run, tmp_path: Path) -> None:
    bad = [("A dog runs.", "A dog runs."), ("", "Hund"), ("A dog runs in 2001.", "Ein Hund läuft 2010.")]
    src, tgt = write_pairs(tmp_path, "train", [*TRAIN_PAIRS, *bad])
    folder = tmp_path / "clean"
    done = run_cli("clean", "--src", src, "--tgt", tgt, "--out", folder, "--without", "language")
    assert (done.code, done.out) == (0, b"")
    assert "copy" in done.err
    words = "--src", folder / "train.en", "--tgt", folder / "train.de", "--out", tmp_path / "data"
    assert run_cli("prepare-bpe", *words).code == 0
    data = json.loads((tmp_path / "data" / "data.json").read_text())
    assert data["train"]["read"] == len(TRAIN_PAIRS)
    done = run_cli("clean", "--src", src, "--tgt", tgt, "--out", folder, "--force", "--json", "--quiet")
    assert json.loads(done.out) == json.loads((folder / "clean.json").read_text(encoding="utf-8"))


def test_a_multilingual_model_scores_in_the_languages_of_the_text(run_cli: Run, tmp_path: Path) -> None:
    english, german = write_pairs(tmp_path, "train", TRAIN_PAIRS)
    tags, sides = (">>de<<", ">>en<<"), ((english, german), (german, english))
    prepare(PrepareOptions(*sides, tags=tags, vocab_size=320, out=tmp_path / "both"), Console(quiet=True))
    both = tiny_train(DataFolder.open(tmp_path / "both"), tmp_path / "run", "train.max_steps=1").last
    models = ("--forward-model", both, "--backward-model", both)
    done = run_cli("clean", "--src", english, "--tgt", german, *models, "--out", tmp_path / "clean")
    assert done.code == 0, done.err
    text = write_pairs(tmp_path, "text", TRAIN_PAIRS)[0].rename(tmp_path / "unnamed")
    done = run_cli("clean", "--src", text, "--tgt", german, *models, "--out", tmp_path / "other")
    assert done.code == 2
    assert "--src-lang" in done.err


def test_the_score_of_a_pair_is_its_dual_conditional_cross_entropy(tiny_run: RunFolder) -> None:
    """|H(tgt|src) - H(src|tgt)| + the mean of both, per subword (Junczys-Dowmunt 2018, equation 1)."""
    pairs = [*TRAIN_PAIRS[:3], ("dog " * 5000, "Hund " * 5000)]
    scores = scorer_of(tiny_run.path, tiny_run.path, None, Console(quiet=True))(pairs)
    model = load(tiny_run.path, console=Console(quiet=True))
    for score, (src, tgt) in zip(scores, pairs[:3], strict=False):
        forward, backward = (
            next(-t.logprob / len(t.tokens) for t in model.logprob(*some)) for some in (([src], [tgt]), ([tgt], [src]))
        )
        assert math.isclose(score, abs(forward - backward) + (forward + backward) / 2, rel_tol=1e-4)
    assert len(scores) == 4
    assert scorer_of(tiny_run.path, tiny_run.path, None, Console(quiet=True))([]) == []
