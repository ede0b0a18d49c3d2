"""A search ends within a step of the moment at which nobody waits for it any more."""

from dataclasses import replace

import pytest
from translators import sentences, translator, window

from vtrans.search.options import Sampling
from vtrans.system.errors import AbandonedError
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.wording.glossary import Glossary

KINDS = {
    "a search": TranslateOptions(),
    "a search for phrases": TranslateOptions(glossary=Glossary((("a", ("b",)),))),
    "samples": TranslateOptions(sampling=Sampling(seed=1)),
}


class Abandoned:
    """Becomes true after some steps, which it counts."""

    def __init__(self, last: int | None = None) -> None:
        self.last, self.steps = last, 0

    def __call__(self) -> bool:
        self.steps += 1
        return self.steps - 1 == self.last


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_ends_at_the_step_at_which_it_is_abandoned(kind: str) -> None:
    lines = [*sentences(8), "a"]
    model, options = translator(retry=False), KINDS[kind]
    expected = model.translate_window(window(lines), options)
    whole = Abandoned()
    assert model.translate_window(window(lines), replace(options, abandoned=whole)) == expected
    assert whole.steps > 3
    for last in (0, 2, whole.steps - 1):
        abandoned = Abandoned(last)
        with pytest.raises(AbandonedError):
            model.translate_window(window(lines), replace(options, abandoned=abandoned))
        assert abandoned.steps == last + 1
    assert model.translate_window(window(lines), options) == expected
