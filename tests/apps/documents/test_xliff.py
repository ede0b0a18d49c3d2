"""XLIFF: what is filled and how, that all else stays, and what is refused."""

import re

import hypothesis.strategies as st
import pytest
from catalogues import Translate, filled, loud, reverse, rotated, same
from hypothesis import given

from vtrans.apps.documents.document import FilledDocument, Filling, Translated
from vtrans.apps.documents.files import open_file
from vtrans.apps.documents.formats.xliff import xliff_document, xliff_pairs
from vtrans.system.errors import DocumentError
from vtrans.text.languages import Languages

ONE = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!-- ü -->\n'
    '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
    ' <file original="a" source-language="en" datatype="plaintext"><body>%s</body></file>\n</xliff>\n'
)
TWO = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en"%s>\n'
    '<file id="f"><unit id="u">%s</unit></file></xliff>\n'
)
REVIEW = '<target state="needs-review-translation">'


def one(body: str, overwrite: bool = False) -> str:
    """Returns the translated form of a body in XLIFF 1.2."""
    made = filled("a.xlf", (ONE % body).encode(), overwrite=overwrite).decode()
    before, after = (ONE % "\0").split("\0")
    assert made.startswith(before)
    assert made.endswith(after)
    return made[len(before) : len(made) - len(after)]


def unit(source: str, target: str = "", attributes: str = "") -> str:
    return f'\n  <trans-unit id="1"{attributes}>\n   <source>{source}</source>{target}<note>n o</note>\n  </trans-unit>'


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("<target/>", f"{REVIEW}b a</target>"),
        ("<target />", f"{REVIEW}b a</target>"),
        ("<target></target>", f"{REVIEW}b a</target>"),
        (
            '<target state="new" xml:lang="de"> </target>',
            '<target xml:lang="de" state="needs-review-translation">b a</target>',
        ),
        ("<target>x</target>", "<target>x</target>"),
        ('<target state="translated"><x id="1"/></target>', '<target state="translated"><x id="1"/></target>'),
    ],
)
def test_an_empty_target_is_filled_and_another_one_stays(target: str, expected: str) -> None:
    assert one(unit("a b", target)) == unit("a b", expected)


@pytest.mark.parametrize("attributes", [' approved="yes"', ' translate="no"'])
@pytest.mark.parametrize("target", ["", "<target>x</target>"])
def test_a_unit_that_is_approved_or_not_to_be_translated_stays(attributes: str, target: str) -> None:
    body = unit("a b", target, attributes)
    assert one(body, overwrite=True) == body
    final = unit("a b", '<target state="final">x</target>')
    assert one(final, overwrite=True) == final


def test_the_segments_of_a_source_stay_segments() -> None:
    source = '<mrk mtype="seg" mid="0">a b.</mrk> <mrk mtype="seg" mid="1">C d.</mrk>'
    made = one(f"<trans-unit><source>a b. C d.</source><seg-source>{source}</seg-source></trans-unit>")
    assert (
        f'{REVIEW}<mrk mtype="seg" mid="0">b. a</mrk> <mrk mtype="seg" mid="1">d. C</mrk></target></trans-unit>' in made
    )


def two(body: str, attributes: str = ' trgLang="de"', overwrite: bool = False) -> str:
    made = filled("a.xlf", (TWO % (attributes, body)).encode(), overwrite=overwrite).decode()
    match = re.fullmatch(r".*<unit id=.u.>(.*)</unit></file></xliff>\n", made, re.DOTALL)
    assert match
    assert made == TWO % (' trgLang="de"' if match[1] != body else attributes, match[1])
    return match[1]


REVIEWED = '<segment state="translated" subState="vtrans:review">'
INLINE = 'a <pc id="1">b c</pc> <ph id="2"/> d'
CODES = 'a <sc id="1"/>b<ec startRef="1"/> c'


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        ("<segment><source>a b</source></segment>",
         f"{REVIEWED}<source>a b</source><target>b a</target></segment>"),
        ('<segment id="1" state="initial" subState="x:y">\n <source>a b</source>\n <target/>\n</segment>',
         f"{REVIEWED}\n <source>a b</source>\n <target>b a</target>\n</segment>".replace("state", 'id="1" state', 1)),
        (f"<segment><source>{INLINE}</source></segment>",
         f'{REVIEWED}<source>{INLINE}</source><target>d <ph id="2"/> <pc id="1">c b</pc> a</target></segment>'),
        (f"<segment><source>{CODES}</source></segment>",
         f'{REVIEWED}<source>{CODES}</source><target>c <sc id="1"/>b<ec startRef="1"/> a</target></segment>'),
        ("<segment><source>a b</source><target>x</target></segment>", None),
        ('<segment state="final"><source>a b</source><target/></segment>', None),
        ("<ignorable><source> </source></ignorable>", None),
    ],
)  # fmt: skip
def test_segments_of_version_2(segment: str, expected: str | None) -> None:
    assert two(segment) == (expected or segment)


def test_a_translation_of_version_2_is_no_training_pair_until_its_state_changes() -> None:
    made = TWO % (' trgLang="de"', two("<segment><source>a b</source></segment>"))
    assert list(xliff_pairs(made, Languages("en", "de"))) == ["unchecked"]
    for old, new in ((' subState="vtrans:review"', ""), ('"translated"', '"reviewed"')):
        checked = made.replace(old, new)
        assert not any(isinstance(pair, str) for pair in xliff_pairs(checked, Languages("en", "de")))


def test_the_target_language_of_version_2_is_added_if_it_is_known() -> None:
    assert two("<segment><source>a b</source></segment>", "") != ""
    with pytest.raises(DocumentError, match="trgLang"):
        filled("a.xlf", (TWO % ("", "<segment><source>a</source></segment>")).encode(), tgt="")


TREE = st.recursive(
    st.sampled_from(["dog ", "two. Three ", "{0}", "&amp;", '<x id="%"/>', "\n   ", "&lt;br/&gt;"]),
    lambda inner: st.lists(inner, max_size=4).map(lambda parts: f'<g id="%">{"".join(parts)}</g>'),
    max_leaves=12,
)


@given(st.lists(TREE, min_size=1, max_size=4).map("".join), st.sampled_from([same, reverse, rotated]))
def test_every_inline_element_is_there_once_and_nested(source: str, translate: Translate) -> None:
    for number in range(source.count("%")):
        source = source.replace("%", str(number), 1)
    made = filled("a.xlf", (ONE % unit(source)).encode(), translate).decode()
    if "</target>" not in made:
        assert not re.sub(r"<[^<>]*>|\s", "", source)
        return
    target = made.partition("<target")[2].partition(">")[2].partition("</target>")[0]
    pattern = r"<[^<>]*>|\{0\}|&lt;br/&gt;"
    assert sorted(re.findall(pattern, target)) == sorted(re.findall(pattern, source))
    assert filled("a.xlf", made.encode(), translate) == made.encode()


def test_the_branches_of_icu_are_pairs_in_which_the_same_character_stands_for_the_same_element() -> None:
    source = '{V, plural, =1 {<x id="1"/> dog} other {<x id="2"/> dogs}}'
    target = '{V, plural, =1 {Hund <x id="1"/>} other {<x id="2"/> Hunde}}'
    others = "{V, plural, =1 {ein", target.replace('"1"', '"3"')
    text = ONE % "".join(unit(source, f"<target>{text}</target>") for text in (target, *others))
    pairs = [
        pair if isinstance(pair, str) else pair[0].paired_lines(pair[1]) is not None
        for pair in xliff_pairs(text, Languages("en", "de"))
    ]
    assert pairs == [True, True, "placeholders", "placeholders"]


def test_unclear_branches_of_icu_and_other_placeholders_are_left_out() -> None:
    body = ONE % (unit("{VAR, plural, =1 {a <g>dog</g>} other {x dogs}}") + unit("the {name} here"))
    (opened,) = open_file("a.xlf", body.encode(), 10_000, Filling("de")).texts
    document = xliff_document(opened, "en", Filling("de"))
    assert len(document.lines) == 1
    assert document.joined([Translated("hier")]) == body
    assert isinstance(document, FilledDocument)
    assert document.left == 2


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


def test_an_earlier_translation_stays_where_the_source_is_unclear() -> None:
    source = "{n, plural, other {# cats}} and {m, plural, other {# dogs}}"
    earlier = (ONE % unit(source, "<target>x</target>")).encode()
    assert filled("a.xlf", (ONE % unit(source)).encode(), existing=earlier) == earlier
