"""One sentence for every fault of a command, exit code 2, and no file is changed."""

import hashlib
import os
import re
import shlex
import shutil
import threading
from pathlib import Path

import pytest
import torch
from cli_runner import SENTENCE, Run
from safetensors.torch import save_file

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import InputError


def test_pipes_of_unequal_length_are_an_error_at_their_end(tiny_run: RunFolder, tmp_path: Path, run_cli: Run) -> None:
    pipe, target = tmp_path / "pipe", tmp_path / "two.de"
    os.mkfifo(pipe)
    target.write_bytes(b"Hund\nKater\n")
    writer = threading.Thread(target=pipe.write_bytes, args=(SENTENCE,))
    writer.start()
    done = run_cli("logprob", pipe, target, "--model", tiny_run.path, "--output", tmp_path / "out")
    writer.join()
    assert done.code == 2
    assert re.search(r"\b1\b.*\b2\b", done.err)
    assert not (tmp_path / "out").exists()


def test_an_error_leaves_the_old_output_unchanged(tiny_run: RunFolder, tmp_path: Path, run_cli: Run) -> None:
    target = tmp_path / "out.txt"
    target.write_bytes(b"old")
    done = run_cli("translate", "--model", tiny_run.path, "--output", target, stdin=SENTENCE + b"bad \xff\n")
    assert done.code == 2
    assert re.search(rf"error: stdin: line 2 .*0xff .*offset {len(SENTENCE) + 4}\b", done.err)
    assert target.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["out.txt"]


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, tiny_data: DataFolder, tiny_data_separate: DataFolder, tiny_run: RunFolder
) -> Path:
    """A folder with valid files, and invalid ones of every kind."""
    place = tmp_path_factory.mktemp("place")
    for name in ("train.en", "train.de", "valid.en", "valid.de"):
        shutil.copy(tiny_data.path.parent / name, place / name)
    shutil.copytree(tiny_data.path, place / "data")
    shutil.copytree(tiny_data_separate.path, place / "separate")
    shutil.copytree(tiny_run.path, place / "run")
    shutil.copy(tiny_run.last, place / "model.safetensors")
    save_file({"weight": torch.zeros(3)}, place / "foreign.safetensors")
    (place / "empty").write_bytes(b"")
    (place / "binary").write_bytes(b"\x00\x01\x02\n" * 180)
    (place / "latin1").write_bytes("ein schöner Hund\n".encode("latin-1"))
    (place / "short.de").write_bytes(b"Der Hund.\nDer Kater.\n")
    (place / "bad.toml").write_bytes(b"[model]\nd_modell = 3\n")
    (place / "folder").mkdir()
    (place / "folder" / "note").write_bytes(b"mine")
    (place / "folder" / "linked").symlink_to(place / "run" / "best.safetensors")
    return place


def tree(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file in a folder."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "folder"
        for file in folder.rglob("*")
    }


PREPARE = "prepare-bpe --src train.en --tgt train.de --out new"


TRANSLATE = "translate --model run"
CHUNKS = f"{TRANSLATE} --chunk-lines 2"
CLEAN = "clean --src train.en --tgt train.de --out new"


# Each faulty command with a pattern for what its error must name: the option, file or key, and the value.
FAULTS = [
    ("prepare-bpe", "--src"),
    ("prepare-bpe --src nowhere.en --tgt train.de --out new", r"nowhere\.en"),
    ("prepare-bpe --src empty --tgt train.de --out new", "empty"),
    ("prepare-bpe --src binary --tgt train.de --out new", "binary: line 1"),
    (f"{PREPARE} --dry-run --quiet", "--dry-run .*--quiet"),
    ("prepare-bpe --src train.en --tgt train.de", "data .*--force"),
    ("prepare-bpe --src train.en --tgt train.de --out folder", "folder"),
    ("train --data nowhere --out new", "nowhere"),
    ("train --out new --recipe smal", r"smal\b.*small\?"),
    ("train --out new --recipe bad.toml", r"bad\.toml.*model\.d_modell.*d_model\?"),
    ("train --out new --device nonsense", "--device .*cpu, cuda, .*nonsense"),
    ("train --out new --data separate --set model.tie=src-tgt", r"model\.tie .*src-tgt"),
    ("train --set d_model=130", "--set .*section.key=value.*'d_model=130'"),
    ("train --out new more", "more"),
    ("average run/step-00000020.safetensors model.safetensors", "--out"),
    ("average model.safetensors --last 2 --out new", "--last"),
    ("average model.safetensors model.safetensors --out nowhere/new", "nowhere/new"),
    ("translate --model nowhere", "nowhere"),
    ("translate --model foreign.safetensors", r"foreign\.safetensors"),
    (f"{TRANSLATE} --beam 0", r"--beam .*from 1 to 1000.* 0\b"),
    (f"{TRANSLATE} --stop never", "--stop .*count, current, exhaustive.*never"),
    (f"{TRANSLATE} --temperature 2 --output new", "--temperature .*--sample"),
    (f"{TRANSLATE} --sample --beam 5", "--beam .*--sample"),
    (f"{TRANSLATE} --mbr chrf --mbr-samples 8", "--mbr-samples .*--sample"),
    (f"{TRANSLATE} --sample --mbr-samples 8", "--mbr-samples .*--mbr"),
    (f"{TRANSLATE} --scores --json", "--scores"),
    (f"{TRANSLATE} --device cuda:77", "--device .*cuda:77"),
    (f"{TRANSLATE} --input nowhere", "nowhere"),
    (f"{TRANSLATE} --input latin1 --output new", "latin1: line 1"),
    (f"{TRANSLATE} --input train.en --output folder", "folder"),
    (f"{TRANSLATE} --input train.en --output ./train.en", r"--out .*--input.*train\.en"),
    ("translate --model model.safetensors --output model.safetensors", "--out .*--model"),
    ("translate --output run/averaged.safetensors", r"--out .*run/averaged\.safetensors"),
    (f"{TRANSLATE} --output {'x' * 300}", "x+"),
    (f"{TRANSLATE} --output folder/linked", "--out .*folder/linked"),
    (f"{TRANSLATE} --output run/state/step-00000030.safetensors", r"--out .*state/step-00000030\.safetensors"),
    (f"{TRANSLATE} train.en", r"train\.en.*--input"),
    ("train --resume", "--resume; .*`vtrans train --help`"),
    (f"{TRANSLATE} --bem 4", r"--bem; .*--beam\?"),
    (f"{TRANSLATE} --beam x", "--beam must be a whole number, got x; "),
    (f"{TRANSLATE} --alpha=x", "--alpha must be a number, got x; "),
    (f"{TRANSLATE} --input train.en --prefix short.de", r"168 .*short\.de .*\b2\b"),
    (f"{TRANSLATE} --prefix empty", "prefix"),
    (f"{TRANSLATE} --weight 1", "--weight"),
    ("logprob train.en", "SRC"),
    ("logprob train.en train.de --output train.de", r"--out .*TGT.*train\.de"),
    ("score", "REF"),
    ("score valid.de --hyp valid.de --metric blue", "--metric .*bleu.*blue"),
    (f"{TRANSLATE} --chunk-lines 0 --input train.en --output out", "--chunk-lines"),
    (f"{CHUNKS} --input train.en", "--out"),
    (f"{CHUNKS} --output out", "--input"),
    (f"{CHUNKS} --input train.en --output out --shard 0/2", "0/2"),
    (f"{TRANSLATE} --shard 1/2 --input train.en --output out", "--chunk-lines"),
    ("overlap train.en", "TGT"),
    ("trian", r"trian; .*train\?"),
    ("xyzzy", "xyzzy; .*`vtrans --help`"),
    ("--verbose", "--verbose"),
]


@pytest.mark.parametrize(("words", "message"), FAULTS, ids=[words[:99] for words, _ in FAULTS])
def test_a_fault_gets_one_sentence(
    words: str, message: str, place: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Run
) -> None:
    monkeypatch.chdir(place)
    before = tree(place)
    done = run_cli(*shlex.split(words), stdin=SENTENCE)
    assert (done.code, done.out) == (2, b""), done.err
    *others, last, end = done.err.split("\n")
    assert end == ""
    assert re.fullmatch(rf"error: .*(?:{message}).*", last), last
    assert re.search(r"[.?]$", last), last
    assert not re.search(r"[.?:]{2}$|\.;|Traceback|[╭│╰]", done.err), done.err
    assert not any(line.startswith("error") for line in others)
    assert tree(place) == before


def test_advice_that_a_command_cannot_follow_is_left_out(
    place: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Run
) -> None:
    """`run_cli` checks every error of the suite for options that its command lacks."""

    def adapted(error: str) -> str:
        def failing(*args: object) -> None:
            raise InputError(error)

        monkeypatch.setattr("vtrans.apps.adapting.adapt.adapt", failing)
        return run_cli("adapt", "model.safetensors", "--src", "train.en", "--tgt", "train.de").err

    monkeypatch.chdir(place)
    assert adapted("bad; start over with `fresh`.") == "error: bad.\n"
    assert adapted("bad; leave out `init_from`, name `out`, or give `fresh`.") == "error: bad; name --out.\n"
    assert adapted("a; b; raise `max_tokens` or `seed`, or give text.") == "error: a; b; give text.\n"
    (place / "a.po").write_text('msgid ""\nmsgstr ""\n\nmsgid "A dog"\nmsgstr "Ein Hund"\n')
    for words, allowed in (
        ("adapt model.safetensors --from de", "--from and --to"),
        ("prepare-bpe", "--src-lang and --tgt-lang"),
    ):
        assert run_cli(*words.split(), "--pairs", "a.po").err.endswith(f"not known; give {allowed}.\n")
    (place / "a.po").unlink()


def test_debug_shows_the_traceback(run_cli: Run) -> None:
    for words in (("--debug", "translate", "--model", "nowhere"), ("translate", "--debug", "--model", "nowhere")):
        done = run_cli(*words)
        assert done.code == 2
        assert "Traceback (most recent call last)" in done.err
        assert re.search(r"\nerror: .*nowhere.*\n$", done.err)


def test_what_fails_while_running_has_exit_code_1(
    tiny_run: RunFolder, monkeypatch: pytest.MonkeyPatch, run_cli: Run
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("out of memory:\n  tried to allocate")

    monkeypatch.setattr("vtrans.translate.stream.translate_stream", lambda *args, **options: broken())
    done = run_cli("translate", "--model", tiny_run.path, "--quiet", stdin=SENTENCE)
    assert (done.code, done.out) == (1, b"")
    assert re.fullmatch("error: RuntimeError: out of memory: tried to allocate .*--debug.*\n", done.err)
