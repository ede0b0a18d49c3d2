"""Tables in CSV and TSV: the chosen columns are translated, and every other cell stays as it is written."""

import csv
import io

import hypothesis.strategies as st
import pytest
from catalogues import loud, reverse
from hypothesis import given, settings

from vtrans.apps.documents.document import Filling
from vtrans.apps.documents.files import open_file
from vtrans.system.errors import DocumentError

TABLE = 'id;text;en;de\r\n1;"A dog; a cat";a file;\r\n"2";"say ""hello""";b c;"d"\r\n3;;%d files;\r\n\r\n4;%;OK;  '
CELL = st.text(st.sampled_from('ab ,;\t"\n\r.'), max_size=8)


def translated(text: str, *columns: str, ending: str = ".csv", overwrite: bool = False) -> str:
    filling = Filling("de", overwrite, "en", columns=columns)
    opened = open_file(f"a{ending}", text.encode(), 100_000, filling)
    document = opened.read(opened.texts[0], "en")
    return opened.written([document.joined([reverse(line) for line in document.lines])]).decode()


def test_the_empty_cells_of_a_translation_are_filled() -> None:
    filled = TABLE.replace("file;\r", "file;file a\r").replace("files;\r", "files;files %d\r").replace("OK;  ", "OK;OK")
    assert translated(TABLE) == translated(TABLE, "en:de") == filled
    assert translated(filled) == filled
    assert translated(TABLE, overwrite=True) == filled.replace('"d"', '"c b"')


def test_columns_are_translated_in_place_and_written_with_the_marks_that_they_need() -> None:
    made = translated(TABLE, "text", "en")
    assert made.startswith('id;text;en;de\r\n1;"cat a dog; A";file a;\r\n"2";"""hello"" say";c b;"d"\r\n')
    assert translated("x,y\na b,c d", "x:y", overwrite=True) == "x,y\na b,b a"
    assert translated("text:x,x\na b,c d", "text:x") == "text:x,x\nb a,c d"


@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n"])
def test_only_the_first_row_tells_the_separator_and_not_what_is_quoted(line_end: str) -> None:
    table = line_end.join(['"a, b, or\nc";en;de', "x, y;a b, c;%s", ""])
    assert translated(table % "") == table % "c b, a"


@settings(max_examples=40)
@given(st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=4), st.booleans(), st.sampled_from([",", ";", "\t"]))
def test_other_readers_find_the_other_cells_as_they_were(
    rows: list[tuple[str, str, str]], quoted: bool, separator: str
) -> None:
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=separator, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)
    writer.writerows([("x", "text", "y"), *rows])
    filling = Filling("de", columns=("text",))
    opened = open_file("a.csv", written.getvalue().encode(), 100_000, filling)
    document = opened.read(opened.texts[0], "en")
    made = document.joined([loud(line) for line in document.lines])
    read = list(csv.reader(io.StringIO(made, newline=""), delimiter=separator))[1:]
    assert [(row[0], row[2]) for row in read] == [(row[0], row[2]) for row in rows]
    for row, (_, source, _) in zip(read, rows, strict=True):
        assert row[1].split() == source.upper().split()


@pytest.mark.parametrize(
    ("text", "columns", "wrong"),
    [
        ("a,b\nc\n", ["a"], r"Line 2: the row must have 2 cells like the first, got 1\."),
        ('a,b\n"c\nd",e\nf,g,h\n', ["a"], r"Line 4: .*got 3\."),
        ("a,b\nc,d\n", ["c"], r"exactly one column 'c', got 'a', 'b';"),
        ("a,a\nc,d\n", ["a"], r"exactly one column 'a'"),
        ("a,b\nc,d\n", ["a:c"], r"exactly one column 'c'"),
        ("a,b,c\nc,d,e\n", ["a:c", "b:c"], r"must be filled once, got 'c' more often\."),
        ("en,fr\nc,d\n", [], r"exactly one column 'de', got 'en', 'fr'; choose"),
    ],
)
def test_a_table_without_such_columns_is_refused(text: str, columns: list[str], wrong: str) -> None:
    with pytest.raises(DocumentError, match=wrong):
        translated(text, *columns)


@pytest.mark.parametrize(("source", "target"), [("", "de"), ("en", "")])
def test_a_column_without_a_name_is_not_that_of_an_unknown_language(source: str, target: str) -> None:
    opened = open_file("a.csv", b",en,de\n1,a b,\n", 100_000, Filling(target, source=source))
    with pytest.raises(DocumentError, match="unknown"):
        opened.read(opened.texts[0], source)
