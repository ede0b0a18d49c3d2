"""XLIFF and TMX: what is filled and how, that all else stays, and what is refused."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from catalogues import filled, reverse, rotated, same
from hypothesis import given

from vtrans.documents.document import FilledDocument, Translated
from vtrans.documents.files import Filling, open_file
from vtrans.documents.xliff import xliff_document, xliff_pairs
from vtrans.errors import DocumentError
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


def one(body: str, **options: bool) -> str:
    """Returns the translated form of a body in XLIFF 1.2."""
    made = filled("a.xlf", (ONE % body).encode(), **options).decode()  # type: ignore[arg-type]
    before, after = (ONE % "\0").split("\0")
    assert made.startswith(before)
    assert made.endswith(after)
    return made[len(before) : len(made) - len(after)]


def unit(source: str, target: str = "", attributes: str = "") -> str:
    return f'\n  <trans-unit id="1"{attributes}>\n   <source>{source}</source>{target}<note>n o</note>\n  </trans-unit>'


def test_a_unit_without_a_target_gets_one() -> None:
    assert one(unit("a b")) == unit("a b", f"\n   {REVIEW}b a</target>")


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


def test_overwriting_replaces_a_target_and_its_state() -> None:
    made = one(unit("a b", '<target state="translated">x</target>'), overwrite=True)
    assert made == unit("a b", f"{REVIEW}b a</target>")


def test_groups_that_are_not_translated_may_have_units_that_are() -> None:
    inside = unit("a b") + unit("c d", attributes=' translate="yes"')
    made = one(f'<group translate="no">{inside}</group>')
    assert made == f'<group translate="no">{inside}</group>'.replace(
        "c d</source>", f"c d</source>\n   {REVIEW}d c</target>"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('a <g id="1">b c</g> d', 'd <g id="1">c b</g> a'),
        ('a <x id="1"/> b', 'b <x id="1"/> a'),
        ('a <x id="1"/><x id="2"/> b', 'b <x id="2"/> <x id="1"/> a'),
        (
            'a <bpt id="1">&lt;b></bpt>b c<ept id="1">&lt;/b></ept> d',
            'd <bpt id="1">&lt;b></bpt>c b<ept id="1">&lt;/b></ept> a',
        ),
        ('a <bx id="1" rid="9"/>b<ex id="2" rid="9"/> c', 'c <bx id="1" rid="9"/>b<ex id="2" rid="9"/> a'),
        ('a <ph id="1">%s <sub>x y</sub></ph> b', 'b <ph id="1">%s <sub>x y</sub></ph> a'),
        ('a <mrk mtype="protected">b c</mrk> d', 'd <mrk mtype="protected">b c</mrk> a'),
        ("a &lt;b&gt;c d&lt;/b&gt; &amp; e", "e &amp; &lt;b&gt;d c&lt;/b&gt; a"),
        ("a {0} %s &#252;", "ü %s {0} a"),
        ("<![CDATA[a <b>c d</b>]]>", "&lt;b&gt;d c&lt;/b&gt; a"),
        ("a\n      b c", "c b a"),
        ("a b\nc d", "b a\nd c"),
        ("E&amp;xit now", "now E&amp;xit"),
        ("_File", "_File"),
    ],
)
def test_inline_elements_stay_around_their_words(source: str, expected: str) -> None:
    assert one(unit(source)) == unit(source, f"\n   {REVIEW}{expected}</target>")


def test_the_segments_of_a_source_stay_segments() -> None:
    source = '<mrk mtype="seg" mid="0">a b.</mrk> <mrk mtype="seg" mid="1">C d.</mrk>'
    made = one(f"<trans-unit><source>a b. C d.</source><seg-source>{source}</seg-source></trans-unit>")
    assert (
        f'{REVIEW}<mrk mtype="seg" mid="0">b. a</mrk> <mrk mtype="seg" mid="1">d. C</mrk></target></trans-unit>' in made
    )


def test_prefixes_and_encodings_stay() -> None:
    text = (
        '<?xml version="1.0" encoding="UTF-16"?><x:xliff version="1.2" xmlns:x="urn:oasis:names:tc:xliff:document:1.2">'
    )
    text += "<x:file><x:body><x:trans-unit><x:source>ü b</x:source>%s</x:trans-unit></x:body></x:file></x:xliff>"
    target = '<x:target state="needs-review-translation">b ü</x:target>'
    for codec in ("utf-16-le", "utf-16-be"):
        assert filled("a.xlf", ("\ufeff" + text % "").encode(codec)) == ("\ufeff" + text % target).encode(codec)
    latin = text.replace("UTF-16", "ISO-8859-1")
    assert filled("a.xliff", (latin % "").encode("latin-1")) == (latin % target).encode("latin-1")
    emoji = filled("a.xliff", (latin % "").encode("latin-1"), lambda line: Translated("ü \U0001f642"))
    assert b">\xfc &#128578;</x:target>" in emoji


def two(body: str, attributes: str = ' trgLang="de"', **options: bool) -> str:
    made = filled("a.xlf", (TWO % (attributes, body)).encode(), **options).decode()  # type: ignore[arg-type]
    match = re.fullmatch(r".*<unit id=.u.>(.*)</unit></file></xliff>\n", made, re.DOTALL)
    assert match
    assert made == TWO % (' trgLang="de"' if match[1] != body else attributes, match[1])
    return match[1]


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        (
            "<segment><source>a b</source></segment>",
            '<segment state="translated" subState="vtrans:review"><source>a b</source><target>b a</target></segment>',
        ),
        (
            '<segment id="1" state="initial" subState="x:y">\n <source>a b</source>\n <target/>\n</segment>',
            '<segment id="1" state="translated" subState="vtrans:review">\n <source>a b</source>\n'
            " <target>b a</target>\n</segment>",
        ),
        (
            '<segment><source>a <pc id="1">b c</pc> <ph id="2"/> d</source></segment>',
            '<segment state="translated" subState="vtrans:review"><source>a <pc id="1">b c</pc> <ph id="2"/> d</source>'
            '<target>d <ph id="2"/> <pc id="1">c b</pc> a</target></segment>',
        ),
        (
            '<segment><source>a <sc id="1"/>b<ec startRef="1"/> c</source></segment>',
            '<segment state="translated" subState="vtrans:review"><source>a <sc id="1"/>b<ec startRef="1"/> c</source>'
            '<target>c <sc id="1"/>b<ec startRef="1"/> a</target></segment>',
        ),
        ("<segment><source>a b</source><target>x</target></segment>", None),
        ('<segment state="final"><source>a b</source><target/></segment>', None),
        ("<ignorable><source> </source></ignorable>", None),
    ],
)
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


TMX = (
    '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header srclang="en"/><body>\n'
    '<tu>\n  <tuv xml:lang="en-US"><seg>a <bpt i="1">x</bpt>b c<ept i="1">y</ept></seg></tuv>%s\n</tu></body></tmx>\n'
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '\n  <tuv xml:lang="de"><seg><bpt i="1">x</bpt>c b<ept i="1">y</ept> a</seg></tuv>'),
        ('<tuv lang="DE"><seg/></tuv>', '<tuv lang="DE"><seg><bpt i="1">x</bpt>c b<ept i="1">y</ept> a</seg></tuv>'),
        ('<tuv xml:lang="de"><seg>z</seg></tuv>', '<tuv xml:lang="de"><seg>z</seg></tuv>'),
    ],
)
def test_a_memory_gets_the_translations_that_it_lacks(before: str, after: str) -> None:
    assert filled("a.tmx", (TMX % before).encode()).decode() == TMX % after


TREE = st.recursive(
    st.sampled_from(["dog ", "two. Three ", "{0}", "&amp;", '<x id="%"/>', "\n   ", "&lt;br/&gt;"]),
    lambda inner: st.lists(inner, max_size=4).map(lambda parts: f'<g id="%">{"".join(parts)}</g>'),
    max_leaves=12,
)


@given(st.lists(TREE, min_size=1, max_size=4).map("".join), st.sampled_from([same, reverse, rotated]))
def test_every_inline_element_is_there_once_and_nested(source: str, translate: object) -> None:
    for number in range(source.count("%")):
        source = source.replace("%", str(number), 1)
    made = filled("a.xlf", (ONE % unit(source)).encode(), translate).decode()  # type: ignore[arg-type]
    if "</target>" not in made:
        assert not re.sub(r"<[^<>]*>|\s", "", source)
        return
    target = made.partition("<target")[2].partition(">")[2].partition("</target>")[0]
    pattern = r"<[^<>]*>|\{0\}|&lt;br/&gt;"
    assert sorted(re.findall(pattern, target)) == sorted(re.findall(pattern, source))
    assert filled("a.xlf", made.encode(), translate) == made.encode()  # type: ignore[arg-type]


ENTITIES = '<!DOCTYPE xliff [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;">]>'
HOSTILE = {
    "an entity bomb": ENTITIES + ONE.partition("?>\n")[2] % unit("&b;"),
    "a file of the system": '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><xliff>&x;</xliff>',
    "an entity that nobody declares": ONE % unit("&b;"),
    "half a file": (ONE % unit("a"))[:-30],
    "tags that cross": ONE % unit("<g><x></g></x>"),
    "deep elements": ONE % unit("<g>" * 500 + "</g>" * 500),
    "another root": "<a/>",
    "no source": ONE % "<trans-unit/>",
    "no XML": "x",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("ending", ["xlf", "tmx"])
def test_a_broken_file_is_refused(name: str, ending: str) -> None:
    with pytest.raises(DocumentError, match=r"^[^\n]{10,150}\.$"):
        filled(f"a.{ending}", HOSTILE[name].encode())


def test_an_error_names_the_line() -> None:
    with pytest.raises(DocumentError, match=r"^Line 5: "):
        filled("a.xlf", (ONE % "\n<trans-unit></group>").encode())


def test_an_empty_translation_leaves_the_unit() -> None:
    content = (ONE % unit("a b")).encode()
    assert filled("a.xlf", content, lambda line: Translated("")) == content


@pytest.mark.parametrize("source", ["a " * 50_000, '<x id="1"/>' * 5000, '<g id="1">a</g>' * 5000, "&amp;" * 50_000])
def test_a_huge_unit_is_quick(source: str) -> None:
    assert filled("a.xlf", (ONE % unit(source)).encode(), same)


@pytest.mark.parametrize(
    ("state", "target", "is_filled"),
    [
        ("needs-translation", "a big <g id='1'>dog</g>", True),
        ("new", "a big <g id='1'>dog</g>", True),
        ("needs-translation", "ein Hund", False),
        ("translated", "a big <g id='1'>dog</g>", False),
        ("needs-review-translation", "a big <g id='1'>dog</g>", False),
    ],
)
def test_a_new_target_that_copies_its_source_is_no_translation(state: str, target: str, is_filled: bool) -> None:
    unit = f"<source>a big <g id='1'>dog</g></source><target state=\"{state}\">{target}</target>"
    text = f'<xliff version="1.2"><file><body><trans-unit>{unit}</trans-unit></body></file></xliff>'
    made = filled("a.xlf", text.encode())
    assert (made != text.encode()) == is_filled
    assert (b"<target state=\"needs-review-translation\"><g id='1'>dog</g> big a</target>" in made) == is_filled


@pytest.mark.parametrize(
    ("languages", "named"),
    [(("de", "fr"), "de to fr"), (("en", "fr-CA"), "fr-CA"), (("de", "de"), "de to de"), (("", "fr"), "fr")],
)
def test_a_file_in_other_languages_is_refused(languages: tuple[str, str], named: str) -> None:
    first = '<file source-language="en_GB" target-language="de_AT"><body/></file>'
    other = f'<file source-language="{languages[0]}" target-language="{languages[1]}"><body/></file>'
    two = '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="{}" trgLang="{}"/>'
    for text in (f'<xliff version="1.2">{first}{other}</xliff>', two.format(*languages)):
        with pytest.raises(DocumentError, match=named):
            open_file("a.xlf", text.encode(), 10_000, Filling("de", source="en"))
        assert open_file("a.xlf", text.encode(), 10_000)
    assert open_file("a.xlf", text.encode(), 10_000, Filling(languages[1], source=languages[0]))
    assert open_file("a.xlf", f'<xliff version="1.2">{first}</xliff>'.encode(), 10_000, Filling("de", source="en"))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("{VAR, plural, =1 {a dog} other {x dogs}}", "{VAR, plural, =1 {dog a} other {dogs x}}"),
        (
            '{V, plural,\n  =1 {a\n  dog} other {<x id="I" equiv-text="{{n}}"/> &lt; dogs}}',
            '{V, plural, =1 {dog a} other {dogs &lt; <x id="I" equiv-text="{{n}}"/>}}',
        ),
    ],
)
def test_branches_of_icu_are_translated(source: str, target: str) -> None:
    assert one(unit(source)) == unit(source, f"\n   {REVIEW}{target}</target>")


def test_the_branches_of_icu_are_pairs_in_which_the_same_character_stands_for_the_same_element() -> None:
    source = '{V, plural, =1 {<x id="1"/> dog} other {<x id="2"/> dogs}}'
    target = '{V, plural, =1 {Hund <x id="1"/>} other {<x id="2"/> Hunde}}'
    text = ONE % (unit(source, f"<target>{target}</target>") + unit(source, "<target>{V, plural, =1 {ein</target>"))
    pairs = [
        pair if isinstance(pair, str) else pair[0].paired_lines(pair[1]) is not None
        for pair in xliff_pairs(text, Languages("en", "de"))
    ]
    assert pairs == [True, True, "placeholders"]


def test_unclear_branches_of_icu_and_other_placeholders_are_left_out() -> None:
    body = ONE % (unit("{VAR, plural, =1 {a <g>dog</g>} other {x dogs}}") + unit("the {name} here"))
    (opened,) = open_file("a.xlf", body.encode(), 10_000, Filling("de")).texts
    document = xliff_document(opened, "en", target="de")
    assert len(document.lines) == 1
    assert document.joined([Translated("hier")]) == body
    assert isinstance(document, FilledDocument)
    assert document.left == 2
