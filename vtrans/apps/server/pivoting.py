"""Translation through a third language, where no model translates between two languages directly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vtrans.apps.documents.document import Translated
from vtrans.apps.documents.translating import Nbest
from vtrans.apps.server.batching import RequestOptions, Worker
from vtrans.system.errors import InputError
from vtrans.text.languages import Languages
from vtrans.translate.steps.line import Line


@dataclass(frozen=True)
class Pivot:
    """Translates lines with one worker, and the best translations with another one."""

    first: Worker
    second: Worker
    through: str
    """The language between the two."""

    @property
    def nbest(self) -> int:
        return self.second.nbest

    def check(self, options: RequestOptions) -> None:
        """Raises InputError for a request that the two models do not support together. Terms and confidences belong to
        one pair of languages."""
        if options.glossary or options.confidence:
            name = "glossary" if options.glossary else "confidence"
            raise InputError(f"`{name}` needs a model of this pair, which is translated through {self.through}.")
        self.first.check(_plain(options))
        self.second.check(options)

    async def translate(self, lines: Sequence[Line], options: RequestOptions) -> list[Nbest]:
        """Returns the translations of lines that are not blank, and the links of their words to those of the lines."""
        firsts = [nbest[0] for nbest in await self.first.translate(lines, _plain(options))]
        worded = [first for first in firsts if first.text.strip()]
        again = [Line(number, first.text) for number, first in enumerate(worded, 1)]
        seconds = iter(await self.second.translate(again, options))
        return [_linked(first, next(seconds)) if first.text.strip() else [first] for first in firsts]


def _plain(options: RequestOptions) -> RequestOptions:
    """Returns the options of the first translation."""
    return RequestOptions(alignments=options.alignments, search=options.search)


def _linked(first: Translated, seconds: Nbest) -> Nbest:
    """Returns the second translations with links to the words of the first one's source."""

    between = defaultdict[int, list[int]](list)
    for i, j in first.alignment or ():
        between[j].append(i)
    linked = [{(i, k) for j, k in second.alignment or () for i in between[j]} for second in seconds]
    return [replace(second, alignment=tuple(sorted(links))) for second, links in zip(seconds, linked, strict=True)]


def pivots(workers: Mapping[Languages, Worker], through: str) -> dict[Languages, Pivot]:
    """Returns the pairs of languages that no worker translates, but two do through another language. Raises InputError
    if there is none."""
    into = [(pair.src, worker) for pair, worker in workers.items() if pair.tgt == through]
    out = [(pair.tgt, worker) for pair, worker in workers.items() if pair.src == through]
    found = {Languages(src, tgt): Pivot(first, second, through) for src, first in into for tgt, second in out}
    made = {pair: pivot for pair, pivot in found.items() if pair.src != pair.tgt and pair not in workers}
    if not made:
        raise InputError(f"--pivot must be a language between the models of two pairs, got {through}.")
    return made
