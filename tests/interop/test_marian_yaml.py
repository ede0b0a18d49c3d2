"""The YAML that Marian writes."""

from __future__ import annotations

import pytest

from vtrans.errors import FileError
from vtrans.interop.marian.yaml import Value, read_mapping

READ: dict[str, dict[str, Value]] = {
    "": {},
    "a: 1\nb: two words\nc: v1.0#1 # a comment\n": {"a": "1", "b": "two words", "c": "v1.0#1"},
    "a: \"\"\nb: ''\nc:\nd: ~\ne: no\n": {"a": "", "b": "", "c": "", "d": "~", "e": "no"},
    "a:\n  - 1\n  - 'x, y'\nb: [1, 2]\nc:\n  []\nd:\n- m\n": {"a": ["1", "x, y"], "b": ["1", "2"], "c": [], "d": ["m"]},
    "# comment\n---\na: 1\r\n\nb: [ ]\n...\n": {"a": "1", "b": []},
    # A vocabulary, as Marian writes it.
    '":": 2\n"\\"q\\"": 3\n"::": 4\na:b: 5\n\\: 6\n"\'": 7\n\'it\'\'s\': 8\n▁the: 9\n"null": 10\n': {
        ":": "2", '"q"': "3", "::": "4", "a:b": "5", "\\": "6", "'": "7", "it's": "8", "▁the": "9", "null": "10",
    },
    '"\\x85": 0\n"\\u00ad": 1\n"\\U0001F600": 2\n"\\_\\N\\t": 3\n\u00a0x: 4\n"\\u2028": 5\n? long\n: 6\n': {
        "\x85": "0", "\u00ad": "1", "😀": "2", "\u00a0\x85\t": "3", "\u00a0x": "4", "\u2028": "5", "long": "6",
    },
}  # fmt: skip
REFUSED = (
    "a", "- a\n- b\n", "a: &x 1\nb: *x\n", "a: !!python/object/apply:os.system [true]\n", "a: {b: 1}\n",
    "a:\n  b: 1\n", "a: 1\na: 2\n", "a: [[1], 2]\n", 'a: "\\q"\n', 'a: "\\UFFFFFFFF"\n', 'a: "open\n', "a: 'open\n",
    "a: [&x 1]\n", "<<: *x\n", "a: @x\n", "a: !!str 1\n", "a: ! 1\n", "a: 1\n---\na: 1\n", "a:\n  - b: 1\n",
    "? a\nb: 1\n? [c]\n: 2\n",
)  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_what_marian_writes_is_read(text: str) -> None:
    assert read_mapping(text.encode(), "x.yml") == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(FileError, match=r"x\.yml"):
        read_mapping(text.encode(), "x.yml")
