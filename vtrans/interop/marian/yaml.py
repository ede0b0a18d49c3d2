"""Reads the YAML that Marian writes: one mapping of scalars and lists of scalars.

PyYAML parses it. Scalars stay texts, because YAML would take the piece `no` for false. Tags, anchors, aliases, deeper
nesting and keys that occur twice are refused.
"""

from __future__ import annotations

from typing import Any

from vtrans.errors import FileError, InputError

Value = str | list[str]
"""A scalar as text, "" for an empty value, or a list of them."""


def read_mapping(data: bytes, name: str) -> dict[str, Value]:
    """Returns the entries of a mapping in order. `name` is what errors call the text.

    Raises FileError for text that is not such a mapping in UTF-8, and InputError without PyYAML.
    """
    try:
        import yaml
    except ImportError:
        raise InputError("PyYAML, which reads Marian's files, is not installed; run `pip install pyyaml`.") from None
    try:
        return _mapping(yaml, data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise FileError(f"{name} must be UTF-8 text.") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        problem = " ".join(str(error).split()).replace('in "<unicode string>", ', "")
        raise FileError(
            f"{name} must be a mapping of texts, numbers and lists of them, as Marian writes it; {problem[:200]}."
        ) from None


def _mapping(yaml: Any, text: str) -> dict[str, Value]:
    """Returns the entries of a mapping. Raises an error of PyYAML, or ValueError or OverflowError, for other text."""
    # Events of the parser leave scalars as texts, and take no memory for what is refused.
    events = yaml.parse(text, Loader=yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)
    scalar = yaml.ScalarEvent

    def expected(*kinds: type) -> Any:
        event = next(events)
        if not isinstance(event, kinds) or getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise ValueError(f"line {event.start_mark.line + 1} has something else, such as a tag or an anchor")
        return event

    entries: dict[str, Value] = {}
    expected(yaml.StreamStartEvent)
    if isinstance(expected(yaml.DocumentStartEvent, yaml.StreamEndEvent), yaml.StreamEndEvent):
        return entries
    expected(yaml.MappingStartEvent)
    while isinstance(key := expected(scalar, yaml.MappingEndEvent), scalar):
        if key.value in entries:
            raise ValueError(f"the key {key.value[:60]!r} occurs twice")
        value = expected(scalar, yaml.SequenceStartEvent)
        items = []
        while not isinstance(value, scalar) and isinstance(item := expected(scalar, yaml.SequenceEndEvent), scalar):
            items.append(item.value)
        entries[key.value] = value.value if isinstance(value, scalar) else items
    expected(yaml.DocumentEndEvent)
    expected(yaml.StreamEndEvent)
    return entries
