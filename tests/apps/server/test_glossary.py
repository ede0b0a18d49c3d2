"""Glossaries of requests and of the server, and protected text over HTTP."""

from collections.abc import Sequence
from typing import Any

import pytest
from services import EN_DE, serving
from translators import translator

from vtrans.apps.documents.document import Translated
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.models import Model, workers_for
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
    server = Glossary((pair_of("dog", "Hund"), pair_of("cat", "park")))
    models = {EN_DE: Model(EN_DE, translator(max_length=0), glossary=server)}
    with workers_for(models, Division(1, 1), print) as workers:
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
    shrinking = Model(EN_DE, translator(stop="shrink"))
    with pytest.raises(InputError, match="`stop`"):
        shrinking.check(RequestOptions(glossary=server))
    shrinking.check(RequestOptions())
