"""The list of all stages that lines pass, which the command line, the server, documents and Python share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from vtrans.config import SearchConfig
from vtrans.engines.engine import Engine
from vtrans.lines.alignments import AlignWords
from vtrans.lines.case import Recase
from vtrans.lines.confidence import BlankDoubtful, RateConfidence
from vtrans.lines.line import Stage
from vtrans.lines.mbr import ChooseBest, LeaveOutEqual
from vtrans.lines.memory import UseMatches, UseMemory
from vtrans.lines.pieces import CutIntoPieces, SourceReader
from vtrans.lines.requirements import CheckConstraints, ProtectText, WriteCodes
from vtrans.lines.second_search import SearchTwice
from vtrans.lines.spelling import UsualSpelling
from vtrans.lines.terms import DraftTerms, FindTerms
from vtrans.lines.unknowns import Characters, CopyUnknown, DropInvisible
from vtrans.text.languages import Languages
from vtrans.translate.translation import TranslateOptions
from vtrans.wording.avoid import Spelling
from vtrans.wording.protect import EVERYDAY, Protection


class Stages:
    """The stages of an engine with these search settings. `retry` and `limit` are parameters of `Translator`."""

    def __init__(
        self, engine: Engine, search: SearchConfig, *, retry: bool, limit: Callable[[int], int] | None = None
    ) -> None:
        self.reader = SourceReader(engine, search, limit)
        self._engine, self._search = engine, search
        self._has_codes = all(model.codes for model in engine.models)
        lengths = [model.usual_length for model in engine.models]
        self._usual_length = max(lengths) if lengths and all(lengths) else 0
        characters = Characters(engine.src_vocab, engine.tgt_vocab)
        self._drop_invisible = DropInvisible(characters)
        self._copy_unknown, self._characters = CopyUnknown(characters), characters
        self._retries = retry and not search.no_repeat_ngram
        self._spelling = cache(lambda: Spelling(engine.tgt_vocab))  # when a line first needs it
        self._can_require = search.can_require_phrases

    def _protection(self, options: TranslateOptions) -> Protection | None:
        if isinstance(options.protect, Protection):
            return options.protect
        usual = options.protect is None and not options.raw and self._has_codes
        return EVERYDAY if usual else None

    def of(self, options: TranslateOptions) -> list[Stage]:
        """Returns the stages in the order in which lines pass them before the search. Lines pass them in reverse order
        after it, and a stage that changes the search sees the changes of the stages below it."""
        engine, search, vocab = self._engine, self._search, self._engine.tgt_vocab
        drawn, protection = options.sampling is not None, self._protection(options)
        can_require = self._can_require and not drawn
        languages = self._languages(options.to)
        twice = SearchTwice(
            engine,
            self._spelling,
            retries=self._retries and not drawn,
            numbers=options.check_numbers and not options.raw,
            can_require=can_require,
        )
        stages: list[Stage | None] = [
            CheckConstraints(),
            UseMemory(options.known) if options.known else None,
            BlankDoubtful(options.min_confidence) if options.min_confidence else None,
            LeaveOutEqual() if options.nbest > 1 and not drawn else None,
            UseMatches(options.match) if options.match else None,
            None if options.raw else self._drop_invisible,
            ProtectText(protection) if protection else None,
            None if options.raw else UsualSpelling(self._characters),
            None if options.raw else self._copy_unknown,
            WriteCodes(required=can_require),
            FindTerms(options.glossary) if options.glossary else None,
            None if options.raw else Recase(self._characters, *languages),
            twice,
            RateConfidence(options.calibration, vocab) if options.calibration else None,
            AlignWords(engine, search.batch_tokens) if options.alignments else None,
            CutIntoPieces(self.reader, vocab, options, self._usual_length, languages.src),
            DraftTerms(engine, options.nbest) if options.glossary and not options.mbr else None,
            ChooseBest(options, vocab) if options.mbr or options.nbest > 1 else None,
        ]
        return [stage for stage in stages if stage]

    def _languages(self, to: str | None) -> Languages:
        """Returns the source and the target language, given `to`. One that the model leaves open is ""."""
        pairs = [pair for pair in self._engine.languages if to in (None, pair.tgt)]
        sides = {pair.src for pair in pairs}, {pair.tgt for pair in pairs}
        return Languages(*(next(iter(codes)) if len(codes) == 1 else "" for codes in sides))
