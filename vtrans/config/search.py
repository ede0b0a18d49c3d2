"""The search for translations: the section [search] of a recipe."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from vtrans.config.keys import choice, number, texts

# A resumed run may change all of these keys.
_number, _choice, _texts = (partial(field, may_change=True, advanced=True) for field in (number, choice, texts))
# These have no effect on sampling.
_search_number, _search_choice = (partial(field, search_only=True) for field in (_number, _choice))
_usual_number = partial(_search_number, advanced=False)


@dataclass(frozen=True)
class SearchConfig:
    """The search for translations. `vtrans translate` and `vtrans.load` have an option for each key."""

    PANEL: ClassVar[str] = "Search"

    beam: int = _usual_number(4, (1, 1000), "Number of hypotheses kept per sentence; 1 is greedy search.", "hypotheses")
    beam_groups: int = _search_number(
        1,
        (1, 1000),
        "Number of groups that share the beam; each avoids the subwords that earlier groups choose (diverse beam "
        "search, Vijayakumar et al. 2018). It must divide `beam`.",
        "groups",
    )
    diversity: float = _search_number(
        0.5,
        (0.0, 1000.0),
        "Penalty per row of an earlier group of the beam that chose the same subword; 0.2 to 1 is usual.",
        idle_if={"beam_groups": lambda value: value == 1},
    )
    alpha: float = _search_number(0.6, (-10.0, 10.0), "Exponent of the length penalty.", ranks_only=True)
    length_penalty: str = _search_choice(
        "gnmt",
        {
            "gnmt": "((5 + length) / 6) ** alpha (Wu et al. 2016)",
            "length": "length ** alpha, as in fairseq, Marian and CTranslate2",
        },
        "Divisor of the log-probability in the score of a hypothesis.",
        metavar="KIND",
        ranks_only=True,
        idle_if={"alpha": lambda value: value == 0},
    )
    stop: str = _search_choice(
        "count",
        {
            "count": "at `beam` finished hypotheses",
            "current": "when, in addition, no live hypothesis scores better at its present length",
            "exhaustive": "when no live hypothesis can still win",
            "shrink": "as count, but each finished hypothesis narrows the beam by one, as in Marian",
        },
        "When the search stops.",
        metavar="RULE",
    )
    max_length: int = _number(
        0,
        (0, 10**6),
        "Maximum number of subwords, EOS included. 0 keeps only the built-in limit: 50 more than the longest of "
        "source, prefix and `min_length`, unless `max_ratio` is set.",
        "tokens",
    )
    max_ratio: float = _number(
        0.0,
        (0.0, 1000.0),
        "Maximum number of subwords per subword of the source, both with EOS, as in Marian; 0 means no such limit.",
        unset="none",
    )
    min_length: int = _number(0, (0, 10**6), "Minimum number of subwords, without EOS.", "tokens")
    no_repeat_ngram: int = _number(
        0,
        (0, 1000),
        "Never repeat a sequence of this many subwords in a translation; 0 switches the rule off.",
        "tokens",
    )
    repetition_penalty: float = _number(
        1.0,
        (1.0, 1000.0),
        "Factor on the log-probability of subwords that the translation already contains (Keskar et al. 2019). Scores "
        "include it.",
        idle_if={"no_repeat_ngram": lambda value: value == 1},
    )
    suppress: tuple[str, ...] = _texts("Subwords that no translation contains.", metavar="PIECE", unset="none")
    begin: tuple[str, ...] = _texts(
        "Subwords with which every translation begins, such as the language code of a multilingual model. They cost "
        "nothing, and the text does not show those that are tags.",
        metavar="PIECE",
        unset="none",
    )
    max_source: int = _number(
        1024,
        (1, 10**6),
        "Maximum number of source subwords translated in one piece. Longer lines are cut into pieces, with a warning.",
        "tokens",
    )
    batch_tokens: int = _number(
        2048,
        (1, 10**8),
        "Maximum number of subwords per batch, padding included; 1 means one sentence at a time.",
        "tokens",
        panel="Speed",
        speed_only=True,
    )

    def with_beam(self, beam: int) -> SearchConfig:
        """Returns these settings with a single beam of width `beam`."""
        return dataclasses.replace(self, beam=beam, beam_groups=1)

    def contradiction(self, name: str = "search.{}") -> str | None:
        """Returns why these settings contradict each other, or None. `name` is the format of a key's name."""
        groups, beam, stop = (name.format(key) for key in ("beam_groups", "beam", "stop"))
        if self.beam % self.beam_groups:
            return f"{groups} must divide {beam} ({self.beam}), got {self.beam_groups}."
        if self.beam_groups > 1 and self.stop == "shrink":
            return f"{stop} must be count, current or exhaustive with {groups} above 1, got shrink."
        return None

    def contradicts_phrases(self, user: str) -> str | None:
        """Returns why this search cannot require phrases for `user`, or None if it can."""
        if self.stop == "shrink":
            return f"`stop` must be count, current or exhaustive with {user}, got shrink."
        if self.beam_groups > 1:
            return f"`beam_groups` must be 1 with {user}, got {self.beam_groups}."
        return None
