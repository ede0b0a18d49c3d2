"""`vtrans serve` as a command: its pairs of languages, its signals, its errors, and the confidence of words."""

import asyncio
import io
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run, copies_of, start
from conftest import tiny_train
from corpora import made, two_languages
from services import Client
from translators import window

from vtrans.apps.documents.memory import Memory
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.commands.serve import _models
from vtrans.apps.server.models import workers_for
from vtrans.apps.server.running import listen
from vtrans.config import CACHE_VARIABLE, EngineConfig
from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.system.errors import FileError
from vtrans.translate.confidence import FEATURES, Calibration, Logistic, hashes, made_with
from vtrans.translate.loading import load
from vtrans.translate.stream import Division

SENTENCE = "The big dog sees me today."


linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux copies a process safely")


@contextmanager
def served(*words: str | Path) -> Iterator[tuple[subprocess.Popen[bytes], Client]]:
    """Runs `vtrans serve` at a free port."""
    with start("serve", *words, "--port", "0") as process:
        try:
            assert process.stderr is not None
            said = b""
            while b"stop with Ctrl-C" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            match = re.search(rb"http://127\.0\.0\.1:(\d+)", said)
            assert match is not None
            yield process, Client(int(match[1]))
        finally:
            process.kill()


def test_a_run_is_served_and_what_was_accepted_is_answered_before_it_stops(ending_run: RunFolder) -> None:
    with served(ending_run.path) as (process, client):
        assert client.get("/languages").json[0] == {
            "code": "en",
            "name": "English",
            "targets": ["de"],
            "formality": [],
            "confidence": [],
        }
        assert client.translate(SENTENCE).json["translatedText"].strip()
        assert "A-17" in client.translate("The big dog sees A-17 today.").json["translatedText"]
        assert len(client.translate(SENTENCE, alternatives=1).json["alternatives"]) == 1
        answers: list[Any] = []
        long = threading.Thread(target=lambda: answers.append(client.translate(f"{SENTENCE} " * 400)))
        long.start()
        while not answers and not client.get("/health").json["queue"]:  # until it is accepted
            pass
        process.send_signal(signal.SIGTERM)
        long.join(60)
        assert process.wait(60) == 0
    assert answers[0].status == 200
    assert answers[0].json["translatedText"].count(" ") > 399


@linux
def test_a_copy_that_dies_is_named_and_replaced_and_its_requests_are_answered(ending_run: RunFolder) -> None:
    with served(ending_run.path, "--processes", "2") as (process, client):
        expected = client.translate(SENTENCE).json
        long: list[Any] = []
        texts = [SENTENCE] * 100
        threads = [threading.Thread(target=lambda: long.append(client.translate(texts).json)) for _ in range(2)]
        for thread in threads:
            thread.start()
        killed, kept = copies_of(process)
        os.kill(killed, signal.SIGKILL)
        for thread in threads:
            thread.join(60)
        assert long == [{"translatedText": [expected["translatedText"]] * len(texts)}] * 2
        assert [client.translate(SENTENCE).json for _ in range(4)] == [expected] * 4
        assert killed not in (now := copies_of(process))
        assert kept in now
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert b"SIGKILL" in process.stderr.read()


def test_a_model_of_several_languages_is_served_once_for_all(run_cli: Run, tmp_path: Path) -> None:
    made(two_languages(tmp_path, vocab_size=320))
    run = tiny_train(DataFolder.open(tmp_path / "data"), tmp_path / "run", "train.max_steps=10")
    models = _models([run.path], [f"pt-fr={run.path}"], Console(quiet=True), {"device": "cpu"}, {})
    assert len({id(model.translator) for model in models.values()}) == 1
    with workers_for(models, Division(1, 1), print) as workers:
        for pair, worker in workers.items():
            ((found,),) = asyncio.run(worker.translate(window([SENTENCE]), RequestOptions()))
            assert found.text == next(models[pair].translator.translate([SENTENCE], to=pair.tgt))
    done = run_cli("serve", "--pair", f"en-it={run.path}")
    assert (done.code, "de, fr" in done.err) == (2, True)
    with served(run.path) as (_, client):
        assert client.get("/languages").json == [
            {"code": "en", "name": "English", "targets": ["de", "fr"], "formality": [], "confidence": []},
            {"code": "de", "name": "German", "targets": [], "formality": [], "confidence": []},
            {"code": "fr", "name": "French", "targets": [], "formality": [], "confidence": []},
        ]
        assert [client.translate(SENTENCE, target=code).status for code in ("de", "fr", "it")] == [200, 200, 400]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["{run}", "--pair", "en-de={run}"], "en to de"),
        (["--pair", "en={run}"], "--pair"),
        (["--pair", "en-de"], "--pair"),
        (["missing"], "missing"),
        (["{run}", "--char-limit", "0"], "--char-limit"),
        (["{run}", "--api-keys", "missing"], "missing"),
        (["{run}", "--host", "256.1.1.1"], "--host"),
        (["missing", "--port", "70000"], "--port"),
        (["missing", "--port", "{port}"], "--port"),
        (["missing", "--cors", "example.com/"], "--cors"),
        (["missing", "--allowed-hosts", "example.com:80"], "--allowed-hosts"),
        (["missing", "--timeout", "0"], "--timeout"),
        (["missing", "--file-char-limit", "0"], "--file-char-limit"),
        (["{run}", "--glossary", "de-fr={terms}"], "de-fr"),
        (["{run}", "--glossary", "{terms}", "--glossary", "{terms}"], "two glossaries"),
        (["{run}", "--glossary", "nowhere"], "nowhere"),
    ],
)
def test_wrong_options_end_with_exit_code_2(
    run_cli: Run, tmp_path: Path, ending_run: RunFolder, words: list[str], wrong: str
) -> None:
    terms = tmp_path / "terms"
    terms.write_text("dog\tHund\n")
    with listen("127.0.0.1", 0) as used:
        port = used.getsockname()[1]
        done = run_cli("serve", *(word.format(run=ending_run.path, port=port, terms=terms) for word in words))
    assert done.code == 2
    assert wrong in done.err


def test_the_memory_is_closed_when_the_server_stops(
    run_cli: Run, tmp_path: Path, ending_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Memory] = []

    def recorded(path: Path) -> Memory:
        made.append(Memory(path))
        return made[-1]

    monkeypatch.setattr("vtrans.apps.documents.memory.Memory", recorded)
    monkeypatch.setattr("vtrans.apps.server.running.Server.run", lambda *_, sockets: None)  # would wait for a signal
    assert run_cli("serve", ending_run.path, "--port", "0", "--memory", tmp_path / "m").code == 0
    assert made
    for memory in made:
        with pytest.raises(FileError):
            len(memory)


def test_the_engine_of_the_models_can_be_chosen(
    run_cli: Run, tmp_path: Path, ending_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    words = ("serve", ending_run.path, "--pair", f"en-de={ending_run.path}")  # which ends before it serves
    assert "no-such-compiler" in run_cli(*words, "--engine", "compiled").err
    assert "no-such-compiler" not in run_cli(*words, "--engine", "torch").err


LOGIT = 0.5
PROBABILITY = round(1 / (1 + math.exp(-LOGIT)), 4)


def calibrate(run: RunFolder, beam: int | None = None) -> None:
    """Writes a calibration with which every word has the same probability."""
    constant = {
        name: Logistic((0.0,) * count, (1.0,) * count, (LOGIT, *(0.0,) * 2 * count)) for name, count in FEATURES.items()
    }
    settings = made_with(load(run.path).search, EngineConfig(), ())
    settings |= {"beam": beam} if beam else {}
    Calibration(**constant, models=hashes([run.best]), settings=settings).save(Calibration.path([run.best]))


@linux
def test_words_of_a_served_model_have_a_confidence(run_copy: RunFolder) -> None:
    calibrate(run_copy)
    with served(run_copy.path, "--processes", "2") as (process, client):
        assert client.get("/languages").json[0]["confidence"] == ["de"]
        cases: list[dict[str, Any]] = [{}, {"alternatives": 1}]
        for asked in cases:
            reply = client.translate(SENTENCE, confidence=True, **asked).json
            text = reply["translatedText"]
            words = [text[begin:end] for begin, end, _ in reply["confidences"]]
            assert words == text.split()
            assert {value for _, _, value in reply["confidences"]} == {PROBABILITY}
        assert "confidences" not in client.translate(SENTENCE).json
        assert len(copies_of(process)) == 2


def test_a_calibration_that_does_not_fit_is_named(run_copy: RunFolder) -> None:
    def calibrated() -> tuple[bool, str]:
        """Returns whether the calibration is used, and what is said of it."""
        console = Console(quiet=True, stream=(said := io.StringIO()))
        models = _models([run_copy.path], [f"de-en={run_copy.path}"], console, {}, {})
        (used,) = {model.calibration is not None for model in models.values()}
        return used, said.getvalue()

    assert calibrated() == (False, "")
    calibrate(run_copy)
    assert calibrated() == (True, "")
    calibrate(run_copy, beam=3)
    used, said = calibrated()
    assert (used, said.count("\n"), "beam" in said) == (True, 1, True)
    file = Calibration.path([run_copy.best])
    for content in (b"{", file.read_bytes().replace(b"models", b"model")):
        file.write_bytes(content)
        used, said = calibrated()
        assert (used, said.count("\n"), "confidence.json" in said) == (False, 1, True)
