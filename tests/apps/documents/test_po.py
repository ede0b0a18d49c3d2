"""PO files: what is filled and how, that all else stays, and what is refused."""

import re

import hypothesis.strategies as st
import polib
import pytest
from catalogues import Translate, filled, reverse, rotated, same
from hypothesis import given

from vtrans.apps.documents.document import FilledDocument, Translated
from vtrans.apps.documents.formats.po import po_document
from vtrans.system.errors import DocumentError

HEADER = """msgid ""
msgstr ""
"Project-Id-Version: a 1\\n"
"PO-Revision-Date: 2026-01-01 00:00+0000\\n"
"Last-Translator: A <a@example.org>\\n"
"Language-Team: none\\n"
"Language: de\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

"""


def po(body: str, header: str = HEADER) -> bytes:
    return (header + body).encode()


def entry(body: str) -> polib.POEntry:
    """Returns the translated form of the only entry."""
    (found,) = polib.pofile(filled("a.po", po(body)).decode())
    return found


def test_an_entry_of_which_a_sentence_has_no_translation_stays() -> None:
    source = HEADER + 'msgid "A dog. A cat."\nmsgstr ""\n\nmsgid "A bird."\nmsgstr ""\n'
    document = po_document(source, "en")
    assert document.lines == ["A dog.", "A cat.", "A bird."]
    written = document.joined([Translated("Ein Hund."), Translated(""), Translated("Ein Vogel.")])
    first, second = polib.pofile(written)
    assert (first.msgstr, first.fuzzy) == ("", False)
    assert (second.msgstr, second.fuzzy) == ("Ein Vogel.", True)


def test_an_entry_is_filled_and_fuzzy_and_every_other_byte_stays() -> None:
    source = (
        '# A comment: ü\n#. for translators\n#: a.c:1\n#, c-format\n#| msgid "old"\nmsgctxt  "menu"\n'
        'msgid "Open %s now"\nmsgstr ""\n\n#~ msgid "gone"\n#~ msgstr "weg"\n'
    )
    expected = source.replace("#, c", "#, fuzzy, c").replace('msgstr ""\n\n#~', 'msgstr "now %s Open"\n\n#~')
    assert filled("a.po", po(source)) == po(expected)
    windows = po(source).replace(b"\n", b"\r\n")
    assert filled("a.po", windows) == po(expected).replace(b"\n", b"\r\n")
    assert filled("a.po", b"\xef\xbb\xbf" + po(source)) == b"\xef\xbb\xbf" + po(expected)


def test_filled_entries_stay_unless_they_are_overwritten() -> None:
    body = 'msgid "a b"\nmsgstr "x"\n\n#, fuzzy\n#| msgid "a"\nmsgid "c d"\nmsgstr "y"\n'
    assert filled("a.po", po(body)) == po(body)
    expected = '#, fuzzy\nmsgid "a b"\nmsgstr "b a"\n\n#, fuzzy\n#| msgid "a"\nmsgid "c d"\nmsgstr "d c"\n'
    assert filled("a.po", po(body), overwrite=True) == po(expected)


MANY = "n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"


@pytest.mark.parametrize(
    ("plural", "one", "expected"),
    [
        (f"nplurals=3; plural=({MANY});", "one file", ["%d", "%d", "%d"]),  # Russian: form 0 also serves 21
        (f"nplurals=3; plural=({MANY});", "%d file", ["file %d", "files %d", "files %d"]),
        (f"nplurals=3; plural=({MANY});", "the file", ["%d", "%d", "%d"]),
        ("nplurals=2; plural=(n > 1);", "one file", ["%d", "%d"]),  # French: form 0 also serves 0
        ("nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : 3;", "one file", ["%d", "one", "%d", "%d"]),  # Arabic
    ],
)
def test_a_form_for_several_numbers_shows_the_number(plural: str, one: str, expected: list[str]) -> None:
    header = re.sub("(?<=Plural-Forms: ).*?(?=\\\\n)", lambda _: plural, HEADER)
    body = f'#, c-format\nmsgid "{one}"\nmsgid_plural "%d files"\n'
    body += "".join(f'msgstr[{n}] ""\n' for n in range(len(expected)))
    (found,) = polib.pofile(filled("a.po", po(body, header)).decode())
    assert all(part in form for part, form in zip(expected, found.msgstr_plural.values(), strict=True))


TEMPLATE = HEADER.replace("UTF-8", "CHARSET").replace("Language: de", "Language: ").replace(
    "nplurals=2; plural=(n != 1);", "nplurals=INTEGER; plural=EXPRESSION;"
)  # fmt: skip


def test_the_header_of_a_template_is_filled() -> None:
    body = 'msgid "one file"\nmsgid_plural "many files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    made = filled("a.pot", po(body, TEMPLATE), tgt="pt-BR").decode()
    header = TEMPLATE.replace("CHARSET", "UTF-8").replace("Language: ", "Language: pt_BR")
    assert made.startswith(header)
    assert made == filled("a.po", po(body, header), tgt="pt-BR").decode()
    assert "Language: \\n" in filled("a.pot", po(body, TEMPLATE), tgt="").decode()
    windows = po(body, TEMPLATE).replace(b"\n", b"\r\n")
    assert filled("a.pot", windows, tgt="pt-BR") == made.encode().replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    ("flag", "source", "expected"),
    [
        ("c-format", "%s in %s", "%2$s in %1$s"),
        ("c-format", "%s in %d", "%2$d in %1$s"),
        ("c-format", "%2$s in %1$s", "%1$s in %2$s"),
        ("c-format", "100%% of %s", "%s of 100%%"),
        ("c-format", "%*d of %s", ""),  # no numbers with a width that is an argument
        ("python-format", "%s in %d", ""),
        ("python-format", "%(name)s in %(place)s", "%(place)s in %(name)s"),
        ("python-brace-format", "{0} in {name}", "{name} in {0}"),
        ("python-brace-format", "{} is 100% done", "done 100% is {}"),
        ("kde-format", "%1 is %2", "%2 is %1"),
        ("python-brace-format", "{:d} in {:f}", ""),
        ("lisp-format", "~a in ~a", ""),
    ],
)
def test_a_program_never_gets_its_arguments_in_another_order(flag: str, source: str, expected: str) -> None:
    assert entry(f'#, {flag}\nmsgid "{source}"\nmsgstr ""\n').msgstr == expected


@pytest.mark.parametrize(
    "body",
    [
        'msgid "{n, selectordinal, one {#st dog} other {#th dog}}"\nmsgstr ""\n',
        '#, c-format\nmsgid "%d {n, plural, one {dog} other {dogs}}"\nmsgstr ""\n',
        'msgid "a \\a dog"\nmsgstr ""\n',
        'msgid "a \\\\\\101 dog"\nmsgstr ""\n',
    ],
)
def test_unclear_branches_and_escapes_of_c_are_left_out_and_counted(body: str) -> None:
    document = po_document(HEADER + body, "en")
    assert isinstance(document, FilledDocument)
    assert (document.lines, document.left) == ([], 1)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("_File", "_File"),
        ("Save _As", "_As Save"),
        ("E&xit now", "now E&xit"),
        ("Terms & conditions", "conditions & Terms"),
        ("the config_file here", "here config_file the"),
        ("a &lt; b", "b &lt; a"),
        ("<b>_Open it</b> now", "now <b>it _Open</b>"),
        ("<kbd>I</kbd> sets <b>WhoAmI</b>", "<b>WhoAmI</b> sets <kbd>I</kbd>"),  # no font of a man page
    ],
)
def test_an_accelerator_stays_before_its_letter_and_tags_around_their_words(source: str, expected: str) -> None:
    assert entry(f'msgid "{source}"\nmsgstr ""\n').msgstr == expected


PARTS = st.lists(
    st.sampled_from([*"""
    <b>| </b>|<i x='1'>|</i>|B<|>|I<|<br/>|E<gt>| --all |%s|{0}|{name}|dog |two. Three | |`c d`|<|&amp;|é|,
    """.strip().split("|"), "\n"]),
    max_size=15,
).map("".join)  # fmt: skip


@given(PARTS, st.sampled_from([same, reverse, rotated]))
def test_every_tag_and_placeholder_is_there_once_and_polib_reads_the_file(source: str, translate: Translate) -> None:
    file = polib.POFile(check_for_duplicates=False)
    file.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    file.append(polib.POEntry(msgid=source or "x", msgctxt="c"))
    file.append(polib.POEntry(msgid="z", msgstr="Z", occurrences=[("a", "1")]))
    content = str(file).encode()
    made = filled("a.po", content, translate)
    first, second = polib.pofile(made.decode())
    assert (first.msgid, first.msgctxt) == (source or "x", "c")
    assert str(second) == str(file[1])
    pattern = r"</?[bi][^<>]*>|[BI]<|<br/>|E<gt>|--all|%s|\{\w+\}|\n"
    if first.msgstr:
        assert sorted(re.findall(pattern, first.msgstr)) == sorted(re.findall(pattern, source))
        assert sorted(first.msgstr.replace(" ", "")) == sorted((source or "x").replace(" ", ""))
    assert filled("a.po", made, translate) == made or not first.msgstr.strip()


def test_long_strings_are_wrapped_as_their_source() -> None:
    words = "many words " * 20
    made = filled("a.po", po(f'msgid ""\n"{words}"\nmsgstr ""\n'), same).decode()
    assert polib.pofile(made)[0].msgstr == words.replace("  ", " ")
    assert max(map(len, made.rpartition("msgstr")[2].split("\n"))) <= 80


HOSTILE = {
    "no PO at all": (b"/etc/passwd", 1),
    "a string that does not end": (b'msgid "a\nmsgstr ""\n', 1),
    "no translation": (b'msgid "a"\nmsgstr ""\n\nmsgid "b"\n', 4),
    "no source": (b'# c\nmsgstr "a"\n', 1),
    "a second source": (b'msgid "a"\nmsgid "b"\nmsgstr ""\n', 2),
    "a plural without forms": (b'msgid "a"\nmsgid_plural "b"\nmsgstr ""\n', 1),
    "a string of nothing": (b'"a"\n', 1),
    "half a character": (b'msgid "a"\nmsgstr "\xc3"\n', 2),
    "NUL": (b'msgid "a"\nmsgstr "\0"\n', 2),
    "a plural formula that is none": (po("", HEADER.replace("n != 1", "__import__('os')")), 1),
    "a plural formula that divides by zero": (po("", HEADER.replace("n != 1", "n / 0")), 1),
    "a plural formula that divides by zero for nothing": (po("", HEADER.replace("n != 1", "1 % n")), 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_broken_file_is_refused_with_its_line(name: str) -> None:
    content, line = HOSTILE[name]
    with pytest.raises(DocumentError, match=rf"^Line {line}: [^\n]{{5,150}}\.$"):
        filled("a.po", content)
