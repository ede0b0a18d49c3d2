"""Search settings in requests: their bounds, and that lines with different settings are translated apart."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from services import EN_DE, serving
from translators import sentences, translator, window

from vtrans.apps.documents.document import Translated
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.libretranslate import SEARCH_KEYS
from vtrans.apps.server.models import workers_for
from vtrans.translate.division import Division
from vtrans.translate.steps.line import Line


def settings(lines: Sequence[Line], options: RequestOptions, ready: object) -> list[list[Translated]]:
    """Translates each line as the settings and the number of translations that its request wants."""
    return [[Translated(repr((dict(options.search), options.nbest)))] * options.nbest for _ in lines]


@pytest.mark.parametrize("name", SEARCH_KEYS)
def test_a_request_may_have_any_allowed_value_of_a_setting_and_no_other(name: str) -> None:
    key = SEARCH_KEYS[name]
    most = int(key.request or 0)
    largest: Any = list(key.choices)[-1] if key.choices else ["a"] if key.kind is list else key.kind(most)
    wrong: Any = "never" if key.choices else ["a"] * (most + 1) if key.kind is list else most + 1
    with serving(translate=settings) as client:
        said = client.translate("x", **{name: largest}).json["translatedText"]
        assert said == repr(({name: tuple(largest) if key.kind is list else largest}, 1))
        form = {"q": "x", "source": "en", "target": "de", name: largest}
        assert client.form("/translate", form).json["translatedText"] == said
        for value in (wrong, {"a": 1}):
            asked: dict[str, Any] = {name: value}
            refused = client.translate("x", **asked)
            assert (refused.status, name in refused.json["error"]) == (400, True)


def test_a_request_gets_what_its_search_finds_and_contradictions_are_refused() -> None:
    models = {EN_DE: translator()}
    line = max(sentences(5), key=len)
    searches: list[dict[str, Any]] = [{"beam": 1}, {"max_length": 3}, {"beam": 4, "beam_groups": 2}]
    with workers_for(models, {}, Division(1, 1, False), print) as workers:
        worker = workers[EN_DE]
        for search in searches:
            options = RequestOptions(search=tuple(search.items()))
            ((best, *_),) = asyncio.run(worker.translate(window([line]), options))
            assert best.text == next(translator(**search).translate([line]))
        with serving(translate=worker._translate, check=worker.check) as client:
            for wrong in ({"beam": 4, "beam_groups": 3}, {"min_length": 9, "max_length": 9}, {"suppress": "no piece"}):
                refused = client.translate(line, **wrong)
                assert (refused.status, next(iter(wrong)) in refused.json["error"]) == (400, True)
            assert client.translate(line, beam=1).status == 200
        worker.close()
