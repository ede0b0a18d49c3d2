"""Options of requests: search settings and their bounds, glossaries, and protected text over HTTP."""

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
from vtrans.system.errors import InputError
from vtrans.translate.steps.line import Line
from vtrans.translate.stream import Division
from vtrans.translate.wording.glossary import Glossary, pair_of

GLOSSARY = {"dog": "Hund|Hunde", "cat": "Katze"}


def named(lines: Sequence[Line], options: RequestOptions, ready: object) -> list[list[Translated]]:
    """Translates each line as the pairs of its request's glossary."""
    return [[Translated(str(options.glossary and options.glossary.pairs))] for _ in lines]


def test_a_request_may_have_a_glossary() -> None:
    with serving(translate=named) as client:
        translations = client.translate("dog cat", glossary=GLOSSARY).json["translatedText"]
        assert translations == str((("dog", ("Hund", "Hunde")), ("cat", ("Katze",))))
        pairs = list(GLOSSARY.items())
        assert client.translate("dog cat", glossary=pairs).json["translatedText"] == translations
        nothing: list[Any] = [None, {}, []]
        for empty in nothing:
            assert client.translate("x", glossary=empty).json["translatedText"] == "None"


def test_terms_of_a_request_come_before_those_of_the_server_and_text_is_protected() -> None:
    models = {EN_DE: translator(max_length=0)}
    server = Glossary((pair_of("dog", "Hund"), pair_of("cat", "park")))
    with workers_for(models, {EN_DE: server}, Division(1, 1, False), print) as workers:
        workers[EN_DE].check(RequestOptions(glossary=server))
        with serving(translate=workers[EN_DE].model) as client:
            said = client.translate("the dog {x} sleeps").json["translatedText"]
            assert "Hund" in said
            assert said.count("{x}") == 1
            said = client.translate("the dog runs in the cat", glossary={"dog": "ein ein"}).json["translatedText"]
            assert "ein ein" in said
            assert "park" in said
            said = client.translate("<p>a <b>dog</b> &lt;x&gt; %s</p>", format="html").json["translatedText"]
            assert (said.count("&lt;x&gt;"), said.count("%s")) == (1, 1)
    with workers_for(models, {}, Division(1, 1, False), print) as workers:
        for setting in (("stop", "shrink"), ("beam_groups", 3)):  # the search could not keep protected text
            with pytest.raises(InputError, match=setting[0]):
                workers[EN_DE].check(RequestOptions(search=(setting,)))
    shrinking = {EN_DE: translator(stop="shrink")}
    with workers_for(shrinking, {}, Division(1, 1, False), print) as workers:
        with pytest.raises(InputError, match="`stop`"):
            workers[EN_DE].check(RequestOptions(glossary=server))
        workers[EN_DE].check(RequestOptions(glossary=server, search=(("stop", "count"),)))
        workers[EN_DE].check(RequestOptions(search=(("stop", "shrink"),)))  # as its own search


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
        with serving(translate=worker.model, check=worker.check) as client:
            for wrong in ({"beam": 4, "beam_groups": 3}, {"min_length": 9, "max_length": 9}, {"suppress": "no piece"}):
                refused = client.translate(line, **wrong)
                assert (refused.status, next(iter(wrong)) in refused.json["error"]) == (400, True)
            assert client.translate(line, beam=1).status == 200
