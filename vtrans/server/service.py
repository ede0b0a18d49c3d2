"""What the service can do, without HTTP: its languages, and translating texts with the model of each pair."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from vtrans.languages import Languages
from vtrans.server.batching import Found, Wanted, Worker
from vtrans.server.detection import Detection, detect
from vtrans.server.refusals import Refusal
from vtrans.server.sentences import split_sentences

AUTO = "auto"


@dataclass(frozen=True)
class Answer:
    """A translated text."""

    text: str
    alternatives: list[str]
    detected: Detection | None  # if its language was to be detected


class Service:
    """Translates with one worker per pair of languages."""

    def __init__(self, workers: Mapping[Languages, Worker]) -> None:
        self.workers = dict(workers)
        self.codes = list(dict.fromkeys(code for pair in workers for code in pair))
        """The languages served, in the order of the models."""

    def targets(self, source: str) -> list[str]:
        """Returns the languages into which texts of this one are translated."""
        return [pair.tgt for pair in self.workers if pair.src == source]

    def code(self, asked: str) -> str:
        """Returns the served language that a client means. Case and `_` for `-` do not matter. Raises a Refusal if
        there is none; the sentence is LibreTranslate's."""
        plain = asked.replace("_", "-").lower()
        for code in self.codes:
            if code.lower() == plain:
                return code
        raise Refusal(400, f"{asked[:40]} is not supported")

    async def detect(self, text: str) -> list[Detection]:
        return await asyncio.to_thread(detect, text, self.codes)

    async def translate(self, texts: Sequence[str], source: str, target: str, alternatives: int = 0) -> list[Answer]:
        """Returns the translation of each text, with at most this many alternatives; there may be fewer.

        `source` may be `auto`. A text that is in the target language already stays as it is. The k-th alternative
        consists of the k-th alternatives of the sentences. All sentences for one model are one request to its worker.
        """
        detected: list[Detection | None] = [None] * len(texts)
        if source == AUTO:
            into = [pair.src for pair in self.workers if pair.tgt == target]
            detected = list(await asyncio.to_thread(lambda: [detect(text, [*into, target])[0] for text in texts]))
        sources = [found.language if found else source for found in detected]
        answers = [Answer(text, [], found) for text, found in zip(texts, detected, strict=True)]
        for own in dict.fromkeys(sources):
            if own == target:
                continue
            worker = self.workers.get(Languages(own, target))
            if worker is None:
                raise Refusal(400, f"{target} is not available as a target language from {own}")
            places = [i for i, code in enumerate(sources) if code == own]
            splits = [split_sentences(texts[i], own) for i in places]
            lines = [sentence for split in splits for sentence in split.sentences]
            found = iter(await worker.translate(lines, Wanted(min(alternatives + 1, worker.nbest))))
            for i, split in zip(places, splits, strict=True):
                ranks = _ranks(list(islice(found, len(split.sentences))), alternatives + 1)
                best, *others = map(split.joined, ranks)
                unique = [other for other in dict.fromkeys(others) if other and other != best]
                answers[i] = Answer(best, unique, detected[i])
        return answers


def _ranks(found: list[Found], count: int) -> list[list[str]]:
    """Returns the best translations of all sentences, then the second best, and so on. A sentence with fewer
    translations is represented by its best one."""
    return [[(of_one[rank] if rank < len(of_one) else of_one[0]).text for of_one in found] for rank in range(count)]
