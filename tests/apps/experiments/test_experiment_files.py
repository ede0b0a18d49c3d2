"""The text of an experiment: the files in its folder."""

from pathlib import Path

import pytest

from vtrans.apps.experiments.experiment_files import TextFiles
from vtrans.system.errors import InputError


def test_a_folder_needs_files_of_every_set_in_both_languages(tmp_path: Path) -> None:
    for name in ("train.en.gz", "train.de.xz", "train.lc.tok.en", "val.en", "val.de", "test_a.en", "test_a.de", "x"):
        (tmp_path / name).touch()
    text = TextFiles.of(tmp_path, "en", "de")
    assert (sorted(text.pairs), text.train, text.valid) == (["test_a", "train", "val"], ["train"], "val")
    assert text.pairs["train"] == (str(tmp_path / "train.en.gz"), str(tmp_path / "train.de.xz"))
    with pytest.raises(InputError, match=r"train\.en and train\.fr"):
        TextFiles.of(tmp_path, "en", "fr")
    with pytest.raises(InputError, match="nowhere"):
        TextFiles.of(tmp_path / "nowhere", "en", "de")
