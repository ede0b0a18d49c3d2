"""COMET: the inputs of its package, and the use of its results. The package here is a fake with the same interface
(unbabel-comet 2.2.7); the real one needs older versions of numpy and transformers than the tests do."""

import json
import sys
from pathlib import Path

import pytest
from cli_runner import Run

from vtrans.score.comet import comet_score
from vtrans.system.errors import FileError, InputError

# The score of a line is 0.5 if its translation equals the reference, 0.25 if it equals the source, else 0.
FAKE = """
from pathlib import Path
from types import SimpleNamespace

__version__ = "2.2.7"


class Model:
    def __init__(self, references):
        self.references = references

    def requires_references(self):
        return self.references

    def predict(self, samples, batch_size=16, gpus=1, num_workers=None, progress_bar=True):
        assert not progress_bar
        assert all(set(sample) == {"src", "mt"} | ({"ref"} if self.references else set()) for sample in samples)
        scores = [0.5 * (s["mt"] == s.get("ref")) + 0.25 * (s["mt"] == s["src"]) for s in samples]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))


def load_from_checkpoint(checkpoint_path, reload_hparams=False, strict=False, local_files_only=False):
    assert local_files_only
    text = Path(checkpoint_path).read_text()
    if text == "lost":
        raise OSError("we could not find xlm-roberta-large")
    return Model(text == "with references")
"""
SRC, HYP, REF = ["a", "b", "c", "d"], ["a", "B", "x", "D"], ["A", "B", "C", "D"]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that needs references; the fake package can be imported."""
    (tmp_path / "site" / "comet").mkdir(parents=True)
    (tmp_path / "site" / "comet" / "__init__.py").write_text(FAKE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "comet", raising=False)
    folder = tmp_path / "da22"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "hparams.yaml").write_text("")
    (folder / "checkpoints" / "model.ckpt").write_text("with references")
    return folder


@pytest.mark.parametrize("given", [".", "checkpoints/model.ckpt"])
def test_the_score_equals_the_package(model: Path, given: str) -> None:
    score = comet_score(model / given, SRC, HYP, [REF])
    assert (score.name, score.value) == ("COMET", (0.25 + 0.5 + 0.5) / 4)
    assert score.signature == "model:da22|nrefs:1|version:2.2.7"
    assert score.text == f"COMET|{score.signature} = 0.3125"


def test_texts_that_cannot_be_scored_are_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"\b4\b.*source.*\b3\b"):
        comet_score(model, SRC[:3], HYP, [REF])
    with pytest.raises(InputError, match=r"`comet` .*one reference.* 2"):
        comet_score(model, SRC, HYP, [REF, REF])
    (model / "checkpoints" / "model.ckpt").write_text("lost")
    with pytest.raises(FileError, match="xlm-roberta-large"):
        comet_score(model, SRC, HYP, [REF])
    (model / "hparams.yaml").unlink()
    with pytest.raises(FileError, match=r"hparams\.yaml"):
        comet_score(model, SRC, HYP, [REF])
    with pytest.raises(FileError, match="nowhere"):
        comet_score(Path("nowhere"), SRC, HYP, [REF])


def test_it_follows_other_metrics(model: Path, tmp_path: Path, run_cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in {"src": SRC, "hyp": HYP, "ref": REF}.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines))
    words = ("score", "ref", "--hyp", "hyp", "--comet", model)
    done = run_cli(*words, "--src", "src")
    assert [line.partition("|")[0] for line in done.out.decode().split("\n")] == [
        "BLEU",
        "chrF2",
        "numbers",
        "COMET",
        "",
    ], done.err
    *_, score = json.loads(run_cli(*words, "--src", "src", "--metric", "ter", "--json").out)[1:]
    assert (score["name"], score["value"]) == ("COMET", 0.3125)
    for more in ([], ["--src", "src", "--baseline", "hyp"]):
        refused = run_cli(*words, *more)
        assert (refused.code, refused.out) == (2, b"")
        assert ("--comet" if more else "--src") in refused.err
