"""The eight steps of translating lines, for the command line, the server, documents and Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vtrans.config import SearchConfig
from vtrans.engines.engine import Engine
from vtrans.search.rules import SearchRule
from vtrans.system.own_code import own_class
from vtrans.text.languages import common
from vtrans.text.normalization import NFC
from vtrans.translate.steps.annotate import Annotate
from vtrans.translate.steps.finish import Finish
from vtrans.translate.steps.line import Line, LineStep, Piece
from vtrans.translate.steps.memory import Remember
from vtrans.translate.steps.normalise import Normalise
from vtrans.translate.steps.protect import CopiedText, Protect, both_marks
from vtrans.translate.steps.recase import Recase
from vtrans.translate.steps.search import Check, SearchTwice, find_with
from vtrans.translate.steps.split import SourceReader, Split
from vtrans.translate.steps.terms import WriteTerms
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.wording.glossary import NOTHING, Beside, Glossary
from vtrans.translate.wording.protection import EVERYDAY, Protection

Step = Callable[[Sequence[Line]], None]


@dataclass(frozen=True)
class Steps:
    """The eight steps for some options: memory, normalise, protect, recase and split; the search; annotate and
    finish."""

    before: Sequence[Step]
    """Steps that make the pieces of lines."""
    search: Callable[[Sequence[Piece]], Iterator[Piece]]
    after: Sequence[Step]
    """Steps that make the translations of lines."""


class StepsOfEngine:
    """Makes the steps for an engine with these search settings. See `Translator` for the other parameters."""

    def __init__(
        self,
        engine: Engine,
        search: SearchConfig,
        *,
        retry: bool,
        limit: Callable[[int], int] | None = None,
        beside: Beside = NOTHING,
        rules: Sequence[str | type[SearchRule]] = (),
        steps: Sequence[str | type[LineStep]] = (),
    ) -> None:
        self._rules = [own_class(rule, SearchRule, "rules")(engine.tgt_vocab) for rule in rules]
        self._own = [own_class(step, LineStep, "steps")() for step in steps]
        self.reader, self._beside = SourceReader(engine, search, limit), beside
        self._engine, self._search = engine, search
        self._has_codes = all(model.codes for model in engine.models)
        self._pair = next((model.pair for model in engine.models), None)
        lengths = [model.usual_length for model in engine.models]
        self._usual_length = max(lengths) if lengths and all(lengths) else 0
        self._retries = retry and not search.no_repeat_ngram

    def __call__(self, options: TranslateOptions) -> Steps:
        """Returns the steps for these options. Raises InputError if `options.to` is not a target language of the
        model."""
        engine, search, reader = self._engine, self._search, self.reader
        drawn, languages = options.sampling is not None, common(engine.languages, options.to)
        can_require = not drawn and search.contradicts_phrases("phrases") is None
        compares = options.check_numbers and not options.raw
        glossary = self._glossary(options, required=can_require)
        before: list[Step] = [Remember(options.known, options.match)] if options.known or options.match else []
        before += self._own
        before.append(Normalise(engine.src_vocab, self._beside.spellings, raw=options.raw))
        pair = self._pair if self._has_codes else None
        copied = None if options.raw else CopiedText(engine.src_vocab, engine.tgt_vocab, pair)
        marks = None if options.raw else both_marks(languages, self._pair)
        protection = self._protection(options)
        before.append(Protect(protection, copied, glossary, marks, language=languages.src, required=can_require))
        if not options.raw:
            before.append(Recase(engine.src_vocab, engine.tgt_vocab, languages))
        before.append(Split(reader, engine.src_vocab, options, self._usual_length, languages.src))
        terms = WriteTerms(engine, reader, search, options.nbest) if glossary and not options.mbr else None
        retries = self._retries and not drawn
        check = Check(engine, reader, retries=retries, compares=compares, requires=compares and can_require)
        twice = SearchTwice(find_with(engine, search, options, self._rules), check, terms)
        return Steps(before, twice, [Annotate(engine, options, search.batch_tokens), Finish(options)])

    def _protection(self, options: TranslateOptions) -> Protection | None:
        if isinstance(options.protect, Protection):
            return options.protect
        usual = options.protect is None and not options.raw and self._has_codes
        return EVERYDAY if usual else None

    def _glossary(self, options: TranslateOptions, *, required: bool) -> Glossary | None:
        """Returns the required terms: the user's, then the model's."""
        own = self._beside.glossary if required and not options.raw else None
        both = own.with_terms(options.glossary) if own and options.glossary else own or options.glossary
        vocab = self._engine.src_vocab
        if both and vocab.normalization == NFC:
            pairs = ((vocab.as_source(term).strip(), forms) for term, forms in both.pairs)
            return Glossary(tuple(pair for pair in pairs if pair[0]))
        return both
