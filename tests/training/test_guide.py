"""The code of docs/change-the-model.md: each exercise is extracted from the page, trained and used."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_runner import Run
from conftest import EVERY_STEP, tiny_train
from drawn import seeded
from guide import EXERCISES, PAGE
from networks import SMALL, V, padded, sequences, step
from runs import BRIEF, lines

import vtrans
from vtrans.config import ModelConfig
from vtrans.data.noise import WordPair
from vtrans.data.store import DataFolder
from vtrans.engines.incremental import IncrementalDecoder
from vtrans.model.network import Transformer
from vtrans.score.metrics import compare, score
from vtrans.search.rules import SearchRule
from vtrans.storage.model_file import read_blueprint
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import read_progress
from vtrans.system.errors import InputError
from vtrans.system.own_code import class_of, own_class
from vtrans.training.recipe import load_recipe
from vtrans.translate.steps.line import LineStep

BRIEFLY = (*EVERY_STEP, *BRIEF, "train.max_steps=8")
NETWORKS = ("alibi.py:AlibiTransformer", "gated.py:GatedTransformer")
SOURCES = ["The big dog sees me.", "A small cat sleeps.", "They read today."]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files of the page."""
    monkeypatch.chdir(tmp_path)
    for name, code in EXERCISES.items():
        (tmp_path / name).write_text(code)
    return tmp_path


def test_the_exercises_are_short_and_the_table_names_every_base() -> None:
    assert len(EXERCISES) == 6
    assert max(code.count("\n") for code in EXERCISES.values()) <= 40
    bases = {f"`vtrans.{name}`" for name in ("LogprobLoss", "PairNoise", "CorpusMetric", "SearchRule", "LineStep")}
    assert bases <= set(re.findall(r"`vtrans\.\w+`", PAGE))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_steps_of_a_search_equal_the_full_forward(name: str) -> None:
    """Rows change parents and reuse slots, so a key's slot is not its position."""
    config = ModelConfig(**{**vars(SMALL), "network": name, "positions": "rotary"})
    torch.manual_seed(1)
    model = class_of(config, "network", Transformer)(config, V, V, joint=True, pad_id=0).double().eval()
    decoder, numbers, sources = IncrementalDecoder(model), seeded(3), sequences(6, 4)
    histories: list[list[list[int]]] = [[[] for _ in range(3)] for _ in sources]
    with torch.inference_mode():
        state = decoder.start(sources, 3)
        for _ in range(12):
            tokens = torch.tensor([[numbers.randrange(4, V) for _ in range(3)] for _ in sources])
            logprobs = step(decoder, state, tokens)
            for b, source in enumerate(sources):
                histories[b] = [[*row, token] for row, token in zip(histories[b], tokens[b].tolist(), strict=True)]
                full = model(*padded([source] * 3), torch.tensor(histories[b]))[:, -1].log_softmax(-1)
                torch.testing.assert_close(logprobs[b][:, 1:], full[:, 1:], rtol=0, atol=1e-10)
            parents = [[numbers.randrange(3) for _ in range(3)] for _ in sources]
            decoder.reorder(state, np.array(parents))
            histories = [[rows[k] for k in chosen] for rows, chosen in zip(histories, parents, strict=True)]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_trained_and_translates(name: str, tmp_path: Path, tiny_data: DataFolder, run_cli: Run) -> None:
    run = tiny_train(tiny_data, tmp_path / "run", *BRIEFLY, "model.positions=rotary", f"model.network={name}")
    records = [line["nll"] for line in lines(run) if line["kind"] == "train"]
    assert records[-1] < records[0]
    words = ("translate", "--model", run.path, "--code", name.partition(":")[0])
    done = run_cli(*words, stdin="\n".join(SOURCES).encode())
    assert (done.code, done.out.count(b"\n")) == (0, 3)


@pytest.mark.parametrize("name", ["FocalLoss", "ConfidencePenalty"])
def test_a_loss_is_trained(name: str, tmp_path: Path, tiny_data: DataFolder) -> None:
    run = tiny_train(tiny_data, tmp_path / "run", *BRIEFLY, f"train.objective=losses.py:{name}")
    records = [line for line in lines(run) if line["kind"] == "train"]
    assert all(record["loss"] < record["nll"] for record in records)
    assert records[-1]["nll"] < records[0]["nll"]
    assert vtrans.load(run.path).engine.models


def test_the_curriculum_begins_with_the_first_corpus(tmp_path: Path, two_corpora: DataFolder) -> None:
    program: dict[str, Any] = {"__name__": "curriculum"}
    exec(EXERCISES["curriculum.py"], program)
    run = tiny_train(two_corpora, tmp_path / "run", *EVERY_STEP, *BRIEF, trainer=program["Curriculum"])
    first = [line["tgt_tokens"] for line in lines(run) if line["kind"] == "train" and line["epoch"] == 1]
    store, mixture = two_corpora.train, program["EasyFirst"](two_corpora.corpora)
    pairs = mixture.pairs(1)
    assert set(pairs.tolist()) == set(range(40))
    assert sum(first) == int(store.tgt_lengths[pairs].sum()) + len(pairs)
    assert mixture.pairs(3) is None


@pytest.mark.parametrize("engine", ["torch", "compiled"])
def test_the_rule_forbids_a_word_after_another(engine: str, ending_run: RunFolder) -> None:
    plain = vtrans.load(ending_run.path, engine=engine)
    pairs = [pair for text in plain.translate(SOURCES) for pair in pairwise(text.split())]
    rule = own_class("rules.py:NotAfter", SearchRule, "rules")
    own = type("Own", (rule,), {"first": pairs[0][0], "second": pairs[0][1]})
    ruled = vtrans.load(ending_run.path, engine=engine, rules=[own]).translate(SOURCES)
    assert pairs[0] not in [pair for text in ruled for pair in pairwise(text.split())]
    assert list(vtrans.load(ending_run.path, engine=engine, rules=["rules.py:NotAfter"]).translate(SOURCES))


def test_the_step_changes_the_source_and_the_translation(ending_run: RunFolder, run_cli: Run) -> None:
    expected = [text.replace("ß", "ss") for text in vtrans.load(ending_run.path).translate(["Read today."])]
    stepped = vtrans.load(ending_run.path, steps=["more.py:Modern"])
    assert list(stepped.translate(["Read to-day."])) == expected
    words = ("translate", "--model", ending_run.path, "--step", "more.py:Modern", "--rule", "rules.py:NotAfter")
    assert run_cli(*words, stdin=b"Read to-day.\n").code == 0
    assert "must name a class" in run_cli(*words[:3], "--rule", "NotAfter", stdin=b"Read.\n").err


def test_chunks_are_not_continued_with_other_code(ending_run: RunFolder, tmp_path: Path, run_cli: Run) -> None:
    (tmp_path / "in.txt").write_text("Read.\n")
    words = ("translate", "--model", ending_run.path, "--step", "more.py:Modern", "--input", "in.txt")
    chunks = (*words, "--output", "chunks", "--chunk-lines", "1")
    assert run_cli(*chunks).code == 0
    (tmp_path / "more.py").write_text(f"{EXERCISES['more.py']}\n")
    done = run_cli(*chunks)
    assert (done.code, "more.py:Modern" in done.err) == (2, True)


def test_the_metric_is_resampled_and_compared(tmp_path: Path, run_cli: Run) -> None:
    hypotheses, references = ["a b", "c", "x"], ["a b", "c d", "y z"]
    (result,) = score(hypotheses, [references], ["more.py:WordsFound"], samples=100)
    assert (result.name, result.value) == ("WordsFound", 50.0)
    assert result.ci
    assert "code:" in result.signature
    systems = {"a": {"a": references}, "b": {"b1": hypotheses, "b2": references}}
    ((_, compared),) = compare(systems, [references], ["more.py:WordsFound"])
    assert (compared.value, compared.difference) == (75.0, -25.0)
    (tmp_path / "ref").write_text("a b\n")
    done = run_cli("score", "ref", "--metric", "more.py:WordsFound", stdin=b"a c\n")
    assert done.out.startswith(b"WordsFound|")
    assert b"= 50.00" in done.out


def test_noise_and_a_metric_of_validations(tmp_path: Path, tiny_data: DataFolder) -> None:
    own = ("train.noise=1", "train.changes=more.py:Shouted", "train.best_metric=more.py:WordsFound")
    run = tiny_train(tiny_data, tmp_path / "run", *BRIEFLY, *own)
    assert not read_blueprint(run.last).codes
    progress = read_progress(run.state_file(run.state_steps()[-1]))
    assert progress["environment"]["code"].keys() == {"more.py:Shouted", "more.py:WordsFound"}
    records = [line for line in lines(run) if line["kind"] == "valid"]
    assert all(0 <= record["more.py:WordsFound"] <= 100 for record in records)
    pair = WordPair(("Read", "it."), ("Lies", "es."), None)
    shouted = own_class("more.py:Shouted", vtrans.PairNoise, "changes")()
    changed = shouted(pair, lambda: None, seeded(1))
    assert changed == WordPair(("READ", "IT."), ("Lies", "es."), None)
    for wrong in ("more", "['more.py:WordsFound']"):
        with pytest.raises(InputError, match="best_metric"):
            load_recipe("small", [f"train.best_metric={wrong}"])


@pytest.mark.parametrize(
    ("name", "base"), [("more.py:Modern", SearchRule), ("rules.py:NotAfter", LineStep), ("rules", SearchRule)]
)
def test_a_class_of_another_kind_is_refused(name: str, base: type[Any]) -> None:
    with pytest.raises(InputError, match=r"subclass of|must name a class"):
        own_class(name, base, "own")
