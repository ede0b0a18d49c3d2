"""Reads tables in CSV and TSV: columns are translated in place, or into other columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from vtrans.apps.documents.document import FilledDocument, Filling, Slot
from vtrans.apps.documents.program_strings import ProgramString, format_flags
from vtrans.system.errors import DocumentError
from vtrans.text.languages import base

Row = list[tuple[int, str]]
"""The begin of each cell of a row, and the cell as written."""
_LINE_END = re.compile("[\r\n]")
_QUOTED = re.compile(r'(?<![^,;\t\r\n])"(?:[^"]|"")*+"(?![^,;\t\r\n])')


def table_document(text: str, language: str, filling: Filling = Filling(), *, separators: str) -> FilledDocument:
    """Returns a table whose first row names its columns, with the cells to translate as slots.

    The separator is the one of `separators` that is most frequent in the first row outside quotation marks. Each of
    `filling.columns` names a column to translate in place, or has the form `SOURCE:TARGET`, which fills the empty cells
    of TARGET, or all of them with `filling.overwrite`. The default is the two columns named like the codes of the
    languages. Raises DocumentError for unknown columns, and for a row with fewer or more cells than the first.
    """
    first_row = _LINE_END.split(_QUOTED.sub("", text), maxsplit=1)[0]
    separator = max(separators, key=first_row.count)
    rows = _rows(text, separator)
    names = [_content(raw).strip() for _, raw in next(rows, [])]
    if filling.columns:
        chosen = [_places(names, column) for column in filling.columns]
    elif language and filling.target:
        codes = [base(name.lower()) for name in names]
        chosen = [_places(codes, f"{base(language)}:{base(filling.target)}")]
    else:
        raise DocumentError("The languages of the table's columns are unknown; choose columns.")
    if repeated := [names[tgt] for tgt, times in Counter(tgt for _, tgt in chosen).items() if times > 1]:
        raise DocumentError(f"Each column must be filled once, got {repeated[0]!r} more often.")
    slots = []
    for row in rows:
        if len(row) != len(names) and any(raw for _, raw in row):
            line = text.count("\n", 0, row[0][0]) + 1
            raise DocumentError(f"the row must have {len(names):,} cells like the first, got {len(row):,}.", line)
        for src, tgt in sorted(chosen, key=lambda pair: pair[1]) if len(row) == len(names) else ():
            source = _content(row[src][1])
            if source.strip() and (src == tgt or filling.overwrite or not _content(row[tgt][1]).strip()):
                slots.append(_slot(source, *row[tgt], separator, language))
    return FilledDocument(text, slots)


def _rows(text: str, separator: str) -> Iterator[Row]:
    """Yields the rows. A quoted cell may contain separators and line ends."""
    plain = rf"[^{separator}\r\n]*+"
    cell = re.compile(rf'("(?:[^"]|"")*+"(?=[{separator}\r\n]|\Z)|{plain})({separator}|\r\n?|\n|\Z)')
    row, place = Row(), 0
    while place < len(text) or row:
        match = cell.match(text, place)
        assert match is not None
        row.append((place, match[1]))
        place = match.end()
        if match[2] != separator:
            yield row
            row = []


def _content(raw: str) -> str:
    """Returns the text of a cell."""
    is_quoted = len(raw) > 1 and raw[0] == raw[-1] == '"' and '"' not in raw[1:-1].replace('""', "")
    return raw[1:-1].replace('""', '"') if is_quoted else raw


def _slot(source: str, begin: int, raw: str, separator: str, language: str) -> Slot:
    """Returns the slot of a cell that receives the translation of `source`."""
    string = ProgramString(source, format_flags(source, "c-format"), language)

    def written(texts: list[str]) -> str | None:
        text = string.finished(texts[0])
        needs_quotes = raw[:1] == '"' or text[:1] == '"' or any(sign in text for sign in f"{separator}\r\n")
        return ('"{}"'.format(text.replace('"', '""')) if needs_quotes else text) if text else None

    return Slot(begin, begin + len(raw), [string.document], written)


def _places(names: Sequence[str], column: str) -> tuple[int, int]:
    """Returns the indices of the source and target columns, equal for a column translated in place."""
    pair = [column, column] if column in names else column.split(":")
    wrong = [name for name in pair if names.count(name) != 1] if len(pair) == 2 else [column]
    if wrong:
        known = ", ".join(islice(map(repr, names), 20))
        raise DocumentError(
            f"The first row must have exactly one column {wrong[0]!r}, got {known}; choose other columns."
        )
    src, tgt = map(names.index, pair)
    return src, tgt
