"""Lines with fuzzy matches: where the model sees the match, and that nothing else changes."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from translators import SEARCH, loaded, vocabulary, window
from typed_lines import passed, undone

from vtrans.config import SearchConfig
from vtrans.data.matches import SEPARATOR_ID, Match
from vtrans.engines.engine import Source
from vtrans.engines.torch_engine import TorchEngine
from vtrans.search.loop import Hypothesis
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import EOS_ID
from vtrans.translate.steps.memory import Remember
from vtrans.translate.steps.recase import Recase
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator
from vtrans.translate.wording.phrases import Wording


class Spy(TorchEngine):
    """Records the sources that it is given, in the order of their lines."""

    def search(
        self, sources: Sequence[Source], config: SearchConfig, **options: Any
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        self.sources = sorted(sources, key=lambda source: int(source.name.partition("/")[0]))
        return super().search(sources, config, **options)


def seen(lines: Sequence[str], match: Match | None, **options: Any) -> tuple[list[list[int]], list[dict[str, Any]]]:
    """Returns the tokens of the sources, and the translations as JSON."""
    engine = Spy([loaded()])
    spying = Translator(engine, dataclasses.replace(SEARCH, max_source=20), retry=False)
    asked = TranslateOptions(match=lambda line: match, **options)
    translations = [best[0].as_dict() for best in spying.translate_window(window(lines), asked)]
    return [source.tokens for source in engine.sources], translations


def test_a_match_and_a_separator_come_before_the_line() -> None:
    encode = vocabulary().encode
    sources, (first, blank) = seen(["a dog runs", " "], ("ein Hund", 0.75))
    assert sources == [[*encode("ein Hund"), SEPARATOR_ID, *encode("a dog runs"), EOS_ID]]
    assert first["match"] == 0.75
    assert "match" not in blank


def test_a_match_that_is_too_long_with_its_line_is_left_out() -> None:
    long = " ".join(["park"] * 19)
    for lines in (["a dog runs in the park"], [" ".join(["park"] * 30)]):
        with_match, translations = seen(lines, (long, 0.9))
        without, plain = seen(lines, None)
        assert with_match == without
        assert translations == plain


@pytest.mark.parametrize(("match", "recased"), [("EIN HUND", False), ("ein Hund", True)])
def test_a_line_keeps_its_capitals_if_its_match_is_in_capitals(match: str, recased: bool) -> None:
    """The model has learned to edit such a match."""
    vocab = vocabulary()
    line = passed("A DOG RUNS", Recase(vocab, vocab, Languages("", "")), match=(match, 0.75))
    assert undone(line, "ein Hund").text == ("EIN HUND" if recased else "ein Hund")


def test_constraints_are_stronger_than_a_memory() -> None:
    memory = Remember(lambda text, kind="sentence", *, sure=False: "x", None)
    for wished, text in (({}, "x"), ({"wording": Wording(avoid=("x",))}, "y"), ({"prefix": "y"}, "y")):
        line = passed("a dog", memory, **wished)
        assert undone(line, "y").text == text
        assert line.model_input == ("" if text == "x" else line.text)
