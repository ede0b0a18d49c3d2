"""Reads the part of YAML that Marian writes: one mapping of scalars and lists of scalars.

Marian's settings and vocabularies need no more. PyYAML would be a dependency for this one file format. It takes the
last of two values of one key, reads `no` and `1:30` as other types, and accepts the anchors and the nesting of hostile
files. Everything outside the subset is refused with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vtrans.errors import FileError

Value = str | list[str] | None
"""A scalar as text, a list of them, or None for an empty value."""

_QUOTED = r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^']|'')*'"
# A plain scalar ends before " #"; a plain key ends before ": ". Only ASCII spaces separate: a piece may be U+00A0.
_ENTRY = re.compile(rf"({_QUOTED}|[^\s\"'].*?)\s*:(?:\s+(.*))?", re.ASCII)
_SCALAR = re.compile(rf"({_QUOTED}|(?![\"'&*!|>%@`{{}}\[\],#?]|[-?:](?:\s|$)).*?)(?:\s+#.*|\s*)", re.ASCII)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_ESCAPES = {
    **{c: c for c in '"\\/ \t'},
    **dict(zip("0abtnvfre", "\0\a\b\t\n\v\f\r\x1b", strict=True)),
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}


def read_mapping(data: bytes, name: str) -> dict[str, Value]:
    """Returns the entries of a mapping in order. `name` is what errors call the text.

    Raises FileError for text that is not UTF-8, anything outside the subset, and a key that occurs twice.
    """
    try:
        lines = data.decode().removeprefix("\ufeff").split("\n")
    except UnicodeDecodeError:
        raise FileError(f"{name} must be UTF-8 text.") from None
    entries: dict[str, Value] = {}
    try:
        for key, value in _entries(lines):
            if key in entries:
                raise _Refused(f"the key {key!r} occurs twice")
            entries[key] = value
    except _Refused as error:
        raise FileError(
            f"{name} must be a mapping of texts, numbers and lists of them, as Marian writes it; {error}."
        ) from None
    return entries


class _Refused(Exception):
    """Why a text is outside the subset."""


def _entries(lines: list[str]) -> Iterator[tuple[str, Value]]:
    """Yields the key and value of each entry."""
    key: str | None = None  # of the entry that the next line may continue
    value: Value = None
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip("\r ")
        text = line.lstrip(" ")
        where = f"line {number} is {line[:60]!r}"
        if not text or text.startswith("#") or (line == "---" and key is None) or line == "...":
            continue
        if text.startswith("- ") and key is not None and not isinstance(value, str):
            value = [*(value or ()), _scalar(text[2:].strip(" \t"), where)]
        elif line.startswith(": ") and key is not None and value is None:  # after a long key: "? KEY"
            value = _scalar(line[2:].strip(" \t"), where)
        elif line != text and key is not None and value is None:
            value = _value(text, where)
        elif line != text:
            raise _Refused(where)
        else:
            if key is not None:
                yield key, value
            if line.startswith("? "):
                key, value = _scalar(line[2:].strip(" \t"), where), None
                continue
            entry = _ENTRY.fullmatch(line)
            if not entry:
                raise _Refused(where)
            key, value = _scalar(entry[1], where), _value(entry[2].strip(" \t"), where) if entry[2] else None
    if key is not None:
        yield key, value


def _value(text: str, where: str) -> Value:
    """Returns a scalar, or a list in brackets."""
    listed = re.fullmatch(r"\[(.*)\]", text)
    if not listed:
        return None if text.startswith("#") else _scalar(text, where)
    items = listed[1].strip(" \t")
    return [_scalar(item.strip(" \t"), where) for item in items.split(",")] if items else []


def _scalar(text: str, where: str) -> str:
    match = _SCALAR.fullmatch(text)
    if not match:
        raise _Refused(where)
    scalar = match[1]
    if scalar.startswith("'"):
        return scalar[1:-1].replace("''", "'")
    if not scalar.startswith('"'):
        if ": " in scalar or scalar.endswith(":"):  # a mapping within the mapping
            raise _Refused(where)
        return scalar

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        try:
            return _ESCAPES[code] if len(code) == 1 else chr(int(code[1:], 16))
        except (KeyError, ValueError, OverflowError):
            raise _Refused(where) from None

    return _ESCAPE.sub(character, scalar[1:-1])
