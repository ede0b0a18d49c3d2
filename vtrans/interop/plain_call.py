"""Compares an import with the original's plain call: what its users get without any option.

`verification` gives both programs the same search; here each takes its own defaults, and the text is real.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from vtrans.checkpoint import LoadedModel
from vtrans.config import SearchConfig
from vtrans.interop.samples import real_sentences, tagged
from vtrans.interop.verification import PlainCall, Program, differences, reach_of, translated
from vtrans.lines.pieces import EXTRA_LENGTH
from vtrans.text.vocabulary import EOS_ID


@dataclass(frozen=True)
class PlainOutputs:
    """Real sentences with their translations by the search of the model file."""

    lines: tuple[str, ...]
    sources: list[list[int]]
    """With EOS."""
    search: SearchConfig
    translations: list[list[int]]
    """Without EOS."""


def plain_outputs(loaded: LoadedModel, lines: Sequence[str] | None = None) -> PlainOutputs:
    """Translates the lines, or real sentences of the project, with the model's own search.

    Sources are cut at the length that the model translates in one piece. At least one line must not be blank.
    """
    if lines is None:
        tag = "" if loaded.search.begin else next(iter((loaded.tags or {}).values()), "")
        lines = [f"{tag} {line}".strip() for line in real_sentences([pair.src for pair in loaded.languages])]
    lines = tagged(loaded, lines)
    longest = min(loaded.search.max_source, reach_of(loaded) - 1)
    encoded = [
        (line, [*ids[:longest], EOS_ID])
        for line, ids in zip(lines, loaded.src_vocab.encode_batch(list(lines)), strict=True)
        if ids
    ]
    sources = [ids for _, ids in encoded]
    limit = min(max(map(len, sources)) + EXTRA_LENGTH, reach_of(loaded) - 1, loaded.search.max_length or 1 << 30)
    search = dataclasses.replace(loaded.search, max_length=limit)
    return PlainOutputs(tuple(line for line, _ in encoded), sources, search, translated(loaded, sources, search))


def compare_plain(ours: PlainOutputs, program: Program) -> PlainCall | None:
    """Returns how the original's plain call compares; None if the original has none, or other settings."""
    theirs = program.plain(ours.sources, ours.search.max_length)
    if theirs is None:
        return None
    found = differences(program.logprobs, ours.sources, ours.search, ours.translations, theirs, exact=True)
    return PlainCall(
        sentences=len(ours.lines),
        equal=found.equal,
        ties=found.ties,
        cut=found.cut,
        first=next((ours.lines[i] for i in found.missed), None),
    )
