"""Glossaries that a spreadsheet has written."""

from pathlib import Path

import pytest

from vtrans.system.errors import FileError
from vtrans.translate.wording.glossary import read_glossary


@pytest.mark.parametrize("text", ['big dog,"Hund, gross"\r\n', '# a,b\nbig dog,"Hund, gross"', "big dog;Hund"])
def test_cells_are_terms_and_translations(tmp_path: Path, text: str) -> None:
    path = tmp_path / "terms.CSV"
    path.write_bytes(text.encode())
    assert read_glossary(path).pairs == (("big dog", ("Hund, gross" if "gross" in text else "Hund",)),)


@pytest.mark.parametrize("text", ["a,b,c", "a", ",b", "a\tb"])
def test_other_lines_are_refused_with_their_number(tmp_path: Path, text: str) -> None:
    path = tmp_path / "terms.csv"
    path.write_text(f"x,y\n{text}\n", encoding="utf-8")
    with pytest.raises(FileError, match="line 2"):
        read_glossary(path)
