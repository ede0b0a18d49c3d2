"""The commands one after another: what they print, and what they write."""

import bz2
import gzip
import json
import lzma
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runner import SENTENCE, Done
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.text.lines import one_line


def test_the_five_commands_chain(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Done]
) -> None:
    texts = tiny_data.path.parent
    monkeypatch.chdir(tmp_path)
    sides = ("--src", texts / "train.en", "--tgt", texts / "train.de")
    valid = ("--valid-src", texts / "valid.en", "--valid-tgt", texts / "valid.de")
    done = run_cli("prepare-bpe", *sides, *valid, "--vocab-size", "320", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["options"]["vocab_size"] == 320
    assert json.loads(done.out) == json.loads((tmp_path / "data" / "data.json").read_bytes())
    again = run_cli("prepare-bpe", *sides, *valid, "--vocab-size", "320")
    assert (again.code, again.out) == (0, b"")
    assert "data" in again.err
    tiny = ("d_model=32", "d_ff=48", "heads=2", "encoder_layers=1", "decoder_layers=1")
    sets = [f"model.{value}" for value in tiny] + ["train.max_steps=4", "train.checkpoint_every=2", "train.warmup=1"]
    done = run_cli("train", *(word for value in sets for word in ("--set", value)), "--device", "cpu")
    assert (done.code, done.out) == (0, b""), done.err
    assert "device: cpu" in done.err
    resumed = run_cli("train", "--set", "train.max_steps=6", "--device", "cpu")
    assert resumed.code == 0
    assert re.search(r"resum.* 4\b", resumed.err)
    done = run_cli("average")  # the rate fell to the end of the training
    assert (done.code, done.out, done.err) == (0, b"", "run/averaged.safetensors: the checkpoint of step 6\n")
    done = run_cli("average", "--last", "3")
    assert (done.code, done.out) == (0, b"")
    assert re.fullmatch(r"run/averaged\.safetensors: .*3 checkpoints.* 2, 4, 6\n", done.err)
    source = (texts / "valid.en").read_bytes()
    done = run_cli("translate", stdin=source)
    assert done.code == 0
    assert re.search(r"(?m)^model: run/averaged\.safetensors \(.*3 checkpoints.* 6\b", done.err)
    assert done.out.count(b"\n") == source.count(b"\n")
    scored = run_cli("score", texts / "valid.de", stdin=done.out)
    assert scored.code == 0
    assert [line.partition("|")[0] for line in scored.out.decode().split("\n")] == ["BLEU", "chrF2", ""]
    (tmp_path / "hyp").write_bytes(done.out)
    by_ter = run_cli("score", texts / "valid.de", "--hyp", "hyp", "--metric", "ter", "--json")
    assert [entry["name"] for entry in json.loads(by_ter.out)] == ["TER"]
    compared = run_cli("score", texts / "valid.de", "--hyp", "hyp", "--baseline", texts / "valid.de", "--json")
    assert {"p_value", "signature"} <= json.loads(compared.out)[0].keys()


def test_the_output_formats_agree(tiny_run: RunFolder, run_cli: Callable[..., Done]) -> None:
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
def test_any_bytes_in_lines_in_equal_lines_out(
    raw: bytes, n: int, tiny_run: RunFolder, run_cli: Callable[..., Done]
) -> None:
    lines = raw.count(b"\n") + (not raw.endswith(b"\n") and raw.removeprefix(b"\xef\xbb\xbf") != b"")
    words = ("--model", tiny_run.path, "--max-length", "4", "--on-bad-utf8", "replace", "--nbest", str(n))
    done = run_cli("translate", *words, stdin=raw)
    assert done.code == 0
    assert done.out.count(b"\n") == lines * n
    assert all(one_line(line) == line for line in done.out.decode().split("\n"))


@pytest.mark.parametrize(("name", "opened"), [("o.gz", gzip.open), ("o.xz", lzma.open), ("o.bz2", bz2.open)])
def test_output_is_compressed_according_to_its_name(
    name: str, opened: Callable[..., Any], tiny_run: RunFolder, tmp_path: Path, run_cli: Callable[..., Done]
) -> None:
    target = tmp_path / name
    expected = run_cli("translate", "--model", tiny_run.path, stdin=SENTENCE * 3)
    for _ in range(2):
        done = run_cli("translate", "--model", tiny_run.path, "--output", target, stdin=SENTENCE * 3)
        assert done.code == 0
        with opened(target) as file:
            assert file.read() == expected.out
