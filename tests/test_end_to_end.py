"""The main job as a user does it: five commands from text to a score."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from forking import ENVIRONMENT, start_python

from recipes.experiment import excerpt
from vtrans.text.lines import write_lines


def run(folder: Path, *command: str, text: str | None = None, says: str = "") -> str:
    """The stdout of a command that must succeed, run in `folder`. On stderr it says something that has this pattern."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with start_python(command, ENVIRONMENT, cwd=folder, encoding="utf-8", **pipes) as process:
        out, err = process.communicate(text)
    assert process.returncode == 0, err
    assert re.search(says, err), err
    return str(out)


@pytest.mark.slow
def test_five_commands_make_a_translator(tmp_path: Path) -> None:
    vtrans = ("-m", "vtrans")
    (tmp_path / "text").mkdir()
    for stem, number in (("train", 4000), ("valid", 50), ("test", 100)):
        for language in ("en", "de"):
            write_lines(tmp_path / f"text/{stem}.{language}", excerpt(f"{stem}.{language}")[:number])
    corpus = ("--src", "text/train.en", "--tgt", "text/train.de")
    valid = ("--valid-src", "text/valid.en", "--valid-tgt", "text/valid.de")
    report = json.loads(run(tmp_path, *vtrans, "prepare-bpe", *corpus, *valid, "--vocab-size", "1500", "--json"))
    assert report == json.loads((tmp_path / "data" / "data.json").read_bytes())

    settings = {"max_steps": 300, "checkpoint_every": 75, "warmup": 100, "log_every": 50, "samples": 1}
    changes = [word for key, value in settings.items() for word in ("--set", f"train.{key}={value}")]
    sizes = {"d_model": 64, "d_ff": 128, "encoder_layers": 1, "decoder_layers": 1}
    changes += [word for key, value in sizes.items() for word in ("--set", f"model.{key}={value}")]
    run(tmp_path, *vtrans, "train", "--recipe", "demo", *changes)
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().split("\n") if line]
    valid_nll = [record["nll"] for record in records if record["kind"] == "valid"]
    assert len(valid_nll) == 4
    assert valid_nll == sorted(valid_nll, reverse=True), "each of the four parts learns something"

    run(tmp_path, *vtrans, "average", "--last", "2", says=r"run/averaged\.safetensors: .*2 checkpoints.* 225, 300\n")
    sources = (tmp_path / "text" / "test.en").read_text(encoding="utf-8")
    named = r"model: run/averaged\.safetensors \(.*2 checkpoints.* 300\b"
    hypotheses = run(tmp_path, *vtrans, "translate", "--beam", "2", text=sources, says=named)
    assert hypotheses.count("\n") == sources.count("\n") == 100
    scores = json.loads(run(tmp_path, *vtrans, "score", "text/test.de", "--json", text=hypotheses))
    assert ["version:" in score["signature"] for score in scores] == [True, True]
    words = ("score", "text/test.de", "--baseline", "text/test.en", "--metric", "ter", "--json")
    _, compared = json.loads(run(tmp_path, *vtrans, *words, text=hypotheses))
    assert (compared["name"], compared["p_value"] < 1) == ("TER", True)

    # Copied sources score next to nothing in BLEU, 17 in chrF; the model scores 8 to 10 and 25 to 27 with three seeds.
    copied = json.loads(run(tmp_path, *vtrans, "score", "text/test.de", "--json", text=sources))
    for name, more in (("BLEU", 4), ("chrF2", 5)):
        found, other = (next(s["value"] for s in each if s["name"] == name) for each in (scores, copied))
        assert found > other + more
