"""What two sides have in common, by script: the definitions by hand, prepare-bpe's figures, and other alphabets."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from conftest import TRAIN_PAIRS, make_data, write_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cli import Done, run_cli  # noqa: F401 - a fixture

from recipes.sharing import transliterate
from vtrans.analysis.overlap import Overlap, Side, _Text, overlap_of_data, overlap_of_files, vocabularies_of
from vtrans.config import PrepareOptions
from vtrans.console import Console
from vtrans.data.store import DataFolder
from vtrans.data.vocabulary import OVERLAP_THRESHOLDS, overlap
from vtrans.data.writing_systems import SCRIPTS, ScriptRow, overlap_by_script, script_of
from vtrans.errors import FileError, InputError

QUIET = Console(quiet=True)
PIECES = ("▁the", "er", "дом", "▁дом", "犬", "12", "½", ".", "▁", "▁-", "aд", "ひ", "한", "́", "ー", "𐌰")


@pytest.mark.parametrize(
    ("piece", "script"),
    [
        ("▁the", "Latin"),
        ("é", "Latin"),
        ("ª", "Latin"),
        ("дом", "Cyrillic"),
        ("▁λόγος", "Greek"),
        ("犬猫", "Han"),
        ("犬ひ", "mixed"),
        ("Aд", "mixed"),
        ("한국", "Hangul"),
        ("नमस्ते", "Devanagari"),
        ("ᐃᓄᒃ", "Canadian Aboriginal"),
        ("𐌰𐌱", "other script"),
        ("a𐌰", "mixed"),
        ("▁12", "digits"),
        ("½", "digits"),
        ("٣", "digits"),
        ("2.", "digits"),
        ("d2", "Latin"),
        ("▁-", "punctuation and symbols"),
        ("€", "punctuation and symbols"),
        ("\u0301", "punctuation and symbols"),
        ("▁", "word start"),
        ("▁▁", "word start"),
    ],
)
def test_the_script_of_a_subword(piece: str, script: str) -> None:
    assert script_of(piece) == script


def test_a_letter_of_each_script_is_known() -> None:
    assert {script_of(letter) for letter in "aαбաაאابסܐއߊአⴰअবਅઅଅதతಕകසกກកကཀᠠꦲ犬あアㄅ한ꀀᎠᐃ"} == {
        script.replace("_", " ") for script in SCRIPTS
    }


def test_the_overlap_by_script_by_hand() -> None:
    src = {"▁a": 10, "b": 4, "c": 6, "1": 7, ".": 5}
    tgt = {"▁a": 5, "b": 9, "д": 8, ".": 2}
    assert overlap_by_script(src, tgt, [5]) == [
        ScriptRow("Latin", 5, 2, 2, 1, 3, 1 / 3, 20, 14, 0.5, 5 / 14),
        ScriptRow("Cyrillic", 5, 0, 1, 0, 1, 0.0, 0, 8, 0.0, 0.0),
        ScriptRow("digits", 5, 1, 0, 0, 1, 0.0, 7, 0, 0.0, 0.0),
        ScriptRow("punctuation and symbols", 5, 1, 0, 0, 1, 0.0, 5, 2, 0.0, 0.0),
    ]
    assert overlap_by_script({}, {}, OVERLAP_THRESHOLDS) == []


@settings(deadline=None)
@given(*[st.dictionaries(st.sampled_from(PIECES), st.integers(1, 30))] * 2)
def test_the_scripts_add_up_to_the_whole(src: Mapping[str, int], tgt: Mapping[str, int]) -> None:
    rows = overlap_by_script(src, tgt, OVERLAP_THRESHOLDS)
    for whole in overlap(src, tgt):
        parts = [row for row in rows if row.threshold == whole.threshold]
        assert sum(row.both for row in parts) == whole.both
        assert sum(row.either for row in parts) == whole.either
        running = sum(row.src_tokens + row.tgt_tokens for row in parts)
        assert running == sum(src.values()) + sum(tgt.values())
        shared = sum(row.src_shared * row.src_tokens + row.tgt_shared * row.tgt_tokens for row in parts)
        assert shared == pytest.approx(whole.token_share * running)


def files(folder: Path) -> tuple[Path, Path]:
    return folder / "train.en", folder / "train.de"


@pytest.mark.parametrize("separate", [False, True])
def test_the_figures_are_those_of_prepare_bpe(tmp_path: Path, separate: bool) -> None:
    data = make_data(tmp_path, separate=separate)
    assert data.report["train"]["kept"] == len(TRAIN_PAIRS), "nothing was dropped"
    expected = [data.report["overlap"][key] for key in ("rows", "scripts")]
    same = [overlap_of_data(data), overlap_of_files(*files(tmp_path), QUIET, given=vocabularies_of(data.path, None))]
    if not separate:
        same += [
            overlap_of_files(*files(tmp_path), QUIET, vocab_size=320),
            overlap_of_files(*files(tmp_path), QUIET, given=vocabularies_of(None, data.path / "vocab.model")),
        ]
    for found in same:
        report = found.as_dict()
        assert [report["rows"], report["scripts"]] == expected
        assert [side.tokens for side in (found.src, found.tgt)] == list(data.report["train"]["tokens"].values())
    lengths = [sum(map(len, side)) for side in zip(*TRAIN_PAIRS, strict=True)]
    assert [same[1].src.characters, same[1].tgt.characters] == lengths


def test_another_alphabet_shares_no_letters_and_nothing_else_changes(tmp_path: Path) -> None:
    src, tgt = write_pairs(tmp_path, "train", TRAIN_PAIRS)
    cyrillic = tmp_path / "train.cyr.gz"
    cyrillic.write_bytes(gzip.compress(transliterate.transliterated(tgt.read_text("utf-8")).encode()))
    latin, found = (overlap_of_files(src, path, QUIET, vocab_size=320) for path in (tgt, cyrillic))
    scripts = {row["script"]: row for row in found.as_dict()["scripts"] if row["threshold"] == 1}
    assert scripts["Latin"]["src"] > 0
    assert scripts["Cyrillic"]["tgt"] > 0
    assert {scripts[name][key] for name in ("Latin", "Cyrillic") for key in ("both", "share")} == {0}
    assert scripts["punctuation and symbols"]["both"] == 1
    both = [report.as_dict()["rows"][0]["both"] for report in (latin, found)]
    assert both[0] > 10 * both[1]


def test_files_need_not_be_parallel_and_one_without_text_is_refused(tmp_path: Path) -> None:
    src, tgt = write_pairs(tmp_path, "train", TRAIN_PAIRS)
    tgt.write_bytes(b"\n".join(tgt.read_bytes().split(b"\n")[:50]))
    found = overlap_of_files(src, tgt, QUIET, vocab_size=300)
    assert (found.src.lines, found.tgt.lines) == (len(TRAIN_PAIRS), 50)
    tgt.write_bytes(b"\n \n")
    with pytest.raises(InputError, match=r"train\.de holds no text to count"):
        overlap_of_files(src, tgt, QUIET)


def test_long_files_are_sampled_the_same_at_each_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    src, tgt = write_pairs(tmp_path, "train", TRAIN_PAIRS)
    monkeypatch.setattr(PrepareOptions, "sample", 20)
    text = _Text((src, tgt), "error", QUIET)
    drawn = list(text)
    assert list(text) == drawn
    assert len(drawn) == 40
    sides = [[pair[side] for pair in TRAIN_PAIRS] for side in (0, 1)]
    for side, part in zip(sides, (drawn[:20], drawn[20:]), strict=True):
        assert set(part) <= set(side)
        assert part != side[:20]


def test_a_pipe_is_not_learnt_from(tmp_path: Path) -> None:
    src, _ = write_pairs(tmp_path, "train", TRAIN_PAIRS)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="can be read only once"):
        overlap_of_files(src, tmp_path / "pipe", QUIET)


def test_the_most_shared_are_often_on_both_sides() -> None:
    counts = ({".": 10, "a": 80, "b": 10}, {".": 100, "a": 10, "c": 890})
    src, tgt = (Side("", 1, 1, sum(side.values()), side) for side in counts)
    assert Overlap("", src, tgt).most_shared(5) == [".", "a"], "a tenth of both, before eighty and one percent"
    assert Overlap("", src, tgt).most_shared(1) == ["."]


def test_transliterating_loses_nothing() -> None:
    text = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich; ÇÀ œuvre ẞ Ø 12.\r\n"
    onto = transliterate.transliterated(text)
    assert transliterate.restored(onto) == text
    assert not {script_of(letter) for letter in onto if letter.isalpha()} - {"Cyrillic"}
    assert len(onto.split()) == len(text.split())


def test_the_transliteration_works_on_streams(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for arguments, given_, expected in (([], "aß\n", "аь\n"), (["--back"], "аь", "aß")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given_.encode())))
        assert transliterate.main(arguments) == 0
        assert capfdbinary.readouterr().out.decode() == expected


def test_the_command(tiny_data: DataFolder, run_cli: Callable[..., Done]) -> None:  # noqa: F811 - the fixture
    src, tgt = files(tiny_data.path.parent)
    done = run_cli("overlap", src, tgt, "--vocab-size", "320")
    assert done.code == 0
    assert "learning a joint vocabulary from 168 and 168 lines" in done.err
    out = done.out.decode()
    assert "by script, N = 5" in out
    assert "both: subword types seen at least N times" in out
    assert "\x1b" not in out
    done = run_cli("overlap", "--data", tiny_data.path, "--json", "--quiet")
    assert (done.code, done.err) == (0, "")
    report = json.loads(done.out)
    assert report["rows"] == tiny_data.report["overlap"]["rows"]
    assert report["sides"]["src"]["lines"] == len(TRAIN_PAIRS)
    assert report["vocabulary"].startswith("320 pieces, joint, of ")


def test_prepare_bpe_reports_it_by_script(tmp_path: Path, run_cli: Callable[..., Done]) -> None:  # noqa: F811
    src, tgt = write_pairs(tmp_path, "train", TRAIN_PAIRS)
    done = run_cli(
        "prepare-bpe", "--src", src, "--tgt", tgt, "--out", tmp_path / "data", "--vocab-size", "320", "--json"
    )
    assert "by script, N = 5" in done.err
    assert "script: Unicode's Script property" in done.err
    rows = json.loads(done.out)["overlap"]["scripts"]
    assert {row["script"] for row in rows} == {"Latin", "punctuation and symbols", "word start"}
    assert set(rows[0]) == {field.name for field in dataclasses.fields(ScriptRow)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give SRC and TGT, or --data FOLDER"),
        (["{src}"], "give SRC and TGT, or --data FOLDER"),
        (["--vocab", "{src}"], "give SRC and TGT, or --data FOLDER"),
        (["{src}", "{tgt}", "--data", "{data}", "--vocab", "x"], "leave out --vocab"),
        (["{src}", "{tgt}", "--data", "{data}", "--vocab-size", "90"], "leave it out with --data"),
        (["{src}", "{tgt}", "--vocab", "{src}", "--vocab-size", "90"], "leave it out with --vocab"),
        (["{src}", "{tgt}", "--vocab", "{src}"], "train.en is no SentencePiece model"),
        (["{src}", "missing"], "there is no file missing"),
        (["{src}", "{tgt}", "--vocab-size", "9000"], "--vocab-size 9000 is too large for"),
        (["{src}", "{tgt}", "--vocab-size", "1"], "--vocab-size must be from 5"),
        (["{src}", "{tgt}", "--on-bad-utf8", "no"], "--on-bad-utf8 must be"),
        (["--data", "missing"], "there is no data folder missing"),
    ],
)
def test_what_cant_be_compared_is_refused(
    words: list[str],
    message: str,
    tiny_data: DataFolder,
    run_cli: Callable[..., Done],  # noqa: F811 - the fixture
) -> None:
    src, tgt = files(tiny_data.path.parent)
    done = run_cli("overlap", *(word.format(src=src, tgt=tgt, data=tiny_data.path) for word in words))
    assert (done.code, done.out) == (2, b"")
    assert message in done.err
