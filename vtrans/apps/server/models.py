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


@dataclass(frozen=True)
class Model:
    """A translator of one pair of languages, with its calibration and glossary if it has them."""

    pair: Languages
    translator: Translator
    calibration: Calibration | None = None
    glossary: Glossary | None = None

    def _options(self, options: RequestOptions) -> TranslateOptions:
        if options.confidence and self.calibration is None:
            src, tgt = self.pair
            raise InputError(
                f"`confidence` needs a calibrated model, and that from {src} to {tgt} is not; leave it out."
            )
        glossary = self.glossary
        if options.glossary is not None:
            glossary = glossary.with_terms(options.glossary) if glossary else options.glossary
        return TranslateOptions(
            options.nbest,
            alignments=options.alignments,
            glossary=glossary,
            protect=PROTECTION,
            to=self.pair.tgt if self.translator.engine.tags else None,  # it may record other languages than its pair
            formality=options.formality,
            calibration=self.calibration if options.confidence else None,
        )

    def check(self, options: RequestOptions) -> None:
        """Raises InputError for options that the model does not support."""
        self.translator.check(self._options(options))

    def translate(
        self,
        lines: Sequence[Line],
        options: RequestOptions,
        ready: Callable[[int, Nbest], None],
        abandoned: Callable[[], bool] | None = None,
    ) -> list[Nbest]:
        """Returns the translations of each line; a request's terms take precedence over the model's glossary. Calls
        `ready` with a line's index and translations as soon as it has them."""
        batch = [replace(line, number=number) for number, line in enumerate(lines, 1)]
        self.translator.translate_window(
            batch,
            replace(self._options(options), abandoned=abandoned),
            ready=lambda line: ready(line.number - 1, _nbest(line.translations)),
        )
        return [_nbest(line.translations) for line in batch]


def _nbest(translations: Sequence[Translation]) -> Nbest:
    """Returns only the parts of translations that a request needs, so that copies send little back."""
    return [Translated(t.text, t.alignment, t.word_confidences) for t in translations]


@contextmanager
def workers_for(
    models: Mapping[Languages, Model], division: Division, warn: Callable[[str], None]
) -> Iterator[dict[Languages, Worker]]:
    """Yields a worker for each model. `warn` is called when a copy dies; its lines are then retried once in another
    copy.

    All models on the CPU share the copies, and so the processors. Enter the block before this process starts
    other threads.
    """

    def answer(request: BatchRequest, tell: Tell) -> list[Nbest]:
        """Answers a request in a copy of this process."""
        set_threads(division.threads)
        pair, lines, options = request
        return models[pair].translate(lines, options, lambda i, nbest: tell((i, nbest)))

    number = division.processes
    with WorkerPool(answer, number, "translating", ADVICE) if number > 1 else nullcontext() as copies:

        def translate(pair: Languages, lines: Sequence[Line], options: RequestOptions, ready: Batch) -> list[Nbest]:
            if copies is None:
                return models[pair].translate(lines, options, ready, ready.abandoned)
            for _ in range(2):
                try:
                    return copies.call((pair, lines, options), lambda part: ready(*part), ready.abandoned)
                except DiedError as error:
                    warn(str(error))
                    died = error
            raise died

        slots = Slots(number)
        yield {
            pair: Worker(partial(translate, pair), model.translator.search.beam, slots, check=model.check)
            for pair, model in models.items()
        }
