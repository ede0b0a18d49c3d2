"""Confidence of words from real workers: a calibrated model, one without, and a calibration that cannot be used."""

import io
import math
from typing import Any

from cli_runner import copies_of
from services import DE_EN, EN_DE
from test_serve import SENTENCE, linux, served

from vtrans.apps.server.commands.serve import _calibrations, _translators
from vtrans.config import EngineConfig
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.translate.confidence import FEATURES, Calibration, Logistic, hashes, made_with
from vtrans.translate.loading import load

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
        cases: list[dict[str, Any]] = [{}, {"beam": 2}, {"alternatives": 1}]
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
        console = Console(stream=(said := io.StringIO()))
        translators, paths = _translators([run_copy.path], [f"de-en={run_copy.path}"], Console(quiet=True))
        found = _calibrations(translators, paths, EngineConfig(), console)
        assert list(found) in ([], [EN_DE, DE_EN])
        return bool(found), said.getvalue()

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
