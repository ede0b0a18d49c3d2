"""XLIFF: tags that Angular writes in halves, and targets with empty elements."""

import pytest
from catalogues import filled, loud, reverse

UNIT = '<xliff version="1.2"><file><body><trans-unit id="1">%s</trans-unit></body></file></xliff>'
UNIT_2 = '<xliff version="2.0" srcLang="en" trgLang="de"><file><unit><segment>%s</segment></unit></file></xliff>'


@pytest.mark.parametrize(
    ("source", "backwards"),
    [
        (
            'See <x id="START_LINK" ctype="x-a"/>our page<x id="CLOSE_LINK"/> now',
            'now <x id="START_LINK" ctype="x-a"/>page our<x id="CLOSE_LINK"/> See',
        ),
        (
            'A <x id="START_LINK"/>a<x id="CLOSE_LINK"/> or <x id="START_LINK_1"/>b<x id="CLOSE_LINK"/>',
            '<x id="START_LINK_1"/>b<x id="CLOSE_LINK"/> or <x id="START_LINK"/>a<x id="CLOSE_LINK"/> A',
        ),
        (
            'A <ph id="0" equiv="START_TAG_B"/>b<ph id="1" equiv="CLOSE_TAG_B"/> <ph id="2" equiv="ICU"/>',
            '<ph id="2" equiv="ICU"/> <ph id="0" equiv="START_TAG_B"/>b<ph id="1" equiv="CLOSE_TAG_B"/> A',
        ),
    ],
)
def test_halves_of_a_pair_surround_their_words(source: str, backwards: str) -> None:
    for form in (UNIT, UNIT_2):
        made = filled("a.xlf", (form % f"<source>{source}</source>").encode(), reverse).decode()
        assert f">{backwards}</target>" in made
        assert filled("a.xlf", made.encode(), reverse).decode() == made


@pytest.mark.parametrize("ending", ["xlf", "sdlxliff", "mqxliff", "mxliff"])
@pytest.mark.parametrize(
    "target", ['<mrk mtype="seg" mid="1"/>', '<g id="1"></g>', '<g id="1"><g id="2"> </g></g>', ""]
)
def test_a_target_of_empty_elements_is_untranslated(ending: str, target: str) -> None:
    unit = f'<source>A <g id="1">dog</g></source><target>{target}</target>'
    made = filled(f"a.{ending}", (UNIT % unit).encode(), loud).decode()
    assert '>A <g id="1">DOG</g></target>' in made
    stays = UNIT % '<source>A <x id="1"/></source><target><x id="1"/></target>'
    assert filled(f"a.{ending}", stays.encode(), loud).decode() == stays
