"""recipes/experiment.py: downloads from archives made by the tests."""

import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from recipes import experiment
from recipes.experiment import download, fetched
from vtrans.system.console import Console
from vtrans.system.errors import VtransError

QUIET = Console(quiet=True, stream=io.StringIO())


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_a_download_is_checked_and_kept(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    source = tmp_path / "home" / "text.gz"
    source.write_bytes(b"abc")
    good = hashlib.sha256(b"abc").hexdigest()
    assert download(source.as_uri(), good, tmp_path / "here", QUIET).read_bytes() == b"abc"
    source.unlink()
    assert download(source.as_uri(), good, tmp_path / "here", QUIET).read_bytes() == b"abc"
    with pytest.raises(VtransError, match=f"{'0' * 64}.*{good}"):
        download(source.as_uri(), "0" * 64, tmp_path / "here", QUIET)


def test_tatoeba_holds_out_source_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(f"sentence {n // 2}", f"Satz {n}") for n in range(40)] + [("sentence 3", "Satz 6")]
    with zipfile.ZipFile(tmp_path / "de-en.txt.zip", "w") as zipped:
        zipped.writestr("README", "")
        zipped.writestr("Tatoeba.de-en.en", "".join(f"{e}\n" for e, _ in pairs))
        zipped.writestr("Tatoeba.de-en.de", "".join(f"{d}\n" for _, d in pairs))
    monkeypatch.setattr(experiment, "TATOEBA", tmp_path.as_uri() + "/{pair}.txt.zip")
    monkeypatch.setattr(experiment, "HELD_OUT", 3)
    folder = fetched(experiment.EXPERIMENTS["tatoeba"], tmp_path / "text", "en", "de", QUIET)
    sides = {name: (lines(folder / f"{name}.en"), lines(folder / f"{name}.de")) for name in ("train", "valid", "test")}
    assert [len(sides[name][0]) for name in ("train", "valid", "test")] == [28, 3, 3]
    seen: set[str] = set()
    for sources, targets in sides.values():
        assert set(zip(sources, targets, strict=True)) <= set(pairs)
        assert not seen & set(sources)
        seen |= set(sources)
    assert len(seen) == 20


def test_every_experiment_has_a_recipe_and_a_make_target() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    for name, chosen in experiment.EXPERIMENTS.items():
        assert (Path(__file__).parents[2] / "recipes" / f"{chosen.recipe}.toml").is_file()
        assert f" {name}" in makefile
