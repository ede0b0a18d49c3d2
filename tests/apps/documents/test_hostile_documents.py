"""Hostile documents are read and written in linear time, in encodings that are supported."""

import json
import sys
import time
from types import FrameType
from typing import Any

import pytest
from catalogues import filled

from vtrans.apps.documents.document import Translated
from vtrans.apps.documents.files import open_file
from vtrans.system.errors import DocumentError

LIMIT = 10**7
PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n#, {}\nmsgid "word {}"\nmsgstr ""\n'


def written(name: str, text: str) -> bytes:
    """Returns a file in which every line is translated as itself."""
    opened = open_file(name, text.encode(), LIMIT)
    documents = [opened.read(part, "en") for part in opened.texts]
    return opened.written([document.joined([*map(Translated.unchanged, document.lines)]) for document in documents])


ANDROID = '<resources><string name="a">{}</string></resources>'


@pytest.mark.parametrize(
    ("name", "text"),
    {
        "placeholders": ("a.json", json.dumps({"a": "word " + "%s" * 60_000})),
        "roles": ("a.json", json.dumps({"a": "word " + ":a" * 60_000})),
        "blanks in an Android string": ("a.xml", ANDROID.format("a" + " " * 60_000 + "b")),
        "escaped tags in an Android string": ("a.xml", ANDROID.format("a " + "&lt;x:g>" * 10_000)),
        "flags of printf": ("a.po", PO.format("c-format", "%" + "0" * 60_000)),
        "tags in a PO file": ("a.po", PO.format("c-format", "<b>" * 20_000)),
        "markup in a PO file": ("a.po", PO.format("c-format", "B<" * 30_000)),
        "accelerators": ("a.po", PO.format("c-format", "_" * 60_000)),
        "punctuation in a tag": ("a.html", f"A <b>dog{'!' * 60_000}a</b> runs."),
        "a repeated word in a tag": ("a.html", f"A <b>dog {'a ' * 60_000}</b> runs."),
        "quotation marks": ("a.txt", "\u00ab" * 120_000),
    }.values(),
)
def test_a_hostile_document_is_read_in_linear_time(name: str, text: str) -> None:
    began = time.process_time()
    assert len(written(name, text)) >= len(text)
    assert time.process_time() - began < 4, "60,000 pieces take less than a second, and far more if it is quadratic"


UNIT = "<xliff><trans-unit><source>%s</source></trans-unit></xliff>"
BROKEN_XML = {
    "an entity bomb": f'<!DOCTYPE xliff [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;">]>{UNIT % "&b;"}',
    "a file of the system": '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><xliff>&x;</xliff>',
    "an entity that nobody declares": UNIT % "&b;",
    "half an element": (UNIT % "a")[:-30],
    "tags that cross": UNIT % "<g><x></g></x>",
    "deep elements": UNIT % ("<g>" * 500 + "</g>" * 500),
    "another root": "<a><xliff/><TS/></a>",
    "text": "x",
}
XCODE = '{"sourceLanguage": "en", "strings": %s}'
BROKEN = {
    "a deep array": ("a.json", b"[" * 100_000),
    "a deep object": ("a.json", b'{"a":' * 300 + b"1" + b"}" * 300),
    "half a file": ("a.json", b'{"a": "b'),
    "no number": ("a.json", b"[NaN]"),
    "a control character": ("a.json", b'["a\nb"]'),
    "UTF-16 without a mark": ("a.json", '{"a": "b"}'.encode("utf-16-le")),
    "no XML": ("a.xml", b"x"),
    "other XML": ("a.xml", b'<project><target name="a">b c</target></project>'),
    "an entity": ("a.xml", b'<!DOCTYPE r [<!ENTITY a "b">]><resources><string name="a">&a;</string></resources>'),
    "an open comment": ("a.strings", b'"a" = "b"; /* c'),
    "no semicolon": ("a.strings", b'"a" = "b"'),
    "an open string": ("a.strings", b'"a" = "b;\n' * 1001),
    "white space": ("a.strings", b'"a"' + b" " * 100_000),
    "open comments": ("a.strings", b'"a"' + b"/*" * 50_000),
    "a binary file": ("a.strings", b"bplist00\x00\xff"),
    "a property list": ("a.strings", b'<?xml version="1.0"?><plist/>'),
    "TypeScript": ("a.ts", b"export const a: string = 'b c';\n"),
    "a video": ("a.ts", b"G@\x11\x10\x00B\xf0%\x00\x01" * 100),
    "no catalogue": ("a.xcstrings", b'{"a": "b"}'),
    "no object": ("a.xcstrings", b"[]"),
    "entries that are texts": ("a.xcstrings", (XCODE % '{"a": "b"}').encode()),
    "localizations in an array": ("a.xcstrings", (XCODE % '{"a": {"localizations": []}}').encode()),
    "a huge number": ("a.xcstrings", (XCODE % f'{{"a": {{"b": {"9" * 5000}}}}}').encode()),
    "deep entries": ("a.xcstrings", (XCODE % ('{"a":' * 300 + "1" + "}" * 300)).encode()),
    "no source": ("a.xlf", b"<xliff><trans-unit/></xliff>"),
    **{f"{name} in {end}": (f"a.{end}", xml.encode()) for name, xml in BROKEN_XML.items() for end in ("xlf", "ts")},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_document_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(DocumentError, match=r"^[^\n]{10,150}\.$"):
        filled(*BROKEN[name])


MARKDOWN = ("[", "![", "[^", "![](", "[a](b) ", "*a ", "> ", "a\n", "`", "<b>", "$", "$a", "==a", "{%", "!!! a\n    ")


@pytest.mark.parametrize("piece", MARKDOWN)
def test_a_character_of_markdown_costs_few_calls(piece: str) -> None:
    calls, length = 0, 500

    def count(frame: FrameType, event: str, value: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        written("a.md", piece * (length // len(piece)))
    finally:
        sys.setprofile(None)
    assert calls < 500 * length


XLIFF = (
    '<?xml version="1.0" encoding="{}"?><xliff version="1.2"><file source-language="en" target-language="de"><body>'
    '<trans-unit id="a"><source>A dog runs.</source></trans-unit></body></file></xliff>'
)


@pytest.mark.parametrize("encoding", ["idna", "punycode", "unicode_escape", "undefined", "hex", "nothing"])
def test_a_declared_encoding_that_is_not_of_text_is_refused(encoding: str) -> None:
    html = f'<meta charset="{encoding}"><p>A dog runs.</p>'
    po = f'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset={encoding}\\n"\n\nmsgid "A dog."\nmsgstr ""\n'
    for name, text in {"a.xlf": XLIFF.format(encoding), "a.html": html, "a.po": po}.items():
        with pytest.raises(DocumentError):
            open_file(name, text.encode(), LIMIT)


@pytest.mark.parametrize("encoding", ["utf-16le", "utf-16be", "utf-32le", "utf-32be"])
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.json", "a.xlf", "a.html"])
def test_a_document_in_utf16_stays_in_it(name: str, encoding: str) -> None:
    text = {"a.json": '{"a": "A dog runs."}', "a.xlf": XLIFF.format("utf-16")}.get(name, "A dog runs.\n")
    marked = f"\ufeff{text}".encode(encoding)
    opened = open_file(name, marked, LIMIT)
    assert opened.texts == [text]
    assert opened.written(opened.texts) == marked
    with pytest.raises(DocumentError):
        open_file(name, text.encode(encoding), LIMIT)
