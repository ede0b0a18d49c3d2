"""The overlap of two sides: a language in other letters, and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from cli_runner import Done
from conftest import TRAIN_PAIRS, write_pairs

from recipes.sharing import transliterate
from vtrans.console import Console
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.overlap import OVERLAP_DEFINITION
from vtrans.data.preparation.prepare import prepare
from vtrans.data.preparation.writing_systems import script_of
from vtrans.data.store import DataFolder


def test_transliteration_leaves_little_in_common(tmp_path: Path, tiny_data: DataFolder) -> None:
    src, tgt = write_pairs(tmp_path, "train", TRAIN_PAIRS)
    tgt.write_text(transliterate.transliterated(tgt.read_text("utf-8")), "utf-8")
    options = PrepareOptions((src,), (tgt,), vocab_size=320, out=tmp_path / "data")
    both = [
        report["overlap"]["rows"][0]["both"] for report in (tiny_data.report, prepare(options, Console(quiet=True)))
    ]
    assert both[0] > 10 * both[1]


def test_transliteration_replaces_each_letter_by_another() -> None:
    text = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich; ÇÀ œuvre ẞ Ø 12.\r\n"
    onto = transliterate.transliterated(text)
    assert not {script_of(letter) for letter in onto if letter.isalpha()} - {"Cyrillic"}
    assert onto.split()[-1] == "12."
    assert len(onto.split()) == len(text.split())
    assert len(set(transliterate.CYRILLIC)) == len(transliterate.LATIN)


def test_the_command_prints_what_prepare_bpe_has_counted(tiny_data: DataFolder, run_cli: Callable[..., Done]) -> None:
    done = run_cli("overlap", tiny_data.path)
    assert (done.code, done.err) == (0, "")
    assert OVERLAP_DEFINITION in done.out.decode()
    assert json.loads(run_cli("overlap", tiny_data.path, "--json").out) == tiny_data.report["overlap"]
    done = run_cli("overlap", "missing")
    assert (done.code, done.out) == (2, b"")
    assert "missing" in done.err
