"""Laws of every format: what is no text stays, and so do tags and placeholders, and the result is read again."""

import io
import re
import zipfile
from collections import Counter

import hypothesis.strategies as st
import pytest
from catalogues import filled, loud, reverse, same
from hypothesis import given, settings
from office_files import docx, zipped

from vtrans.apps.documents.files import COMPLETED, FORMATS, open_file
from vtrans.apps.documents.formats.xliff import XLIFF_ENDINGS

OFFICE = "urn:oasis:names:tc:opendocument:xmlns"
SLIDE = "http://schemas.openxmlformats.org/drawingml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
PRESERVED = ' xml:space="preserve"'
CELL = f"<si><t{PRESERVED}>%s</t></si>"
PARAGRAPH = "<a:p><a:r><a:t>%s</a:t></a:r></a:p>"
TEXTS = {
    ".txt": "%s\n\n%s\n",
    ".html": '<!-- x --><html lang="de"><p class="x">%s<br>%s</p><script>x y</script></html>\n',
    ".srt": "1\n00:00:01,000 --> 00:00:02,000\n%s\n\n2\n00:00:02,000 --> 00:00:03,000\n%s\n",
    ".vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\n%s\n\n00:02.000 --> 00:03.000 align:end\n%s\n",
    ".md": "# %s\n\n```\nx y\n```\n\n* %s\n",
    ".json": '{"x": "%s", "y": ["%s", 1]}\n',
    ".strings": '/* x y */\n"x" = "%s";\n"y" = "%s";\n',
    ".properties": "# x y\nx=%s\ny = %s\n",
    ".xml": '<resources>\n  <string name="x">%s</string>\n  <string name="y">%s</string>\n</resources>\n',
    ".resx": '<root><data name="x"><value>%s</value></data><data name="y"><value>%s</value></data></root>\n',
}
ZIPS = {
    ".docx": docx("<w:p><w:r><w:t>%s</w:t></w:r></w:p><w:p><w:r><w:t>%s</w:t></w:r></w:p>"),
    ".odt": zipped(content_xml=f'<x xmlns:t="{OFFICE}:text:1.0"><t:p>%s</t:p><t:h>%s</t:h></x>'),
    ".pptx": zipped(ppt__slides__slide1_xml=f'<x xmlns:a="{SLIDE}">{PARAGRAPH}{PARAGRAPH}</x>'),
    ".xlsx": zipped(xl__sharedStrings_xml=f'<sst xmlns="{SHEET}">{CELL}{CELL}</sst>'),
    ".epub": zipped(x_xhtml='<html lang="de"><p>%s</p><p>%s</p></html>'),
}
WORDS = st.sampled_from(["a dog", "b.", "{name}", "c, d", "See it.", "\u00fc"])
SENTENCE = st.lists(WORDS, min_size=1, max_size=4).map(" ".join).filter(lambda text: text[0].isalpha())


def unzipped(content: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return "".join(file.read(name).decode(errors="replace") for name in file.namelist())


def written(ending: str, texts: tuple[str, str]) -> bytes:
    """A file with two texts."""
    if ending in TEXTS:
        return (TEXTS[ending] % texts).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(ZIPS[ending])) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, content.replace(b"%s", texts[0].encode(), 1).replace(b"%s", texts[1].encode(), 1))
    return made.getvalue()


def frame(ending: str, content: bytes) -> tuple[str, Counter[str]]:
    """A file without the words of its texts, and its tags and placeholders."""
    text = unzipped(content) if ending in ZIPS else content.decode()
    text = text.replace(PRESERVED, "").replace("\\u00FC", "\u00fc").replace("\\u00DC", "\u00dc")
    words = re.compile(r"\b(?:a|dog|b|c|d|see|it|name|\u00fc)\b|[ {},.\n]", re.IGNORECASE)
    return words.sub("", text), Counter(re.findall(r"<[^<>]*>|\{\w+\}", text))


@pytest.mark.parametrize("ending", [*TEXTS, *ZIPS])
@settings(max_examples=10)
@given(texts=st.tuples(SENTENCE, SENTENCE))
def test_what_is_no_text_stays(ending: str, texts: tuple[str, str]) -> None:
    content, name = written(ending, texts), f"a{ending}"
    unchanged = filled(name, content, same)
    assert frame(ending, unchanged) == frame(ending, content)
    assert unchanged == content or ending in (".docx", ".odt")
    for translate in (loud, reverse):
        made = filled(name, content, translate)
        assert frame(ending, made) == frame(ending, content)
        again = open_file(name, made, 10_000_000)
        assert len([again.read(text, "de") for text in again.texts]) == len(open_file(name, content, 10_000_000).texts)
        if ending in COMPLETED:
            assert filled(name, content, same, existing=made) == made


def test_every_format_has_a_law() -> None:
    catalogues = {*XLIFF_ENDINGS, ".po", ".pot", ".arb"}
    tables = {".csv", ".tsv"}  # test_tables.py
    assert FORMATS.keys() == {*TEXTS, *ZIPS, *tables, *catalogues, ".htm", ".markdown", ".mdx"}
