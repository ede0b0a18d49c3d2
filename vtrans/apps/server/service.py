"""The service without HTTP: languages, corrections, and translation with the model of each language pair."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TypeVar
from weakref import WeakValueDictionary

from vtrans.apps.cleaning.detection import Detection, detect
from vtrans.apps.documents.document import Document, Lines, Nbest, PlainDocument, Translated
from vtrans.apps.documents.memory import Lookup, Memory, pairs_of
from vtrans.apps.documents.sentences import PROTECTION
from vtrans.apps.server.batching import RequestOptions, Worker
from vtrans.apps.server.limits import Refusal
from vtrans.data.matches import Known
from vtrans.system.errors import InputError
from vtrans.text.languages import Languages, base
from vtrans.translate.steps.line import Line

AUTO = "auto"
LONG_TEXTS = 1000  # from this many characters, texts are read in a thread, off the event loop

CLIENT = ContextVar("CLIENT", default="")
"""The client whose request is being answered."""
_TURNS: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()

T = TypeVar("T")
Read = Callable[[str, str], Document]
"""Returns the document of a text, given its language."""


@dataclass(frozen=True)
class Answer:
    """A translated text. `links` are the spans of a source word and its translation, `confidences` the span and
    confidence of a word; spans are in characters. Both are empty unless requested."""

    text: str
    alternatives: list[str]
    links: list[tuple[int, int, int, int]]
    confidences: list[tuple[int, int, float]]


class Service:
    """Translates with one worker per pair of languages, and other pairs through the language `pivot`. Texts and
    sentences in the memory are not translated again. Models of the `fuzzy` pairs are trained to use fuzzy matches."""

    def __init__(
        self,
        workers: Mapping[Languages, Worker],
        memory: Memory | None = None,
        fuzzy: Collection[Languages] = (),
        pivot: str | None = None,
    ) -> None:
        self.workers, self.memory, self._fuzzy = dict(workers), memory, fuzzy
        self.pivots = pivots(workers, pivot) if pivot else {}
        self.pairs: dict[Languages, Worker | Pivot] = {**workers, **self.pivots}
        self._lookups: dict[tuple[str, Languages], Lookup] = {}
        self._lock = Lock()
        self.codes = list(dict.fromkeys(code for pair in workers for code in pair))
        """The languages served, in the order of the models."""

    def targets(self, source: str) -> list[str]:
        """Returns the target languages of a source language."""
        return [pair.tgt for pair in self.pairs if pair.src == source]

    def able(self, source: str, options: RequestOptions) -> list[str]:
        """Returns the target languages of `source` whose models support these options."""
        return [target for target in self.targets(source) if self.supports(Languages(source, target), options)]

    def code(self, asked: str) -> str:
        """Returns the served language that a client means. Raises a Refusal, in LibreTranslate's words, if there is
        none."""
        if code := matching(asked, self.codes):
            return code
        raise Refusal(400, f"{asked[:40]} is not supported")

    def source(self, asked: str) -> str:
        """Returns the served language that a client means, or `auto`."""
        return AUTO if asked == AUTO else self.code(asked)

    async def detect(self, text: str) -> list[Detection]:
        """Returns the most probable served languages of a text, best first."""
        return (await _computed([partial(detect, text, self.codes)], [text]))[0]

    async def sources(self, asked: str, texts: Sequence[str], target: str, read: Read) -> list[Detection]:
        """Returns the language of each text: `asked`, or if that is `auto`, the language detected among `target` and
        the sources that are translated into it. Detection reads the lines of a document, not its markup."""
        if asked != AUTO:
            return [Detection(asked, 100.0)] * len(texts)
        codes = [*(pair.src for pair in self.pairs if pair.tgt == target), target]

        def source(text: str) -> Detection:
            return detect(" ".join(read(text, codes[0]).lines), codes)[0]

        return await _computed([partial(source, text) for text in texts], texts)

    def correct(self, languages: Languages, text: str, translation: str, owner: str = "") -> None:
        """Adds a correction to the memory, which must exist. If both sides have equally many sentences, also adds each
        pair of sentences, which other texts can reuse."""
        assert self.memory is not None
        matches = self._lookup(languages, owner)
        for pair in pairs_of(languages, text, translation):
            self.memory.add(languages, *pair, owner)
            if matches:
                matches.add(*pair)

    def _lookup(self, languages: Languages, owner: str) -> Lookup | None:
        """Returns the lookup of an owner's fuzzy matches, or None if the model is not trained to use them."""
        if self.memory is None or languages not in self._fuzzy:
            return None
        with self._lock:
            if (owner, languages) not in self._lookups:
                sentences = self.memory.remembered(languages, owner).sentences()
                self._lookups[owner, languages] = Lookup(sentences, PROTECTION)
            return self._lookups[owner, languages]

    def supports(self, languages: Languages, options: RequestOptions) -> bool:
        """Returns whether the model of these languages, which must be served, supports these options."""
        try:
            self.pairs[languages].check(options)
        except InputError:
            return False
        return True

    def worker(self, languages: Languages) -> Worker | Pivot:
        """Returns the worker of a pair of languages. Raises a Refusal if there is none."""
        if languages not in self.pairs:
            raise Refusal(400, f"{languages.tgt} is not available as a target language from {languages.src}")
        return self.pairs[languages]

    async def translate(
        self, texts: Sequence[str], source: str, target: str, read: Read, options: RequestOptions, owner: str
    ) -> tuple[list[Detection], list[Answer]]:
        """Returns the language and the translation of each text, with the owner's memory. There may be fewer
        alternatives than requested.

        `read` turns texts into documents. If `source` is `auto`, the language of each text is detected; a text already
        in the target language is unchanged. The k-th alternative joins the k-th alternatives of the sentences. A
        request's glossary extends the model's. Raises a Refusal for a pair or an option that is not supported.
        """
        detected = await self.sources(source, texts, target, read)
        answers = [Answer(text, [], [], []) for text in texts]
        for code in dict.fromkeys(one.language for one in detected):
            if code != target:
                places = [i for i, one in enumerate(detected) if one.language == code]
                part = [texts[i] for i in places]
                made = await self._translated(Languages(code, target), part, read, options, owner)
                for i, answer in zip(places, made, strict=True):
                    answers[i] = answer
        return detected, answers

    async def _translated(
        self, pair: Languages, texts: Sequence[str], read: Read, options: RequestOptions, owner: str
    ) -> list[Answer]:
        worker = self.worker(pair)
        options = replace(options, nbest=min(options.nbest, worker.nbest))
        if options.preferred:
            formality = options.formality if self.supports(pair, options) else None
            options = replace(options, formality=formality, preferred=False)
        if options != RequestOptions(options.nbest):
            try:
                worker.check(options)
            except InputError as error:
                raise Refusal(400, str(error).replace("`", "")) from None
        known = partial(self.memory.get, pair, owner=owner) if self.memory is not None else None
        documents = await _computed([partial(read, text, pair.src) for text in texts], texts)
        parts = zip(documents, texts, strict=True)
        corrections = [known(text) if known and isinstance(part, PlainDocument) else None for part, text in parts]
        documents = [part for part, correction in zip(documents, corrections, strict=True) if correction is None]
        matches = await asyncio.to_thread(self._lookup, pair, owner) if pair in self._fuzzy else None
        lines = await _translations(documents, worker, options, known, matches)
        calls = [partial(_answer, *part, options.nbest) for part in zip(documents, lines, strict=True)]
        answers = iter(await _computed(calls, texts))
        return [next(answers) if text is None else Answer(text, [], [], []) for text in corrections]


def matching(given: str, codes: Sequence[str]) -> str | None:
    """Returns the first of `codes` that matches a client's code: an equal code, or else the same language if one of the
    two has no region; None if there is none. Case does not count, and `_` is `-`."""
    asked = given.replace("_", "-").lower()
    equal = [code for code in codes if code.lower() == asked]
    related = [code for code in codes if base(code) == base(asked) and base(code) in (asked, code.lower())]
    return next(iter([*equal, *related]), None)


async def in_thread(call: Callable[[], T]) -> T:
    """Runs a call in a thread once the client's earlier calls have ended, and returns its result, so that one client's
    documents do not delay the other clients. If cancelled, a call that has begun keeps the client's turn until it
    ends."""
    turn = _TURNS.setdefault((asyncio.get_running_loop(), CLIENT.get()), asyncio.Lock())
    await turn.acquire()
    work = asyncio.ensure_future(asyncio.to_thread(call))
    work.add_done_callback(lambda _: turn.release())
    return await asyncio.shield(work)


async def _computed(calls: Sequence[Callable[[], T]], texts: Sequence[str]) -> list[T]:
    """Returns the results of calls, which run in another thread if the texts are long."""
    if sum(map(len, texts)) < LONG_TEXTS:
        return [call() for call in calls]
    return await in_thread(lambda: [call() for call in calls])


def _answer(document: Document, lines: Sequence[Nbest], nbest: int) -> Answer:
    best, *others = (document.joined(_rank(lines, rank)) for rank in range(nbest))
    unique = [other for other in dict.fromkeys(others) if other and other != best]
    if not isinstance(document, PlainDocument):
        return Answer(best, unique, [], [])
    chosen = _rank(lines, 0)
    return Answer(best, unique, document.links(chosen), document.confidences(chosen))


async def _translations(
    documents: Sequence[Document],
    worker: Worker | Pivot,
    options: RequestOptions,
    known: Known | None,
    matches: Lookup | None,
) -> list[list[Nbest]]:
    """Returns the translations of each document's lines. Lines that are not `known` form one request to the worker, or
    two if only some need word alignments."""
    texts = [line for document in documents for line in document.lines]
    (lines,) = await _computed([partial(Lines, documents, known)], texts)
    if matches:
        asked = [line for group in lines.groups.values() for line in group]
        found = await _computed([partial(matches, line.text) for line in asked], texts)
        for line, match in zip(asked, found, strict=True):
            line.match = match
    if options.glossary:
        options = replace(options, glossary=await in_thread(partial(options.glossary.of_lines, texts)))
    requests = (worker.translate(group, replace(options, alignments=needs)) for needs, group in lines.groups.items())
    answers: dict[Line, Nbest] = {}
    for group, nbests in zip(lines.groups.values(), await asyncio.gather(*requests), strict=True):
        answers |= zip(group, nbests, strict=True)
    return lines.answered(answers)


def _rank(lines: Sequence[Nbest], rank: int) -> list[Translated]:
    """Returns each line's translation of this rank, or its best one if it has fewer translations."""
    return [nbest[rank] if rank < len(nbest) else nbest[0] for nbest in lines]


# Translation through a third language, for pairs without a direct model.


@dataclass(frozen=True)
class Pivot:
    """Translates lines with one worker, and their best translations with a second worker."""

    first: Worker
    second: Worker
    through: str
    """The pivot language."""

    @property
    def nbest(self) -> int:
        return self.second.nbest

    def check(self, options: RequestOptions) -> None:
        """Raises InputError for options that the two models do not support together. Glossaries and confidences need a
        direct model."""
        if options.glossary or options.confidence:
            name = "glossary" if options.glossary else "confidence"
            raise InputError(f"`{name}` needs a model of this pair, which is translated through {self.through}.")
        self.first.check(_plain(options))
        self.second.check(options)

    async def translate(self, lines: Sequence[Line], options: RequestOptions) -> list[Nbest]:
        """Returns the translations of lines that are not blank, with word alignments to the original lines."""
        firsts = [nbest[0] for nbest in await self.first.translate(lines, _plain(options))]
        worded = [first for first in firsts if first.text.strip()]
        again = [Line(number, first.text) for number, first in enumerate(worded, 1)]
        seconds = iter(await self.second.translate(again, options))
        return [_linked(first, next(seconds)) if first.text.strip() else [first] for first in firsts]


def _plain(options: RequestOptions) -> RequestOptions:
    """Returns the options for the first worker."""
    return RequestOptions(alignments=options.alignments)


def _linked(first: Translated, seconds: Nbest) -> Nbest:
    """Returns the second translations, aligned to the source of the first translation."""
    between = defaultdict[int, list[int]](list)
    for i, j in first.alignment or ():
        between[j].append(i)
    linked = [{(i, k) for j, k in second.alignment or () for i in between[j]} for second in seconds]
    return [replace(second, alignment=tuple(sorted(links))) for second, links in zip(seconds, linked, strict=True)]


def pivots(workers: Mapping[Languages, Worker], through: str) -> dict[Languages, Pivot]:
    """Returns a Pivot for each pair of languages that two workers translate together, but none alone. Raises InputError
    if there are none."""
    into = [(pair.src, worker) for pair, worker in workers.items() if pair.tgt == through]
    out = [(pair.tgt, worker) for pair, worker in workers.items() if pair.src == through]
    found = {Languages(src, tgt): Pivot(first, second, through) for src, first in into for tgt, second in out}
    made = {pair: pivot for pair, pivot in found.items() if pair.src != pair.tgt and pair not in workers}
    if not made:
        raise InputError(f"--pivot must be the target of one model and the source of another, got {through}.")
    return made
