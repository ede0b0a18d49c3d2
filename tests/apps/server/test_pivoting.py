"""Texts that are translated through a third language."""

import asyncio
import time
from collections.abc import Sequence

import pytest
from services import EN_DE, serving

from vtrans.apps.documents.document import Translated
from vtrans.apps.server.batching import RequestOptions, Worker
from vtrans.apps.server.service import Pivot, pivots
from vtrans.system.errors import InputError
from vtrans.text.languages import Languages
from vtrans.translate.steps.line import Line

FR_EN, FR_DE = Languages("fr", "en"), Languages("fr", "de")


def rotated(lines: Sequence[Line], options: RequestOptions, ready: object = None) -> list[list[Translated]]:
    """Translates each line as its words with the first one at the end, and `gone` as nothing, so that it stays."""
    found = []
    for line in lines:
        words = line.text.split()
        links = tuple(sorted((i, (i - 1) % len(words)) for i in range(len(words)))) if options.alignments else None
        text = "" if line.text == "gone" else " ".join([*words[1:], words[0]])
        found.append([Translated(f"{n} {text}" if n else text, links) for n in range(options.nbest)])
    return found


def test_a_text_is_translated_through_the_language_between_two_models() -> None:
    with serving(translate=rotated, pairs=(FR_EN, EN_DE), pivot="en") as client:
        assert {one["code"]: one["targets"] for one in client.get("/languages").json} == {
            "fr": ["en", "de"],
            "en": ["de"],
            "de": [],
        }
        assert client.translate("a b c d", "fr", "de").json == {"translatedText": "c d a b"}
        assert client.translate(["gone", "a b"], "fr", "de").json == {"translatedText": ["gone", "a b"]}
        more = client.translate("a b c", "fr", "de", alternatives=1).json
        assert more == {"translatedText": "c a b", "alternatives": ["1 c a b"]}
        html = client.translate("<p><i>a</i> b c d</p>", "fr", "de", format="html").json
        assert html == {"translatedText": "<p>c d <i>a</i> b</p>"}


def test_links_of_a_long_line_take_a_moment() -> None:
    worker = Worker(rotated)
    text, options = " ".join("a" * 25_000), RequestOptions(alignments=True)
    began = time.process_time()
    ((translated,),) = asyncio.run(Pivot(worker, worker, "en").translate([Line(1, text)], options))
    assert translated.alignment == tuple((i, (i - 2) % 25_000) for i in range(25_000))
    assert time.process_time() - began < 5


def test_terms_and_confidences_need_a_model_of_the_pair() -> None:
    with serving(translate=rotated, pairs=(FR_EN, EN_DE), pivot="en") as client:
        refused = client.translate("a", "fr", "de", glossary={"a": "b"})
        assert refused.status == 400
        assert "through en" in refused.json["error"]
        assert [one["confidence"] for one in client.get("/languages").json] == [["en"], ["de"], []]


def test_only_pairs_without_a_model_are_translated_through_another_language() -> None:
    workers = {pair: Worker(rotated) for pair in (FR_EN, EN_DE, Languages("en", "fr"))}
    assert list(pivots(workers, "en")) == [FR_DE]
    for direct, through in (({**workers, FR_DE: workers[FR_EN]}, "en"), (workers, "de")):
        with pytest.raises(InputError, match="--pivot"):
            pivots(direct, through)
