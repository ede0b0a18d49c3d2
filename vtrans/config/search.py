"""The search for translations: the section [search] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from vtrans.keys import choice, number, texts


@dataclass(frozen=True)
class SearchConfig:
    """The search for translations. `vtrans translate` has a flag that overrides each key except `max_source`."""

    beam: int = number(4, 1, 1000, "live hypotheses per sentence", "hypotheses", may_change=True)
    beam_groups: int = number(
        1, 1, 1000, "parts of the beam that avoid each other's tokens; must divide beam", "groups", may_change=True
    )
    diversity: float = number(
        0.5,
        0.0,
        1000.0,
        "how much a token ranks lower per row of an earlier group that has chosen it (Vijayakumar et al. 2018)",
        may_change=True,
        idle_if={"beam_groups": lambda value: value == 1},
    )
    alpha: float = number(0.6, -10.0, 10.0, "exponent of the length penalty", may_change=True)
    length_penalty: str = choice(
        "gnmt",
        ("gnmt", "length"),
        "gnmt: ((5 + |Y|) / 6) ** alpha; length: |Y| ** alpha, as in fairseq, Marian and CTranslate2",
        may_change=True,
        idle_if={"alpha": lambda value: value == 0},
    )
    stop: str = choice(
        "count",
        ("count", "current", "exhaustive", "shrink"),
        "when the search stops: count: at `beam` finished hypotheses; current: when, in addition, no live one scores "
        "better at its present length; exhaustive: when no live one can still win; shrink: as count, but each finished "
        "hypothesis makes the beam narrower by one, as in Marian",
        may_change=True,
    )
    max_length: int = number(
        0, 0, 10**6, "most target tokens with EOS; 0: no limit besides that of max_ratio", "tokens", may_change=True
    )
    max_ratio: float = number(
        0.0,
        0.0,
        1000.0,
        "most target tokens per source token, both with EOS, as in Marian; 0: source tokens + 50 instead",
        may_change=True,
    )
    min_length: int = number(0, 0, 10**6, "fewest target tokens before EOS", "tokens", may_change=True)
    no_repeat_ngram: int = number(
        0, 0, 1000, "no sequence of this many target tokens occurs twice; 0: no such rule", "tokens", may_change=True
    )
    repetition_penalty: float = number(
        1.0,
        1.0,
        1000.0,
        "factor on the log-probability of a token that the translation already contains (Keskar et al. 2019)",
        may_change=True,
        idle_if={"no_repeat_ngram": lambda value: value == 1},
    )
    suppress: tuple[str, ...] = texts(
        "subwords that a translation never contains; the probabilities of the others stay as they are", may_change=True
    )
    max_source: int = number(
        1024,
        1,
        10**6,
        "source tokens translated in one piece; a longer line is cut into pieces, with a warning",
        "tokens",
        may_change=True,
    )
    batch_tokens: int = number(
        2048, 1, 10**8, "padded source tokens per batch; 1: one sentence at a time", "tokens", may_change=True
    )
