"""`vtrans translate`: its formats, its report, its threads, and translating in chunks."""

import bz2
import gzip
import io
import json
import lzma
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from cli_runner import SENTENCE, Run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vtrans.commands.texts import Text, report
from vtrans.config import SearchConfig
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.lines import one_line
from vtrans.translate.steps.line import Counts
from vtrans.translate.translator import Translator


def reported(counts: Counts) -> list[str]:
    """Returns the lines of the report, without the first one about the speed."""
    stream, translator = io.StringIO(), SimpleNamespace(counts=counts, search=SearchConfig())
    report(cast(Translator, translator), Console(stream=stream))
    return stream.getvalue().split("\n")[1:-1]


def test_translating_under_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process would translate the whole text."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"torchrun .*`shard` I/2"):
        Text().division(None, None, None)


@pytest.mark.parametrize("name", ["empty", "unfinished", "looping", "missing"])
def test_dubious_translations_are_counted_in_a_warning(name: str) -> None:
    for count in (1, 2000):
        (line,) = reported(Counts(lines=3000, **{name: count}))
        assert line.startswith(f"warning: {count:,} ")


def test_translate_and_logprob_compute_with_as_many_threads(run_cli: Run, tiny_run: RunFolder, tmp_path: Path) -> None:
    text, model = tmp_path / "text", ("--model", tiny_run.path, "--device", "cpu")
    text.write_bytes(SENTENCE)
    try:
        for threads, words in ((2, ("translate", "--input", text)), (3, ("logprob", text, text))):
            assert run_cli(*words, *model, "--threads", threads).code == 0
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(1)


# Chunks.

TEXT = b"\xef\xbb\xbf" + SENTENCE + b"\n \r\nThe old cat\xe2\x80\xa8sees me.\n" + 4 * SENTENCE + b"The end"


@pytest.mark.parametrize(
    "processes", [1, pytest.param(2, marks=pytest.mark.skipif(sys.platform != "linux", reason="no copies"))]
)
def test_jobs_share_a_folder_and_collect_checks_it(
    run_cli: Run, ending_run: RunFolder, tmp_path: Path, processes: int
) -> None:
    text, out = tmp_path / "text", tmp_path / "deep" / "out"
    text.write_bytes(TEXT)
    model = "--model", ending_run.path, "--device", "cpu"
    words = "translate", *model, "--input", text, "--output", out, "--chunk-lines", "3", "--processes", str(processes)
    whole = run_cli("translate", *model, "--input", text)
    assert run_cli(*words, "--shard", "2/2").code == 0
    incomplete = run_cli("collect", out)
    assert (incomplete.code, incomplete.out) == (2, b"")
    assert "2 of 3" in incomplete.err
    assert run_cli(*words, "--shard", "1/2", "--quiet").code == 0
    collected = run_cli("collect", out)
    assert (collected.code, collected.out) == (0, whole.out)
    assert run_cli("collect", out, "--output", tmp_path / "all").code == 0
    assert (tmp_path / "all").read_bytes() == whole.out
    other = run_cli(*words, "--nbest", "2")
    assert (other.code, "--nbest" in other.err) == (2, True)


def test_the_output_formats_agree(tiny_run: RunFolder, run_cli: Run) -> None:
    words = ("translate", "--model", tiny_run.path, "--beam", "3")
    source = SENTENCE + b"\n" + SENTENCE
    plain = run_cli(*words, stdin=source).out.decode().split("\n")
    best = run_cli(*words, "--nbest", "3", stdin=source).out.decode().split("\n")
    assert len(plain) == 4
    assert len(best) == 10
    assert best[0:9:3] == plain[:3]
    assert best[3:6] == ["", "", ""]
    scored = run_cli(*words, "--nbest", "3", "--scores", stdin=source).out.decode().split("\n")
    assert [line.partition("\t")[2] for line in scored] == best
    numbers = [float(line.partition("\t")[0]) for line in scored[:3]]
    assert numbers == sorted(numbers, reverse=True)
    objects = [json.loads(line) for line in run_cli(*words, "--nbest", "3", "--json", stdin=source).out.splitlines()]
    assert [t["text"] for entry in objects for t in entry["translations"]] == best[:9]
    fields = {"text", "score", "logprob", "finished", "tokens", "subwords", "token_logprobs"}
    assert set(objects[0]["translations"][0]) == fields
    assert [entry["source"] for entry in objects] == source.decode().split("\n")[:3]
    for t in (t for entry in objects for t in entry["translations"] if t["text"]):
        assert len(t["tokens"]) == len(t["subwords"]) == len(t["token_logprobs"])
        assert t["logprob"] == pytest.approx(math.fsum(t["token_logprobs"]))
        assert "".join(t["subwords"]).removesuffix("</s>").replace("\u2581", " ").strip() == t["text"].strip()
    table = run_cli(*words, "--nbest", "3", "--tsv", stdin=source).out.decode().split("\n")
    for line, t in zip(table[:-1], (t for entry in objects for t in entry["translations"]), strict=True):
        logprob, score, text = line.split("\t")
        for shown, number in ((logprob, t["logprob"]), (score, t["score"])):
            assert float(shown) == pytest.approx(-math.inf if number is None else number, abs=1e-6)
        assert text == t["text"]
    short = run_cli(*words, "--nbest", "3", "--max-length", "1", "--json", stdin=SENTENCE)
    assert all(t["score"] is None for t in json.loads(short.out)["translations"][1:])
    assert re.search("2 n-best", short.err)
    drawn = run_cli("translate", "--model", tiny_run.path, "--sample", "--seed", "3", "--nbest", "9", stdin=SENTENCE)
    assert len(set(drawn.out.splitlines())) > 1
    for candidates in (["--beam", "8"], ["--nbest", "9"], ["--sample", "--epsilon", "0.01", "--mbr-samples", "8"]):
        chosen = run_cli(
            *("translate", "--model", tiny_run.path, "--mbr", "chrf", "--scores", "--min-length", "3"),
            *candidates,
            stdin=SENTENCE,
        )
        assert 0 < float(chosen.out.split(b"\t")[0]) <= 100, chosen.err
    both = run_cli(*words, "--model", tiny_run.last, stdin=source)
    assert both.err.count("model: ") == 2
    assert both.out.count(b"\n") == 3


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=60), n=st.integers(1, 2))
def test_any_bytes_in_lines_in_equal_lines_out(raw: bytes, n: int, tiny_run: RunFolder, run_cli: Run) -> None:
    lines = raw.count(b"\n") + (not raw.endswith(b"\n") and raw.removeprefix(b"\xef\xbb\xbf") != b"")
    words = ("--model", tiny_run.path, "--max-length", "4", "--on-bad-utf8", "replace", "--nbest", str(n))
    done = run_cli("translate", *words, stdin=raw)
    assert done.code == 0
    assert done.out.count(b"\n") == lines * n
    assert all(one_line(line) == line for line in done.out.decode().split("\n"))


@pytest.mark.parametrize(("name", "opened"), [("o.gz", gzip.open), ("o.xz", lzma.open), ("o.bz2", bz2.open)])
def test_output_is_compressed_according_to_its_name(
    name: str, opened: Callable[..., Any], tiny_run: RunFolder, tmp_path: Path, run_cli: Run
) -> None:
    target = tmp_path / name
    expected = run_cli("translate", "--model", tiny_run.path, stdin=SENTENCE * 3)
    for _ in range(2):
        done = run_cli("translate", "--model", tiny_run.path, "--output", target, stdin=SENTENCE * 3)
        assert done.code == 0
        with opened(target) as file:
            assert file.read() == expected.out
