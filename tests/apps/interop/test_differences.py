"""Which different translations of two programs rounding explains."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from vtrans.apps.interop.comparison import IdPair, Outputs, Program, differences
from vtrans.config import SearchConfig
from vtrans.system.errors import VtransError
from vtrans.text.vocabulary import EOS_ID

SOURCE = [9, EOS_ID]


def score(pairs: Sequence[IdPair]) -> list[list[float]]:
    """Log-probabilities by subword: 11 is as likely as 10 but for rounding; 20 and the end are likelier."""
    logprobs = {10: -1.0, 11: -1.00005, 12: -2.0, 20: -0.5, EOS_ID: -0.5}
    return [[logprobs[id] for id in target] for _, target in pairs]


@pytest.mark.parametrize(
    ("beam", "mine", "theirs", "kind"),
    [
        (1, [10, 20], [10, 20], "equal"),
        (1, [10, 20], [11, 20], "excused"),
        (1, [10, 20], [11, 12, 12], "excused"),  # what follows the near-tie differs
        (4, [10, 12], [12, 10], "excused"),  # equal scores
        (1, [10, 20], [12, 20], "missed"),
        (1, [10], [10, 12], "missed"),  # the end is likelier
        (1, [10, 20], [10, 12, 12, 12], "missed"),  # it reaches the limit, but differs before
        (1, [10, 20], [11, 12, 12, 12], "excused"),
        (4, [10, 20], [10, 12, 12, 12], "excused"),
    ],
)
def test_a_difference_is_excused_where_rounding_or_the_limit_explains_it(
    beam: int, mine: list[int], theirs: list[int], kind: str
) -> None:
    search = SearchConfig(beam=beam, alpha=0.0)
    ours = Outputs(["x"], [SOURCE], [4], search, [mine])
    found = differences(score, ours, [theirs], str)
    counts = {"equal": found.equal, "excused": found.excused, "missed": len(found.missed)}
    assert counts == {"equal": 0, "excused": 0, "missed": 0, kind: 1}


@pytest.mark.parametrize(
    "stderr", ["loading\\n[1] Error: no such weight\\n[1] Error: Aborted from f in a.cpp:1", "loading\\nno such weight"]
)
def test_a_failure_is_described_by_the_programs_first_error_or_last_line(stderr: str, tmp_path: Path) -> None:
    program = Program()
    program.name, program.path = "Marian", tmp_path
    with pytest.raises(VtransError, match=r": no such weight\.$"):
        program.run([sys.executable, "-c", f"import sys; sys.exit('{stderr}')"], 1, tmp_path)
