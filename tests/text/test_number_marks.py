"""The table of the marks of numbers says what CLDR does, as Babel has it.

`python tests/text/test_number_marks.py` writes the table. Review its changes before they are committed.
"""

import json
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import regex

import vtrans

pytest.importorskip("babel", reason="Babel is not installed: pip install babel")
from babel import localedata
from babel.core import get_cldr_version, get_global

TABLE = Path(vtrans.__file__).parent / "text" / "number_marks.json"
# minimumGroupingDigits of CLDR 47, which Babel leaves out; 1 for other locales.
MINIMUM = {1: "es_419 pt_AO", 2: "be bg es et hu ia ie it ka lv pl pt_PT ru_UA sl sq", 3: "ee"}
# Decimal and group marks that are drafts in CLDR 47, which Babel leaves out as well.
DRAFTS = {
    (",", "."): "az_Cyrl fr_MA fur nds vmw",
    (",", "\u00a0"): "de_AT ksh oc os prg szl",
    (",", "\u2019"): "lmo wae",
}
ZEROS = [c for c in map(chr, range(sys.maxunicode + 1)) if c.isdecimal() and unicodedata.digit(c) == 0]


def minimum(code: str) -> int:
    """Returns the fewest digits before the first group mark in a locale, which may be that of its parent."""
    own = next((number for number, codes in MINIMUM.items() if code in codes.split()), None)
    if own is not None:
        return own
    parent = get_global("parent_exceptions").get(code) or code.rpartition("_")[0]
    return minimum(parent) if parent else 1


@cache
def zero(system: str) -> str | None:
    """Returns the first digit of a numbering system, or None if it has other digits than those of its script."""
    if system in ("arab", "arabext"):
        return "\u0660" if system == "arab" else "\u06f0"
    script = regex.compile(rf"\p{{Script={system.removesuffix('dec')}}}")
    return next(filter(script.match, ZEROS), None) if system != "latn" else None


def marks(code: str) -> dict[str, Any]:
    """Returns a locale's row of the table, without its locales."""
    data: Any = localedata.load(code)
    symbols, system = data["number_symbols"], data["numbering_systems"]["native"]
    before, after = regex.split(r"[#0,]+", data["percent_formats"][None].pattern.partition(";")[0])
    latin = symbols["latn"]
    draft = (both for both, codes in DRAFTS.items() if code in codes.split() or code.partition("_")[0] in codes.split())
    decimal, group = next(draft, (latin["decimal"], latin["group"]))
    row = {
        "decimal": decimal,
        "group": group,
        "minimum": minimum(code),
        "sizes": data["decimal_formats"][None].grouping,
        "percent": f"{before}0{after}",
    }
    if first := zero(system):
        own = symbols.get(system) or row
        row["native"] = {"zero": first, **{key: own.get(key, row[key]) for key in ("decimal", "group")}}
    return row


def locales() -> Iterator[tuple[str, str]]:
    """Yields CLDR's locales as the table and as Babel names them: `pa_Arab_PK` is `pa-pk` too."""
    for code in localedata.locale_identifiers():
        yield code.lower().replace("_", "-"), code
        language, *rest = code.split("_")
        if len(rest) == 2 and get_global("likely_subtags").get(f"{language}_{rest[1]}") == code:
            yield f"{language}-{rest[1]}".lower(), code


def table() -> str:
    """Returns the table: a row for all locales with the same marks. One with the marks of its language has no row."""
    found = {name: json.dumps(marks(code)) for name, code in locales()}
    rows = defaultdict[str, list[str]](list)
    for name in sorted(found):
        parents = [name.rpartition("-")[0], "-".join(name.split("-")[::2]), name.partition("-")[0]]
        if found[name] != next((found[parent] for parent in parents if parent != name and parent in found), None):
            rows[found[name]].append(name)
    lines = (f'{row[:-1]}, "locales": "{" ".join(names)}"}}' for row, names in sorted(rows.items()))
    return f'{{"cldr": {get_cldr_version()}, "rows": [\n' + ",\n".join(lines) + "\n]}\n"


def test_the_table_says_what_cldr_does() -> None:
    text = TABLE.read_text(encoding="utf-8")
    if json.loads(text)["cldr"] != int(get_cldr_version()):
        pytest.skip("this Babel has another version of CLDR")
    assert text == table()


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
