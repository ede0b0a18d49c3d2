"""The steps that read lines as people type them, and an engine that repeats what it is given."""

from collections.abc import Callable, Sequence
from typing import Any

from translators import FakeEngine, learned, window

from vtrans.engines.alignments import Links
from vtrans.engines.engine import Source
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import Vocabulary
from vtrans.translate.steps.line import Line
from vtrans.translate.steps.protect import CopiedText, Protect
from vtrans.translate.steps.recase import Recase
from vtrans.translate.translation import TranslateOptions, Translation
from vtrans.translate.translator import Translator
from vtrans.translate.wording.protection import Protection


def vocabulary_of(text: str) -> Vocabulary:
    return learned([text] * 20)


LATIN = vocabulary_of("The quick brown fox jumps over the lazy dog. NASA NASA NASA stop ä ö, 0 1!")


def passed(text: str, *steps: Callable[[Sequence[Line]], None], **asked: Any) -> Line:
    """Returns a line that has passed these steps."""
    line = Line(1, text, **asked)
    for step in steps:
        step([line])
    return line


def undone(line: Line, text: str, alignment: Links | None = None) -> Translation:
    """Returns a translation of a line without the changes of the steps."""
    translation = Translation(text, -1.0, -1.0, True, alignment=alignment)
    for undo in reversed(line.undo):
        translation = undo(translation)
    return translation


class Reader:
    """The steps that read a line for a model with these vocabularies."""

    def __init__(self, src_vocab: Vocabulary, tgt_vocab: Vocabulary) -> None:
        self.case = Recase(src_vocab, tgt_vocab, Languages("en", "de"))
        self._steps = Protect(Protection(), CopiedText(src_vocab, tgt_vocab)), self.case

    def __call__(self, text: str, prefix: str = "") -> Line:
        """Returns a line as the model sees it."""
        return passed(text, *self._steps, prefix=prefix)

    def as_read(self, text: str, prefix: str = "") -> str:
        """Returns what the model sees of a line, with the protected text."""
        line = self(text, prefix)
        line.undo = line.undo[:1] if line.codes else []
        return undone(line, line.model_input).text


READ = Reader(LATIN, LATIN)
WORDS = vocabulary_of("ein a dog runs in the park Hund HUND A DOG RUNS The Dog Runs In Park EIN 12 .")


class Echo(FakeEngine):
    """Translates every line as "ein", its terms and the line."""

    def __init__(self) -> None:
        super().__init__(WORDS)

    def answers(self, source: Source) -> list[str]:
        terms = [self.tgt_vocab.decode(phrase.variants[0].tokens) for phrase in source.phrases if not phrase.exactly]
        return [" ".join(["ein", *terms, self.src_vocab.decode(source.tokens[:-1])])]


def translated(line: str, prefix: str = "", **options: Any) -> Translation:
    """Returns what Echo makes of a line."""
    return Translator(Echo()).translate_window(window([line], prefixes=[prefix]), TranslateOptions(**options))[0][0]
