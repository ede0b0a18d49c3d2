"""The commands with text of any bytes and of any kind of file: every line is there, or one sentence says why not."""

import json
import os
import re
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.prepare import prepare
from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.system.errors import InputError

FEW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ODD = [*"a\r\v\0▁🙂\u2028\x85\ufeff\u200b", "a\u0301", "\r\n", "Hund ", "@@ ", "<s>", "<0x0A>"]
LINE = st.lists(
    st.sampled_from([part.encode() for part in ODD]) | st.binary(max_size=4) | st.text(max_size=4).map(str.encode),
    max_size=4,
).map(lambda parts: b"".join(parts).replace(b"\n", b""))
# Two files with the same number of lines, each of which ends in a newline or does not.
LINES = st.integers(1, 6).flatmap(
    lambda n: st.tuples(*[st.lists(LINE, min_size=n, max_size=n).map(lambda ls: b"x" + b"\n".join(ls)) for _ in "st"])
)


@contextmanager
def files(*contents: bytes) -> Iterator[list[Path]]:
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / f"text-{number}" for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        yield paths


def lines_in(content: bytes) -> int:
    return content.count(b"\n") + (not content.endswith(b"\n"))


@FEW
@given(pair=LINES)
def test_a_score_counts_every_line_of_any_bytes_or_is_refused(pair: tuple[bytes, bytes], run_cli: Run) -> None:
    counts = [lines_in(content) for content in pair]
    with files(*pair) as (hyp, ref):
        done = run_cli("score", ref, "--hyp", hyp, "--on-bad-utf8", "replace", "--json", "--quiet")
    if done.code == 0:
        assert counts[0] == counts[1]
        assert [score["name"] for score in json.loads(done.out)] == ["BLEU", "chrF2"]
        return
    assert (done.code, done.out, done.err.count("error: ")) == (2, b"", 1)
    if counts[0] != counts[1]:
        assert all(re.search(rf"\b{count}\b", done.err) for count in counts)
    else:
        assert "subword" in done.err
        assert b"@@" in pair[0] or "\u2581".encode() in pair[0]


@FEW
@given(pair=LINES)
def test_prepare_bpe_counts_every_line_of_any_bytes(pair: tuple[bytes, bytes], tiny_data: DataFolder) -> None:
    text = tiny_data.path.parent
    with files(*pair) as (src, tgt):
        out = src.parent / "data"
        options = PrepareOptions(
            (src, text / "train.en"),
            (tgt, text / "train.de"),
            (text / "valid.en",),
            (text / "valid.de",),
            out=out,
            vocabularies=(tiny_data.src_vocab.proto, tiny_data.tgt_vocab.proto),
            on_bad_utf8="replace",
            threads=1,
        )
        try:
            report = prepare(options, Console(quiet=True))
        except InputError:
            report = {}
        if not report:
            assert b"\0" in pair[0] + pair[1] or lines_in(pair[0]) != lines_in(pair[1])
            assert not out.exists()
            return
        facts, inputs = report["train"], report["inputs"]["train"]
        assert [inputs[0][side]["lines"] for side in ("src", "tgt")] == list(map(lines_in, pair))
        assert facts["kept"] + sum(facts["dropped"].values()) == sum(each["src"]["lines"] for each in inputs)
        assert len(DataFolder.open(out).train) == facts["kept"]


def commands(run: Path, src: Path, tgt: Path) -> dict[str, tuple[Any, ...]]:
    return {
        "translate": ("translate", "--model", run, "--input", src, "--max-length", "2", "--beam", "1", "--quiet"),
        "logprob": ("logprob", "--model", run, src, tgt, "--quiet"),
        "score": ("score", tgt, "--hyp", src),
        "overlap": ("overlap", src, tgt, "--json"),
        "prepare-bpe": ("prepare-bpe", "--src", src, "--tgt", tgt, "--out", src.parent / "made"),
    }


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))  # a path of a socket has at most 107 bytes


KINDS: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a socket": a_socket,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "memory of this process": lambda path: path.symlink_to("/proc/self/mem"),
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a name that is too long": lambda path: None,
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_text_file_gets_one_sentence(
    kind: str, tiny_run: RunFolder, tiny_data: DataFolder, run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtrans.text.lines._LONGEST_LINE", 1 << 20)
    src, tgt = tmp_path / "src", tmp_path / "tgt"
    tgt.write_bytes(b"Ein Hund.\n")
    KINDS[kind](src)
    if kind == "a name that is too long":
        src = tmp_path / ("x" * 300)
    for name, words in commands(tiny_run.path, src, tgt).items():
        done = run_cli(*words)
        assert (done.code, done.out) == (2, b""), (name, done.err)
        assert done.err.count("error: ") == 1
        assert str(src)[:80] in done.err
        assert "Error" not in done.err.replace("Input/output error", "")
