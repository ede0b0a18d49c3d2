"""The models of a service. On a CPU they translate in copies of this process, otherwise in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from vtrans.apps.documents.document import Nbest, Translated
from vtrans.apps.documents.sentences import PROTECTION
from vtrans.apps.server.batching import Batch, RequestOptions, Slots, Worker
from vtrans.config.threads import set_threads
from vtrans.system.errors import InputError
from vtrans.system.forks import DiedError
from vtrans.system.workers import Tell, WorkerPool
from vtrans.text.languages import Languages
from vtrans.translate.confidence import Calibration
from vtrans.translate.steps.line import Line
from vtrans.translate.stream import Division
from vtrans.translate.translation import TranslateOptions, Translation
from vtrans.translate.translator import Translator
from vtrans.translate.wording.glossary import Glossary

ADVICE = "another one takes its place; if it happens again, choose fewer processes"


BatchRequest = tuple[Languages, Sequence[Line], RequestOptions]


@contextmanager
def workers_for(
    translators: Mapping[Languages, Translator],
    glossaries: Mapping[Languages, Glossary],
    division: Division,
    warn: Callable[[str], None],
    calibrations: Mapping[Languages, Calibration] | None = None,
) -> Iterator[dict[Languages, Worker]]:
    """Yields a worker for each model; glossaries and calibrations are optional per model. `warn` is called when a copy
    dies; its lines are then retried once in another copy.

    All models on the CPU share the copies, and so the processors. Enter the block before this process starts
    other threads.
    """
    requested = _Requested(translators, glossaries, calibrations or {})
    numbers = {pair: division.copies(translator.engine) for pair, translator in translators.items()}

    def answer(request: BatchRequest, tell: Tell) -> list[Nbest]:
        """Answers a request in a copy of this process."""
        set_threads(division.threads)
        return translated(request, lambda i, nbest: tell((i, nbest)))

    def translated(
        request: BatchRequest, ready: Callable[[int, Nbest], None], abandoned: Callable[[], bool] | None = None
    ) -> list[Nbest]:
        pair, lines, options = request
        translator, chosen = requested.options(pair, options)
        batch = [replace(line, number=number) for number, line in enumerate(lines, 1)]
        translator.translate_window(
            batch,
            replace(chosen, abandoned=abandoned),
            ready=lambda line: ready(line.number - 1, _nbest(line.translations)),
        )
        return [_nbest(line.translations) for line in batch]

    number = max(numbers.values())
    with WorkerPool(answer, number, "translating", ADVICE) if number else nullcontext() as copies:
        slots = Slots(max(number, 1))

        def worker(pair: Languages, translator: Translator) -> Worker:
            def translate(lines: Sequence[Line], options: RequestOptions, ready: Batch) -> list[Nbest]:
                request = pair, lines, options
                if copies is None or not numbers[pair]:
                    return translated(request, ready, ready.abandoned)
                for _ in range(2):
                    try:
                        return copies.call(request, lambda part: ready(*part), ready.abandoned)
                    except DiedError as error:
                        warn(str(error))
                        died = error
                raise died

            return Worker(translate, translator.search.beam, slots, check=partial(requested.check, pair))

        yield {pair: worker(pair, translator) for pair, translator in translators.items()}


@dataclass(frozen=True)
class _Requested:
    """Translators for requests, by language pair and search settings."""

    translators: Mapping[Languages, Translator]
    glossaries: Mapping[Languages, Glossary]
    calibrations: Mapping[Languages, Calibration]

    def options(self, pair: Languages, options: RequestOptions) -> tuple[Translator, TranslateOptions]:
        """Returns the translator of a request, and its options. A request's terms take precedence over the model's
        glossary. Raises InputError for a request with confidence if the model has no calibration."""
        calibration = self.calibrations.get(pair) if options.confidence else None
        if options.confidence and calibration is None:
            raise InputError(
                f"`confidence` needs a calibrated model, and that from {pair.src} to {pair.tgt} is not; leave it out."
            )
        translator, glossary = self.translators[pair], self.glossaries.get(pair)
        if options.glossary is not None:
            glossary = glossary.with_terms(options.glossary) if glossary else options.glossary
        to = pair.tgt if translator.engine.tags else None  # --pair may name other languages than the model records
        return translator, TranslateOptions(
            options.nbest,
            alignments=options.alignments,
            glossary=glossary,
            protect=PROTECTION,
            to=to,
            formality=options.formality,
            calibration=calibration,
        )

    def check(self, pair: Languages, options: RequestOptions) -> None:
        """Raises InputError for options that the model of this pair does not support."""
        translator, chosen = self.options(pair, options)
        translator.check(chosen)


def _nbest(translations: Sequence[Translation]) -> Nbest:
    """Returns only the parts of translations that a request needs, so that copies send little back."""
    return [Translated(t.text, t.alignment, t.word_confidences) for t in translations]
